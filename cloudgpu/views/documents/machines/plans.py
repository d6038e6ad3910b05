"""The plan of a launch."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.core.model.offers import NoteKind as _NoteKind
from cloudgpu.core.policies.policy import Origin as _Origin
from cloudgpu.views.documents.parts import (
    AgentGuard,
    Gpu,
    Market,
    OfAccount,
    Price,
    RuleText,
    Time,
    TimerGuard,
    Trust,
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
    """What it is about."""
    period: str
    """The period with the least left, in words."""
    since: Time | None
    """When that begins; null for `total`."""
    until: Time
    """When it ends."""
    spent_usd: Usd
    """What was spent in it, at most."""
    running_usd: Usd
    """What already runs, to its renew-until, and what is retained."""
    requested_usd: Usd
    """What this launch costs in it, to its renew-until."""
    remaining_usd: Usd
    """What is left then; below zero where it does not fit."""
    fits: bool
    """It fits in every period."""
    refuses: bool
    """The budget refuses what does not fit."""
    overridden: bool
    """It would refuse this, and `--override` passes it."""
    unpriced: list[str]
    """Machines whose cost is unknown."""
    assumed: list[str]
    """What has no known price, and what is counted instead."""


class PlannedRun(TypedDict):
    """The scheduled runs of the reaper that a launch relies on where nothing else ends it."""

    host: str
    """The computer that makes them."""
    every_s: float
    """How often, in seconds."""
    at: Time
    """When the last one ended."""


class PlannedGuards(TypedDict):
    """Which layers guard it."""

    agent: AgentGuard
    """`ends`: it can end the machine; `tells`: the reaper can ask it whether the machine is used, and its shutdown ends
    nothing that costs; `none`: none runs there.
    """
    timer: TimerGuard
    """`cloud`: at the provider; `own`: a process next to the machine; `none`."""
    run: PlannedRun | None
    """Where nothing else ends what it costs: the scheduled runs that do; null where there are none, or none is needed.
    """
    waived: bool
    """With `--no-guard`: it is launched though nothing ends it by itself."""


class PlannedEnds(TypedDict):
    """Each is `stop`, `park` or `terminate`. `terminate` deletes what is on its disk."""

    lease: EndAction | None
    """At the end of its lease, of idle time, by a schedule; null: these only warn."""
    renew_until: EndAction
    """At its renew-until."""
    budget: EndAction
    """When a budget that stops is spent."""


class PlannedIdle(TypedDict):
    """What idle time does to it."""

    do: EndAction | None
    """`stop`, `park` or `terminate`; null: it is only warned of."""
    after_s: float
    """How long nobody may have used it, in seconds."""
    grace_s: float
    """How long the warning is waited out, in seconds."""
    spares_scratch: bool
    """Whether it is only warned of while disks that a stop would erase hold data."""


class AccountOffers(OfAccount):
    """What one account has in the offers."""

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
    """How large it is made; null: it has to be there already."""


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
    """A spot request that can be stopped."""
    keep_disk: bool
    """Where it cannot be stopped: its system disk stays when it ends."""
    network: Network
    """By which way it is reached, and by whom."""


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
    """Who says so, and when."""
    basis: str | None
    """`listed`, `derived` or `recalled`; null: no price is known."""


class Plan(TypedDict):
    """A launch as planned."""

    name: str | None
    """Null: two words will be made up."""
    nodes: int
    """How many machines, all or none; price, GPUs and attached costs are of one, costs and budgets of all of them."""
    engine: Annotated[str, Literal["slurm", "none"]] | None
    """What queues the jobs of a cluster, `slurm` or `none`; null for a machine of its own."""
    provider: str
    """The kind of provider."""
    account: str
    """The configured account."""
    region: str
    """Where."""
    zone: str
    """Where, exactly."""
    instance_type: str
    """As the provider calls it."""
    market: Market
    """`on_demand` or `spot`."""
    trust: Trust
    """Whose computer it is: `cloud`, `datacenter` or `community`, whose owner can read everything on it."""
    gpus: list[Gpu]
    """Its GPUs."""
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
    owner: str
    """Who it is for."""
    project: str
    """The project it is charged to."""
    policy: str
    """The [policy](../policies.md) under which it is launched."""
    policy_from: str | None
    """Who chose it: `--policy`, or a key of `config.toml`."""
    rules: list[RuleText]
    """What the policy says apart from lease and renew-until."""
    lease_s: float
    """The lease in seconds."""
    lease_from: TermOrigin
    """Who said so: `option`, `config.toml` or `policy`."""
    renew_until_s: float
    """How far use may renew it, in seconds from the launch."""
    renew_until_from: TermOrigin
    """Who said so: `option`, `config.toml` or `policy`."""
    expires: Time
    """The end of the lease."""
    renew_until: Time
    """How far use may renew it."""
    highest_usd_per_hour: Usd
    """The most expensive of all offers that may be tried."""
    cost_to_lease_end_usd: Usd
    """The most that it costs to the end of the lease: the machine at the current price, and all else that the launch
    makes cost.
    """
    cost_to_renew_until_usd: Usd
    """The same if it renews itself to the end."""
    low_to_lease_end_usd: Usd
    """At least: less where a price may be less (`cost_reasons`)."""
    low_to_renew_until_usd: Usd
    """The same if it renews itself to the end."""
    machine_to_lease_end_usd: Usd
    """Of the cost: the machine alone."""
    machine_to_renew_until_usd: Usd
    """The same if it renews itself to the end."""
    cost_reasons: list[str]
    """Why the cost may be less."""
    unpriced: list[str]
    """What comes with it and has no known price: in none of these."""
    stop_effect: str
    """What `stop` preserves, what it loses, and what still costs."""
    ends: PlannedEnds
    """How it ends."""
    idle: PlannedIdle | None
    """What idle time does to it; null: nothing, or nobody sees whether it is used."""
    guards: list[str]
    """What will end it without you."""
    guarded: PlannedGuards
    """Which layers these are."""
    lease_ends: bool
    """Its lease ends it where nobody uses it; else it runs to its renew-until."""
    further_offers: int
    """How many other offers are tried where there is no capacity."""
    by_account: list[AccountOffers]
    """With `--provider any`: what each account has in the offers, in the order of trying; else empty."""
    on_demand_fallback: bool
    """On-demand offers are among them, though spot was requested."""
    setup: Setup
    """What it is set up with, apart from its type."""
    attached_costs: list[Extra]
    """What is paid in addition to the machine."""
    budgets: list[BudgetFit]
    """How it fits the budgets that cover it; empty where nothing is launched."""
    notes: list[str]
    """What has to be read: what is bound, lost, or could not be checked."""
    note_kinds: list[NoteKind]
    """What each note is about, in the same order: `money`, `erasure`, `access`, `guard`, or `note` for all else."""
