"""Compares machines with what the same work would have cost: the cloud with a desktop, own machines with a cloud.

The cloud is laid beside a desktop day by day and in three cases. Of the user's own machines it also says what they did
and took.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from cloudgpu.core.activity.utilization import OWN, Hour
from cloudgpu.core.advice.break_even import (
    DAY,
    MICRO,
    Point,
    SpendRate,
    Start,
    break_even_after,
    break_even_price,
    break_even_utilization,
    costlier_again,
    first_break_even,
)
from cloudgpu.core.advice.desktop import Desktop, OwnershipCost, desktops_needed, ownership_cost
from cloudgpu.core.billing.charges import money
from cloudgpu.core.billing.daily import NOTHING, Sums
from cloudgpu.core.catalog.catalog import CatalogOffer
from cloudgpu.core.catalog.gpus import SpeedRatio
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.periods import midnight
from cloudgpu.core.values.units import Energy, hours

HERE = "local"  # the provider that plays on this computer: no cloud, and no machine that was bought


WEEK = 7  # days
PACE_OF = 30 * DAY  # how much of the past says how it goes on
SAME = Fraction(1)  # the cloud's cost is counted by the hour of the desktop's work here
_DUST = 1e-6  # seconds: what adding fractions of them leaves


class Case(StrEnum):
    """Three ways to take what is not known."""

    LOW = "low"  # for the cloud: its least cost, and a slow desktop that does all that may have been work
    EXPECTED = "expected"  # what is likely
    HIGH = "high"  # for the desktop: the cloud's highest cost, and a fast desktop that does only what surely was work


class Seconds(NamedTuple):
    """How long a machine's GPUs worked, how long it was otherwise in use, idle, and how long nobody knows."""

    gpu: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0


@dataclass(frozen=True, slots=True)
class RentedMachine:
    """What one machine of the cloud has and did.

    `gpu` names its GPUs as its launch did ("" for none), `gpus` is how many there are (a share is a part of one) and
    `memory_gib` what each has. `speed` is how many of their hours an hour of the desktop's GPU does. `read` says that
    its GPUs' use was read at all: else all its use counts as work.
    """

    name: str
    gpu: str
    gpus: float
    memory_gib: float | None
    speed: SpeedRatio
    read: bool
    days: Mapping[date, Seconds]

    @property
    def all(self) -> Seconds:
        """The sum of its days."""
        return add_days(self.days.values())


@dataclass(frozen=True, slots=True)
class History:
    """What the cloud cost by day, and what its machines did, from `begin` to `end`; days are those of `zone`."""

    begin: datetime
    end: datetime
    zone: tzinfo
    cloud: Mapping[date, Sums]
    machines: Sequence[RentedMachine]

    @property
    def elapsed(self) -> timedelta:
        """How long a desktop would have stood there; never negative, whatever the clock says."""
        return max(timedelta(0), self.end - self.begin)


@dataclass(frozen=True, slots=True)
class CaseCosts:
    """One case: the cloud's cost, and the desktops that do the same work.

    `worked` is how long one desktop works for it. `past` is when the cloud had first cost as much, by the end of that
    day, and `since` from when on it has, where it does now. `meets` is when it will, going on at `pace`: None where it
    has, where that is never, or where there is no pace. `again` is from when to when (None: for good) the desktop,
    bought anew, is the more expensive one once more after that.
    `use` is the share of the time that a desktop has to work to be the cheaper one over its life, at what the cloud's
    hours came to; `price` what an hour of the desktop's work may cost on the cloud to be as cheap at the desktop's
    present use. Both None where nothing was worked. `busiest` is the day with the most work, and that.
    """

    cloud: Money
    worked: timedelta
    owned: OwnershipCost
    points: tuple[Point, ...]
    past: datetime | None
    since: datetime | None
    meets: datetime | None
    again: tuple[datetime, datetime | None] | None
    pace: SpendRate | None
    use: Fraction | None
    price: Money | None
    busiest: tuple[date, timedelta] | None

    @property
    def is_dearer(self) -> bool:
        """Whether the cloud has cost as much as the desktop by now, or more."""
        return self.since is not None


def by_day(found: Iterable[Hour], days: Mapping[datetime, date]) -> dict[date, Seconds]:
    """Return what a machine did on each day; `days` says on which day each hour begins."""
    sums: dict[date, list[float]] = {}
    for hour in found:
        day = sums.setdefault(days[hour.at], [0.0] * 4)
        day[0] += hour.gpu
        day[1] += hour.used
        day[2] += hour.idle
        day[3] += hour.unknown
    return {day: Seconds(*parts) for day, parts in sums.items()}


def add_days(seconds: Iterable[Seconds]) -> Seconds:
    """Return the sum."""
    return Seconds(*(sum(parts) for parts in zip(*seconds, strict=True)))


def gpu_seconds_by_day(machine: RentedMachine, case: Case) -> dict[date, float]:
    """Return for how many seconds its GPUs worked on each day, as this case takes what is not known.

    Low: all unknown time was work. High: none of it. Expected: the part of it that was work in the time that is
    known of this machine, and all of it where nothing is. Without GPUs a machine's work takes no GPU.
    """
    if not machine.gpus:
        return {}
    part = {Case.LOW: 1.0, Case.HIGH: 0.0, Case.EXPECTED: _known_part(machine)}[case]
    return {day: _busy(machine, one) + part * one.unknown for day, one in machine.days.items()}


def _busy(machine: RentedMachine, seconds: Seconds) -> float:
    return seconds.gpu if machine.read else seconds.gpu + seconds.used


def _known_part(machine: RentedMachine) -> float:
    every = machine.all
    known = every.gpu + every.used + every.idle
    return _busy(machine, every) / known if known else 1.0


def desktop_work(machines: Iterable[RentedMachine], case: Case, gpus: int) -> dict[date, float]:
    """Return for how many seconds a desktop with so many GPUs works on each day to do the same."""
    found: dict[date, float] = {}
    for machine in machines:
        speed = {Case.LOW: machine.speed.low, Case.HIGH: machine.speed.high, Case.EXPECTED: machine.speed.ratio}[case]
        factor = machine.gpus / (float(speed) * gpus)
        for day, seconds in gpu_seconds_by_day(machine, case).items():
            found[day] = found.get(day, 0.0) + factor * seconds
    return found


def desktops_cost(desktop: Desktop, elapsed: timedelta, busy_time: timedelta) -> OwnershipCost:
    """Return what as many desktops cost as do so much work in this time.

    Of less than a day, as many as do it in a day: what an hour asked of many machines need not be done within it.
    """
    number = desktops_needed(max(elapsed, DAY), busy_time)
    return ownership_cost(desktop, max(elapsed, -(-busy_time // number)), busy_time, number)


def comparisons(history: History, desktop: Desktop, *, goes_on: bool) -> dict[Case, CaseCosts]:
    """Return the three cases; `goes_on`: the period is not over, so that a pace says when the two will meet."""
    return {case: _side(history, desktop, case, goes_on=goes_on) for case in Case}


def _side(history: History, desktop: Desktop, case: Case, *, goes_on: bool) -> CaseCosts:
    worked = desktop_work(history.machines, case, desktop.gpus)
    points = tuple(_points(history, worked, case))
    last, elapsed = points[-1], history.elapsed
    cost = desktops_cost(desktop, elapsed, last.worked)
    number = cost.number
    pace = _pace(history, points, case) if goes_on else None
    past, since = _dearer(history.begin, points, desktop, number)
    start = Start(elapsed, last.cloud, last.worked)
    after = break_even_after(desktop, pace, start) if pace is not None and since is None else None
    per_hour = last.cloud.scaled(1 / hours(last.worked)) if last.worked else ZERO
    share = Fraction(last.worked // MICRO, max(elapsed * number, last.worked) // MICRO) if last.worked else Fraction(0)
    return CaseCosts(
        cloud=last.cloud,
        worked=last.worked,
        owned=cost,
        points=points,
        past=past,
        since=since,
        meets=None if after is None else history.begin + after,
        again=None if after is None or pace is None else _rerun(history.begin, desktop, pace, after, start),
        pace=pace,
        use=break_even_utilization(desktop, per_hour, SAME) if last.worked else None,
        price=break_even_price(desktop, share, SAME),
        busiest=max(((day, timedelta(seconds=each)) for day, each in worked.items()), key=_longest, default=None),
    )


def _dearer(
    begin: datetime, points: Sequence[Point], desktop: Desktop, number: int
) -> tuple[datetime | None, datetime | None]:
    """Return the first time at which the cloud had cost as much, and since when it has at each up to the last."""
    past = since = None
    for point in points:
        at = first_break_even(begin, [point], desktop, number)
        past, since = past or at, at and (since or at)
    return past, since


def _rerun(
    begin: datetime, desktop: Desktop, rate: SpendRate, met: timedelta, start: Start
) -> tuple[datetime, datetime | None] | None:
    found = costlier_again(desktop, rate, met, start)
    if found is None:
        return None
    return begin + found.since, None if found.until is None else begin + found.until


def _longest(found: tuple[date, timedelta]) -> tuple[timedelta, int]:
    return found[1], -found[0].toordinal()


def _points(history: History, worked: Mapping[date, float], case: Case) -> Iterator[Point]:
    """Yield where both stand at the end of each day; the last point has all there is, also what is billed ahead."""
    side = {Case.LOW: 0, Case.EXPECTED: 1, Case.HIGH: 2}[case]
    cloud, seconds = 0, 0.0
    day, last = (moment.astimezone(history.zone).date() for moment in (history.begin, max(history.begin, history.end)))
    while day < last:
        cloud += history.cloud.get(day, NOTHING)[side]
        seconds += worked.get(day, 0.0)
        day += DAY
        at = midnight(day, history.zone)
        if history.begin < at < history.end:
            yield Point(at, money(cloud), _whole_seconds(seconds))
    every = sum(sums[side] for sums in history.cloud.values())
    yield Point(max(history.begin, history.end), money(every), _whole_seconds(sum(worked.values())))


def _whole_seconds(seconds: float) -> timedelta:
    """Return whole seconds: what adding up leaves must not be work for one more desktop."""
    return timedelta(seconds=int(seconds + _DUST))


def _pace(history: History, points: Sequence[Point], case: Case) -> SpendRate | None:
    """Return what each day adds; None for less than a day of history.

    Expected: the last 30 days, or all where that is less. Low and high: the week among them in which the cloud cost
    least and most; at most and at least as much as expected.
    """
    if history.elapsed < DAY:
        return None
    every = [Point(history.begin, ZERO, timedelta(0)), *points]
    late = [point for point in every if point.at >= history.end - PACE_OF]
    last = _between(late[0], late[-1])
    weeks = [_between(one, other) for one, other in zip(late, late[WEEK:-1], strict=False)]
    if case is Case.EXPECTED:
        return last
    pick = min if case is Case.LOW else max
    return pick([last, *weeks], key=lambda pace: (pace.cloud, pace.worked))


def _between(point: Point, other: Point) -> SpendRate:
    span = Fraction((other.at - point.at) // MICRO, DAY // MICRO)
    seconds = Fraction((other.worked - point.worked) // MICRO) / span
    return SpendRate((other.cloud - point.cloud).scaled(1 / span), MICRO * round(seconds))


@dataclass(frozen=True, slots=True)
class OwnMachineWork:
    """What one of the user's own machines did, and what that took.

    `worked` is how long its GPUs worked, or all its use where they are not read; of `unknown` nothing is known.
    `cards` is the same for each GPU that worked, in the part of it, `counted`, in which they were counted.
    `energy` is what was measured of its GPUs, None where nobody did. `electricity` is what the ledger says that the
    machine cost, as `cost` shows it; `assumed`: by usual watts or a usual tariff, as its settings have none.
    `cloud` is what the same work would have cost at `offer`, an hour of one of whose GPUs costs `per_hour`; `ratio` of
    its hours do one of these.
    """

    id: str
    name: str
    gpu: str
    gpus: float
    worked: timedelta
    unknown: timedelta
    energy: Energy | None
    electricity: Money | None
    assumed: bool = False
    offer: CatalogOffer | None = None
    ratio: Fraction = Fraction(1)
    cards: timedelta = timedelta(0)
    counted: timedelta = timedelta(0)

    @property
    def gpu_time(self) -> timedelta:
        """How long each of its GPUs worked, in all: where they were not counted, all of them while one did."""
        return min(self.cards, self.counted * self.gpus) + self.uncounted * self.gpus

    @property
    def uncounted(self) -> timedelta:
        """How long it worked without anybody counting the GPUs that did."""
        return max(timedelta(0), self.worked - self.counted)

    @property
    def per_hour(self) -> Money | None:
        """What an hour of one GPU of the offer costs."""
        if self.offer is None:
            return None
        gpu = self.offer.type.gpu
        return self.offer.listed.price.per_hour.scaled(1 / (Fraction(str(gpu.share)) * gpu.count))

    @property
    def cloud(self) -> Money | None:
        """What the same work would have cost there."""
        price = self.per_hour
        return None if price is None else price.scaled(hours(self.gpu_time) * self.ratio)


def clouds_of(machines: Sequence[Machine]) -> tuple[list[Machine], bool]:
    """Return the rows of what was rented, and whether that is only rehearsed: local ones stand for it then."""
    clouds = [machine for machine in machines if machine.provider not in (OWN, HERE)]
    here = [machine for machine in machines if machine.provider == HERE]
    return (clouds, False) if clouds or not here else (here, True)
