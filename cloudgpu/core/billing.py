"""Bills uses: what an interval costs by its provider's rule, exact, and as a range where something is not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from cloudgpu.core.billing_rules import Rule, rule_for
from cloudgpu.core.money import HOUR, Money
from cloudgpu.core.times import from_iso, iso
from cloudgpu.core.uses import Per, Resource, Segment, Use, use_from_json

# Hours of a month are 672, 696, 720, 744 (28 to 31 days) or 730: this many parts of a nano-dollar-hour divide by all.
_PARTS = 661_520_160
EXACT = _PARTS * HOUR  # parts of a nano-dollar in which amounts are exact
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_GB = 1_000_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Charge:
    """What a use costs within a period. Amounts are whole `EXACT` parts of a nano-dollar: they add without rounding.

    `amount` is what counts, between `low` and `high`; `reasons` say why those differ. `on_demand` is what the same
    hours would have cost on demand, None where that is not known. `micros` is how long was billed, `unpriced_micros`
    how much of that has no price and is in no amount.
    """

    use: Use
    micros: int
    low: int
    amount: int
    high: int
    on_demand: int | None
    unpriced_micros: int
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class Sum:
    """The sum of charges, in the same exact parts; `unpriced` and `not_on_demand` count those that lack a price."""

    low: int = 0
    amount: int = 0
    high: int = 0
    on_demand: int = 0
    micros: int = 0
    unpriced: int = 0
    not_on_demand: int = 0
    reasons: dict[str, None] = field(default_factory=dict)

    def add(self, charge: Charge) -> None:
        """Add one charge."""
        self.low += charge.low
        self.amount += charge.amount
        self.high += charge.high
        self.on_demand += charge.on_demand or 0
        self.not_on_demand += charge.on_demand is None
        self.micros += charge.micros
        self.unpriced += bool(charge.unpriced_micros)
        self.reasons |= dict.fromkeys(charge.reasons)


def money(exact: int) -> Money:
    """Return an exact amount as money, rounded half-even once to a nano-dollar."""
    whole, rest = divmod(exact, EXACT)
    return Money(whole + (2 * rest > EXACT or (2 * rest == EXACT and whole % 2)))


def total(charges: Iterable[Charge]) -> Sum:
    """Return the sum of charges."""
    found = Sum()
    for charge in charges:
        found.add(charge)
    return found


def charge(use: Use, now: datetime, *, since: datetime | None = None, until: datetime | None = None) -> Charge:
    """Return what a use has cost as of `now`, within [`since`, `until`) where they are given.

    A use that is still open is billed up to `now`, its minimum at once. Cutting a period anywhere changes no sum.
    """
    rule = rule_for(use)
    span = _billed(use, rule, micros_of(now))
    cut = _Cut(0 if since is None else micros_of(since), None if until is None else micros_of(until))
    if use.resource is Resource.TRAFFIC:
        return _traffic(use, span, cut)
    if not use.segments:
        length = sum(end - begin for begin, end in cut.of(*span))
        return Charge(use, length, 0, 0, 0, _list_price(use, length), length, (f"no price is known for {use.what}",))
    return _priced(use, rule, span, cut)


def billed_until(data: Mapping[str, Any]) -> str:
    """Return until when an ended use (as JSON) is or may be billed, as a ledger time."""
    use = use_from_json(data)
    end = _billed(use, rule_for(use), 0)[1]
    return max(iso(_EPOCH + end * _MICRO), use.maybe_until or "")


def billed_span(use: Use, now: datetime) -> tuple[datetime, datetime]:
    """Return from when to when a use is or may be billed as of `now`, with its minimum and its last granule."""
    begin, end = _billed(use, rule_for(use), micros_of(now))
    end = max(end, stamp(use.maybe_until) if use.maybe_until else end)
    return _EPOCH + begin * _MICRO, _EPOCH + end * _MICRO


def billed_units(use: Use, begin: datetime, end: datetime) -> Fraction:
    """Return how much a price is multiplied with for a part of a use that is billed: hours, months or GB, exact."""
    if use.per is Per.GB:
        return Fraction(use.quantity, _GB)
    return Fraction(use.quantity * _weight(use.per, rule_for(use), micros_of(begin), micros_of(end)), EXACT)


def micros_of(moment: datetime) -> int:
    """Return whole microseconds since 1970."""
    return (moment - _EPOCH) // _MICRO


def stamp(text: str) -> int:
    """Return a ledger time as whole microseconds since 1970."""
    return micros_of(from_iso(text))


@dataclass(frozen=True, slots=True)
class _Cut:
    """A period in microseconds; `until` None: without end."""

    since: int
    until: int | None

    def of(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the part of an interval inside the period, if there is any."""
        begin, end = max(begin, self.since), end if self.until is None else min(end, self.until)
        if begin < end:
            yield begin, end


def _billed(use: Use, rule: Rule, now: int) -> tuple[int, int]:
    """Return the interval that is billed: whole granules, never below the minimum, from the begin on."""
    begin = stamp(use.begin)
    end = now if use.end is None else stamp(use.end)
    length = max(0, end - begin)
    granule = rule.granularity_us
    return begin, begin + max(rule.minimum_us, -(-length // granule) * granule)


def _priced(use: Use, rule: Rule, span: tuple[int, int], cut: _Cut) -> Charge:
    amount, low, high, reasons = _sum(use, rule, span, cut, 0), None, None, []
    free = rule.is_free(use, span[1] - span[0])
    micros = sum(end - begin for begin, end in cut.of(*span))
    on_demand = _list_price(use, micros)
    if free:
        return Charge(use, micros, 0, 0, 0, on_demand, 0, (free,))
    low = _sum(use, rule, span, cut, -1)
    high = _sum(use, rule, span, cut, 1)
    if low != high:
        reasons.append("when its price changed is not known")
    if use.sure_from is not None and stamp(use.sure_from) > span[0]:
        low = _sum(use, rule, (min(stamp(use.sure_from), span[1]), span[1]), cut, -1)
        reasons.append(f"whether it ran before {use.sure_from[:16]} is not known")
    if use.maybe_until is not None and stamp(use.maybe_until) > span[1]:
        high = _sum(use, rule, (span[0], stamp(use.maybe_until)), cut, 1)
        reasons.append(f"it ended between {(use.end or '')[:16]} and {use.maybe_until[:16]}")
    maybe = rule.maybe_free(use, span[1] - span[0])
    if use.at_most or maybe:
        low = 0
        reasons.append(use.at_most or maybe)
    return Charge(use, micros, low, amount, high, on_demand, 0, tuple(reasons))


def _sum(use: Use, rule: Rule, span: tuple[int, int], cut: _Cut, side: int) -> int:
    """Return the exact amount of an interval; `side` -1 takes the lowest price that may have held, 1 the highest."""
    found = 0
    for begin, end, nanos in _pieces(use.segments, *span, side):
        for first, last in cut.of(begin, end):
            found += use.quantity * nanos * _weight(use.per, rule, first, last)
    return found


def _pieces(segments: tuple[Segment, ...], begin: int, end: int, side: int) -> Iterator[tuple[int, int, int]]:
    """Cut an interval where the price changed, or may have; the first price also holds for the time before it."""
    starts = [begin] + [min(end, max(begin, stamp(segment.at))) for segment in segments[1:]] + [end]
    for number, segment in enumerate(segments):
        first, last = starts[number], starts[number + 1]
        following = segments[number + 1] if number + 1 < len(segments) else None
        if side and following is not None and following.maybe_from is not None:
            doubt = min(last, max(first, stamp(following.maybe_from)))
            either = (segment.nanos, following.nanos)
            yield doubt, last, max(either) if side > 0 else min(either)
            last = doubt
        yield first, last, segment.nanos


def _weight(per: Per, rule: Rule, begin: int, end: int) -> int:
    """Return the exact parts per nano-dollar that an interval weighs."""
    if per is Per.HOUR:
        return (end - begin) * _PARTS
    if rule.month_hours is not None:
        return (end - begin) * (_PARTS // rule.month_hours)
    return sum((last - first) * (_PARTS // hours) for first, last, hours in _months(begin, end))


def _months(begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Cut an interval at the months of UTC, each with its hours."""
    while begin < end:
        moment = _EPOCH + begin * _MICRO
        first = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = (first + timedelta(days=32)).replace(day=1)
        last = min(end, micros_of(following))
        yield begin, last, (following - first) // timedelta(hours=1)
        begin = last


def _traffic(use: Use, span: tuple[int, int], cut: _Cut) -> Charge:
    """Bill bytes once, when they were counted; the bytes of a machine are more than those that leave the region."""
    counted = max(span[0], (span[1] if use.end is None else stamp(use.end)) - 1)  # in one period alone
    inside = any(True for _ in cut.of(counted, counted + 1))
    if not use.segments:
        return Charge(use, 0, 0, 0, 0, None, int(inside), (f"no price is known for {use.what}",))
    high = round(use.quantity * use.segments[-1].nanos / _GB) * EXACT if inside else 0
    return Charge(use, 0, 0, high, high, None, 0, (use.at_most,) if use.at_most else ())


def _list_price(use: Use, micros: int) -> int | None:
    return None if use.on_demand is None else use.on_demand * use.quantity * micros * _PARTS
