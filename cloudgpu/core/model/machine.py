"""A machine as the ledger knows it, and what its facts say. Apart from `retention`: `ls` pays for every import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, cast

from cloudgpu.core.model.facts import (
    NO_TEXTS,
    AttachedCost,
    ChargeNote,
    ClusterNode,
    CountedTraffic,
    HourlyPrice,
    LastDecision,
    LastRequest,
    MachineAddress,
    MachineGpus,
    MachineGuards,
    MachineSetup,
    RecordedIdentity,
    RecordedTrafficPrices,
    RefusedAction,
    Retained,
    SentWarning,
    SharedKey,
    Terms,
    UnrequestedStop,
    made_by_record,
    reader,
)
from cloudgpu.core.model.usage import Usage, usage_of_record
from cloudgpu.core.values.naming import scope_of

if TYPE_CHECKING:
    from cloudgpu.core.values.network import Jump

T = TypeVar("T")
OWNED_PROVIDERS = ("local", "ssh")  # machines that are there already: no part of `any`, which is about what is bought
Action = Literal["stop", "start", "terminate", "park"]


class Ownership(NamedTuple):
    """What says whose something is."""

    name: str
    owner: str


class PriceSubject(NamedTuple):
    """What says since when which price holds."""

    id: str
    intended_at: str
    terminated_at: str | None
    price: HourlyPrice | None


class BudgetSubject(NamedTuple):
    """What budgets need to know of a planned launch: the part of a machine that a plan has."""

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
    setup: MachineSetup | None
    guards: MachineGuards | None
    state: str
    billed: bool
    pending_action: Action | None
    terminated_at: str | None
    retained: tuple[Retained, ...]
    owner: str
    project: str
    renew_until: str | None
    price: HourlyPrice | None
    on_demand: HourlyPrice | None
    max_price: int | None
    licence: str | None
    attached_costs: tuple[AttachedCost, ...] | None
    open_usage: tuple[Usage, ...]
    intended_at: str
    identity: RecordedIdentity | None


class EndSubject(NamedTuple):
    """What says how an offer would end, and what would guard it."""

    stoppable: bool | None
    parkable: bool | None
    setup: MachineSetup | None
    guards: MachineGuards | None = None


class Machine(NamedTuple):
    """A machine, or a volume or image that is kept by name, as `core.events.projection` makes it from its lines.

    Times are ledger times (`times.iso`), which sort by time; money is whole nano-dollars. None: not known, or not so.

    `is_named_resource`: this is no machine but a volume or image that is kept by name. `seq` is how long the ledger was
    at the latest launch, as the tags of that machine say. `launch_status` is `open`, `made`, `refused` or `void`.
    `pending_action` is the last action that was asked and not yet seen to be done. `terminated_at` is when it was
    proved gone. `launch_failed`: it was ended because it never came up. `parked`: its end was asked so that `start` can
    bring it back; `discard`: nothing of it is to stay. `retained` are the disks and images of it that stay without it.
    `open_usage` is what is still billed; `usage_totals` are the sums of what has ended, by resource: [low, amount,
    high, on_demand, micros, unpriced, not_on_demand] as `billing.charges.ChargeSum` has them; `charge_notes` is what
    those do not say. `traffic` is None where its bytes out were never counted. `terms` is None where its launch is not
    known. `timer` is when its cloud ends it by itself. `warnings` are by rule; a stop or a start forgets them.
    `refused_action` is there while the provider refuses to end or stop it. `taken_at`: a spot interruption is
    rehearsed, and this is when the machine is taken. `shared` are the keys that were let in, by fingerprint.
    `unrequested_stop`: it was seen not to run any more, and nobody had asked for that. `interrupted_at`: its provider
    took it then, and that is written down. `cluster` says which node it is of which; None for a machine of its own.
    `last_request` is what was last asked of it, done or not: a start, where one took that back.
    `trust` says whose computer it is, a `core.model.offers.Trust`; None: its cloud's own, as far as is known.
    `traffic_prices` are those of its own offer, where it has some: then the bytes that it receives cost, too.
    """

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
    setup: MachineSetup | None
    guards: MachineGuards | None
    state: str
    billed: bool
    pending_action: Action | None
    terminated_at: str | None
    retained: tuple[Retained, ...]
    owner: str
    project: str
    renew_until: str | None
    price: HourlyPrice | None
    on_demand: HourlyPrice | None
    max_price: int | None
    licence: str | None
    attached_costs: tuple[AttachedCost, ...] | None
    open_usage: tuple[Usage, ...]
    intended_at: str
    identity: RecordedIdentity | None
    key: str
    request: str
    seq: int
    accelerators: tuple[MachineGpus, ...] | None
    attempt_number: int
    token: str | None
    settled_reason: str | None
    first_at: str
    template: str | None
    provider_id: str | None
    state_reason: str | None
    address: MachineAddress | None
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
    usage_totals: Mapping[str, tuple[int, ...]]
    charge_notes: Mapping[str, ChargeNote]
    unpriced: bool
    traffic: CountedTraffic | None
    policy_by: str | None = None  # from here on: absent from a record where nothing was said
    timer: str | None = None
    warnings: Mapping[str, SentWarning] = NO_TEXTS
    decision: LastDecision | None = None
    refused_action: RefusedAction | None = None
    taken_at: str | None = None
    shared: Mapping[str, SharedKey] = NO_TEXTS
    unrequested_stop: UnrequestedStop | None = None
    terms: Terms | None = None
    interrupted_at: str | None = None
    cluster: ClusterNode | None = None
    trust: str | None = None
    traffic_prices: RecordedTrafficPrices | None = None
    last_request: LastRequest | None = None

    @property
    def gang(self) -> ClusterNode | None:
        """Which node it is of a cluster of several machines; None for one of its own, with a queue or without."""
        return None if self.cluster is None or self.cluster.nodes == 1 else self.cluster

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the machine of a record. Raises KeyError for a record that lacks a key: a defect."""
        values = list(_read(record))
        for place, made_of in _PARTS:
            if values[place] is not None:
                values[place] = made_of(values[place])
        return cls._make(values)


Ownable = Machine | BudgetSubject | Ownership  # what is somebody's
Budgeted = Machine | BudgetSubject  # what budgets count
Endable = Machine | EndSubject  # what can end, and is guarded


@lru_cache(maxsize=4096, typed=True)
def _once(value: Any) -> Any:
    """Return the first of equal values, so that the others are not held: most machines have the same few."""
    return value


def _shared(made_of: Any) -> Any:
    return lambda record: _once(made_of(record))


def _each(made_of: Any) -> Any:
    return lambda records: tuple([made_of(record) for record in records])


def _named(made_of: Any) -> Any:
    return lambda records: (
        MappingProxyType({key: made_of(one) for key, one in records.items()}) if records else NO_TEXTS
    )


_OPTIONAL = Machine._field_defaults
_read = reader(Machine._fields, _OPTIONAL)


_PARTS = [
    (Machine._fields.index(name), made_of)
    for name, made_of in {
        "setup": _shared(MachineSetup.of),
        "guards": _shared(MachineGuards.of),
        "retained": _each(made_by_record(Retained)),
        "price": _shared(HourlyPrice.of),
        "on_demand": _shared(HourlyPrice.of),
        "attached_costs": _shared(_each(made_by_record(AttachedCost))),
        "open_usage": _each(usage_of_record),
        "identity": _shared(RecordedIdentity.of),
        "accelerators": _each(MachineGpus.of),
        "address": made_by_record(MachineAddress),
        "usage_totals": _named(tuple),
        "charge_notes": _named(ChargeNote.of),
        "traffic": made_by_record(CountedTraffic),
        "warnings": _named(made_by_record(SentWarning)),
        "decision": made_by_record(LastDecision),
        "refused_action": made_by_record(RefusedAction),
        "shared": _named(made_by_record(SharedKey)),
        "unrequested_stop": made_by_record(UnrequestedStop),
        "last_request": made_by_record(LastRequest),
        "terms": Terms.of,
        "cluster": made_by_record(ClusterNode),
        "traffic_prices": made_by_record(RecordedTrafficPrices),
    }.items()
]


def not_none(said: T | None) -> T:
    """Return a fact that is known wherever it is asked for: for the type checker alone, nothing is checked here."""
    return cast("T", said)


def command_name(machine: Machine) -> str:
    """Return the name under which a machine is stopped, started and ended: its cluster's, or its own."""
    return machine.gang.name if machine.gang else machine.name


def has_retained_resources(machine: Machine) -> bool:
    """Say whether something of this machine is kept, though it is gone."""
    return machine.terminated_at is not None and bool(machine.retained or machine.parked)


def comes_back(machine: Machine) -> bool:
    """Say whether this machine is gone and can be started from what is kept of it."""
    return has_retained_resources(machine) and not machine.discard


def existing_volumes(rows: Iterable[Budgeted]) -> frozenset[tuple[str, str]]:
    """Return the volumes that the ledger knows to be there, by their account and name.

    A plan knows its account by name alone; what is launched is held against the account's identity.
    """
    subjects = [row for row in rows if row.is_named_resource and row.terminated_at is None]
    return frozenset((account, row.name) for row in subjects for account in (account_key(row), row.account))


def account_key(subject: Budgeted) -> str:
    """Return what tells the account of a row from all others: its identity, whatever a member calls it."""
    identity = subject.identity
    return str(subject.account if identity is None else identity.id)


def scope_of_row(machine: Machine) -> str:
    """Return the subject under which syncs of the account of a machine, or of a retained resource, are written."""
    identity = machine.identity
    return scope_of(machine.provider or "", machine.account or "" if identity is None else identity.id)


def scopes_of(machine: Machine) -> tuple[str, str]:
    """Return the subjects under which syncs of a machine's account are written: those wholly answered, and others."""
    scope = scope_of_row(machine)
    return scope, f"gap:{scope}"


def is_owned(provider: str) -> bool:
    """Say whether a provider's machines stand on computers of the user's: no cloud bills or names them."""
    return provider in OWNED_PROVIDERS


def billed_text(machine: Machine, text: str) -> str:
    """Return `text` for a machine that is rented; nothing for one that its user owns."""
    return "" if is_owned(machine.provider) else text


def may_run_text(machine: Machine) -> str:
    """Return what may still be the case with a machine whose end is not proved."""
    return "may still run" if is_owned(machine.provider) else "may still be billed"


def stop_command(machine: Machine) -> str:
    """Return what a person runs to let a cluster cost no more: `stop`, or `down` where its nodes cannot be stopped."""
    return f"cloudgpu {'down' if machine.stoppable is False else 'stop'} {command_name(machine)}"


def launched_text(machine: Machine) -> str:
    """Return what is said of a machine when its `up` is interrupted after the launch."""
    name, billed = command_name(machine), billed_text(machine, " and billed")
    if machine.terminated_at is not None:
        return f"{name} does not run; its disk remains."
    return f"{name} is launched{billed}. The same up waits for it again; cloudgpu down {name} ends it."


def jump_of(machine: Machine) -> Jump | None:
    """Return the host through which this machine is reached, None for the straight way."""
    from cloudgpu.core.values.network import parse_jump  # `ls` does without

    text = None if machine.setup is None else machine.setup.network.jump
    return None if text is None else parse_jump(text)


def is_behind(machine: Machine) -> bool:
    """Say whether this client's public address has no part in it: the machine is reached from inside its network."""
    network = machine.setup and machine.setup.network
    return network is not None and (network.jump is not None or not network.public_ip)


def may_let_us_in(machine: Machine) -> bool:
    """Say whether an address of ours may have been let in at the launch, as far as the ledger tells."""
    return machine.setup is None or bool(machine.setup.network.ssh_from)


def runs_on(row: Budgeted) -> bool:
    """Say whether a living machine runs, or may: one whose launch is not settled, or whose state nobody knows, too."""
    rests = row.state in ("stopped", "deallocated") and not row.billed
    return not rests or row.pending_action == "start" or row.launch_status == "open"


def by_cluster(machines: Iterable[Machine]) -> dict[str, list[Machine]]:
    """Return the machines of each cluster by its id, in the order of their nodes; without machines of no cluster.

    A cluster that was launched again under the same key has the machines of its latest launch alone.
    """
    found: dict[str, list[Machine]] = {}
    for machine in machines:
        if machine.cluster is not None:
            found.setdefault(machine.cluster.id, []).append(machine)
    return {one: sorted(latest_launch(some), key=node_of) for one, some in found.items()}


def latest_launch(machines: Sequence[Machine]) -> list[Machine]:
    """Return those of one cluster's machines that are of its latest launch, which may have had fewer nodes."""
    latest = max(machines, key=lambda row: row.intended_at, default=None)
    if latest is None:
        return []
    nodes, begun = not_none(latest.cluster).nodes, latest.intended_at
    return [
        machine
        for machine in machines
        if not_none(machine.cluster).nodes == nodes and not (machine.terminated_at and machine.terminated_at < begun)
    ]


def node_of(machine: Machine) -> int:
    """Return the number of the node that a machine of a cluster is."""
    return not_none(machine.cluster).node
