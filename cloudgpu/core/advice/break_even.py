"""The break-even of the cloud's cumulative cost and an owned desktop's: in days, hours of use, or price per hour."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from functools import partial

from cloudgpu.core.advice.desktop import YEAR, Desktop, annuity_factor, desktops_needed, discount_growth, ownership_cost
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import DAY, MICRO
from cloudgpu.core.values.units import hours

FIRST_HOUR = timedelta(hours=1)
STEP = timedelta(days=30)  # between two evaluations where prices move: their difference may change sign more than once
MAX_HORIZON = 30 * YEAR  # a break-even that is further off counts as none
CostDifference = Callable[[timedelta], int]  # by how many nano-dollars the cloud has cost more by then


@dataclass(frozen=True, slots=True)
class CostPoint:
    """Up to `at`: what the cloud has cost, and for how long (`worked`) one desktop would have worked to do the same."""

    at: datetime
    cloud: Money
    worked: timedelta


@dataclass(frozen=True, slots=True)
class SpendRate:
    """What each day adds to the cloud's cost, and to the time that desktops work in all (above 24 hours: several).

    `growth` is by what share the cloud's price grows a year, in today's money.
    """

    cloud: Money
    worked: timedelta
    growth: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a projection begins: `elapsed` since the first day, and the cost and work by then, as in `CostPoint`."""

    elapsed: timedelta = timedelta(0)
    cloud: Money = ZERO
    worked: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class CostlierInterval:
    """The desktop is the more expensive option again from `since` to `until` after the first day: it was replaced.

    `until` is None where it stays so within `MAX_HORIZON`.
    """

    since: timedelta
    until: timedelta | None


def has_broken_even(begin: datetime, point: CostPoint, desktop: Desktop, number: int) -> bool:
    """Say whether the cloud had cost as much as `number` desktops by then; work beyond their capacity is done later."""
    elapsed = point.at - begin
    worked = min(point.worked, elapsed * number)
    return bool(point.cloud) and point.cloud >= ownership_cost(desktop, elapsed, worked, number).total


def break_even_after(desktop: Desktop, rate: SpendRate, start: Start | None = None) -> timedelta | None:
    """Return how long after the first day the cloud has cost as much as the desktops, both continuing at this rate.

    Exact to a microsecond; None if not within `MAX_HORIZON`. As many desktops as the work takes. In each life
    of a desktop the difference of the two is convex (its worth falls ever slower), so that it rises through zero once.
    """
    projection_start = start or Start()
    difference, search_from = (
        partial(_cost_difference, desktop, rate, projection_start, _desktop_count(projection_start, rate)),
        projection_start.elapsed,
    )
    if not search_from and difference(FIRST_HOUR) < 0:
        search_from = FIRST_HOUR  # nothing is spent yet if a desktop counts by its loss in value: that is no break-even
    return _first_break_even(search_from, desktop, rate, difference)


def costlier_again(
    desktop: Desktop, rate: SpendRate, break_even: timedelta, start: Start | None = None
) -> CostlierInterval | None:
    """Return from when to when the desktop has cost more once again, after they broke even at `break_even`.

    Replacing the desktop at the end of its life can make it the more expensive option again. Only the next replacement
    is checked; without a `start`, later ones matter less. None if it stays cheaper, or if that time is beyond
    `MAX_HORIZON`.
    """
    projection_start = start or Start()
    number = _desktop_count(projection_start, rate)
    difference = partial(_cost_difference, desktop, rate, projection_start, number)
    end = max(1, -(-break_even // desktop.life)) * desktop.life
    if end >= MAX_HORIZON:
        return None
    lowest = _lowest_difference_time(end + MICRO, min(end + desktop.life, MAX_HORIZON), desktop, rate, difference)
    if difference(lowest) >= -2 - number:  # within the rounding error
        return None
    until = _first_break_even(lowest, desktop, rate, difference)
    while until is not None and not until % desktop.life and difference(until + MICRO) < 0:
        until = _first_break_even(until + MICRO, desktop, rate, difference)  # sold and replaced at the same price
    return CostlierInterval(_earliest(end, lowest, lambda at: difference(at) < 0) - MICRO, until)


def _desktop_count(start: Start, rate: SpendRate) -> int:
    return max(desktops_needed(start.elapsed, start.worked), desktops_needed(DAY, rate.worked))


def _first_break_even(
    first: timedelta, desktop: Desktop, rate: SpendRate, difference: CostDifference
) -> timedelta | None:
    """Return the first time from `first` on at which the cloud has cost as much; None beyond `MAX_HORIZON`."""
    while first < MAX_HORIZON:
        end = min(MAX_HORIZON, (first // desktop.life + 1) * desktop.life)
        last = min(end, first + STEP) if _prices_change(desktop, rate) else end
        if difference(first) >= 0:
            return first
        if difference(last) >= 0:
            return _earliest(first, last, lambda at: difference(at) >= 0)
        first = last if last < end else last + MICRO  # the old one is replaced
    return None


def _prices_change(desktop: Desktop, rate: SpendRate) -> bool:
    return bool(desktop.interest or rate.growth)


def _lowest_difference_time(
    first: timedelta, last: timedelta, desktop: Desktop, rate: SpendRate, difference: CostDifference
) -> timedelta:
    """Return where within one life the cloud is least ahead, to an hour: the minimum of the convex difference."""
    if _prices_change(desktop, rate):
        times = [min(last, first + STEP * each) for each in range((last - first) // STEP + 2)]
        return min(times, key=difference)
    while last - first > FIRST_HOUR:
        middle = first + (last - first) // 2
        is_falling = difference(middle + FIRST_HOUR // 2) < difference(middle)
        first, last = (middle, last) if is_falling else (first, middle)
    return first


def _earliest(first: timedelta, last: timedelta, condition: Callable[[timedelta], bool]) -> timedelta:
    """Return the first moment after `first` at which it is so, to a microsecond; it stays so up to `last`."""
    return first + MICRO * bisect_left(
        range((last - first) // MICRO), x=True, key=lambda n: condition(first + MICRO * n)
    )


def _cost_difference(desktop: Desktop, rate: SpendRate, start: Start, number: int, elapsed: timedelta) -> int:
    """Return by how many nano-dollars the cloud has cost more."""
    days = Fraction((elapsed - start.elapsed) // MICRO, DAY // MICRO)
    cloud = start.cloud + rate.cloud.scaled(days * annuity_factor(rate.growth, elapsed - start.elapsed))
    worked = min(start.worked + MICRO * int(days * (rate.worked // MICRO)), elapsed * number)
    return (cloud - ownership_cost(desktop, elapsed, worked, number).total).nanos


def break_even_by_flat_year(desktop: Desktop, rate: SpendRate) -> timedelta | None:
    """Return when the cloud has cost the purchase and every begun year's electricity, as published examples count it.

    They charge a whole year's electricity, and its maintenance, on the year's first day; `break_even_after` charges
    both day by day. What the desktop is worth is left out, as there. None where that is not within its first life.
    """
    if not rate.cloud or _prices_change(desktop, rate):
        return None
    year = ownership_cost(desktop, YEAR, rate.worked * (YEAR // DAY))
    purchase, yearly = desktop.purchase.scaled(Fraction(year.number)), year.electricity + year.maintenance
    for years_begun in range(1, -(-desktop.life // YEAR) + 1):
        spent = purchase + yearly.scaled(Fraction(years_begun))
        micros = round(Fraction(spent.nanos, rate.cloud.nanos) * (DAY // MICRO))  # may be more than a timedelta holds
        if micros <= min(years_begun * YEAR, desktop.life) // MICRO:
            return MICRO * micros
    return None


def break_even_utilization(
    desktop: Desktop, per_hour: Money, speed: Fraction, growth: Fraction = Fraction(0)
) -> Fraction | None:
    """Return the share of the time for which a cloud machine is used at which it costs as much over a desktop's life.

    `per_hour` is the cloud's price, `speed` how many of its hours an hour of the desktop does. Used more, the desktop
    is cheaper; None where that would take more than one desktop, or never comes. Solves, for the share u over a life
    of H hours: price u H = purchase - what it is sold for + maintenance + tariff (idle H + (busy - idle) u H / speed).
    Where prices change over the years, H is multiplied on each side by its `annuity_factor`.
    """
    rented_hours = hours(desktop.life) * annuity_factor(growth, desktop.life)
    running_hours = hours(desktop.life) * annuity_factor(discount_growth(desktop.interest), desktop.life)
    power_cost = (desktop.busy_power.watts - desktop.waiting_power.watts) / 1000 * desktop.tariff.per_kwh.nanos / speed
    saving = per_hour.nanos * rented_hours - power_cost * running_hours
    if saving <= 0:
        return None
    utilization = Fraction(ownership_cost(desktop, desktop.life, timedelta(0), 1).total.nanos) / saving
    return utilization if utilization <= speed else None


def break_even_price(desktop: Desktop, use: Fraction, speed: Fraction, growth: Fraction = Fraction(0)) -> Money | None:
    """Return the price per hour at which a cloud machine used for this share of the time costs as much over a life.

    None for no use at all. Below that price the cloud is cheaper.
    """
    if not use:
        return None
    number = desktops_needed(DAY, MICRO * round(use / speed * (DAY // MICRO)))
    worked = min(MICRO * round(use / speed * (desktop.life // MICRO)), desktop.life * number)
    cost = ownership_cost(desktop, desktop.life, worked, number)
    return cost.total.scaled(1 / (use * hours(desktop.life) * annuity_factor(growth, desktop.life)))
