"""Costs without a running machine: disks of stopped machines, retained resources. By the ledger; pure.

`cloudgpu orphans` queries the clouds, and also finds what no launch of this ledger made. This queries nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cloudgpu.core.billing.forecast import BurnPart, OngoingUsage, open_usages
from cloudgpu.core.billing.rates import MONTH_H
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.values.money import Money


@dataclass(frozen=True, slots=True)
class OngoingCost:
    """A resource that is still billed: `per_month` None where no price is known; `since` None where nobody knows."""

    name: str
    kind: str
    provider: str
    region: str
    per_month: Money | None
    since: str | None
    why: str


def idle_costs_of(machines: Iterable[Machine], now: datetime) -> list[OngoingCost]:
    """Return what costs money without a running machine, of `View.billable_machines`: the most expensive first."""
    costs = [_ongoing_cost(open_usage) for open_usage in open_usages(machines, now) if _is_idle_cost(open_usage)]
    costs = [cost for cost in costs if cost.per_month is None or cost.per_month]  # what is free is no cost
    return sorted(costs, key=lambda cost: (-(cost.per_month.nanos if cost.per_month else 0), cost.name, cost.kind))


def _is_idle_cost(ongoing: OngoingUsage) -> bool:
    """Say whether no running machine uses it; a machine billed though shut down counts, a volume in use does not."""
    machine = ongoing.machine
    if machine.is_named_resource:
        return not any(entry.attached_to for entry in machine.retained or ())
    return ongoing.part is not BurnPart.MACHINES or machine.state == "stopped"


def _ongoing_cost(ongoing: OngoingUsage) -> OngoingCost:
    machine, usage = ongoing.machine, ongoing.usage
    return OngoingCost(
        name=machine.name,
        kind=machine.state if machine.is_named_resource else str(usage.resource),
        provider=usage.provider,
        region=machine.region or "",
        per_month=_per_month(ongoing),
        since=usage.begin if machine.is_named_resource else machine.terminated_at or machine.since or machine.seen_at,
        why=_why(machine, usage.resource),
    )


def _per_month(ongoing: OngoingUsage) -> Money | None:
    """Return what a month of it costs, of 730 hours where the price is by the hour; None where there is none."""
    usage = ongoing.usage
    if not usage.segments:
        return None
    nanos = usage.quantity * usage.segments[-1].nanos
    return Money(nanos * MONTH_H if usage.per is Per.HOUR else nanos)


def _why(machine: Machine, resource: Resource) -> str:
    if machine.is_named_resource:
        return "it is a named resource, and no machine uses it"
    if machine.terminated_at is not None and machine.parked:
        return f"{machine.name} is parked: cloudgpu start {command_name(machine)} brings it back"
    if machine.terminated_at is not None:
        return f"{machine.name} has ended, and this stays of it"
    if resource is Resource.INSTANCE:
        return f"{machine.name} is shut down and billed on: cloudgpu stop {command_name(machine)} ends that"
    return f"{machine.name} is stopped, and this is still billed"
