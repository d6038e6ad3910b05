"""Finds orphans: resources that no running machine uses, and stopped machines that go on costing. Pure.

Stopped machines are of this ledger and of others. For each orphan it says why it counts as one, since when, and what
speaks against its removal now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloudgpu.core.billing.rates import MONTH_H
from cloudgpu.core.model.identity import is_in_unanswered
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, State
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.core.resources.orphan import (
    ALLOCATED,
    STARTABLE_STATES,
    STOPPED,
    Cleanup,
    CleanupOptions,
    Cost,
    LedgerKnowledge,
    Orphan,
    has_hold,
    is_paused,
    is_startable,
    machine_exists,
    origin_of,
    restart_text,
    work_in_progress,
)
from cloudgpu.core.resources.retention import is_on_purpose
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, minute_text

RECENT = timedelta(minutes=15)  # longer than a cloud takes to show everywhere what was just made, or let go
SHARED = (Kind.KEY_PAIR, Kind.SECURITY_GROUP)  # one for all launches of a ledger in a region, which make it anew
_DISKS = (Kind.DISK, Kind.SNAPSHOT, Kind.IMAGE)
_GOES_WITH_ITS_MACHINE = {
    Kind.SPOT_REQUEST: "its machine is gone, and it can launch another",
    Kind.TIMER: "its machine is gone",
    Kind.GROUP: "its machine is gone",
    Kind.ROLE: "its machine is gone",
}


def stopped_machines(knowledge: LedgerKnowledge) -> Iterator[Orphan]:
    """Yield the stopped machines of this ledger, with their monthly costs."""
    for machine in knowledge.machines:
        if machine.terminated_at is None and machine.state in STARTABLE_STATES:
            yield _machine(machine, knowledge)


def _machine(machine: Machine, knowledge: LedgerKnowledge) -> Orphan:
    since, name, is_billed = machine.since or machine.seen_at, machine.name, machine.billed
    reason_to_stay = work_in_progress([machine], knowledge)
    if not reason_to_stay and is_in_unanswered(knowledge.silent_scopes, machine.account, machine.region):
        reason_to_stay = f"{machine.region} did not answer"
    if not reason_to_stay and {machine.provider_id, machine.id, machine.name} & knowledge.silent_scopes:
        reason_to_stay = "it could not be read, so it may have been started"
    if not reason_to_stay and has_hold(machine, knowledge.now):
        reason_to_stay = f"it is held until {minute_text(not_none(machine.hold_until))}"
    return Orphan(
        what=ALLOCATED if is_billed else STOPPED,
        id=machine.provider_id or machine.id,
        name=name,
        provider=machine.provider,
        account=machine.account,
        region=machine.region,
        zone=machine.zone or "",
        size_gb=0,
        cost=_cost_while_stopped(machine),
        origin=origin_of({}, machine, knowledge),
        since=from_iso(since) if since else None,
        why="it is shut down, and billed as if it ran" if is_billed else "it is stopped",
        do=Cleanup.STAY,
        stays=reason_to_stay or restart_text(machine),
        command=f"cloudgpu {'stop' if is_billed else 'down'} {name}",
        machine=machine,
    )


def _cost_while_stopped(machine: Machine) -> Cost:
    """Return what a stopped machine costs a month: its attached costs, and itself if it is still billed."""
    costs = [attached_cost for attached_cost in machine.attached_costs or () if attached_cost.kept or machine.billed]
    monthly_nanos = [cost.nanos_per_month for cost in costs]
    if machine.billed:
        monthly_nanos.append(machine.price and machine.price.nanos_per_hour * MONTH_H)
    is_upper_bound = any(cost.at_most for cost in costs)
    known_nanos = [part for part in monthly_nanos if part is not None]
    if machine.attached_costs is None or len(known_nanos) < len(monthly_nanos):
        return Cost(None, is_upper_bound)
    return Cost(Money(sum(known_nanos)), is_upper_bound)


def foreign_stopped_machines(knowledge: LedgerKnowledge, resources: Sequence[ProviderResource]) -> Iterator[Orphan]:
    """Yield the stopped machines of other ledgers, with what their disks cost."""
    for instance in knowledge.foreign_instances:
        if instance.state not in STARTABLE_STATES:
            continue
        disks = [
            knowledge.costs.get(resource.id, Cost(None))
            for resource in resources
            if resource.attached_to == instance.id
        ]
        origin = origin_of(instance.tags, None, knowledge)
        yield Orphan(
            what=ALLOCATED if instance.billed else STOPPED,
            id=instance.id,
            name=origin.name,
            provider=instance.provider,
            account=instance.account,
            region=instance.region,
            zone=instance.zone,
            size_gb=0,
            cost=Cost(None) if instance.billed else _sum(disks),
            origin=origin,
            since=instance.since,
            why="it is shut down, and billed as if it ran" if instance.billed else "it is stopped",
            do=Cleanup.STAY,
            stays=f"it belongs to another ledger ({origin.ledger or 'not said'})",
        )


def _sum(costs: Sequence[Cost]) -> Cost:
    """Return what all of these cost; None for none of them, since a machine has a disk, and where one has no price."""
    prices = [cost.per_month.nanos for cost in costs if cost.per_month is not None]
    if not prices or len(prices) < len(costs):
        return Cost(None)
    return Cost(Money(sum(prices)), any(cost.is_upper_bound for cost in costs))


def orphans(
    resources: Iterable[ProviderResource],
    knowledge: LedgerKnowledge,
    request: CleanupOptions = CleanupOptions(),  # noqa: B008  (frozen)
) -> list[Orphan]:
    """Return the orphans, by account and region. Nothing that a running machine uses is among them."""
    listed = list(resources)
    candidates = [
        *orphaned_resources(listed, knowledge),
        *stopped_machines(knowledge),
        *foreign_stopped_machines(knowledge, listed),
    ]
    if request.older_than is not None:
        candidates = [
            orphan
            for orphan in candidates
            if orphan.since is None or knowledge.now - orphan.since >= request.older_than
        ]
    with_actions = [_as_requested(orphan, knowledge, request) for orphan in candidates]
    return sorted(with_actions, key=lambda orphan: (orphan.account, orphan.region, orphan.what, orphan.name, orphan.id))


def _as_requested(orphan: Orphan, knowledge: LedgerKnowledge, request: CleanupOptions) -> Orphan:
    """Return it with what cleaning does with it under this request."""
    if orphan.do is Cleanup.REMOVE and request.older_than is not None and orphan.since is None:
        return replace(orphan, do=Cleanup.STAY, stays="since when it is left is not known")
    if orphan.do is Cleanup.REMOVE and request.spare and is_startable(orphan):
        return replace(
            orphan, do=Cleanup.STAY, stays=f"{orphan.command} brings it back; --older-than or --snapshot lets it go"
        )
    min_stopped = request.stopped_older_than
    if min_stopped is None or orphan.machine is None or orphan.do is Cleanup.REMOVE or not is_paused(orphan.machine):
        return orphan
    if (
        orphan.stays != restart_text(orphan.machine)
        or orphan.since is None
        or knowledge.now - orphan.since < min_stopped
    ):
        return orphan
    return replace(orphan, do=Cleanup.END, stays="")


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a resource is an orphan; `kept`: why it stays on purpose, `command`: the command that ends it then."""

    why: str
    kept: str = ""
    command: str = ""


def orphaned_resources(resources: Iterable[ProviderResource], knowledge: LedgerKnowledge) -> Iterator[Orphan]:
    """Yield the orphans among these resources; nothing that a running machine uses is among them."""
    machines_by_id = {machine.id: machine for machine in knowledge.machines}
    for resource in resources:
        machine = machines_by_id.get(resource.tags.get(TAG_ID, "")) if is_ours(resource, knowledge) else None
        cause = _cause_of(resource, machine, knowledge)
        if cause is not None:
            yield _orphan(resource, machine, cause, knowledge)


def is_ours(resource: ProviderResource, knowledge: LedgerKnowledge) -> bool:
    """Say whether a resource belongs to this ledger."""
    return (
        bool(knowledge.ledger) and resource.tags.get(TAG_LEDGER) == knowledge.ledger
    )  # one without lines has no id yet


def is_shared(resource: ProviderResource) -> bool:
    """Say whether all launches of a ledger in a region share a resource: one with a machine's id is not shared."""
    return resource.kind in SHARED and TAG_ID not in resource.tags


def _cause_of(resource: ProviderResource, machine: Machine | None, knowledge: LedgerKnowledge) -> _Cause | None:
    """Return why a resource is an orphan; None where it is none."""
    if resource.attached_to is not None:
        return _cause_if_attached(resource, knowledge)
    if is_on_purpose(resource) and resource.kind in (*_DISKS, Kind.VOLUME):
        word = "volume" if resource.kind is Kind.VOLUME else "image"
        return _Cause("it is a named image or volume", "on purpose", f"cloudgpu {word} rm {resource.name}")
    if is_shared(resource):
        return (
            None
            if _is_needed(resource, knowledge)
            else _Cause(f"no machine of its ledger is left in {resource.region}")
        )
    if resource.kind in _GOES_WITH_ITS_MACHINE:
        return None if machine_exists(machine) else _Cause(_GOES_WITH_ITS_MACHINE[resource.kind])
    return _cause_if_unused(resource, machine)


def _cause_if_unused(resource: ProviderResource, machine: Machine | None) -> _Cause | None:
    """Return why something counts that no machine uses."""
    if machine is None:
        return _Cause("no machine uses it")
    if resource.kind in _DISKS:
        return _cause_of_disk(resource, machine)
    if not machine_exists(machine):
        return _Cause("its machine is gone")
    return _Cause("no machine uses it", f"{machine.name} is there", f"cloudgpu down {command_name(machine)}")


def _cause_if_attached(resource: ProviderResource, knowledge: LedgerKnowledge) -> _Cause | None:
    """Return a volume that is kept by name and hangs on a stopped machine: `down` leaves it. Nothing else."""
    machine = next(
        (
            stopped
            for stopped in knowledge.machines
            if stopped.provider_id == resource.attached_to and is_paused(stopped)
        ),
        None,
    )
    if machine is None or resource.kind is not Kind.VOLUME or not is_ours(resource, knowledge):
        return None
    return _Cause(f"it is a named image or volume, at {machine.name}, which is stopped", "on purpose")


def _cause_of_disk(resource: ProviderResource, machine: Machine) -> _Cause | None:
    """Return why a disk or image of our machine counts; None where it is the machine's, or gone since the sync."""
    name = machine.name
    if resource.id not in {entry.id for entry in machine.retained}:
        return None
    if machine_exists(machine):
        return _Cause(f"it is of an earlier life of {name}", f"{name} is back, and cloudgpu ls --refresh removes it")
    if machine.parked:
        return _Cause(
            f"{name} is stopped, and was parked",
            restart_text(machine),
            f"cloudgpu start {name}, or cloudgpu down {name}",
        )
    why = f"{name} was ended, and it was not removed" if machine.discard else f"{name} has ended by itself"
    return _Cause(why, "", f"cloudgpu down {name}" if machine.discard else f"cloudgpu start {name}")


def _is_needed(resource: ProviderResource, knowledge: LedgerKnowledge) -> bool:
    """Say whether its ledger has a machine, or may have one soon, where this is shared by all of them."""
    place = (resource.account, resource.region)
    if is_ours(resource, knowledge):
        return any(
            machine_exists(machine) and (machine.account, machine.region) == place for machine in knowledge.machines
        )
    ledger, terminated = resource.tags.get(TAG_LEDGER), State.TERMINATED
    instances = (
        instance
        for instance in knowledge.foreign_instances
        if instance.tags.get(TAG_LEDGER) == ledger and instance.state is not terminated
    )
    return any((instance.account, instance.region) == place for instance in instances)


def _orphan(resource: ProviderResource, machine: Machine | None, cause: _Cause, knowledge: LedgerKnowledge) -> Orphan:
    since = _since(resource, machine, knowledge)
    reason_to_stay = next(filter(None, _reasons_to_stay(resource, machine, cause, since, knowledge)), "")
    return Orphan(
        what=str(resource.kind),
        id=resource.id,
        name=resource.name,
        provider=resource.provider,
        account=resource.account,
        region=resource.region,
        zone=resource.zone,
        size_gb=resource.size_gb,
        cost=knowledge.costs.get(resource.id, Cost(None)),
        origin=origin_of(resource.tags, machine, knowledge),
        since=since,
        why=cause.why,
        do=Cleanup.STAY if reason_to_stay else Cleanup.REMOVE,
        stays=reason_to_stay,
        command=cause.command if is_ours(resource, knowledge) else "",
        resource=resource,
        machine=machine,
    )


def _since(resource: ProviderResource, machine: Machine | None, knowledge: LedgerKnowledge) -> datetime | None:
    """Return since when a resource is orphaned: its machine's end, or, where that is not known, when it was made."""
    ends = [machine.terminated_at] if machine is not None else []
    if is_shared(resource) and is_ours(resource, knowledge):
        place = (resource.account, resource.region)
        ends = [other.terminated_at for other in knowledge.machines if (other.account, other.region) == place]
    ended = max((from_iso(end) for end in ends if end), default=None)
    moments = [at for at in (ended, resource.made_at) if at is not None and not is_on_purpose(resource)]
    return max(moments, default=resource.made_at)


def _is_surely_unused(resource: ProviderResource, machine: Machine | None) -> bool:
    """Say whether nobody can need this any more: it is one machine's, which is proved gone, or never was."""
    return machine is not None and machine.terminated_at is not None and resource.kind not in (*_DISKS, Kind.VOLUME)


def _reasons_to_stay(
    resource: ProviderResource,
    machine: Machine | None,
    cause: _Cause,
    since: datetime | None,
    knowledge: LedgerKnowledge,
) -> Iterator[str | None]:
    """Yield what speaks against its removal, the most serious first; an empty text or None for what does not."""
    if not is_ours(resource, knowledge):
        yield f"it belongs to another ledger ({resource.tags.get(TAG_LEDGER) or 'not said'})"
    yield (is_on_purpose(resource) and cause.kept) or None
    # without a machine's id, any launch may be making it just now
    yield work_in_progress(
        [machine] if machine is not None else [each for each in knowledge.machines if each.account == resource.account],
        knowledge,
    )
    if is_in_unanswered(knowledge.silent_scopes, resource.account, resource.region):
        yield f"{resource.region} did not answer in whole"
    if machine is not None and has_hold(machine, knowledge.now):
        yield f"{machine.name} is held until {minute_text(not_none(machine.hold_until))}"
    yield cause.kept
    if not resource.ready:
        yield "it is still being made"
    if not _is_surely_unused(resource, machine) and any(
        at is not None and knowledge.now - at < RECENT for at in (since, resource.made_at)
    ):
        yield f"it is younger than {RECENT // timedelta(minutes=1)} minutes"
