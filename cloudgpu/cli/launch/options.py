"""The options of `up` and `run`, in the order of --help, how a command takes them, and the options of `start`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from inspect import Parameter, Signature, signature
from typing import Annotated, NamedTuple, TypeVar, get_type_hints

import typer

from cloudgpu.cli.common import PROVIDERS_PLACEHOLDER, provider_option
from cloudgpu.core.values.money import Money

OptionalText = str | None
OptionalTexts = list[str] | None
Command = TypeVar("Command", bound=Callable[..., None])


def takes(*option_classes: type) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of these classes in place of its `**typed_options`."""

    def with_options(command: Command) -> Command:
        declared_parameters = [
            parameter
            for parameter in signature(command, eval_str=True).parameters.values()
            if parameter.name != "typed_options"
        ]
        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(option_class, name), annotation=annotation)
            for option_class in option_classes
            for name, annotation in get_type_hints(option_class, include_extras=True).items()
        ]
        arguments = [
            parameter for parameter in declared_parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        command.__signature__ = Signature([*arguments, *added, *declared_parameters[len(arguments) :]])  # type: ignore[attr-defined]
        return command

    return with_options


def text_option(metavar: str, help_text: str) -> typer.models.OptionInfo:
    """Return an option that takes a text, with this help."""
    info: typer.models.OptionInfo = typer.Option(metavar=metavar, help=help_text)
    return info


Trust = Annotated[
    OptionalText, text_option("cloud|datacenter|community", "Whose computers are accepted at least. (datacenter)")
]
RenewUntil = Annotated[OptionalText, text_option("TIME", "The latest end that use can extend it to, like 3d.")]
Override = Annotated[
    OptionalText, text_option("REASON", "Exceed budgets that allow it; the ledger records the reason.")
]
NoGuard = Annotated[
    bool, typer.Option("--no-guard", help="Launch though only the reaper could end it, and no scheduled run is known.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and do nothing.")]


class LaunchOptions:
    """The options of every launch: by `up`, and by `run` for the machine of a job."""

    provider: Annotated[
        OptionalText, provider_option(f"Where to launch: {PROVIDERS_PLACEHOLDER}. any: the cheapest.")
    ] = None
    account: Annotated[OptionalText, text_option("NAME", "An account of the provider in config.toml.")] = None
    gpu: Annotated[OptionalText, text_option("NAME[:COUNT]", "For example v100 or a100:8.")] = None
    instance_type: Annotated[OptionalText, text_option("TYPE", "An exact instance type.")] = None
    region: Annotated[OptionalText, text_option("NAME", "Only this region.")] = None
    zone: Annotated[OptionalText, text_option("NAME", "Only this zone.")] = None
    spot: Annotated[bool | None, typer.Option("--spot/--on-demand", help="Which market to buy on.")] = None
    or_on_demand: Annotated[
        bool, typer.Option("--or-on-demand", help="With --spot: on demand where spot has no capacity.")
    ] = False
    persistent: Annotated[
        bool, typer.Option("--persistent", help="With --spot: a request that can be stopped; down cancels it.")
    ] = False
    max_price: Annotated[OptionalText, text_option("USD", "The most to pay per hour.")] = None
    trust: Trust = None
    expose: Annotated[
        bool, typer.Option("--expose", help="With --trust community: its owner may read secrets and volumes.")
    ] = False
    template: Annotated[OptionalText, text_option("NAME", "The launch template (jupyter).")] = None
    image: Annotated[OptionalText, text_option("NAME|ID", "An image of yours, or the provider's id of one.")] = None
    disk: Annotated[OptionalText, text_option("GB", "The size of the system disk.")] = None
    volume: Annotated[
        OptionalText,
        text_option("NAME[:GB]", "A data disk that outlives machines; :GB creates a new one."),
    ] = None
    ssh_from: Annotated[OptionalText, text_option("CIDR", "Who may connect over SSH; by default your address.")] = None
    ssh_from_anywhere: Annotated[
        bool, typer.Option("--ssh-from-anywhere", help="Let every address try to log in (the key is still needed).")
    ] = False
    subnet: Annotated[
        OptionalText, text_option("ID", "A subnet of yours, instead of the account's default network.")
    ] = None
    security_group: Annotated[
        OptionalText,
        text_option("ID", "A security group of yours, instead of cloudgpu's; it decides who may connect over SSH."),
    ] = None
    no_public_ip: Annotated[
        bool, typer.Option("--no-public-ip", help="No public address: connect with --jump or a VPN.")
    ] = False
    jump: Annotated[OptionalText, text_option("[USER@]HOST[:PORT]", "Reach the machine through this host.")] = None
    policy: Annotated[
        OptionalText, text_option("NAME", "The policy: how long it lives, and what ends it. (default)")
    ] = None
    lease: Annotated[OptionalText, text_option("TIME", "How long it lives unless renewed, like 8h.")] = None
    renew_until: RenewUntil = None
    owner: Annotated[OptionalText, text_option("TEXT", "Who it is for.")] = None
    project: Annotated[OptionalText, text_option("TEXT", "The project it is charged to.")] = None
    override: Override = None
    no_guard: NoGuard = False


class UpOptions:
    """The options that only `up` has."""

    nodes: Annotated[OptionalText, text_option("N", "So many machines under one name, all or none (1 to 64).")] = None
    engine: Annotated[OptionalText, text_option("slurm|none", "What queues the jobs of a cluster. (slurm)")] = None
    on_node_loss: Annotated[
        OptionalText, text_option("wait|stop", "What the other nodes do when one is lost. (wait)")
    ] = None
    name: Annotated[OptionalText, text_option("NAME", "Its name; without one, two words.")] = None
    key: Annotated[OptionalText, text_option("KEY", "Launch only one machine per key, however often it is used.")] = (
        None
    )
    new: Annotated[bool, typer.Option("--new", help="Launch a second machine of the same request.")] = False


class RunOptions:
    """The options that only `run` has."""

    on: Annotated[
        OptionalText, text_option("MACHINE", "Run on this machine, or in this cluster's Slurm; it stays. Launch none.")
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", help="How many nodes the job takes; without --on, that it launches. (1)"),
    ] = None
    gpus_per_node: Annotated[
        int | None,
        typer.Option("--gpus-per-node", metavar="N", help="GPUs on each node; without it, whole nodes of a cluster."),
    ] = None
    array: Annotated[OptionalText, text_option("LIST", "Run once for each index: 0-9%4 is ten, four at a time.")] = None
    after: Annotated[
        OptionalText, text_option("JOB", "Begin when this job has succeeded: its name, or Slurm's id.")
    ] = None
    partition: Annotated[OptionalText, text_option("NAME", "Slurm's partition.")] = None
    slurm_account: Annotated[OptionalText, text_option("NAME", "Slurm's account, which its hours are charged to.")] = (
        None
    )
    once: Annotated[
        bool, typer.Option("--once", help="Run the command on the first node alone; it calls srun or mpirun itself.")
    ] = False
    workdir: Annotated[
        OptionalText,
        text_option("DIR", "The directory that travels; by default the one that you are in."),
    ] = None
    include: Annotated[
        OptionalTexts, text_option("GLOB", "Take these files along though they are ignored. Repeatable.")
    ] = None
    setup: Annotated[OptionalText, text_option("CMD", "A shell command before the first start on each machine.")] = None
    env: Annotated[
        OptionalTexts, text_option("K=V", "A variable for the command; the ledger keeps it. Repeatable.")
    ] = None
    env_file: Annotated[
        OptionalText, text_option("FILE", "KEY=VALUE lines, read when the job starts and kept nowhere.")
    ] = None
    secret: Annotated[
        OptionalTexts, text_option("NAME", "A variable of your environment, kept nowhere. Repeatable.")
    ] = None
    data: Annotated[
        OptionalTexts,
        text_option("SRC:DEST", "Data: s3://BUCKET/PREFIX, a path on the machine, or volume:NAME. Repeatable."),
    ] = None
    port: Annotated[OptionalTexts, text_option("N", "A port of the job to reach on this computer's N. Repeatable.")] = (
        None
    )
    results: Annotated[
        OptionalText, text_option("DIR", "Where the command writes results, in the workdir. (results)")
    ] = None
    results_to: Annotated[
        OptionalText,
        text_option("WHERE", "Keep results and checkpoints in s3://BUCKET/PREFIX or volume:NAME, not here."),
    ] = None
    checkpoint: Annotated[OptionalText, text_option("DIR", "Where it writes checkpoints, in the workdir.")] = None
    every: Annotated[OptionalText, text_option("TIME", "How often results and checkpoints are copied. (10m)")] = None
    timeout: Annotated[OptionalText, text_option("TIME", "End the command after this long.")] = None
    max_cost: Annotated[OptionalText, text_option("USD", "End the command when its machines have cost this.")] = None
    deadline: Annotated[
        OptionalText, text_option("TIME", "Be done within this time, like 24h, at the lowest cost.")
    ] = None
    work: Annotated[OptionalText, text_option("TIME", "With --deadline: how long the command runs, uninterrupted.")] = (
        None
    )
    spot_policy: Annotated[
        OptionalText,
        text_option("NAME", "With --deadline: what chooses between spot and on demand."),
    ] = None
    stall: Annotated[OptionalText, text_option("TIME", "Alert after this long without output or progress.")] = None
    retries: Annotated[int, typer.Option(metavar="N", help="Run a failing command again, this often.")] = 0
    restarts: Annotated[int, typer.Option(metavar="N", help="Start again after a lost machine, this often.")] = 5
    keep: Annotated[OptionalText, text_option("TIME", "Keep the machine of a failed job this long, for a look.")] = None
    results_wait: Annotated[
        OptionalText, text_option("TIME", "How long a machine waits for its results to be fetched. (2h)")
    ] = None
    key: Annotated[OptionalText, text_option("KEY", "Follow the living job with this key; else run a new one.")] = None


class StartOptions(NamedTuple):
    """The options of `start`: the new lease (None: as at the launch), the reason to exceed a budget, how it asks."""

    lease: timedelta | None
    renew_until: timedelta | None
    override: str | None
    verbose: bool
    yes: bool
    no_guard: bool = False
    max_price: Money | None = None
