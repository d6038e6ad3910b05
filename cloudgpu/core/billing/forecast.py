"""What goes on costing: by the hour now, and until a day, a month or the leases end, if what runs now goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from cloudgpu.core.billing.charges import Charge, billed_span, charge
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Resource, Usage
from cloudgpu.core.values.times import from_iso

HOUR = timedelta(hours=1)


class Part(StrEnum):
    """Which part of the burn rate something is."""

    MACHINES = "machines"  # compute, and what is paid beside it while it runs
    STOPPED = "stopped"  # what machines that do not run go on costing
    UNATTACHED = "kept"  # disks, images and volumes without a machine


class Horizon(StrEnum):
    """Up to when something is projected."""

    DAY = "end_of_day"
    MONTH = "end_of_month"
    LEASES = "leases_end"  # each machine to its `expires`, or to the end of its hold
    RENEWALS = "renew_until"  # each machine to its `renew-until`


@dataclass(frozen=True, slots=True)
class Burn:
    """What an hour costs as things stand, by part, in exact parts of a nano-dollar; how much of it has no price."""

    by_part: Mapping[Part, int]
    without_price: int

    @property
    def total(self) -> int:
        """The sum of the parts."""
        return sum(self.by_part.values())


@dataclass(frozen=True, slots=True)
class RemainingCost:
    """What is still to come, in exact parts; `without_end` counts what runs and has no such end."""

    low: int
    amount: int
    high: int
    without_end: int = 0


@dataclass(frozen=True, slots=True)
class Running:
    """A use that is billed still, with its last price alone, and its row; `billed_until`: up to when it is billed already."""

    machine: Machine
    usage: Usage
    billed_until: datetime
    _cache: dict[datetime, Charge] = field(default_factory=dict, compare=False, repr=False)

    @property
    def part(self) -> Part:
        """Which part of the burn rate it is."""
        if self.machine.is_named_resource or self.machine.terminated_at is not None:
            return Part.UNATTACHED
        return Part.MACHINES if self.machine.billed else Part.STOPPED

    def remaining(self, until: datetime) -> Charge:
        """Return what it costs from now on up to a time, what is paid already left out."""
        if until not in self._cache:
            self._cache[until] = charge(self.usage, max(self.billed_until, until), since=self.billed_until)
        return self._cache[until]


def running(machines: Iterable[Machine], now: datetime) -> list[Running]:
    """Return every use in these rows (`View.bills`) that is billed still."""
    found = ((machine, use) for machine in machines for use in machine.open_usage if use.end is None)
    return [
        Running(machine, use._replace(segments=use.segments[-1:]), max(now, billed_span(use, now)[1]))
        for machine, use in found
    ]


def burn(found: Iterable[Running], now: datetime) -> Burn:
    """Return what the hour from `now` on costs if everything stays as it is."""
    parts = dict.fromkeys(Part, 0)
    without = 0
    for one in found:
        hour = charge(one.usage, now + HOUR, since=now, until=now + HOUR)
        parts[one.part] += hour.amount
        without += bool(hour.unpriced_us)
    return Burn(parts, without)


def remaining(found: Iterable[Running], now: datetime, goal: Horizon, end: datetime | None = None) -> RemainingCost:
    """Return what is still to come up to `end`, or to the end of each lease or renewal.

    What runs now goes on: a machine to its renew-until, and from there on nothing of it; one that is over that, or
    stands without one, up to `end`. What a stopped machine costs, and what is kept, goes on up to `end`, and is left
    out of a goal that has none.
    """
    sums, endless = [0, 0, 0], 0
    for one in found:
        until = _until(one, goal, now, end)
        if until is None:
            endless += one.usage.resource is Resource.INSTANCE
            continue
        further = one.remaining(until)
        sums = [sums[0] + further.low, sums[1] + further.amount, sums[2] + further.high]
    return RemainingCost(sums[0], sums[1], sums[2], endless)


def _until(one: Running, goal: Horizon, now: datetime, end: datetime | None) -> datetime | None:
    renewed = _time(one.machine.renew_until)
    if end is not None:
        return end if one.part is not Part.MACHINES or renewed is None or renewed <= now else min(end, renewed)
    if one.part is not Part.MACHINES:
        return None
    if goal is Horizon.RENEWALS:
        return renewed
    ends = list(_times(one.machine.expires, one.machine.hold_until))
    return min(filter(None, (max(ends), renewed))) if ends else renewed


def _times(*texts: str | None) -> Iterator[datetime]:
    for text in texts:
        time = _time(text)
        if time is not None:
            yield time


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_iso(text)
