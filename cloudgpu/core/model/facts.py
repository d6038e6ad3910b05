"""What the ledger knows about a machine, as immutable values: prices, disks, setup, warnings, decisions.

`of`, or else `from_record`, makes each from its record: the plain JSON values in a ledger entry or a projection.
`record_of` is the inverse. Times are ledger times (`times.iso`), money is whole nano-dollars, None is not known.
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
    """Where a machine's SSH server answers, and as which user to log in."""

    host: str
    port: int
    user: str


class HourlyPrice(NamedTuple):
    """What an hour costs, in nano-dollars, with the source of the price, its date and `core.model.offers.Basis`."""

    nanos_per_hour: int
    source: str
    as_of: str
    basis: str
    is_negotiated: bool | None = None
    list_nanos_per_hour: int | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        required = (record["nanos_per_hour"], record["source"], record["as_of"], record["basis"])
        return cls(*required, record.get("is_negotiated"), record.get("list_nanos_per_hour"))

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
    """The account as its provider identifies it, as recorded: `core.model.identity.AccountIdentity`."""

    kind: str
    id: str
    display_name: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        return cls(record["kind"], record["id"], record["words"])


class AttachedCost(NamedTuple):
    """A resource that is billed with a machine: its disk, its address.

    `at_most`: the price is an upper bound. `running`: billed only while the machine runs. `kept`: it stays after the
    machine. `named`: a volume with the user's name. `resource` is a `usage.Resource`, `stored_as` the price list's kind
    of storage. From `per` on: the rate (`core.billing.rates.Rate`), if a price list has it: `nanos` for one of
    `quantity` per hour, month or GB. `by_size`: the quantity is a number of GB.
    """

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
    """A disk or an image that is retained without its machine, or that has a name of its own.

    `kind` is a `core.model.resources.Kind`, `stored_as` the price list's kind of storage, `made_at` the provider's
    time. `ready`: it can be used or removed as it is. `name` to `alive_at` are only set for named volumes and images;
    `alive_at` is when a sync last saw it. From `per` on: the rate as in `AttachedCost`, if a price list has it.
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
    """Figures that the totals of a resource's ended usages do not contain; `core.billing.charges` makes them.

    `marks` are of uncertain prices (`~?^!`), `reasons` say why low and high differ, `compared` is the cost of runs with
    a known list cost, `interrupted` is [low, amount, high, micros, runs] of interrupted runs. Costs are in exact
    parts of a nano-dollar (`core.billing.rules.PARTS_PER_NANO`), `micros` are microseconds.
    """

    marks: str
    reasons: tuple[str, ...]
    compared: int
    interrupted: tuple[int, ...]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        return cls(record["marks"], tuple(record["reasons"]), record["compared"], tuple(record["interrupted"]))


class NamedVolume(NamedTuple):
    """A data disk with a name; `size_gb` is its size if it may be created, None if it has to exist."""

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
    """The setup of a machine in addition to its type: `core.model.launch.Setup`."""

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
    """The safeguards of a machine, as recorded: `core.policies.guards.Safeguards`."""

    agent: str
    timer: str
    follows: bool  # the timer follows renew-until by itself
    tagged: bool = True  # its tags can be changed; else only the ledger knows when its lease was renewed
    alone: bool = False  # at its provider, nothing but scheduled runs of the reaper can stop its costs
    waived: bool = False  # launched or started with --no-guard: the user needs no scheduled runs

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        optional = (record.get("tagged", True), record.get("alone", False), record.get("waived", False))
        return cls(record["agent"], record["timer"], record["follows"], *optional)


class SentWarning(NamedTuple):
    """When people were first (`at`) and last warned that a machine ends at `due`, how often, and why."""

    at: str
    last: str
    due: str | None
    times: int
    why: str | None


class LastDecision(NamedTuple):
    """The last decision of the reaper about a machine: the action `do`, taken first at `since`, by `rule`.

    `why` is its reason, `at` when it ends the machine. `activity` is ACTIVE, IDLE or UNKNOWN, unchanged since
    `activity_since`.
    """

    do: str
    rule: str
    why: str
    activity: str
    at: str | None
    since: str
    activity_since: str


class CountedTraffic(NamedTuple):
    """What a machine's network counters had at `until`: bytes sent (`counted`) and received (None: not read)."""

    until: str
    counted: int
    received: int | None = None


class RecordedTrafficPrices(NamedTuple):
    """Nano-dollars per GB (10^9 bytes) sent (`out`) and received (`into`), if the offer has prices of its own."""

    out: int
    into: int


class RefusedAction(NamedTuple):
    """An action that the provider refused because the machine is protected, and how to lift the protection."""

    action: Literal["stop", "terminate"]
    why: str
    next: str


class SharedKey(NamedTuple):
    """A colleague's public key that may log in: whose it is, from which network, and the host key given with it."""

    label: str
    network: str | None
    host_key: str | None
    at: str


class ClusterNode(NamedTuple):
    """Which node of which cluster a machine is.

    `name` is the cluster's, `id` the common prefix of its machines' ids; `node` counts from 0 to `nodes` - 1. `engine`
    schedules its jobs ("none": nothing does); `on_node_loss` is what the other nodes do when one is lost.
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
        """Return the value of the cluster's tag, the same on all nodes: `4-slurm-wait`."""
        return f"{self.nodes}-{self.engine}-{self.on_node_loss}"


class UnrequestedStop(NamedTuple):
    """When a machine was seen to have stopped without a request, and in which ledger entry."""

    at: str
    seq: int


class LastRequest(NamedTuple):
    """The last action requested for a machine (stop, start, park, terminate), and when.

    `judged`: a run of the reaper decided it; until it is done, each run decides again.
    """

    what: str
    at: str
    judged: bool


class TermsText(NamedTuple):
    """A file of policies or limits as it was read: its path (None: it was published in the ledger) and its text.

    `tz`, only for a policy, is the time zone of schedules that name none.
    """

    place: str | None
    text: str
    tz: str | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        return cls(record["place"], record["text"], record.get("tz"))


class Terms(NamedTuple):
    """The texts of the policy and limits of a machine, as the home (its id) that launched it last read them.

    `policy` None: one that cloudgpu ships; `tz` is then the time zone of schedules that name none. `price_jump` is that
    home's setting, a factor as text.
    """

    home: str
    policy: TermsText | None
    limits: tuple[TermsText, ...]
    price_jump: str
    tz: str | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record."""
        policy = record["policy"]
        return cls(
            record["home"],
            None if policy is None else TermsText.of(policy),
            tuple(map(TermsText.of, record["limits"])),
            record["price_jump"],
            record.get("tz"),
        )

    def record(self) -> TermsRecord:
        """Return it as a ledger event stores it."""
        return cast("TermsRecord", record_of(self))


EMPTY: Mapping[str, Any] = MappingProxyType({})  # the default of fields that hold mappings
_KEYS: dict[type, dict[str, str]] = {  # field -> key of the record, where the two differ
    RecordedIdentity: {"display_name": "words"},
    MachineGpus: {"number": "count", "out_of": "of"},
    SentWarning: {"times": "count"},
    SharedKey: {"network": "from"},
}
_WITH_ALL_KEYS = (Usage, PriceInterval)  # records with every key, which `usage_of_record` requires


def record_of(value: object) -> Any:
    """Return a value of these classes as plain JSON values, without the optional fields that are None."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is None:
            return [record_of(item) for item in value]
        keys = _KEYS.get(type(value), {})
        optional = () if isinstance(value, _WITH_ALL_KEYS) else getattr(value, "_field_defaults")  # noqa: B009  (a tuple has none, for the type checker)
        return {
            keys.get(name, name): record_of(item)
            for name, item in zip(names, value, strict=True)
            if item is not None or name not in optional
        }
    if isinstance(value, Mapping):
        return {key: record_of(item) for key, item in value.items()}
    return value


def value_getter(keys: Iterable[str], defaults: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function from a record to the values of these keys; it raises KeyError for a key without a default."""
    values = itemgetter(*keys)
    return (lambda record: values({**defaults, **record})) if defaults else values


def from_record(value_type: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function from a record to a flat value of this class: the inverse of `record_of`."""
    keys = _KEYS.get(value_type, {})
    values = value_getter([keys.get(name, name) for name in value_type._fields], value_type._field_defaults)
    return lambda record: value_type._make(values(record))
