"""Prices of resources other than machines; and costs as rate intervals: so much per microsecond, from when to when.

An interval is (begin, end, rate): microseconds since 1970 and exact parts of a nano-dollar (`PARTS_PER_NANO`) in each
of them. The maximal cost of usages, by the rules of their providers, is the sum of their rate intervals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cloudgpu.core.billing.charges import max_cost_intervals, max_cost_to_the_end
from cloudgpu.core.billing.rules import PARTS_PER_NANO_HOUR, RateInterval, Rule, in_months, parse_us, rule_of
from cloudgpu.core.model.offers import Basis
from cloudgpu.core.model.records import RateRecord
from cloudgpu.core.model.usage import Per, Resource, Usage
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import EPOCH, MICRO, iso

MONTH_H = 730  # hours in a month, as the clouds' own price pages count


@dataclass(frozen=True, slots=True)
class Rate:
    """What `quantity` of a resource costs: `price` for one of it, per hour, month or GB. None: no price is known.

    `stored_as` is its name in the price list. `by_size`: the price is for each GB; else for the whole resource.
    `why_maybe_less` is why it may cost less, even nothing; empty if it cannot. `low` is the least that a
    derived price may be, where that is known; the bill does not use it.
    """

    resource: Resource
    stored_as: str
    quantity: int
    per: Per
    price: Money | None
    source: str
    as_of: datetime | None = None
    basis: Basis | None = None
    why_maybe_less: str = ""
    by_size: bool = True
    low: Money | None = None

    @property
    def per_month(self) -> Money | None:
        """What it costs in a month of 730 hours; None if no price is known, or it is per GB."""
        return self._monthly(self.price)

    @property
    def least_per_month(self) -> Money | None:
        """What it costs in such a month at least, where the price is derived and may be lower; None elsewhere."""
        return self._monthly(self.low)

    def _monthly(self, price: Money | None) -> Money | None:
        if price is None or self.per is Per.GB:
            return None
        return Money(price.nanos * self.quantity * (MONTH_H if self.per is Per.HOUR else 1))

    def record(self) -> RateRecord:
        """Return the price as a ledger event stores it; the resource's quantity is another field of the event."""
        return {
            "per": str(self.per),
            "nanos": None if self.price is None else self.price.nanos,
            "source": self.source,
            "as_of": None if self.as_of is None else iso(self.as_of),
            "basis": None if self.basis is None else str(self.basis),
            "why_maybe_less": self.why_maybe_less,
            "by_size": self.by_size,
        }


def billed_intervals(usage: Usage, now: int) -> list[RateInterval]:
    """Return the maximal cost of a usage up to `now`, as `charges.max_cost_intervals` does, but faster."""
    if not has_one_price(usage) or usage.maybe_since:
        return max_cost_intervals(usage, now)
    return rate_intervals(*_one_price_span(usage, now))


def ended_intervals(usage: Usage) -> tuple[str, list[RateInterval] | None]:
    """Return until when an ended usage may be billed, a ledger time, and its rate intervals; None without a price."""
    if not has_one_price(usage) or usage.maybe_since:
        return max_cost_to_the_end(usage)
    billed = _one_price_span(usage, 0)
    return iso(from_us(billed[1])), rate_intervals(*billed)


def _one_price_span(usage: Usage, now: int) -> tuple[int, int, int, str, Rule]:
    """Return the billed begin and end of a usage at one price, that price, its unit of time, and the rule."""
    rule = rule_of(usage.provider, usage.market, usage.resource, usage.licence)
    begin, nanos = parse_us(usage.begin), usage.quantity * usage.segments[0].nanos
    run = (now if usage.end is None else parse_us(usage.end)) - begin
    return begin, begin + rule.max_billed_us(max(0, run), interrupted=False), nanos, usage.per, rule


def has_one_price(usage: Usage) -> bool:
    """Say whether a usage is billed at one known price from its begin to its end, and is no traffic or spot machine."""
    is_simple = len(usage.segments) == 1 and not usage.reason and not usage.maybe_until and not usage.continues
    return is_simple and usage.resource != "traffic" and (usage.market != "spot" or usage.resource != "instance")


HOURLY = 0  # the unit of a price per hour: see `unit_of`
_LONGEST_MONTH = 31 * 24


def unit_of(per: str, rule: Rule) -> int:
    """Return the unit of a price as a number: 0 is an hour, N > 0 a month of N hours, N < 0 a calendar month.

    A calendar month counts as at most -N hours.
    """
    if per == "hour":
        return HOURLY
    return -(rule.maybe_month_hours or _LONGEST_MONTH) if rule.month_hours is None else rule.month_hours


def flow_intervals(unit: int, begin: int, end: int, nanos: int) -> list[RateInterval]:
    """Return a flow as rate intervals, cut at the months where its unit is one of the calendar."""
    if begin >= end:
        return []
    if unit == HOURLY:
        return [(begin, end, nanos * PARTS_PER_NANO_HOUR)]
    if unit > HOURLY:
        return [(begin, end, nanos * (PARTS_PER_NANO_HOUR // unit))]
    return [
        (first, last, nanos * (PARTS_PER_NANO_HOUR // min(hours, -unit)))
        for first, last, hours in in_months(begin, end)
    ]


def rate_intervals(begin: int, end: int, nanos: int, per: str, rule: Rule) -> list[RateInterval]:
    """Return the intervals of `nanos` per hour or month (`per`) from `begin` to `end`.

    Where a month's length is uncertain, the shortest counts, as it costs most.
    """
    return flow_intervals(unit_of(per, rule), begin, end, nanos)


def most_expensive_window(intervals: Iterable[RateInterval], length: int, begin: int, end: int) -> tuple[int, int]:
    """Return (end, cost) of the most expensive window of `length` microseconds that ends within [begin, end].

    As the window moves on, its cost changes at the rate at its end less the rate at its begin. Both change only where a
    rate interval begins or ends, so the most expensive window is at one of these moments. The earliest of equals is
    returned.
    """
    amount = rate = 0
    changes: list[tuple[int, int]] = []
    for first, last, interval_rate in intervals:
        amount += max(0, min(last, begin) - max(first, begin - length)) * interval_rate
        for enters, leaves, sign in ((first, last, interval_rate), (first + length, last + length, -interval_rate)):
            if enters <= begin < leaves:
                rate += sign
            elif begin < enters <= end:
                changes.append((enters, sign))
            if begin < leaves <= end:
                changes.append((leaves, -sign))
    changes.sort()
    best, previous = (begin, amount), begin
    for at, change in changes:
        amount += (at - previous) * rate
        rate += change
        previous = at
        if amount > best[1]:
            best = (at, amount)
    amount += (max(begin, end) - previous) * rate
    return (end, amount) if amount > best[1] else best


def time_until_limit(intervals: Iterable[RateInterval], rate: int, length: int, begin: int, limit: int) -> int | None:
    """Return in how many microseconds the cost of the last `length` microseconds reaches `limit`; None if never.

    From `begin` on, `rate` is spent; what was paid before drops out of the window as it moves on.
    """
    amount, spend_rate, changes = 0, rate, [(begin + length, -rate)]
    for first, last, interval_rate in intervals:
        amount += max(0, last - max(first, begin - length)) * interval_rate
        if first + length > begin:
            changes.append((first + length, -interval_rate))
        elif last + length > begin:
            spend_rate -= interval_rate
        if last + length > begin:
            changes.append((last + length, interval_rate))
    at = begin
    for moment, change in sorted(changes):
        if amount >= limit:
            return at - begin
        if amount + spend_rate * (moment - at) >= limit:
            return at - begin - (amount - limit) // spend_rate
        amount, spend_rate, at = amount + spend_rate * (moment - at), spend_rate + change, moment
    return None


def from_us(micros: int) -> datetime:
    """Return whole microseconds since 1970 as aware UTC."""
    return EPOCH + micros * MICRO
