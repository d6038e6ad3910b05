"""The plan of a launch."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.core.model.offers import NoteKind as _NoteKind
from cloudgpu.core.policies.policy import Origin as _Origin
from cloudgpu.views.documents.parts import (
    AgentGuard,
    MachineOrPlan,
    OfAccount,
    Price,
    RuleText,
    Time,
    TimerGuard,
    Usd,
)

TermOrigin = Annotated[str, _Origin]
NoteKind = Annotated[str, _NoteKind]
EndAction = Annotated[str, Literal["stop", "park", "terminate"]]


class BudgetFit(TypedDict):
    """How a launch fits a budget."""

    name: str
    """The budget's name."""
    limit_usd: Usd
    """Its limit."""
    scope: str
    """What it covers."""
    period: str
    """The period with the least budget remaining, in words."""
    since: Time | None
    """When that begins; null for `total`."""
    until: Time
    """When it ends."""
    spent_usd: Usd
    """What was spent in it, at most."""
    running_usd: Usd
    """What already runs, up to its renew-until, and what is retained."""
    requested_usd: Usd
    """What this launch costs in the period, up to its renew-until."""
    remaining_usd: Usd
    """What then remains; below zero if it does not fit."""
    fits: bool
    """It fits in every period."""
    refuses: bool
    """The budget refuses what does not fit."""
    overridden: bool
    """It would refuse this launch, and `--override` overrides it."""
    unpriced: list[str]
    """Machines whose cost is unknown."""
    assumed: list[str]
    """What has no known price, and what is counted instead."""


class PlannedRun(TypedDict):
    """The scheduled runs of the reaper that a launch relies on where nothing else ends it."""

    host: str
    """The computer on which they run."""
    every_s: float
    """How often, in seconds."""
    at: Time
    """When the last one ended."""


class PlannedGuards(TypedDict):
    """Which safeguards it has."""

    agent: AgentGuard
    """`ends`: it can end the machine; `tells`: the reaper can ask it whether the machine is used, and its shutdown ends
    nothing that costs; `none`: none runs there.
    """
    timer: TimerGuard
    """`cloud`: at the provider; `own`: a process next to the machine; `none`."""
    run: PlannedRun | None
    """If nothing else would end it: the scheduled runs that do; null where there are none, or none is needed.
    """
    waived: bool
    """With `--no-guard`: it is launched though nothing would end it automatically."""


class PlannedEnds(TypedDict):
    """Each is `stop`, `park` or `terminate`. `terminate` deletes what is on its disk."""

    lease: EndAction | None
    """At the end of its lease, of idle time, by a schedule; null: these only warn."""
    renew_until: EndAction
    """At its renew-until."""
    budget: EndAction
    """When a budget with the action `stop` is spent."""


class PlannedIdle(TypedDict):
    """What idle time does to it."""

    do: EndAction | None
    """`stop`, `park` or `terminate`; null: it is only warned of."""
    after_s: float
    """How long it has to be idle, in seconds."""
    grace_s: float
    """The grace period after the warning, in seconds."""
    spares_scratch: bool
    """Whether it is only warned of while disks that a stop would erase hold data."""


class AccountOffers(OfAccount):
    """The offers of one account."""

    offers: int
    """How many of the offers are this account's."""
    zone: str
    """Where the first of them is."""
    instance_type: str
    """What the first of them is."""
    usd_per_hour: Usd
    """What the first of them costs."""


class VolumeRequest(TypedDict):
    """A data disk that outlives the machine."""

    name: str
    """Its name."""
    size_gb: float | None
    """The size with which it is created; null: it has to exist already."""


class Network(TypedDict):
    """How a machine is reached."""

    ssh_from: list[str]
    """The networks that may open SSH."""
    subnet: str | None
    """The requested subnet; null: the account's default one."""
    security_group: str | None
    """The requested security group; null: one of cloudgpu's."""
    public_ip: bool
    """It gets a public address."""
    jump: str | None
    """The host through which it is reached."""


class Setup(TypedDict):
    """What a machine is set up with, apart from its type."""

    image: str | None
    """The requested image; null: the provider's newest that fits."""
    disk_gb: float | None
    """The system disk; null: the provider's default one."""
    volume: VolumeRequest | None
    """The data disk that outlives the machine."""
    persistent: bool
    """A persistent spot request: its machine can be stopped and started again."""
    keep_disk: bool
    """If it cannot be stopped: its system disk is retained when it ends."""
    network: Network
    """How it can be reached, and from where."""


class AttachedCost(TypedDict):
    """What is paid in addition to a machine."""

    what: str
    """A disk, an address, a volume, an image."""
    at_most: bool
    """It may cost less: billed by the data written, a derived price, or the most expensive known of its kind."""
    while_running: bool
    """It is paid while the machine runs."""
    while_stopped: bool
    """It is paid while the machine is stopped or parked."""
    usd_per_month: Usd | None
    """What it costs a month of 730 hours; null: no price is known."""


class Extra(AttachedCost):
    """What is paid in addition to the machine."""

    low_usd_per_month: Usd | None
    """What it costs at least, where its price is derived and may be lower; null elsewhere."""
    source: str
    """The source of the price, with its date."""
    basis: str | None
    """`listed`, `derived` or `unverified`; null: no price is known."""


class Plan(MachineOrPlan):
    """A launch as planned."""

    name: str | None
    """Its name; null: one of two random words will be made."""
    nodes: int
    """How many machines, all or none; price, GPUs and attached costs are of one, costs and budgets of all of them."""
    engine: Annotated[str, Literal["slurm", "none"]] | None
    """What queues the jobs of a cluster, `slurm` or `none`; null for a single machine."""
    region: str
    """Where."""
    zone: str
    """Where, exactly."""
    instance_type: str
    """As the provider calls it."""
    gpu_users: list[str]
    """On an own machine, who uses the GPUs there now, one line each; `nobody uses them`, or that it is not known."""
    vcpus: int | None
    """Processors."""
    memory_gib: float | None
    """Memory in GiB."""
    price: Price
    """What an hour costs."""
    template: str
    """The launch template."""
    left_out: list[str]
    """Parts of the template that this provider does not run."""
    policy: str
    """The [policy](../policies.md) under which it is launched."""
    policy_from: str | None
    """Who chose it: `--policy`, or a key of `config.toml`."""
    rules: list[RuleText]
    """The policy's rules other than lease and renew-until."""
    lease_s: float
    """The lease in seconds."""
    lease_from: TermOrigin
    """Where that is set: `option`, `config.toml` or `policy`."""
    renew_until_s: float
    """The longest time for which use may renew it, in seconds from the launch."""
    renew_until_from: TermOrigin
    """Where that is set: `option`, `config.toml` or `policy`."""
    expires: Time
    """The end of the lease."""
    renew_until: Time
    """Until when use may renew the lease."""
    highest_usd_per_hour: Usd
    """The most expensive of all offers that may be tried."""
    cost_to_lease_end_usd: Usd
    """The most that it costs to the end of the lease: the machine at the current price, and all else that the launch
    makes cost.
    """
    cost_to_renew_until_usd: Usd
    """The same up to its renew-until."""
    low_to_lease_end_usd: Usd
    """The least that it costs to the end of the lease, where a price may be lower (`cost_reasons`)."""
    low_to_renew_until_usd: Usd
    """The same up to its renew-until."""
    machine_to_lease_end_usd: Usd
    """The part of `cost_to_lease_end_usd` that is for the machine alone."""
    machine_to_renew_until_usd: Usd
    """The same up to its renew-until."""
    cost_reasons: list[str]
    """Why the cost may be less."""
    unpriced: list[str]
    """Its parts that have no known price: they are in none of these amounts."""
    stop_effect: str
    """What `stop` preserves, what it loses, and what still costs."""
    ends: PlannedEnds
    """How it ends."""
    idle: PlannedIdle | None
    """What idle time does to it; null: nothing, or its activity cannot be observed."""
    guards: list[str]
    """What will end it without you, in sentences."""
    guarded: PlannedGuards
    """The same safeguards for programs."""
    lease_ends: bool
    """True: an idle machine ends with its lease; false: it runs to its renew-until."""
    further_offers: int
    """How many other offers are tried where there is no capacity."""
    by_account: list[AccountOffers]
    """With `--provider any`: the offers of each account, in the order in which they are tried; else empty."""
    on_demand_fallback: bool
    """On-demand offers are among them, though spot was requested."""
    setup: Setup
    """What it is set up with, apart from its type."""
    attached_costs: list[Extra]
    """What is paid in addition to the machine."""
    budgets: list[BudgetFit]
    """How it fits the budgets that cover it; empty if nothing is launched."""
    notes: list[str]
    """What the user should read: commitments, losses of data, and what could not be checked."""
    note_kinds: list[NoteKind]
    """What each note is about, in the same order: `money`, `erasure`, `access`, `guard`, or `note` for all else."""
