"""A machine as the ledger knows it, and what follows from its facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, cast

from cloudgpu.core.model.facts import (
    EMPTY,
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
    from_record,
    value_getter,
)
from cloudgpu.core.model.usage import Usage, usage_of_record
from cloudgpu.core.values.naming import account_sync_subject

if TYPE_CHECKING:
    from cloudgpu.core.values.network import JumpHost

T = TypeVar("T")
# The user's own computers: `any` leaves them out, as it is about what is bought.
ON_PREMISES_PROVIDERS = ("local", "ssh")
Action = Literal["stop", "start", "terminate", "park"]


class Ownership(NamedTuple):
    """The name and owner of something."""

    name: str
    owner: str


class Machine(NamedTuple):
    """A machine, or a named volume or image, as `core.events.projection` makes it from its ledger entries.

    Times are ledger times (`times.iso`), which sort by time; money is whole nano-dollars. None: not known, or does not
    apply.

    `key` is its launch key, `request` the fingerprint of its launch request. `is_named_resource`: this is no machine
    but a named volume or image. `seq` is the number of ledger entries at the latest launch, as in the machine's tags;
    `first_at` is when the first of its entries was recorded, `intended_at` when its latest launch was. `max_price` is
    the highest that its user pays for an hour. `renew_s` is the seconds from its latest launch to its renew-until, as
    requested then. `unpriced`: a price is missing, so sums lack it. `launch_status` is `open`, `made`, `refused` or
    `void` (no machine was created; `settled_reason` says why). `since` is when its `state` began, `seen_at` when its
    provider last reported it. `pending_action` is the last action that was requested and not yet confirmed.
    `terminated_at` is when its end was proved. `action_reason` is why the last action was requested. `launch_failed`:
    it was terminated because it never came up. `parked`: it was terminated so that `start` can restore it; `discard`:
    nothing of it is to stay. `retained` are its disks and images that outlive it. `open_usage` is what is still billed;
    `usage_totals` are the sums of what has ended, by resource: [low, amount, high, list_cost, billed_us, unpriced,
    without_list_cost] as `events.metering.add_to_totals` adds them, the last two being numbers of usages;
    `charge_notes` is what those do not contain. `traffic` is None where its sent bytes were never counted. `terms` is
    None where its launch is not known. `timer` is when its cloud ends it by itself. `warnings` are by rule; a stop or a
    start deletes them. `refused_action` is set while the provider refuses to stop or terminate it. `taken_at`: in a
    simulated spot interruption, when the machine is taken. `shared` are colleagues' keys that may log in, by
    fingerprint. `unrequested_stop`: it was seen to have stopped without a request. `interrupted_at`: when its provider
    took it, if that is recorded. `cluster` says which node of which cluster it is; None for a single machine.
    `last_request` is the last requested action, done or not. `trust` says whose computer it is, a
    `core.model.offers.Trust`; None: the cloud's own, as far as is known. `traffic_prices` are those of its offer, if it
    has own ones: then received bytes cost, too.
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
    policy_by: str | None = None  # from here on: a record may lack the key
    timer: str | None = None
    warnings: Mapping[str, SentWarning] = EMPTY
    decision: LastDecision | None = None
    refused_action: RefusedAction | None = None
    taken_at: str | None = None
    shared: Mapping[str, SharedKey] = EMPTY
    unrequested_stop: UnrequestedStop | None = None
    terms: Terms | None = None
    interrupted_at: str | None = None
    cluster: ClusterNode | None = None
    trust: str | None = None
    traffic_prices: RecordedTrafficPrices | None = None
    last_request: LastRequest | None = None

    @property
    def cluster_node(self) -> ClusterNode | None:
        """Its place in a cluster of several machines; None for a single machine, even one with an engine."""
        return None if self.cluster is None or self.cluster.nodes == 1 else self.cluster

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the machine of a record. Raises KeyError for a record that lacks a key: a defect."""
        values = list(_read(record))
        for index, parse in _NESTED:
            if values[index] is not None:
                values[index] = parse(values[index])
        return cls._make(values)


OwnedSubject = Machine | Ownership  # has an owner


@lru_cache(maxsize=4096, typed=True)
def _interned(value: Any) -> Any:
    """Return the first of equal values, so that each is in memory once: most machines have the same few."""
    return value


def _interning(parse: Any) -> Any:
    return lambda record: _interned(parse(record))


def _tuple_of(parse: Any) -> Any:
    return lambda records: tuple([parse(record) for record in records])


def _dict_of(parse: Any) -> Any:
    return lambda records: (
        MappingProxyType({key: parse(record) for key, record in records.items()}) if records else EMPTY
    )


_OPTIONAL = Machine._field_defaults
_read = value_getter(Machine._fields, _OPTIONAL)


# The fields that are values of their own in a record: their index in `Machine`, and what parses them.
_NESTED = [
    (Machine._fields.index(name), parse)
    for name, parse in {
        "setup": _interning(MachineSetup.of),
        "guards": _interning(MachineGuards.of),
        "retained": _tuple_of(from_record(Retained)),
        "price": _interning(HourlyPrice.of),
        "on_demand": _interning(HourlyPrice.of),
        "attached_costs": _interning(_tuple_of(from_record(AttachedCost))),
        "open_usage": _tuple_of(usage_of_record),
        "identity": _interning(RecordedIdentity.of),
        "accelerators": _tuple_of(MachineGpus.of),
        "address": from_record(MachineAddress),
        "usage_totals": _dict_of(tuple),
        "charge_notes": _dict_of(ChargeNote.of),
        "traffic": from_record(CountedTraffic),
        "warnings": _dict_of(from_record(SentWarning)),
        "decision": from_record(LastDecision),
        "refused_action": from_record(RefusedAction),
        "shared": _dict_of(from_record(SharedKey)),
        "unrequested_stop": from_record(UnrequestedStop),
        "last_request": from_record(LastRequest),
        "terms": Terms.of,
        "cluster": from_record(ClusterNode),
        "traffic_prices": from_record(RecordedTrafficPrices),
    }.items()
]


def not_none(value: T | None) -> T:
    """Return a value that cannot be None at this point; this only tells the type checker so, and checks nothing."""
    return cast("T", value)


def command_name(machine: Machine) -> str:
    """Return the name that `stop`, `start` and `down` take for a machine: its cluster's, or its own."""
    return machine.cluster_node.name if machine.cluster_node else machine.name


def has_retained_resources(machine: Machine) -> bool:
    """Say whether a machine is gone, but resources of it are retained."""
    return machine.terminated_at is not None and bool(machine.retained or machine.parked)


def can_be_restored(machine: Machine) -> bool:
    """Say whether a machine is gone and can be started again from its retained resources."""
    return has_retained_resources(machine) and not machine.discard


def existing_volumes(machines: Iterable[Machine]) -> frozenset[tuple[str, str]]:
    """Return the named volumes that exist according to the ledger, as (account, name).

    An account counts by its name and by its identity: a plan only knows the name. An image may have a volume's name:
    the `state` of a named resource is its kind.
    """
    existing = [
        resource
        for resource in machines
        if resource.is_named_resource and resource.state == "volume" and resource.terminated_at is None
    ]
    return frozenset((account, volume.name) for volume in existing for account in (account_key(volume), volume.account))


def account_key(subject: Machine) -> str:
    """Return a unique key of a machine's account: the id of its identity, or else its name."""
    identity = subject.identity
    return str(subject.account if identity is None else identity.id)


def sync_subject_of(machine: Machine) -> str:
    """Return the ledger subject under which syncs of the account of a machine or named resource are recorded."""
    identity = machine.identity
    return account_sync_subject(machine.provider or "", machine.account or "" if identity is None else identity.id)


def sync_subjects_of(machine: Machine) -> tuple[str, str]:
    """Return the ledger subjects of complete and of incomplete syncs of a machine's account."""
    scope = sync_subject_of(machine)
    return scope, f"gap:{scope}"


def is_on_prem(provider: str) -> bool:
    """Say whether a provider's machines are the user's own (on-premises) computers, which no cloud bills or names."""
    return provider in ON_PREMISES_PROVIDERS


def billed_text(machine: Machine, text: str) -> str:
    """Return `text` for a rented machine, and an empty text for one that its user owns."""
    return "" if is_on_prem(machine.provider) else text


def may_run_text(machine: Machine) -> str:
    """Return what a machine may still do while its end is not proved."""
    return "may still run" if is_on_prem(machine.provider) else "may still be billed"


def stop_command(machine: Machine) -> str:
    """Return the command that ends the cost of a machine or cluster: `stop`, or `down` if it cannot be stopped."""
    return f"cloudgpu {'down' if machine.stoppable is False else 'stop'} {command_name(machine)}"


def launched_text(machine: Machine) -> str:
    """Return the sentences for a user who interrupts `up` after the launch."""
    name, billed = command_name(machine), billed_text(machine, " and billed")
    if machine.terminated_at is not None:
        return f"{name} does not run; its disk remains."
    return f"{name} is launched{billed}. The same up waits for it again; cloudgpu down {name} ends it."


def jump_host_of(machine: Machine) -> JumpHost | None:
    """Return the jump host through which a machine is reached, or None."""
    from cloudgpu.core.values.network import parse_jump_host  # `ls` does without

    text = None if machine.setup is None else machine.setup.network.jump
    return None if text is None else parse_jump_host(text)


def is_inside_network(machine: Machine) -> bool:
    """Say whether a machine is reached from inside its network, not from this client's public address."""
    network = machine.setup and machine.setup.network
    return network is not None and (network.jump is not None or not network.public_ip)


def may_allow_client(machine: Machine) -> bool:
    """Say whether the launch may have allowed this client's address, as far as the ledger knows."""
    return machine.setup is None or bool(machine.setup.network.ssh_from)


def may_be_running(machine: Machine) -> bool:
    """Say whether an existing machine runs or may run; one with an uncertain launch or unknown state may."""
    is_stopped = machine.state in ("stopped", "deallocated") and not machine.billed
    return not is_stopped or machine.pending_action == "start" or machine.launch_status == "open"


def by_cluster(machines: Iterable[Machine]) -> dict[str, list[Machine]]:
    """Return the machines of each cluster by its id, in the order of their nodes, without single machines.

    A cluster that was launched again under the same key has only the machines of its latest launch.
    """
    clusters: dict[str, list[Machine]] = {}
    for machine in machines:
        if machine.cluster is not None:
            clusters.setdefault(machine.cluster.id, []).append(machine)
    return {cluster: sorted(latest_launch(nodes), key=node_of) for cluster, nodes in clusters.items()}


def latest_launch(machines: Sequence[Machine]) -> list[Machine]:
    """Return the machines of a cluster's latest launch, which may have had fewer nodes."""
    latest = max(machines, key=lambda machine: machine.intended_at, default=None)
    if latest is None:
        return []
    nodes, launched_at = not_none(latest.cluster).nodes, latest.intended_at
    return [
        machine
        for machine in machines
        if not_none(machine.cluster).nodes == nodes
        and not (machine.terminated_at and machine.terminated_at < launched_at)
    ]


def node_of(machine: Machine) -> int:
    """Return a machine's node number in its cluster; 0 for a single machine."""
    return 0 if machine.cluster is None else machine.cluster.node
