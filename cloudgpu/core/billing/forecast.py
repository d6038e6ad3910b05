"""Forecasts cost: the present hourly cost, and the cost to the end of the day, the month or the leases.

Both assume that machines that run now keep running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cloudgpu.core.billing.charges import Charge, billed_span, charge
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Resource, Usage
from cloudgpu.core.values.times import HOUR, from_iso


class BurnPart(StrEnum):
    """A part of the burn rate."""

    MACHINES = "machines"  # compute, and what is attached to a machine while it runs
    STOPPED = "stopped"  # what stopped machines still cost
    UNATTACHED = "kept"  # disks, images and volumes without a machine


class Horizon(StrEnum):
    """The end of a projection."""

    DAY = "end_of_day"
    MONTH = "end_of_month"
    LEASES = "leases_end"  # each machine to its `expires`, or to the end of its hold
    RENEWALS = "renew_until"  # each machine to its `renew-until`


@dataclass(frozen=True, slots=True)
class BurnByPart:
    """What an hour costs now, by part, in exact parts of a nano-dollar; how much of it has no price."""

    by_part: Mapping[BurnPart, int]
    without_price: int

    @property
    def total(self) -> int:
        """The sum of the parts."""
        return sum(self.by_part.values())


@dataclass(frozen=True, slots=True)
class RemainingCost:
    """The remaining cost, in exact parts; `without_end` counts running machines that have no such end."""

    low: int
    amount: int
    high: int
    without_end: int = 0


@dataclass(frozen=True, slots=True)
class OngoingUsage:
    """A usage that is still billed, with its last price alone, and its machine; billed already to `billed_until`."""

    machine: Machine
    usage: Usage
    billed_until: datetime
    _cache: dict[datetime, Charge] = field(default_factory=dict, compare=False, repr=False)

    @property
    def part(self) -> BurnPart:
        """Which part of the burn rate it is."""
        if self.machine.is_named_resource or self.machine.terminated_at is not None:
            return BurnPart.UNATTACHED
        return BurnPart.MACHINES if self.machine.billed else BurnPart.STOPPED

    def remaining_charge(self, until: datetime) -> Charge:
        """Return what it costs from now on up to a time, without what is billed already."""
        if until not in self._cache:
            self._cache[until] = charge(self.usage, max(self.billed_until, until), since=self.billed_until)
        return self._cache[until]


def open_usages(machines: Iterable[Machine], now: datetime) -> list[OngoingUsage]:
    """Return every usage of these machines (`View.billable_machines`) that is still billed."""
    usages = ((machine, use) for machine in machines for use in machine.open_usage if use.end is None)
    return [
        OngoingUsage(machine, use._replace(segments=use.segments[-1:]), max(now, billed_span(use, now)[1]))
        for machine, use in usages
    ]


def burn_rate(usages: Iterable[OngoingUsage], now: datetime) -> BurnByPart:
    """Return what the hour from `now` on costs if everything stays as it is."""
    parts = dict.fromkeys(BurnPart, 0)
    unpriced_count = 0
    for usage in usages:
        hour = charge(usage.usage, now + HOUR, since=now, until=now + HOUR)
        parts[usage.part] += hour.amount
        unpriced_count += bool(hour.unpriced_us)
    return BurnByPart(parts, unpriced_count)


def remaining_cost(
    usages: Iterable[OngoingUsage], now: datetime, horizon: Horizon, end: datetime | None = None
) -> RemainingCost:
    """Return the remaining cost up to `end`, or to the end of each lease or renewal.

    A running machine is counted to its renew-until. If that has passed, or there is none, it is counted to `end`.
    Stopped machines and retained resources are counted to `end`, and left out of a horizon that has none.
    """
    sums, without_end = [0, 0, 0], 0
    for usage in usages:
        until = _usage_end(usage, horizon, now, end)
        if until is None:
            without_end += usage.usage.resource is Resource.INSTANCE
            continue
        cost = usage.remaining_charge(until)
        sums = [sums[0] + cost.low, sums[1] + cost.amount, sums[2] + cost.high]
    return RemainingCost(sums[0], sums[1], sums[2], without_end)


def _usage_end(usage: OngoingUsage, horizon: Horizon, now: datetime, end: datetime | None) -> datetime | None:
    renewed = _time(usage.machine.renew_until)
    if end is not None:
        return end if usage.part is not BurnPart.MACHINES or renewed is None or renewed <= now else min(end, renewed)
    if usage.part is not BurnPart.MACHINES:
        return None
    if horizon is Horizon.RENEWALS:
        return renewed
    lease_or_hold_end = max(filter(None, map(_time, (usage.machine.expires, usage.machine.hold_until))), default=None)
    return renewed if lease_or_hold_end is None else min(filter(None, (lease_or_hold_end, renewed)))


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_iso(text)
