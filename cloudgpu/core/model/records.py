"""What lines of the ledger say in more than one place: prices, accounts, disks, guards, terms, as JSON values."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class IdentityRecord(TypedDict):
    """What an account is by its provider's own word: `AccountIdentity` as a line carries it."""

    kind: str
    id: str
    words: str


class AddressRecord(TypedDict):
    """Where a machine answers."""

    host: str
    port: int
    user: str


class PriceRecord(TypedDict):
    """What an hour costs, in nano-dollars, and who says so since when.

    `is_negotiated`: the price is this user's alone; `list_nanos_per_hour` is the public list's, where that is known.
    """

    nanos_per_hour: int
    source: str
    as_of: str
    basis: str
    is_negotiated: NotRequired[bool]
    list_nanos_per_hour: NotRequired[int]


class AcceleratorRecord(TypedDict):
    """GPUs of one kind: `core.model.offers.Accelerator`."""

    name: str
    count: int
    memory_gib: float | None
    share: float
    of: NotRequired[int | None]


class RateRecord(TypedDict, total=False):
    """What `Rate.terms` writes: `nanos` for one of the quantity; None: no price is known."""

    per: str
    nanos: int | None
    source: str
    as_of: str | None
    basis: str | None
    why_maybe_less: str
    by_size: bool


class AttachedCostRecord(RateRecord):
    """What is paid beside a machine: its disk, its address."""

    what: str
    nanos_per_month: int | None
    at_most: bool
    running: bool
    kept: bool
    named: bool
    resource: NotRequired[str]
    stored_as: NotRequired[str]
    quantity: NotRequired[int]


class RetainedRecord(RateRecord):
    """A disk or an image that stays without its machine, or that is kept by name."""

    id: str
    kind: str
    region: str
    zone: str | None
    size_gb: int
    stored_as: str
    made_at: str | None
    ready: bool
    nanos_per_month: int | None
    name: NotRequired[str]  # from here on: of what is kept by name alone
    provider: NotRequired[str]
    account: NotRequired[str]
    attached_to: NotRequired[str | None]
    alive_at: NotRequired[str]


class VolumeRecord(TypedDict):
    """A data disk by its name, with its size where it may be made."""

    name: str
    size_gb: int | None


class NetworkRecord(TypedDict):
    """Through which network a machine is reached: `core.model.launch.Network`."""

    ssh_from: list[str]
    subnet: str | None
    security_group: str | None
    public_ip: bool
    jump: str | None


class SetupRecord(TypedDict):
    """What a machine is set up with beside its type: `core.model.launch.Setup`."""

    image: str | None
    disk_gb: int | None
    volume: VolumeRecord | None
    persistent: bool
    network: NetworkRecord
    keep_disk: bool


class GuardsRecord(TypedDict):
    """What can end it beside runs from outside: `core.policies.guards.Safeguards`."""

    agent: str
    timer: str
    follows: bool
    tagged: NotRequired[bool]
    alone: NotRequired[bool]
    waived: NotRequired[bool]


class ScheduledRunRecord(TypedDict):
    """The latest scheduled run of the reaper from one home: `core.policies.runs.ScheduledRun`."""

    home: str
    host: str
    at: str
    every_s: float
    battery: bool | None
    accounts: list[str]


class CreditRecord(TypedDict):
    """What was left in a prepaid account when a run read it: `core.budgets.credit.CreditReading`. In nano-dollars."""

    scope: str
    account: str
    provider: str
    left: int
    as_of: str
    hourly: int
    elsewhere: int
    page: str
    threshold: int


class TrafficPricesRecord(TypedDict):
    """Nano-dollars for a GB (10^9 bytes) that a machine sends and receives, by its offer's own prices."""

    out: int
    into: int


class TextRecord(TypedDict):
    """A file of policies or limits as it was read: where it stood, None where it was published, and what it says."""

    place: str | None
    text: str


class PolicyTextRecord(TextRecord):
    """A policy's file; `tz` is that of schedules that name none."""

    tz: str


class TermsRecord(TypedDict):
    """The texts of the policy and limits that a machine is under. `policy` None: a shipped one."""

    home: str
    policy: PolicyTextRecord | None
    limits: list[TextRecord]
    price_jump: str


class ClusterRecord(TypedDict):
    """Which node of which cluster a machine is: `core.model.cluster.ClusterNode` says what each is."""

    name: str
    id: str
    node: int
    nodes: int
    engine: NotRequired[Literal["slurm", "none"]]
    on_node_loss: NotRequired[Literal["wait", "stop"]]
