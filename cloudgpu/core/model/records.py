"""JSON values that several kinds of ledger entry contain: prices, accounts, disks, safeguards, terms."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class IdentityRecord(TypedDict):
    """An account as its provider identifies it: `core.model.identity.AccountIdentity`; `words` names it in texts."""

    kind: str
    id: str
    words: str


class AddressRecord(TypedDict):
    """Where a machine's SSH server answers, and as which user to log in."""

    host: str
    port: int
    user: str


class PriceRecord(TypedDict):
    """What an hour costs, in nano-dollars, with the source of the price, its date and `core.model.offers.Basis`.

    `is_negotiated`: the price is this user's alone; `list_nanos_per_hour` is the public list's, if that is known.
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
    """A rate (`core.billing.rates.Rate`): `nanos` is the price of one unit `per` hour, month or GB; None: not known.

    `by_size`: the unit is a GB of the resource; else it is the whole resource.
    """

    per: str
    nanos: int | None
    source: str
    as_of: str | None
    basis: str | None
    why_maybe_less: str
    by_size: bool


class AttachedCostRecord(RateRecord):
    """A resource that is billed with a machine: `core.model.facts.AttachedCost`."""

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
    """A disk or an image that is retained without its machine, or that has a name: `core.model.facts.Retained`."""

    id: str
    kind: str
    region: str
    zone: str | None
    size_gb: int
    stored_as: str
    made_at: str | None
    ready: bool
    nanos_per_month: int | None
    name: NotRequired[str]  # from here on: only for named volumes and images
    provider: NotRequired[str]
    account: NotRequired[str]
    attached_to: NotRequired[str | None]
    alive_at: NotRequired[str]


class VolumeRecord(TypedDict):
    """A data disk with a name; `size_gb` is its size if it may be created, None if it has to exist."""

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
    """The setup of a machine in addition to its type: `core.model.launch.Setup`."""

    image: str | None
    disk_gb: int | None
    volume: VolumeRecord | None
    persistent: bool
    network: NetworkRecord
    keep_disk: bool


class GuardsRecord(TypedDict):
    """The safeguards of a machine: `core.policies.guards.Safeguards`."""

    agent: str
    timer: str
    follows: bool
    tagged: NotRequired[bool]
    alone: NotRequired[bool]
    waived: NotRequired[bool]


class ScheduledRunRecord(TypedDict):
    """The latest scheduled run of the reaper from one home: `core.policies.guards.ScheduledRun`."""

    home: str
    host: str
    at: str
    every_s: float
    battery: bool | None
    accounts: list[str]
    swept_at: str | None


class CreditRecord(TypedDict):
    """The credit `left` in a prepaid account when a run read it, in nano-dollars: `core.budgets.credit.CreditReading`.

    `hourly` is what the account spends, `elsewhere` the part of it that is not in the ledger; `page` is where to add
    credit.
    """

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
    """Nano-dollars per GB (10^9 bytes) sent (`out`) and received (`into`), if the offer has prices of its own."""

    out: int
    into: int


class TextRecord(TypedDict):
    """A file of policies or limits as it was read: its path (None: it was published in the ledger) and its text."""

    place: str | None
    text: str


class PolicyTextRecord(TextRecord):
    """A policy's file; `tz` is the time zone of schedules that name none."""

    tz: str


class TermsRecord(TypedDict):
    """The texts of the policy and limits of a machine: `core.model.facts.Terms`."""

    home: str
    policy: PolicyTextRecord | None
    limits: list[TextRecord]
    price_jump: str
    tz: NotRequired[str]


class ClusterRecord(TypedDict):
    """Which node of which cluster a machine is: `core.model.facts.ClusterNode`."""

    name: str
    id: str
    node: int
    nodes: int
    engine: NotRequired[Literal["slurm", "none"]]
    on_node_loss: NotRequired[Literal["wait", "stop"]]
