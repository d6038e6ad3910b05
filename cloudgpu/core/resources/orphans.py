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
    PAUSED,
    STOPPED,
    Cleanup,
    CleanupOptions,
    Cost,
    LedgerKnowledge,
    Orphan,
    comes_back,
    has_hold,
    is_paused,
    is_startable,
    lives,
    origin_of,
    work_on,
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


def machines(knowledge: LedgerKnowledge) -> Iterator[Orphan]:
    """Yield the stopped machines of this ledger, with their monthly costs."""
    for machine in knowledge.rows:
        if machine.terminated_at is None and machine.state in PAUSED:
            yield _machine(machine, knowledge)


def _machine(machine: Machine, knowledge: LedgerKnowledge) -> Orphan:
    since, name, billed = machine.since or machine.seen_at, machine.name, machine.billed
    reason_to_stay = work_on([machine], knowledge)
    if not reason_to_stay and {machine.region, machine.account} & knowledge.silent:
        reason_to_stay = f"{machine.region} did not answer"
    if not reason_to_stay and has_hold(machine, knowledge.now):
        reason_to_stay = f"it is held until {minute_text(not_none(machine.hold_until))}"
    return Orphan(
        what=ALLOCATED if billed else STOPPED,
        id=machine.provider_id or machine.id,
        name=name,
        provider=machine.provider,
        account=machine.account,
        region=machine.region,
        zone=machine.zone or "",
        size_gb=0,
        cost=_while_stopped(machine),
        origin=origin_of({}, machine, knowledge),
        since=from_iso(since) if since else None,
        why="it was shut down from inside, and is billed as if it ran" if billed else "it is stopped",
        do=Cleanup.STAY,
        stays=reason_to_stay or comes_back(machine),
        way=f"cloudgpu {'stop' if billed else 'down'} {name}",
        machine=machine,
    )


def _while_stopped(machine: Machine) -> Cost:
    """Return what a stopped machine costs a month: its attached costs, and itself if it is still billed."""
    costs = [attached_cost for attached_cost in machine.attached_costs or () if attached_cost.kept or machine.billed]
    parts = [cost.nanos_per_month for cost in costs]
    if machine.billed:
        parts.append(machine.price and machine.price.nanos_per_hour * MONTH_H)
    at_most = any(cost.at_most for cost in costs)
    known = [part for part in parts if part is not None]
    if machine.attached_costs is None or len(known) < len(parts):
        return Cost(None, at_most)
    return Cost(Money(sum(known)), at_most)


def others(facts: LedgerKnowledge, resources: Sequence[ProviderResource]) -> Iterator[Orphan]:
    """Yield the stopped machines of other ledgers, with what their disks cost."""
    for one in facts.foreign:
        if one.state not in PAUSED:
            continue
        disks = [facts.costs.get(resource.id, Cost(None)) for resource in resources if resource.attached_to == one.id]
        origin = origin_of(one.tags, None, facts)
        yield Orphan(
            what=ALLOCATED if one.billed else STOPPED,
            id=one.id,
            name=origin.name,
            provider=one.provider,
            account=one.account,
            region=one.region,
            zone=one.zone,
            size_gb=0,
            cost=Cost(None) if one.billed else _sum(disks),
            origin=origin,
            since=one.since,
            why="it was shut down from inside, and is billed as if it ran" if one.billed else "it is stopped",
            do=Cleanup.STAY,
            stays=f"it belongs to another ledger ({origin.ledger or 'not said'})",
        )


def _sum(costs: Sequence[Cost]) -> Cost:
    """Return what all of these cost; None for none of them, since a machine has a disk, and where one has no price."""
    prices = [cost.per_month.nanos for cost in costs if cost.per_month is not None]
    if not prices or len(prices) < len(costs):
        return Cost(None)
    return Cost(Money(sum(prices)), any(cost.at_most for cost in costs))


def orphans(
    resources: Iterable[ProviderResource],
    knowledge: LedgerKnowledge,
    request: CleanupOptions = CleanupOptions(),  # noqa: B008  (frozen)
) -> list[Orphan]:
    """Return the orphans, by account and region. Nothing that a running machine uses is among them."""
    listed = list(resources)
    found = [*counted(listed, knowledge), *machines(knowledge), *others(knowledge, listed)]
    if request.older_than is not None:
        found = [one for one in found if one.since is None or knowledge.now - one.since >= request.older_than]
    adapted = [_as_requested(orphan, knowledge, request) for orphan in found]
    return sorted(adapted, key=lambda orphan: (orphan.account, orphan.region, orphan.what, orphan.name, orphan.id))


def _as_requested(orphan: Orphan, knowledge: LedgerKnowledge, request: CleanupOptions) -> Orphan:
    """Return it with what cleaning does with it under this request."""
    if orphan.do is Cleanup.REMOVE and request.older_than is not None and orphan.since is None:
        return replace(orphan, do=Cleanup.STAY, stays="since when it is left is not known")
    if orphan.do is Cleanup.REMOVE and request.spare and is_startable(orphan):
        return replace(
            orphan, do=Cleanup.STAY, stays=f"{orphan.way} brings it back; --older-than or --snapshot lets it go"
        )
    span = request.stopped_older_than
    if span is None or orphan.machine is None or orphan.do is Cleanup.REMOVE or not is_paused(orphan.machine):
        return orphan
    if orphan.stays != comes_back(orphan.machine) or orphan.since is None or knowledge.now - orphan.since < span:
        return orphan
    return replace(orphan, do=Cleanup.END, stays="")


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a resource is an orphan; `kept`: why it is there on purpose, `way`: the command that ends it then."""

    why: str
    kept: str = ""
    way: str = ""


def counted(resources: Iterable[ProviderResource], knowledge: LedgerKnowledge) -> Iterator[Orphan]:
    """Yield the orphans among these resources; nothing that a running machine uses is among them."""
    rows = {machine.id: machine for machine in knowledge.rows}
    for resource in resources:
        machine = rows.get(resource.tags.get(TAG_ID, "")) if is_ours(resource, knowledge) else None
        cause = _cause_of(resource, machine, knowledge)
        if cause is not None:
            yield _orphan(resource, machine, cause, knowledge)


def is_ours(resource: ProviderResource, facts: LedgerKnowledge) -> bool:
    """Say whether a resource belongs to this ledger."""
    return bool(facts.ledger) and resource.tags.get(TAG_LEDGER) == facts.ledger  # one without lines has no id yet


def is_shared(resource: ProviderResource) -> bool:
    """Say whether all launches of a ledger in a region share a resource: one with a machine's id is not shared."""
    return resource.kind in SHARED and TAG_ID not in resource.tags


def _cause_of(resource: ProviderResource, machine: Machine | None, facts: LedgerKnowledge) -> _Cause | None:
    """Return why a resource is an orphan; None where it is none."""
    if resource.attached_to is not None:
        return _cause_if_attached(resource, facts)
    if is_on_purpose(resource) and resource.kind in (*_DISKS, Kind.VOLUME):
        word = "volume" if resource.kind is Kind.VOLUME else "image"
        return _Cause("it is a named image or volume", "on purpose", f"cloudgpu {word} rm {resource.name}")
    if is_shared(resource):
        return None if _is_needed(resource, facts) else _Cause(f"no machine of its ledger is left in {resource.region}")
    if resource.kind in _GOES_WITH_ITS_MACHINE:
        return None if lives(machine) else _Cause(_GOES_WITH_ITS_MACHINE[resource.kind])
    return _cause_if_unused(resource, machine)


def _cause_if_unused(resource: ProviderResource, machine: Machine | None) -> _Cause | None:
    """Return why something counts that no machine uses."""
    if machine is None:
        return _Cause("no machine uses it")
    if resource.kind in _DISKS:
        return _cause_of_disk(resource, machine)
    if not lives(machine):
        return _Cause("its machine is gone")
    return _Cause("no machine uses it", f"{machine.name} is there", f"cloudgpu down {command_name(machine)}")


def _cause_if_attached(resource: ProviderResource, facts: LedgerKnowledge) -> _Cause | None:
    """Return a volume that is kept by name and hangs on a stopped machine: `down` leaves it. Nothing else."""
    machine = next((one for one in facts.rows if one.provider_id == resource.attached_to and is_paused(one)), None)
    if machine is None or resource.kind is not Kind.VOLUME or not is_ours(resource, facts):
        return None
    return _Cause(f"it is a named image or volume, at {machine.name}, which is stopped", "on purpose")


def _cause_of_disk(resource: ProviderResource, machine: Machine) -> _Cause | None:
    """Return why a disk or image of our machine counts; None where it is the machine's, or gone since the sync."""
    name = machine.name
    if resource.id not in {entry.id for entry in machine.retained}:
        return None
    if lives(machine):
        return _Cause(f"it is of an earlier life of {name}", f"{name} is back, and cloudgpu ls --refresh removes it")
    if machine.parked:
        return _Cause(
            f"{name} is stopped, and was parked", comes_back(machine), f"cloudgpu start {name}, or cloudgpu down {name}"
        )
    why = f"{name} was ended, and it was not removed" if machine.discard else f"{name} has ended by itself"
    return _Cause(why, "", f"cloudgpu down {name}" if machine.discard else f"cloudgpu start {name}")


def _is_needed(resource: ProviderResource, knowledge: LedgerKnowledge) -> bool:
    """Say whether its ledger has a machine, or may have one soon, where this is shared by all of them."""
    here = (resource.account, resource.region)
    if is_ours(resource, knowledge):
        return any(lives(machine) and (machine.account, machine.region) == here for machine in knowledge.rows)
    ledger, over = resource.tags.get(TAG_LEDGER), State.TERMINATED
    others = (one for one in knowledge.foreign if one.tags.get(TAG_LEDGER) == ledger and one.state is not over)
    return any((instance.account, instance.region) == here for instance in others)


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
        way=cause.way if is_ours(resource, knowledge) else "",
        resource=resource,
        machine=machine,
    )


def _since(resource: ProviderResource, machine: Machine | None, knowledge: LedgerKnowledge) -> datetime | None:
    """Return since when a resource is orphaned: its machine's end, or, where that is not known, when it was made."""
    ends = [machine.terminated_at] if machine is not None else []
    if is_shared(resource) and is_ours(resource, knowledge):
        here = (resource.account, resource.region)
        ends = [row.terminated_at for row in knowledge.rows if (row.account, row.region) == here]
    ended = max((from_iso(end) for end in ends if end), default=None)
    moments = [at for at in (ended, resource.made_at) if at is not None and not is_on_purpose(resource)]
    return max(moments, default=resource.made_at)


def _is_settled(resource: ProviderResource, machine: Machine | None) -> bool:
    """Say whether nobody can need this any more: it is one machine's, which is proved gone, or never was."""
    return machine is not None and machine.terminated_at is not None and resource.kind not in (*_DISKS, Kind.VOLUME)


def _reasons_to_stay(
    resource: ProviderResource, machine: Machine | None, cause: _Cause, since: datetime | None, facts: LedgerKnowledge
) -> Iterator[str | None]:
    """Yield what speaks against its removal, the most serious first; an empty text or None for what does not."""
    if not is_ours(resource, facts):
        yield f"it belongs to another ledger ({resource.tags.get(TAG_LEDGER) or 'not said'})"
    yield (is_on_purpose(resource) and cause.kept) or None
    # without a machine's id, any launch may be making it just now
    yield work_on(
        [machine] if machine is not None else [row for row in facts.rows if row.account == resource.account], facts
    )
    if is_in_unanswered(facts.silent, resource.account, resource.region):
        yield f"{resource.region} did not answer in whole"
    if machine is not None and has_hold(machine, facts.now):
        yield f"{machine.name} is held until {minute_text(not_none(machine.hold_until))}"
    yield cause.kept
    if not resource.ready:
        yield "it is still being made"
    if not _is_settled(resource, machine) and any(
        at is not None and facts.now - at < RECENT for at in (since, resource.made_at)
    ):
        yield f"it is younger than {RECENT // timedelta(minutes=1)} minutes"
