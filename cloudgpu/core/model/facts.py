"""What the ledger knows of a machine's parts, as values that nobody can change: prices, disks, uses, warnings.

`of`, or else `made_by_record`, makes each from its record, the plain JSON values that a ledger line or a projection
holds; `record_of` is the way back. Times are ledger times (`times.iso`), money is whole nano-dollars,
and None is what nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, cast

from cloudgpu.core.model.records import (
    AttachedCostRecord,
    ClusterRecord,
    PriceRecord,
    RetainedRecord,
    SetupRecord,
    TermsRecord,
)
from cloudgpu.core.model.usage import PriceInterval, Usage

Engine = Literal["slurm", "none"]
OnNodeLoss = Literal["wait", "stop"]


class MachineAddress(NamedTuple):
    """Where a machine answers."""

    host: str
    port: int
    user: str


class HourlyPrice(NamedTuple):
    """What an hour costs, in nano-dollars, and who says so since when: `Price` as a machine's record has it."""

    nanos_per_hour: int
    source: str
    as_of: str
    basis: str
    is_negotiated: bool | None = None
    list_nanos_per_hour: int | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        known = (record["nanos_per_hour"], record["source"], record["as_of"], record["basis"])
        return cls(*known, record.get("is_negotiated"), record.get("list_nanos_per_hour"))

    def record(self) -> PriceRecord:
        """Return it as a ledger event stores it."""
        return cast("PriceRecord", record_of(self))


class MachineGpus(NamedTuple):
    """GPUs of one kind: `core.model.offers.Accelerator`."""

    name: str
    number: int
    memory_gib: float | None
    share: float
    out_of: int | None  # how many the computer has, where the machine uses only some of them

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        return cls(record["name"], record["count"], record["memory_gib"], record["share"], record.get("of"))


class RecordedIdentity(NamedTuple):
    """What an account is by its provider's own word: `core.model.identity.AccountIdentity`, as it was recorded."""

    kind: str
    id: str
    words: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        return cls(record["kind"], record["id"], record["words"])


class AttachedCost(NamedTuple):
    """What is paid beside a machine: its disk, its address. From `per` on: `Rate.terms`, where a price list has it."""

    what: str
    nanos_per_month: int | None
    at_most: bool
    running: bool
    kept: bool
    named: bool
    resource: str | None = None
    stored_as: str | None = None
    quantity: int | None = None
    per: str | None = None
    nanos: int | None = None
    source: str | None = None
    as_of: str | None = None
    basis: str | None = None
    why_maybe_less: str = ""
    by_size: bool = True

    def record(self) -> AttachedCostRecord:
        """Return it as a ledger event stores it."""
        return cast("AttachedCostRecord", record_of(self))


class Retained(NamedTuple):
    """A disk or an image that stays without its machine, or that is kept by name.

    From `name` to `alive_at`: of what is kept by name alone. From `per` on: `Rate.terms`, where a price list has it.
    """

    id: str
    kind: str
    region: str
    zone: str | None
    size_gb: int
    stored_as: str
    made_at: str | None
    ready: bool
    nanos_per_month: int | None
    name: str | None = None
    provider: str | None = None
    account: str | None = None
    attached_to: str | None = None
    alive_at: str | None = None
    per: str | None = None
    nanos: int | None = None
    source: str | None = None
    as_of: str | None = None
    basis: str | None = None
    why_maybe_less: str = ""
    by_size: bool = True

    def record(self) -> RetainedRecord:
        """Return it as a ledger event stores it."""
        return cast("RetainedRecord", record_of(self))


class ChargeNote(NamedTuple):
    """What the sums of ended usages do not say: `core.billing.charges`."""

    marks: str
    reasons: tuple[str, ...]
    compared: int
    interrupted: tuple[int, ...]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        return cls(record["marks"], tuple(record["reasons"]), record["compared"], tuple(record["interrupted"]))


class NamedVolume(NamedTuple):
    """A data disk by its name, with its size where it may be made."""

    name: str
    size_gb: int | None


class MachineNetwork(NamedTuple):
    """Through which network a machine is reached: `core.model.launch.Network`."""

    ssh_from: tuple[str, ...]
    subnet: str | None
    security_group: str | None
    public_ip: bool
    jump: str | None


class MachineSetup(NamedTuple):
    """What a machine is set up with beside its type: `core.model.launch.Setup`."""

    image: str | None
    disk_gb: int | None
    volume: NamedVolume | None
    persistent: bool
    network: MachineNetwork
    keep_disk: bool

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        volume, network = record["volume"], record["network"]
        return cls(
            record["image"],
            record["disk_gb"],
            None if volume is None else NamedVolume(volume["name"], volume["size_gb"]),
            record["persistent"],
            MachineNetwork(
                tuple(network["ssh_from"]),
                network["subnet"],
                network["security_group"],
                network["public_ip"],
                network["jump"],
            ),
            record["keep_disk"],
        )

    def record(self) -> SetupRecord:
        """Return it as a ledger event stores it."""
        return cast("SetupRecord", record_of(self))


class MachineGuards(NamedTuple):
    """What can end it beside runs from outside: `core.policies.guards.Safeguards`, as it was recorded."""

    agent: str
    timer: str
    follows: bool
    tagged: bool = True  # its tags can be changed: else they tell of its launch alone, and the ledger has its lease
    alone: bool = False  # nothing but scheduled runs of the reaper ends what it costs, by what its place has
    waived: bool = False  # launched or started with --no-guard: no run from outside was asked for

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        more = (record.get("tagged", True), record.get("alone", False), record.get("waived", False))
        return cls(record["agent"], record["timer"], record["follows"], *more)


class SentWarning(NamedTuple):
    """When people were first and last told that a machine ends at `due`, how often, and why."""

    at: str
    last: str
    due: str | None
    times: int
    why: str | None


class LastDecision(NamedTuple):
    """What a run of the reaper last decided, and since when it is that."""

    do: str
    rule: str
    why: str
    activity: str
    at: str | None
    since: str
    activity_since: str


class CountedTraffic(NamedTuple):
    """Until when bytes are counted, and what the machine's own counters said then; `received` where those cost."""

    until: str
    counted: int
    received: int | None = None


class RecordedTrafficPrices(NamedTuple):
    """Nano-dollars for a GB (10^9 bytes) that a machine sends and receives, by its offer's own prices."""

    out: int
    into: int


class RefusedAction(NamedTuple):
    """What the provider refused, as something protects the machine, and what lifts that."""

    action: Literal["stop", "terminate"]
    why: str
    next: str


class SharedKey(NamedTuple):
    """Whose public key was let in, from which network, and the host key that came with it."""

    label: str
    network: str | None
    host_key: str | None
    at: str


class ClusterNode(NamedTuple):
    """Which node of which cluster a machine is.

    `name` is the cluster's, `id` what the ids of its machines begin with; `node` counts from 0 to `nodes` - 1. `engine`
    schedules its jobs ("none": nothing does); `on_node_loss` is what becomes of the others when one node is lost.
    """

    name: str
    id: str
    node: int
    nodes: int
    engine: Engine = "none"
    on_node_loss: OnNodeLoss = "wait"

    def record(self) -> ClusterRecord:
        """Return the value as a ledger event stores it."""
        return cast("ClusterRecord", self._asdict())

    def tag(self) -> str:
        """Return what the cluster's tag says, the same for all its nodes: `4-slurm-wait`."""
        return f"{self.nodes}-{self.engine}-{self.on_node_loss}"


class UnrequestedStop(NamedTuple):
    """When a machine was seen not to run any more though nobody had asked for that, and in which line."""

    at: str
    seq: int


class LastRequest(NamedTuple):
    """What was last asked of a machine (stop, start, park, terminate), and when.

    `judged`: a run of the reaper decided it of a cluster; where it is not done, the next run decides anew.
    """

    what: str
    at: str
    judged: bool


class TermsText(NamedTuple):
    """A file of policies or limits as it was read: where it stood, None where it was published, and what it says.

    `tz`, of a policy alone, is that of schedules that name none.
    """

    place: str | None
    text: str
    tz: str | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        return cls(record["place"], record["text"], record.get("tz"))


class Terms(NamedTuple):
    """The texts of the policy and limits that a machine is under. `policy` None: a shipped one."""

    home: str
    policy: TermsText | None
    limits: tuple[TermsText, ...]
    price_jump: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        policy = record["policy"]
        return cls(
            record["home"],
            None if policy is None else TermsText.of(policy),
            tuple(map(TermsText.of, record["limits"])),
            record["price_jump"],
        )

    def record(self) -> TermsRecord:
        """Return it as a ledger event stores it."""
        return cast("TermsRecord", record_of(self))


NO_TEXTS: Mapping[str, Any] = MappingProxyType({})
_KEYS: dict[type, dict[str, str]] = {  # a field -> its key, where that is no name for a field of a tuple
    MachineGpus: {"number": "count", "out_of": "of"},
    SentWarning: {"times": "count"},
    SharedKey: {"network": "from"},
}
_WHOLE = (Usage, PriceInterval)  # their records have every key: `usage_of_record` misses each


def record_of(value: object) -> Any:
    """Return a value of these classes as plain JSON values; a field that may be left out is, where it is None."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is None:
            return [record_of(one) for one in value]
        keys = _KEYS.get(type(value), {})
        absent = () if isinstance(value, _WHOLE) else getattr(value, "_field_defaults")  # noqa: B009  (a tuple has none, for the type checker)
        return {
            keys.get(name, name): record_of(one)
            for name, one in zip(names, value, strict=True)
            if one is not None or name not in absent
        }
    if isinstance(value, Mapping):
        return {key: record_of(one) for key, one in value.items()}
    return value


def reader(names: Iterable[str], absent: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return what takes the values of these keys out of a record; a key that is missing and not in `absent` raises."""
    values = itemgetter(*names)
    return (lambda record: values({**absent, **record})) if absent else values


def made_by_record(kind: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return what makes such a value of its record, the way back from `record_of`; none of its values has parts."""
    keys = _KEYS.get(kind, {})
    values = reader([keys.get(name, name) for name in kind._fields], kind._field_defaults)
    return lambda record: kind._make(values(record))
