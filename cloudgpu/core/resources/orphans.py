"""Says what is left over without a running machine: resources, and stopped machines that go on costing. Pure.

Stopped machines are of this ledger and of others. What is left over is told as it was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cloudgpu.core.billing.rates import MONTH_H
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.resources.orphan import (
    ALLOCATED,
    PAUSED,
    STOPPED,
    CleanupOptions,
    Cost,
    Do,
    Known,
    Orphan,
    comes_back,
    is_held,
    is_paused,
    is_startable,
    origin_of,
    work_on,
)
from cloudgpu.core.resources.orphan_rules import counted
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, minute


def machines(known: Known) -> Iterator[Orphan]:
    """Yield the stopped machines of this ledger, with what a month of what stays costs."""
    for machine in known.rows:
        if machine.terminated_at is None and machine.state in PAUSED:
            yield _machine(machine, known)


def _machine(machine: Machine, known: Known) -> Orphan:
    since, name, billed = machine.since or machine.seen_at, machine.name, machine.billed
    kept = work_on([machine], known)
    if not kept and {machine.region, machine.account} & known.silent:
        kept = f"{machine.region} did not answer"
    if not kept and is_held(machine, known.now):
        kept = f"it is held until {minute(not_none(machine.hold_until))}"
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
        origin=origin_of({}, machine, known),
        since=from_iso(since) if since else None,
        why="it was shut down from inside, and is billed as if it ran" if billed else "it is stopped",
        do=Do.STAY,
        stays=kept or comes_back(machine),
        way=f"cloudgpu {'stop' if billed else 'down'} {name}",
        machine=machine,
    )


def _while_stopped(machine: Machine) -> Cost:
    """Return what a stopped machine costs a month: what is paid beside it, and itself where it is billed on."""
    beside = [one for one in machine.attached_costs or () if one.kept or machine.billed]
    parts = [one.nanos_per_month for one in beside]
    if machine.billed:
        parts.append(machine.price and machine.price.nanos_per_hour * MONTH_H)
    at_most = any(one.at_most for one in beside)
    known = [part for part in parts if part is not None]
    if machine.attached_costs is None or len(known) < len(parts):
        return Cost(None, at_most)
    return Cost(Money(sum(known)), at_most)


def others(known: Known, resources: Sequence[ProviderResource]) -> Iterator[Orphan]:
    """Yield the stopped machines of other ledgers, with what their disks cost."""
    for one in known.foreign:
        if one.state not in PAUSED:
            continue
        disks = [known.costs.get(resource.id, Cost(None)) for resource in resources if resource.attached_to == one.id]
        origin = origin_of(one.tags, None, known)
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
            do=Do.STAY,
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
    known: Known,
    request: CleanupOptions = CleanupOptions(),  # noqa: B008  (frozen)
) -> list[Orphan]:
    """Return what is left over, by account and region. Nothing that a running machine uses is among it."""
    there = list(resources)
    found = [*counted(there, known), *machines(known), *others(known, there)]
    asked = [_as_wished(one, known, request) for one in found if not _is_later(one, known, request)]
    return sorted(asked, key=lambda one: (one.account, one.region, one.what, one.name, one.id))


def _is_later(one: Orphan, known: Known, request: CleanupOptions) -> bool:
    return request.older_than is not None and one.since is not None and known.now - one.since < request.older_than


def _as_wished(one: Orphan, known: Known, request: CleanupOptions) -> Orphan:
    """Return it with what cleaning does with it under this wish."""
    if one.do is Do.REMOVE and request.older_than is not None and one.since is None:
        return replace(one, do=Do.STAY, stays="since when it is left is not known")
    if one.do is Do.REMOVE and request.spare and is_startable(one):
        return replace(one, do=Do.STAY, stays=f"{one.way} brings it back; --older-than or --snapshot lets it go")
    span = request.stopped_older_than
    if span is None or one.machine is None or one.do is Do.REMOVE or not is_paused(one.machine):
        return one
    if one.stays != comes_back(one.machine) or one.since is None or known.now - one.since < span:
        return one
    return replace(one, do=Do.END, stays="")
