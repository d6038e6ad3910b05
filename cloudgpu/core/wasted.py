"""What machines cost while nobody used them: the idle part of each billed hour, at what that hour cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from cloudgpu.core.billing import Course, micros_of
from cloudgpu.core.daily import Sums
from cloudgpu.core.money import HOUR
from cloudgpu.core.strands import Strand, amount
from cloudgpu.core.worked import Hour

FOREVER = 2**62
_SECOND = 1_000_000


def wasted(hours: Sequence[Hour], runs: Iterable[Course], since: int = 0, until: int = FOREVER) -> Sums:
    """Return what a machine (its `runs`) cost for the time in which it was idle, in exact parts.

    The `hours` are of [`since`, `until`), microseconds since 1970.

    Each hour is shared by its seconds. `low` counts none of the time of which nothing is known, and `high` all of it;
    beside that, each has the low and the high of the price.
    """
    laid = list(runs)
    if not any(one.gpu or one.used or one.idle for one in hours):
        return Sums(0, 0, sum(amount(one.high, since, until) for one in laid) if hours else 0)
    found = [one for one in hours if one.idle or one.unknown]
    begins = [micros_of(one.at) for one in found]
    amounts = _by_hour(begins, chain.from_iterable(one.amount for one in laid), since, until)
    least_of, most_of = amounts, amounts
    if any(one.low is not one.high for one in laid):
        least_of = _by_hour(begins, chain.from_iterable(one.low for one in laid), since, until)
        most_of = _by_hour(begins, chain.from_iterable(one.high for one in laid), since, until)
    low = middle = high = 0
    for hour, least, usual, most in zip(found, least_of, amounts, most_of, strict=True):
        gpu, used, idle, unknown = (round(one * _SECOND) for one in (hour.gpu, hour.used, hour.idle, hour.unknown))
        billed = max(1, gpu + used + idle + unknown)
        low += least * idle // billed
        middle += usual * idle // billed
        high += most * (idle + unknown) // billed
    return Sums(low, middle, high)


def _by_hour(begins: Sequence[int], strands: Iterable[Strand], since: int, until: int) -> list[int]:
    """Return what strands cost in each of these hours, which are in order, within [since, until)."""
    found = [0] * len(begins)
    first = 0
    for begin, end, rate in sorted(strands):
        begin, end = max(begin, since), min(end, until)  # noqa: PLW2901  (the inner loop)
        while first < len(begins) and begins[first] + HOUR <= begin:
            first += 1
        place = first
        while place < len(begins) and begins[place] < end:
            found[place] += rate * (min(end, begins[place] + HOUR) - max(begin, begins[place]))
            place += 1
    return found
