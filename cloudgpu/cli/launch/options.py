"""The options of `up`, then those that only `run` has, in the order of --help; and what `start` was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cloudgpu.cli.common import PLACE, kind_option

if TYPE_CHECKING:
    from datetime import timedelta


def text_option(metavar: str, says: str) -> typer.models.OptionInfo:
    """Return an option that takes a text, with this help."""
    found: typer.models.OptionInfo = typer.Option(metavar=metavar, help=says)
    return found


Provider = Annotated[str | None, kind_option(f"Where to launch: {PLACE}. any: the cheapest.")]
Account = Annotated[str | None, text_option("NAME", "An account of the provider in config.toml.")]
Gpu = Annotated[str | None, text_option("NAME[:COUNT]", "For example v100 or a100:8.")]
InstanceType = Annotated[str | None, text_option("TYPE", "An exact instance type.")]
Region = Annotated[str | None, text_option("NAME", "Only this region.")]
Zone = Annotated[str | None, text_option("NAME", "Only this zone.")]
Spot = Annotated[bool | None, typer.Option("--spot/--on-demand", help="Which market to buy on.")]
OrOnDemand = Annotated[bool, typer.Option("--or-on-demand", help="With --spot: on demand where spot has no capacity.")]
Persistent = Annotated[
    bool, typer.Option("--persistent", help="With --spot: a request that can be stopped; down cancels it.")
]
Trust = Annotated[
    str | None, text_option("cloud|datacenter|community", "Whose computers are accepted at least. (datacenter)")
]
Expose = Annotated[
    bool, typer.Option("--expose", help="With --trust community: its owner may read secrets and volumes.")
]
Nodes = Annotated[str | None, text_option("N", "So many machines under one name, all or none (1 to 64).")]
Engine = Annotated[str | None, text_option("slurm|none", "What queues the jobs of a cluster. (slurm)")]
OnNodeLoss = Annotated[str | None, text_option("wait|stop", "What the other nodes do when one is lost. (wait)")]
MaxPrice = Annotated[str | None, text_option("USD", "The most to pay per hour.")]
Template = Annotated[str | None, text_option("NAME", "The launch template (jupyter).")]
Image = Annotated[str | None, text_option("NAME|ID", "An image of yours, or the provider's id of one.")]
Disk = Annotated[str | None, text_option("GB", "The size of the system disk.")]
Volume = Annotated[str | None, text_option("NAME[:GB]", "A data disk that outlives machines; :GB creates a new one.")]
SshFrom = Annotated[str | None, text_option("CIDR", "Who may connect over SSH; by default your address.")]
SshFromAnywhere = Annotated[
    bool, typer.Option("--ssh-from-anywhere", help="Let every address try to log in (the key is still needed).")
]
Subnet = Annotated[str | None, text_option("ID", "A subnet of yours, instead of the account's default network.")]
SecurityGroup = Annotated[
    str | None,
    text_option("ID", "A security group of yours, instead of cloudgpu's; it decides who may connect over SSH."),
]
NoPublicIp = Annotated[bool, typer.Option("--no-public-ip", help="No public address: connect with --jump or a VPN.")]
Jump = Annotated[str | None, text_option("[USER@]HOST[:PORT]", "Reach the machine through this host.")]
MachineName = Annotated[str | None, text_option("NAME", "Its name; without one, two words.")]
Key = Annotated[str | None, text_option("KEY", "Launch only one machine per key, however often it is used.")]
New = Annotated[bool, typer.Option("--new", help="Launch a second machine of the same request.")]
Policy = Annotated[str | None, text_option("NAME", "The policy: how long it lives, and what ends it. (default)")]
Lease = Annotated[str | None, text_option("TIME", "How long it lives unless renewed, like 8h.")]
RenewUntil = Annotated[str | None, text_option("TIME", "The latest end that use can extend it to, like 3d.")]
Owner = Annotated[str | None, text_option("TEXT", "Who it is for.")]
Project = Annotated[str | None, text_option("TEXT", "The project it is charged to.")]
Override = Annotated[str | None, text_option("REASON", "Exceed budgets that allow it; the ledger records the reason.")]
NoGuard = Annotated[
    bool,
    typer.Option("--no-guard", help="Launch though only the reaper could end it, and no scheduled run is heard."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and do nothing.")]
WaitStart = Annotated[bool, typer.Option("--wait-start", help="Wait until the template's on_start has ended.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return as soon as the provider has accepted.")]

# Of a job.
On = Annotated[
    str | None, text_option("MACHINE", "Run on this machine, or in this cluster's Slurm; it stays. Launch none.")
]
# Of a job in Slurm.
JobNodes = Annotated[
    int | None,
    typer.Option("--nodes", metavar="N", help="How many nodes the job takes; without --on, that it launches. (1)"),
]
GpusPerNode = Annotated[
    int | None,
    typer.Option("--gpus-per-node", metavar="N", help="GPUs on each node; without it, whole nodes of a cluster."),
]
Array = Annotated[str | None, text_option("LIST", "Run once for each index: 0-9%4 is ten, four at a time.")]
After = Annotated[str | None, text_option("JOB", "Begin when this job has succeeded: its name, or Slurm's id.")]
Partition = Annotated[str | None, text_option("NAME", "Slurm's partition.")]
SlurmAccount = Annotated[str | None, text_option("NAME", "Slurm's account, which its hours are charged to.")]
Once = Annotated[
    bool, typer.Option("--once", help="Run the command on the first node alone; it calls srun or mpirun itself.")
]
Workdir = Annotated[str | None, text_option("DIR", "The directory that travels; by default the one that you are in.")]
Include = Annotated[
    list[str] | None, text_option("GLOB", "Take these files along though they are ignored. Repeatable.")
]
SetUp = Annotated[str | None, text_option("CMD", "A shell command before the first start on each machine.")]
Env = Annotated[list[str] | None, text_option("K=V", "A variable for the command; the ledger keeps it. Repeatable.")]
EnvFile = Annotated[str | None, text_option("FILE", "KEY=VALUE lines, read when the job starts and kept nowhere.")]
Secret = Annotated[list[str] | None, text_option("NAME", "A variable of your environment, kept nowhere. Repeatable.")]
Data = Annotated[
    list[str] | None,
    text_option("SRC:DEST", "Data: s3://BUCKET/PREFIX, a path on the machine, or volume:NAME. Repeatable."),
]
Port = Annotated[list[str] | None, text_option("N", "A port of the job to reach on this computer's N. Repeatable.")]
Results = Annotated[str | None, text_option("DIR", "Where the command writes results, in the workdir. (results)")]
ResultsTo = Annotated[
    str | None, text_option("WHERE", "Keep results and checkpoints in s3://BUCKET/PREFIX or volume:NAME, not here.")
]
Checkpoint = Annotated[str | None, text_option("DIR", "Where it writes checkpoints, in the workdir.")]
Every = Annotated[str | None, text_option("TIME", "How often results and checkpoints are copied. (10m)")]
Timeout = Annotated[str | None, text_option("TIME", "End the command after this long.")]
MaxCost = Annotated[str | None, text_option("USD", "End the command when its machines have cost this.")]
Deadline = Annotated[str | None, text_option("TIME", "Be done within this time, like 24h, at the lowest cost.")]
Work = Annotated[str | None, text_option("TIME", "With --deadline: how long the command runs, uninterrupted.")]
SpotPolicy = Annotated[str | None, text_option("NAME", "With --deadline: what chooses between spot and on demand.")]
Stall = Annotated[str | None, text_option("TIME", "Alert after this long without output or progress.")]
Retries = Annotated[int, typer.Option(metavar="N", help="Run a failing command again, this often.")]
Restarts = Annotated[int, typer.Option(metavar="N", help="Start again after a lost machine, this often.")]
Keep = Annotated[str | None, text_option("TIME", "Keep the machine of a failed job this long, for a look.")]
ResultsWait = Annotated[str | None, text_option("TIME", "How long a machine waits for its results to be fetched. (2h)")]
JobKey = Annotated[str | None, text_option("KEY", "Follow the living job with this key; else run a new one.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Return once the command has begun.")]


class StartOptions(NamedTuple):
    """How long it is to live, None as its launch said; why a budget is to be passed; how it is shown and asked."""

    lease: timedelta | None
    renew_until: timedelta | None
    override: str | None
    verbose: bool
    yes: bool
    no_guard: bool = False
