"""What costs the same from one moment to another: merged by its unit, begin and end, and summed without being laid out.

A flow is nano-dollars an hour, or a month, within [begin, end), in microseconds since 1970. Its cost is what the
rate intervals of `rate_timeline.rate_intervals` say, in the same exact parts.
"""

from __future__ import annotations

from functools import cache

from cloudgpu.core.billing.rate_timeline import PARTS, RateInterval, in_months, moment_of
from cloudgpu.core.billing.rules import Rule
from cloudgpu.core.values.money import HOUR

HOURLY = 0
_LONGEST_MONTH = 31 * 24
_DAY = 24 * HOUR
_FIRST_YEAR = 1970


def unit_of(per: str, rule: Rule) -> int:
    """Return what a price is for: 0 an hour, above zero a month of so many hours, below zero a month of the calendar.

    One of the calendar counts as at most so many hours as the number says without its sign.
    """
    if per == "hour":
        return HOURLY
    return -(rule.maybe_month_hours or _LONGEST_MONTH) if rule.month_hours is None else rule.month_hours


def exact_cost(unit: int, begin: int, end: int) -> int:
    """Return what a nano-dollar per unit costs from `begin` to `end`, in exact parts."""
    if begin >= end:
        return 0
    if unit == HOURLY:
        return (end - begin) * PARTS
    if unit > HOURLY:
        return (end - begin) * (PARTS // unit)
    return _before(end, -unit) - _before(begin, -unit)


def flow_intervals(unit: int, begin: int, end: int, nanos: int) -> list[RateInterval]:
    """Return a flow as rate intervals, cut at the months where its unit is one of the calendar."""
    if begin >= end:
        return []
    if unit == HOURLY:
        return [(begin, end, nanos * PARTS)]
    if unit > HOURLY:
        return [(begin, end, nanos * (PARTS // unit))]
    return [(first, last, nanos * (PARTS // min(hours, -unit))) for first, last, hours in in_months(begin, end)]


def _before(moment: int, most: int) -> int:
    """Return what a nano-dollar a month of the calendar costs from 1970 up to a moment, in exact parts."""
    begin, cost, rate = _month(*_month_of(moment // _DAY), most)
    return cost + (moment - begin) * rate


@cache
def _month_of(day: int) -> tuple[int, int]:
    """Return year and month of a day of UTC; days are counted from 1970 on."""
    moment = moment_of(day * _DAY)
    return moment.year, moment.month


@cache
def _month(year: int, month: int, most: int) -> tuple[int, int, int]:
    """Return when a month begins, what a nano-dollar a month has cost up to then, and what it costs a microsecond."""
    begin, cost = _year(year, most)
    for _ in range(1, month):
        begin, cost, _rate = _after(begin, cost, most)
    return begin, cost, _after(begin, cost, most)[2]


@cache
def _year(year: int, most: int) -> tuple[int, int]:
    """Return when a year begins, and what a nano-dollar a month has cost up to then."""
    if year <= _FIRST_YEAR:
        return 0, 0
    begin, cost = _year(year - 1, most)
    for _ in range(12):
        begin, cost, _rate = _after(begin, cost, most)
    return begin, cost


def _after(begin: int, cost: int, most: int) -> tuple[int, int, int]:
    """Return when the month that begins there ends, the cost up to then, and the cost of a microsecond of it."""
    _, end, hours = next(in_months(begin, begin + 32 * _DAY))
    rate = PARTS // min(hours, most)
    return end, cost + (end - begin) * rate, rate
