"""Bills usages: the exact cost of an interval by its provider's rule, and a range if something is not known.

A `ChargeNote` with the totals of ended usages says why: uncertainties, marks of prices, comparisons, interruptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import cache, lru_cache
from typing import NamedTuple

from cloudgpu.core.billing.rules import (
    FAR_FUTURE_US,
    PARTS_PER_NANO,
    PARTS_PER_NANO_HOUR,
    BilledSpan,
    RateInterval,
    Rule,
    intervals_cost,
    intervals_of,
    is_price_guessed,
    parse_us,
    price_pieces,
    rule_for,
    span_of,
    to_us,
)
from cloudgpu.core.model.facts import ChargeNote
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage
from cloudgpu.core.values.money import ZERO, Money, half_even
from cloudgpu.core.values.times import EPOCH, MICRO, earliest_moment, from_iso, iso


@dataclass(frozen=True, slots=True)
class Charge:
    """What a usage costs within a period.

    Amounts are in `PARTS_PER_NANO` parts of a nano-dollar, so sums need no rounding.

    `amount` is the estimate, between `low` and `high`; `reasons` say why those differ. `list_cost` is what the same
    hours would have cost on demand, None if that is not known. `billed_us` is how long was billed, in microseconds;
    `unpriced_us` is how much of that has no price and is in no amount.
    """

    usage: Usage
    billed_us: int
    low: int
    amount: int
    high: int
    list_cost: int | None
    unpriced_us: int
    reasons: tuple[str, ...] = ()


class CostTimeline(NamedTuple):
    """What a usage costs over time, as rate intervals: (begin, end, exact parts per microsecond).

    Times are in microseconds since 1970. The sum of the intervals within a period is what `charge` returns for it:
    `low`, `amount` and `high`. It is billed from `begin` to `end`; `is_unpriced`: no price is known for that.
    """

    begin: int
    end: int
    low: list[RateInterval]
    amount: list[RateInterval]
    high: list[RateInterval]
    is_unpriced: bool = False


def money(exact: int) -> Money:
    """Return an exact amount as money, rounded half-even once to a nano-dollar."""
    return Money(half_even(exact, PARTS_PER_NANO))


def rounded_to_sum(exact: Iterable[int]) -> list[Money]:
    """Return exact amounts rounded to nano-dollars so that they add up to their rounded sum."""
    amounts, so_far, rounded = [], 0, ZERO
    for amount in exact:
        so_far += amount
        before, rounded = rounded, money(so_far)
        amounts.append(rounded - before)
    return amounts


def bound_money(exact: int, amount_exact: int, amount: Money) -> Money:
    """Return a bound of a range as money; if it equals the amount, the rounded `amount` itself."""
    return amount if exact == amount_exact else money(exact)


def charge(usage: Usage, now: datetime, *, since: datetime | None = None, until: datetime | None = None) -> Charge:
    """Return what a usage has cost as of `now`, within [`since`, `until`) where they are given.

    A usage that is still open is billed up to `now`, its minimum at once. Cutting a period anywhere changes no sum.
    """
    rule = rule_for(usage)
    period = 0 if since is None else to_us(since), FAR_FUTURE_US if until is None else to_us(until)
    if usage.resource is Resource.TRAFFIC:
        return _traffic_charge(usage, rule, period)
    span = span_of(usage, rule, to_us(now))
    billed_us = _length_within(span.begin, span.end, period)
    why_free = rule.why_free(usage, span.longest_run)
    if why_free:
        return Charge(usage, billed_us, 0, 0, 0, _list_cost(usage, billed_us, None), 0, (why_free,))
    if not usage.segments:
        why = f"no price is known for {usage.what}"
        return Charge(usage, billed_us, 0, 0, 0, _list_cost(usage, billed_us, None), billed_us, (why,))
    bounds = _cost_bounds(usage, rule, span)
    amount = low = high = intervals_cost(bounds.amount, *period)
    if bounds.reasons:
        low, high = intervals_cost(bounds.low, *period), intervals_cost(bounds.high, *period)
    list_cost = _list_cost(usage, billed_us, amount)
    return Charge(usage, billed_us, low, amount, high, list_cost, 0, bounds.reasons if low != high else ())


def billed_until(usage: Usage) -> str:
    """Return until when an ended usage is or may be billed, as a ledger time."""
    return iso(EPOCH + span_of(usage, rule_for(usage), 0).latest * MICRO)


def max_cost_to_the_end(usage: Usage) -> tuple[str, list[RateInterval] | None]:
    """Return `billed_until` of an ended usage and its `max_cost_intervals`, None for one without a price."""
    rule = rule_for(usage)
    span = span_of(usage, rule, 0)
    until = iso(EPOCH + span.latest * MICRO)
    return until, _max_cost_intervals(usage, rule, span) if usage.segments else None


def billed_span(usage: Usage, now: datetime) -> tuple[datetime, datetime]:
    """Return from when to when a usage is or may be billed as of `now`, with its minimum and last billing increment."""
    span = span_of(usage, rule_for(usage), to_us(now))
    return EPOCH + span.earliest * MICRO, EPOCH + span.latest * MICRO


def billed_units(usage: Usage, begin: datetime, end: datetime) -> Fraction:
    """Return the billed quantity of a part of a usage, in the unit of its price: hours, months or GB, exact."""
    rule = rule_for(usage)
    if usage.per is Per.GB:
        return Fraction(usage.quantity, rule.gb_bytes)
    span = to_us(begin), to_us(end)
    return Fraction(intervals_cost(intervals_of(usage, rule, (*span, 1), 0), *span), PARTS_PER_NANO)


def max_cost_intervals(usage: Usage, now: int) -> list[RateInterval]:
    """Return the upper bound of what a usage costs up to `now`, over time: (begin, end, exact parts per microsecond).

    `now` is in microseconds since 1970. What is free, or has no price, gives nothing.
    """
    rule = rule_for(usage)
    return _max_cost_intervals(usage, rule, span_of(usage, rule, now))


def _max_cost_intervals(usage: Usage, rule: Rule, span: BilledSpan) -> list[RateInterval]:
    if usage.resource is Resource.TRAFFIC:
        billed_at_us = _traffic_billed_at_us(usage)
        return [(billed_at_us, billed_at_us + 1, _traffic_cost(usage, rule))] if usage.segments else []
    if not usage.segments or rule.why_free(usage, span.longest_run):
        return []
    return _rate_intervals(usage, rule, (span.earliest, span.latest), 1)


def cost_timeline(usage: Usage, now: int) -> CostTimeline:
    """Return what a usage costs over time, up to `now` (microseconds since 1970)."""
    rule = rule_for(usage)
    if usage.resource is Resource.TRAFFIC:
        billed_at_us = _traffic_billed_at_us(usage)
        once = [(billed_at_us, billed_at_us + 1, _traffic_cost(usage, rule))] if usage.segments else []
        return CostTimeline(
            billed_at_us, billed_at_us + 1, [] if usage.why_maybe_less else once, once, once, not usage.segments
        )
    span = span_of(usage, rule, now)
    if not usage.segments or rule.why_free(usage, span.longest_run):
        return CostTimeline(span.begin, span.end, [], [], [], not rule.why_free(usage, span.longest_run))
    bounds = _cost_bounds(usage, rule, span)
    return CostTimeline(span.begin, span.end, bounds.low, bounds.amount, bounds.high)


def _rate_intervals(usage: Usage, rule: Rule, span: tuple[int, int], bound: int) -> list[RateInterval]:
    """Return what an interval costs over time; `bound` -1 takes the lowest price that may have held, 1 the highest."""
    return [
        interval for piece in price_pieces(usage, *span, bound) for interval in intervals_of(usage, rule, piece, bound)
    ]


class _CostBounds(NamedTuple):
    """What a usage with a price costs over time: at least, as estimated and at most; and why these differ."""

    low: list[RateInterval]
    amount: list[RateInterval]
    high: list[RateInterval]
    reasons: tuple[str, ...]


def _cost_bounds(usage: Usage, rule: Rule, span: BilledSpan) -> _CostBounds:
    amount = low = high = _rate_intervals(usage, rule, (span.begin, span.end), 0)
    reasons = tuple(_uncertainties(usage, rule, span))
    if reasons:
        low = _rate_intervals(usage, rule, (span.certain_begin, span.certain_end), -1)
        high = _rate_intervals(usage, rule, (span.earliest, span.latest), 1)
        low = [] if usage.why_maybe_less or rule.why_maybe_free(usage, span.shortest_run) else low
    return _CostBounds(low, amount, high, reasons)


def _uncertainties(usage: Usage, rule: Rule, span: BilledSpan) -> Iterator[str]:
    """Yield each reason why the amount is a range: the sentences that are shown with it."""
    if any(segment.maybe_from is not None for segment in usage.segments[1:]):
        yield "when its price changed is not known"
    if is_price_guessed(usage, span.begin):
        yield f"its price before {usage.segments[0].at[:16]} is not known"
    if span.certain_begin > span.begin:
        yield f"whether it ran before {(usage.sure_from or '')[:16]} is not known"
    if span.earliest < span.begin:
        since, begin = (usage.maybe_since or "")[:19], usage.begin[:19]
        within = f"in the second of {begin}" if since == begin else f"between {since} and {begin}"
        yield f"when it began to run, {within}, is not known"
    if usage.maybe_until is not None and span.longest_run > span.run + span.begin - span.earliest:
        yield f"it ended between {(usage.end or '')[:16]} and {(usage.maybe_until or '')[:16]}"
    elif span.latest > span.end:
        yield f"how {usage.provider} rounds so short a use, or one of this system, is not known"
    if rule.maybe_month_hours and usage.per is Per.MONTH:
        yield f"whether a month of {usage.provider} has {rule.maybe_month_hours} hours or the calendar's is not known"
    why_maybe_free = usage.why_maybe_less or rule.why_maybe_free(usage, span.shortest_run)
    if why_maybe_free:
        yield why_maybe_free


def _length_within(begin: int, end: int, period: tuple[int, int]) -> int:
    return max(0, min(end, period[1]) - max(begin, period[0]))


def _traffic_charge(usage: Usage, rule: Rule, period: tuple[int, int]) -> Charge:
    """Charge traffic at the time of its reading.

    The counter includes traffic inside the region, so the amount is an upper bound.
    """
    billed_at_us = _traffic_billed_at_us(usage)
    is_inside = _length_within(billed_at_us, billed_at_us + 1, period)
    if not usage.segments:
        return Charge(usage, 0, 0, 0, 0, None, is_inside, (f"no price is known for {usage.what}",) * is_inside)
    amount = _traffic_cost(usage, rule) * is_inside
    return Charge(
        usage,
        0,
        0 if usage.why_maybe_less else amount,
        amount,
        amount,
        None,
        0,
        (usage.why_maybe_less,) if usage.why_maybe_less else (),
    )


def _traffic_billed_at_us(usage: Usage) -> int:
    """Return the microsecond in which traffic is billed: the last one of the interval in which it was counted."""
    begin = parse_us(usage.begin)
    return begin if usage.end is None else max(begin, parse_us(usage.end) - 1)


def _traffic_cost(usage: Usage, rule: Rule) -> int:
    return usage.quantity * usage.segments[-1].nanos * PARTS_PER_NANO // rule.gb_bytes


def _list_cost(usage: Usage, billed_us: int, amount: int | None) -> int | None:
    """Return the list cost of the billed time. For an on-demand machine that is the charged amount."""
    if usage.resource is Resource.INSTANCE and usage.market != "spot" and amount is not None:
        return amount
    return None if usage.on_demand is None else usage.on_demand * usage.quantity * billed_us * PARTS_PER_NANO_HOUR


@dataclass(frozen=True, slots=True)
class MachineCharge:
    """A charge, and the record of the machine or named resource that it is for."""

    machine: Machine
    charge: Charge


def period_charges(
    machines: Iterable[Machine],
    ended: Iterable[tuple[str, Usage]],
    now: datetime,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[MachineCharge]:
    """Yield the charges of machines (`View.billable_machines`) and ended usages within [`since`, `until`).

    Empty charges, of usages outside the period, are left out.
    """
    by_id = {machine.id: machine for machine in machines}
    running = ((machine, use) for machine in by_id.values() for use in machine.open_usage)
    for machine, use in (*((by_id[machine_id], use) for machine_id, use in ended), *running):
        cost = charge(use, now, since=since, until=until)
        if cost.billed_us or cost.high or cost.unpriced_us:
            yield MachineCharge(machine, cost)


def spent_until_now(machine: Machine, now: datetime) -> Money:
    """Return a machine's cost up to `now` with its attached resources, if what ran at the last sync still runs.

    What has no price is not in it: see `unpriced_of`.
    """
    ended = sum(sums[1] for sums in machine.usage_totals.values())  # [low, amount, high, ...]
    return money(ended + sum(charge(use, now).amount for use in machine.open_usage))


def unpriced_of(machine: Machine) -> list[str]:
    """Return the kinds of a machine's resources that have run, or run, without a known price."""
    ended = {resource for resource, sums in machine.usage_totals.items() if sums[5]}  # how many have no price
    return sorted(ended | {use.resource for use in machine.open_usage if not use.segments})


DERIVED, UNVERIFIED, ASSUMED, OLD = "~", "?", "^", "!"  # marks of prices that are not certain
_MARK_OF = {"derived": DERIVED, "unverified": UNVERIFIED, "assumed": ASSUMED}
_MARK_ORDER = DERIVED + UNVERIFIED + ASSUMED + OLD
_MAX_REASONS = 8  # reasons of one resource of one machine; further ones are left out


# The note of no charge. `marks` are those of docs/catalog.md; `reasons` why low and high differ; `compared` is the
# cost of the runs whose on-demand price is known; `interrupted` is [low, amount, high, micros, runs] of runs that the
# provider interrupted. Amounts are exact parts, as in `core.billing`.
NO_NOTE = ChargeNote("", (), 0, (0, 0, 0, 0, 0))


def note_with_charge(note: ChargeNote, charge: Charge) -> ChargeNote:
    """Return the note with a charge added."""
    compared, interrupted, reasons = note.compared, note.interrupted, note.reasons
    if charge.usage.resource is Resource.INSTANCE:
        compared += charge.amount if charge.list_cost is not None else 0
        if charge.usage.reason == "interrupted":
            interruption = (charge.low, charge.amount, charge.high, charge.billed_us, 1)
            interrupted = tuple([old + value for old, value in zip(interrupted, interruption, strict=True)])
    if charge.low != charge.high:
        reasons = (*reasons, *[reason for reason in charge.reasons if reason not in reasons])[:_MAX_REASONS]
    return ChargeNote(
        join_marks(note.marks, marks(charge.usage.segments, charge.usage.begin)), reasons, compared, interrupted
    )


@lru_cache(maxsize=1024)  # the same few marks come again with every charge
def join_marks(*marks: str) -> str:
    """Return all marks of these texts, each once, in the order `~?^!`."""
    if not any(marks):
        return ""
    return "".join(mark for mark in _MARK_ORDER if any(mark in one for one in marks))


def marks(segments: Iterable[PriceInterval], begin: str) -> str:
    """Return the marks of prices that are paid from `begin` on and are not certain: some of `~?^!`, or nothing."""
    return join_marks(*_marks(segments, begin))


def _marks(segments: Iterable[PriceInterval], begin: str) -> Iterator[str]:
    for basis, as_of, day in {(one.basis, (one.as_of or "")[:10], max(begin, one.at)[:10]) for one in segments}:
        yield _MARK_OF.get(basis or "", "")
        yield _age_mark(as_of, day)


@cache
def _age_mark(as_of: str, day: str) -> str:
    """Return the mark if a price of this date is old on this day, else an empty text."""
    from cloudgpu.core.catalog.catalog import is_old_price  # imported late: `ls` does not need it

    dated = earliest_moment(as_of)
    return OLD if dated is not None and is_old_price(dated, from_iso(f"{day}T00:00:00Z")) else ""
