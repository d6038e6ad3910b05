"""What a machine's facts are made of: prices, accounts, disks, uses, as the ledger keeps them."""

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
    """What an hour costs, in nano-dollars, and who says so since when."""

    nanos_per_hour: int
    source: str
    as_of: str
    basis: str


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
    why_at_most: str
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


class SegmentRecord(TypedDict):
    """A price that held from `at` on: `core.model.usage.PriceInterval`."""

    at: str
    nanos: int
    source: str
    as_of: str | None
    basis: str
    maybe_from: str | None


class UsageRecord(TypedDict):
    """What is billed from `begin` to `end`: `core.model.usage.Usage` as it is stored."""

    resource: str
    id: str
    what: str
    provider: str
    market: str
    kind: str
    quantity: int
    per: str
    begin: str
    end: str | None
    segments: list[SegmentRecord]
    on_demand: int | None
    first: bool
    reason: str | None
    sure_from: str | None
    maybe_until: str | None
    at_most: str
    licence: str
    continues: str | None
    maybe_since: str | None


class ChargeNoteRecord(TypedDict):
    """What the sums of ended uses do not say: `core.billing.charge_notes`."""

    marks: str
    reasons: list[str]
    compared: int
    interrupted: list[int]


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
    """What can end it beside runs from outside: `core.policies.guards.Guards`."""

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
    """What was left in a prepaid account when a run read it: `core.budgets.credit.KnownCredit`. In nano-dollars."""

    scope: str
    account: str
    provider: str
    left: int
    as_of: str
    hourly: int
    elsewhere: int
    page: str
    threshold: int


class WarningRecord(TypedDict):
    """When people were first and last told that a machine ends at `due`, how often, and why."""

    at: str
    last: str
    due: str | None
    count: int
    why: str | None


class DecisionRecord(TypedDict):
    """What a run of the reaper last decided, and since when it is that."""

    do: str
    rule: str
    why: str
    activity: str
    at: str | None
    since: str
    activity_since: str


class TrafficRecord(TypedDict):
    """Until when bytes are counted, and what the machine's own counters said then; `received` where those cost."""

    until: str
    counted: int
    received: NotRequired[int]


class TrafficPricesRecord(TypedDict):
    """Nano-dollars for a GB (10^9 bytes) that a machine sends and receives, by its offer's own prices."""

    out: int
    into: int


class RefusedRecord(TypedDict):
    """What the provider refused, as something protects the machine, and what lifts that."""

    action: Literal["stop", "terminate"]
    why: str
    next: str


ShareRecord = TypedDict("ShareRecord", {"label": str, "from": str | None, "host_key": str | None, "at": str})


class UnaskedRecord(TypedDict):
    """Where it was seen not to run any more, and nobody had asked for that."""

    at: str
    seq: int


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


class MachineRecord(TypedDict):
    """A machine's record in the projection, as plain JSON values: `core.model.machine.Machine` says what each is."""

    id: str
    name: str
    is_named_resource: bool
    provider: str
    account: str
    region: str
    zone: str | None
    instance_type: str | None
    market: str
    launch_status: str
    setup: SetupRecord | None
    guards: GuardsRecord | None
    state: str
    billed: bool
    pending_action: Literal["stop", "start", "terminate", "park"] | None
    terminated_at: str | None
    retained: list[RetainedRecord]
    owner: str
    project: str
    renew_until: str | None
    price: PriceRecord | None
    on_demand: PriceRecord | None
    max_price: int | None
    licence: str | None
    attached_costs: list[AttachedCostRecord] | None
    open_usage: list[UsageRecord]
    intended_at: str
    identity: IdentityRecord | None
    key: str
    request: str
    seq: int
    accelerators: list[AcceleratorRecord]
    attempt_number: int
    token: str | None
    settled_reason: str | None
    first_at: str
    template: str | None
    provider_id: str | None
    state_reason: str | None
    address: AddressRecord | None
    launched_at: str | None
    since: str | None
    seen_at: str | None
    last_active: str | None
    action_reason: str | None
    launch_failed: bool
    parked: bool
    discard: bool
    stoppable: bool | None
    parkable: bool | None
    stop_effect: str | None
    policy: str
    expires: str | None
    renew_s: int | None
    hold_until: str | None
    usage_totals: dict[str, list[int]]
    charge_notes: dict[str, ChargeNoteRecord]
    unpriced: bool
    traffic: TrafficRecord | None
    policy_by: NotRequired[str]  # from here on: there only where something was said
    timer: NotRequired[str]
    warnings: NotRequired[dict[str, WarningRecord]]
    decision: NotRequired[DecisionRecord]
    refused_action: NotRequired[RefusedRecord]
    taken_at: NotRequired[str]
    shared: NotRequired[dict[str, ShareRecord]]
    unrequested_stop: NotRequired[UnaskedRecord]
    terms: NotRequired[TermsRecord]
    interrupted_at: NotRequired[str]
    cluster: NotRequired[ClusterRecord]
    trust: NotRequired[str]
    traffic_prices: NotRequired[TrafficPricesRecord]
