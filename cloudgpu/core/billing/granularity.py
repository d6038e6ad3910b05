"""When a usage is billed and at which price: billing increments, months, intervals of one price, in microseconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from cloudgpu.core.billing.rules import MINUTE, Rule
from cloudgpu.core.model.usage import Per, Resource, Usage
from cloudgpu.core.values.money import HOUR
from cloudgpu.core.values.times import from_iso

# Hours of a month are 672, 696, 720, 744 (28 to 31 days) or 730: this many parts of a nano-dollar-hour divide by all.
PER_NANO_HOUR = 661_520_160
PER_NANO = PER_NANO_HOUR * HOUR  # parts of a nano-dollar in which amounts are exact
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
CLOCKS_DIFFER = 5 * MINUTE  # a price that was noted so soon after a start is that of the start


def to_us(moment: datetime) -> int:
    """Return whole microseconds since 1970."""
    return (moment - EPOCH) // MICRO


def parse_us(text: str) -> int:
    """Return a ledger time as whole microseconds since 1970."""
    return to_us(from_iso(text))


@dataclass(frozen=True, slots=True)
class PeriodBounds:
    """A period in microseconds; `until` None: without end."""

    since: int
    until: int | None

    def clip(self, begin: int, end: int) -> tuple[int, int]:
        """Clip an interval to the period. If they do not overlap, the result is empty (end <= begin)."""
        return max(begin, self.since), end if self.until is None else min(end, self.until)

    def length(self, begin: int, end: int) -> int:
        """Return how much of an interval is inside the period."""
        first, last = self.clip(begin, end)
        return max(0, last - first)


@dataclass(frozen=True, slots=True)
class BilledSpan:
    """When a usage is billed: from `begin` to `end`, certainly within the certain ones, at most `earliest` to `latest`.

    `run` is from its begin to its end as they are known, `shortest_run` and `longest_run` what they may have been.
    """

    earliest: int
    begin: int
    certain_begin: int
    certain_end: int
    end: int
    latest: int
    run: int
    shortest_run: int
    longest_run: int


def span_of(usage: Usage, rule: Rule, now: int) -> BilledSpan:
    """Return from when to when a usage is billed by its rule, in microseconds since 1970."""
    begin = parse_us(usage.begin)
    earliest = begin if usage.maybe_since is None else min(begin, parse_us(usage.maybe_since))
    stop = max(begin, now if usage.end is None else parse_us(usage.end))
    last = stop if usage.maybe_until is None else max(stop, parse_us(usage.maybe_until))
    sure = begin if usage.sure_from is None else min(stop, max(begin, parse_us(usage.sure_from)))
    interrupted = usage.reason == "interrupted" and usage.end is not None
    if usage.continues is not None:
        return _continued(usage, rule, (begin, stop, last))
    end = begin + rule.length(stop - begin, interrupted=interrupted)
    certain_end = min(end, sure + rule.length(stop - sure, interrupted=interrupted))
    latest = max(end, earliest + rule.longest(last - earliest, interrupted=interrupted))
    return BilledSpan(
        earliest, begin, min(sure, end), certain_end, end, latest, stop - begin, stop - sure, last - earliest
    )


def _continued(usage: Usage, rule: Rule, known: tuple[int, int, int]) -> BilledSpan:
    """Return the billed interval of a usage that continues an earlier one.

    Both are rounded once, together; what the first rounding paid is not billed again.
    """
    begin, stop, last = known
    origin = parse_us(usage.continues or usage.begin)
    paid = origin + rule.length(begin - origin, interrupted=False)
    end = max(paid, origin + rule.length(stop - origin, interrupted=False))
    latest = max(end, origin + rule.longest(last - origin, interrupted=False))
    return BilledSpan(paid, paid, paid, end, end, latest, stop - begin, stop - begin, last - begin)


def price_pieces(usage: Usage, begin: int, end: int, bound: int) -> Iterator[tuple[int, int, int]]:
    """Cut an interval where the price changed, or may have; the first price also holds for the time before it.

    `bound` says what to take where the price is uncertain: -1 the lowest, 0 the expected, 1 the highest.
    """
    segments = usage.segments
    starts = [begin] + [min(end, max(begin, parse_us(segment.at))) for segment in segments[1:]] + [end]
    if bound and is_guessed(usage, parse_us(usage.begin)):
        known = min(end, max(begin, parse_us(segments[0].at)))
        yield begin, known, max(segments[0].nanos, usage.on_demand or 0) if bound > 0 else 0
        starts = [max(known, start) for start in starts]
    for number, segment in enumerate(segments):
        first, last = starts[number], starts[number + 1]
        following = segments[number + 1] if bound and number + 1 < len(segments) else None
        if following is not None and following.maybe_from is not None:
            doubt = min(last, max(first, parse_us(following.maybe_from)))
            either = (segment.nanos, following.nanos)
            yield doubt, last, max(either) if bound > 0 else min(either)
            last = doubt
        yield first, last, segment.nanos


def is_guessed(usage: Usage, begin: int) -> bool:
    """Say whether a spot machine ran before its first price that is known: then that is a guess."""
    spot = usage.market == "spot" and usage.resource is Resource.INSTANCE
    return spot and parse_us(usage.segments[0].at) > begin + CLOCKS_DIFFER


def scaled_duration(per: Per, rule: Rule, begin: int, end: int, bound: int) -> int:
    """Return an interval's length in exact parts for each nano-dollar of its price per hour or month."""
    if per is Per.HOUR:
        return (end - begin) * PER_NANO_HOUR
    return sum((last - first) * parts for first, last, parts in _in_months(rule, begin, end, bound))


def intervals_of(usage: Usage, rule: Rule, piece: tuple[int, int, int], bound: int) -> Iterator[tuple[int, int, int]]:
    """Yield a piece as (begin, end, exact parts per microsecond), cut at the months where its price is per month."""
    begin, end, nanos = piece
    if begin >= end:
        return
    rate = usage.quantity * nanos
    if usage.per is Per.HOUR:
        yield begin, end, rate * PER_NANO_HOUR
    else:
        yield from ((first, last, rate * parts) for first, last, parts in _in_months(rule, begin, end, bound))


def _in_months(rule: Rule, begin: int, end: int, bound: int) -> Iterator[tuple[int, int, int]]:
    """Cut an interval at the months, each with the exact parts that a microsecond of it is of a price per month."""
    if rule.month_hours is not None:
        yield begin, end, PER_NANO_HOUR // rule.month_hours
        return
    maybe = rule.maybe_month_hours if bound else 0
    while begin < end:
        until, hours = _month(begin)
        if maybe:
            hours = min(hours, maybe) if bound > 0 else max(hours, maybe)
        last = min(end, until)
        yield begin, last, PER_NANO_HOUR // hours
        begin = last


def _month(moment: int) -> tuple[int, int]:
    """Return when the month of UTC ends in which this microsecond lies, and how many hours it has."""
    day = EPOCH + moment * MICRO
    return month_of(day.year, day.month)


@cache
def month_of(year: int, month: int) -> tuple[int, int]:
    """Return when a month of UTC ends, and how many hours it has."""
    first = datetime(year, month, 1, tzinfo=UTC)
    following = (first + timedelta(days=32)).replace(day=1)
    return to_us(following), (following - first) // timedelta(hours=1)
