"""Compares machines with what the same work would have cost: the cloud with a desktop, own machines with a cloud.

The cloud is compared with a desktop day by day and in three cases. Of the user's own machines it also returns their
work and energy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from cloudgpu.core.activity.utilization import OWN_PROVIDER, Hour
from cloudgpu.core.advice.break_even import (
    CostPoint,
    SpendRate,
    Start,
    break_even_after,
    break_even_price,
    break_even_utilization,
    costlier_again,
    has_broken_even,
)
from cloudgpu.core.advice.desktop import Desktop, OwnershipCost, desktops_needed, ownership_cost
from cloudgpu.core.billing.charges import money
from cloudgpu.core.billing.daily import NO_COST, CostRange
from cloudgpu.core.catalog.catalog import CatalogOffer
from cloudgpu.core.catalog.gpus import SpeedRatio
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import DAY, MICRO, midnight
from cloudgpu.core.values.units import Energy, hours

LOCAL = "local"  # the provider that simulates machines on this computer: no cloud, and no machine that was bought


WEEK = 7  # days
PACE_WINDOW = 30 * DAY  # the past days from which the spend rate is taken
SAME_SPEED = Fraction(1)  # the cloud's cost is counted by the hour of the desktop's work here
_ROUNDING_ERROR_S = 1e-6  # of a sum of fractions of a second


class Case(StrEnum):
    """Three assumptions about what is not known."""

    LOW = "low"  # for the cloud: its least cost, and a slow desktop that does all that may have been work
    EXPECTED = "expected"  # what is likely
    HIGH = "high"  # for the desktop: the cloud's highest cost, and a fast desktop that does only what surely was work


class UsedSeconds(NamedTuple):
    """Seconds in which a machine's GPUs worked, in which it was used otherwise, idle, and of which nothing is known."""

    gpu: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0


@dataclass(frozen=True, slots=True)
class RentedMachine:
    """What one machine of the cloud has and did.

    `gpu` names its GPUs as its launch did ("" for none), `gpus` is how many there are (a share is a part of one) and
    `memory_gib` what each has. `speed` is how many of their hours an hour of the desktop's GPU does.
    `is_measured`: samples of its GPUs' use exist; without them, all its use counts as work.
    """

    name: str
    gpu: str
    gpus: float
    memory_gib: float | None
    speed: SpeedRatio
    is_measured: bool
    days: Mapping[date, UsedSeconds]

    @property
    def used_seconds(self) -> UsedSeconds:
        """Its seconds by use, of all days."""
        return add_days(self.days.values())


@dataclass(frozen=True, slots=True)
class History:
    """The cost of the cloud by day (`cloud`), and its machines' work, from `begin` to `end`; days are of `zone`."""

    begin: datetime
    end: datetime
    zone: tzinfo
    cloud: Mapping[date, CostRange]
    machines: Sequence[RentedMachine]

    @property
    def elapsed(self) -> timedelta:
        """How long a desktop would have been owned; never negative, whatever the clock says."""
        return max(timedelta(0), self.end - self.begin)


@dataclass(frozen=True, slots=True)
class CaseCosts:
    """One case: the cloud's cost, and the cost of the desktops (`owned`) that do the same work.

    `worked` is how long one desktop works for it. `first_break_even` is the end of the day by which the cloud had
    first cost as much as the desktop; since `costlier_since` it has without interruption. `projected_break_even` is
    when it will at the spend rate `pace`; None if it has already, never will, or no rate is known.
    `desktop_costlier`: from when to when (None: for good) a desktop bought anew costs more once again after that.
    `break_even_use` is the share of the time that a desktop must work to be cheaper over its life than the cloud's
    hours; `break_even_price` is the cloud price per hour of its work that costs the same at its present use. Both are
    None without work. `busiest` is the day with the most work, and that work.
    """

    cloud: Money
    worked: timedelta
    owned: OwnershipCost
    points: tuple[CostPoint, ...]
    first_break_even: datetime | None
    costlier_since: datetime | None
    projected_break_even: datetime | None
    desktop_costlier: tuple[datetime, datetime | None] | None
    pace: SpendRate | None
    break_even_use: Fraction | None
    break_even_price: Money | None
    busiest: tuple[date, timedelta] | None

    @property
    def cloud_is_costlier(self) -> bool:
        """Whether the cloud has cost as much as the desktop by now, or more."""
        return self.costlier_since is not None


def by_day(hours: Iterable[Hour], days: Mapping[datetime, date]) -> dict[date, UsedSeconds]:
    """Return the seconds of a machine on each day; `days` maps the begin of each hour to its day."""
    sums: dict[date, list[float]] = {}
    for hour in hours:
        day = sums.setdefault(days[hour.at], [0.0] * 4)
        day[0] += hour.gpu_s
        day[1] += hour.used_s
        day[2] += hour.idle_s
        day[3] += hour.unknown_s
    return {day: UsedSeconds(*parts) for day, parts in sums.items()}


def add_days(seconds: Iterable[UsedSeconds]) -> UsedSeconds:
    """Return the sum."""
    return UsedSeconds(*(sum(parts) for parts in zip(*seconds, strict=True)))


def gpu_seconds_by_day(machine: RentedMachine, case: Case) -> dict[date, float]:
    """Return for how many seconds its GPUs worked on each day, as this case takes what is not known.

    Low: all unknown time was work. High: none of it. Expected: the part of it that was work in the time that is
    known of this machine, and all of it where nothing is. Without GPUs a machine's work takes no GPU.
    """
    if not machine.gpus:
        return {}
    share = {Case.LOW: 1.0, Case.HIGH: 0.0, Case.EXPECTED: _work_share(machine)}[case]
    return {day: _work_seconds(machine, seconds) + share * seconds.unknown for day, seconds in machine.days.items()}


def _work_seconds(machine: RentedMachine, seconds: UsedSeconds) -> float:
    return seconds.gpu if machine.is_measured else seconds.gpu + seconds.used


def _work_share(machine: RentedMachine) -> float:
    total = machine.used_seconds
    measured = total.gpu + total.used + total.idle
    return _work_seconds(machine, total) / measured if measured else 1.0


def desktop_work(machines: Iterable[RentedMachine], case: Case, gpus: int) -> dict[date, float]:
    """Return for how many seconds a desktop with so many GPUs works on each day to do the same."""
    seconds_by_day: dict[date, float] = {}
    for machine in machines:
        speed = {Case.LOW: machine.speed.low, Case.HIGH: machine.speed.high, Case.EXPECTED: machine.speed.ratio}[case]
        factor = machine.gpus / (float(speed) * gpus)
        for day, seconds in gpu_seconds_by_day(machine, case).items():
            seconds_by_day[day] = seconds_by_day.get(day, 0.0) + factor * seconds
    return seconds_by_day


def desktops_cost(desktop: Desktop, elapsed: timedelta, busy_time: timedelta) -> OwnershipCost:
    """Return the cost of as many desktops as this much work needs in this time.

    At least a day is allowed for the work, so that an hour of many machines does not need as many desktops.
    """
    number = desktops_needed(max(elapsed, DAY), busy_time)
    return ownership_cost(desktop, max(elapsed, -(-busy_time // number)), busy_time, number)


def comparisons(history: History, desktop: Desktop, *, goes_on: bool) -> dict[Case, CaseCosts]:
    """Return the three cases; `goes_on`: the period lasts, so that the break-even is projected at the spend rate."""
    return {case: _case_costs(history, desktop, case, goes_on=goes_on) for case in Case}


def _case_costs(history: History, desktop: Desktop, case: Case, *, goes_on: bool) -> CaseCosts:
    work_seconds = desktop_work(history.machines, case, desktop.gpus)
    points = tuple(_daily_points(history, work_seconds, case))
    last, elapsed = points[-1], history.elapsed
    cost = desktops_cost(desktop, elapsed, last.worked)
    number = cost.number
    rate = _spend_rate(history, points, case) if goes_on else None
    first_time, costlier_since = _break_even_times(history.begin, points, desktop, number)
    start = Start(elapsed, last.cloud, last.worked)
    time_to_break_even = break_even_after(desktop, rate, start) if rate is not None and costlier_since is None else None
    per_hour = last.cloud.scaled(1 / hours(last.worked)) if last.worked else ZERO
    share = Fraction(last.worked // MICRO, max(elapsed * number, last.worked) // MICRO) if last.worked else Fraction(0)
    return CaseCosts(
        cloud=last.cloud,
        worked=last.worked,
        owned=cost,
        points=points,
        first_break_even=first_time,
        costlier_since=costlier_since,
        projected_break_even=None if time_to_break_even is None else history.begin + time_to_break_even,
        desktop_costlier=None
        if time_to_break_even is None or rate is None
        else _costlier_again(history.begin, desktop, rate, time_to_break_even, start),
        pace=rate,
        break_even_use=break_even_utilization(desktop, per_hour, SAME_SPEED) if last.worked else None,
        break_even_price=break_even_price(desktop, share, SAME_SPEED),
        busiest=max(
            ((day, timedelta(seconds=each)) for day, each in work_seconds.items()),
            key=lambda day_and_work: (day_and_work[1], -day_and_work[0].toordinal()),
            default=None,
        ),
    )


def _break_even_times(
    begin: datetime, points: Sequence[CostPoint], desktop: Desktop, number: int
) -> tuple[datetime | None, datetime | None]:
    """Return the first day's end at which the cloud had cost as much, and since when it has without interruption."""
    first = since = None
    for point in points:
        at = point.at if has_broken_even(begin, point, desktop, number) else None
        first, since = first or at, at and (since or at)
    return first, since


def _costlier_again(
    begin: datetime, desktop: Desktop, rate: SpendRate, break_even: timedelta, start: Start
) -> tuple[datetime, datetime | None] | None:
    again = costlier_again(desktop, rate, break_even, start)
    if again is None:
        return None
    return begin + again.since, None if again.until is None else begin + again.until


def _daily_points(history: History, work_seconds: Mapping[date, float], case: Case) -> Iterator[CostPoint]:
    """Yield the costs of both at the end of each day; the last point has all costs, also those billed ahead."""
    column = {Case.LOW: 0, Case.EXPECTED: 1, Case.HIGH: 2}[case]  # of `CostRange`: the least, expected and highest cost
    cloud, seconds = 0, 0.0
    day, last = (moment.astimezone(history.zone).date() for moment in (history.begin, max(history.begin, history.end)))
    while day < last:
        cloud += history.cloud.get(day, NO_COST)[column]
        seconds += work_seconds.get(day, 0.0)
        day += DAY
        at = midnight(day, history.zone)
        if history.begin < at < history.end:
            yield CostPoint(at, money(cloud), _whole_seconds(seconds))
    cloud_total = sum(sums[column] for sums in history.cloud.values())
    yield CostPoint(max(history.begin, history.end), money(cloud_total), _whole_seconds(sum(work_seconds.values())))


def _whole_seconds(seconds: float) -> timedelta:
    """Return whole seconds, so that a rounding error does not need one more desktop."""
    return timedelta(seconds=int(seconds + _ROUNDING_ERROR_S))


def _spend_rate(history: History, points: Sequence[CostPoint], case: Case) -> SpendRate | None:
    """Return the spend per day; None for less than a day of history.

    Expected: the last 30 days, or all where that is less. Low and high: the week among them in which the cloud cost
    least and most; at most and at least as much as expected.
    """
    if history.elapsed < DAY:
        return None
    all_points = [CostPoint(history.begin, ZERO, timedelta(0)), *points]
    recent = [point for point in all_points if point.at >= history.end - PACE_WINDOW]
    overall_rate = _rate_between(recent[0], recent[-1])
    weeks = [_rate_between(one, other) for one, other in zip(recent, recent[WEEK:-1], strict=False)]
    if case is Case.EXPECTED:
        return overall_rate
    extreme = min if case is Case.LOW else max
    return extreme([overall_rate, *weeks], key=lambda pace: (pace.cloud, pace.worked))


def _rate_between(point: CostPoint, other: CostPoint) -> SpendRate:
    days = Fraction((other.at - point.at) // MICRO, DAY // MICRO)
    micros_a_day = Fraction((other.worked - point.worked) // MICRO) / days
    return SpendRate((other.cloud - point.cloud).scaled(1 / days), MICRO * round(micros_a_day))


@dataclass(frozen=True, slots=True)
class OwnMachineWork:
    """The work of one of the user's own machines, and its energy and cost.

    `worked` is how long its GPUs worked, or all its use if they are not measured; of `unknown` nothing is known.
    In `time_with_gpu_count`, a part of `worked`, busy GPUs were counted one by one: `counted_gpu_time` is their sum.
    `energy` is what its GPUs drew, None if that was not measured. `electricity` is the machine's cost in the ledger,
    as `cost` shows it; `is_assumed`: at usual watts or a usual tariff, since its settings have none.
    `cloud` is what the same work would have cost at `offer`, with one GPU at `per_hour`; `ratio` is how many hours of
    that GPU replace an hour of this one.
    """

    id: str
    name: str
    gpu: str
    gpus: float
    worked: timedelta
    unknown: timedelta
    energy: Energy | None
    electricity: Money | None
    is_assumed: bool = False
    offer: CatalogOffer | None = None
    ratio: Fraction = Fraction(1)
    counted_gpu_time: timedelta = timedelta(0)
    time_with_gpu_count: timedelta = timedelta(0)

    @property
    def gpu_time(self) -> timedelta:
        """The sum of its GPUs' working times; in time without a count, all of them worked."""
        return (
            min(self.counted_gpu_time, self.time_with_gpu_count * self.gpus) + self.time_without_gpu_count * self.gpus
        )

    @property
    def time_without_gpu_count(self) -> timedelta:
        """How long it worked without a count of its busy GPUs."""
        return max(timedelta(0), self.worked - self.time_with_gpu_count)

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


def rented_machines(machines: Sequence[Machine]) -> tuple[list[Machine], bool]:
    """Return the rented machines and False; if there are none, the local ones, which stand for them, and True."""
    rented = [machine for machine in machines if machine.provider not in (OWN_PROVIDER, LOCAL)]
    local = [machine for machine in machines if machine.provider == LOCAL]
    return (rented, False) if rented or not local else (local, True)
