"""The itemised bill: charges split by UTC day, price and job, with rounded amounts that add up to the total."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise

from cloudgpu.core.billing.assignments import NO_JOBS, UNASSIGNED, Assignment, AssignmentsByMachine, cut_times, key_at
from cloudgpu.core.billing.charges import Charge, MachineCharge, billed_span, billed_units, charge, money
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import PriceInterval, Resource, Usage
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import MICRO, from_iso, midnight, periods

_EXACT_BASES = ("quoted", "listed", "measured", "setting")  # a price with such a basis is certain


@dataclass(frozen=True, slots=True)
class LineItem:
    """One line of the bill: a charge from `begin` to `end`, within one UTC day and at one price.

    `amount` is rounded to a nano-dollar so that the amounts of a bill add up to its total; the `charge` is exact. `low`
    and `high` are rounded each by itself. `price_interval` is the price, None where none is known. `units` is how many
    hours, months or GB are billed at that price; zero for a run that is free. `is_running`: it is still billed, so that
    this line may grow. `job` is the key of `AssignmentsByMachine`: a job's id, "shared" or "idle"; empty where the
    machine is for no job.
    """

    machine: Machine
    begin: datetime
    end: datetime
    charge: Charge
    price_interval: PriceInterval | None
    amount: Money
    low: Money
    high: Money
    units: Fraction
    is_running: bool
    job: str = ""

    @property
    def is_estimate(self) -> bool:
        """Whether the amount may turn out to be another: a range, an unverified price, a line that may grow."""
        guessed = self.price_interval is None or self.price_interval.basis not in _EXACT_BASES
        return self.is_running or guessed or self.charge.low != self.charge.high


def line_items(
    charges: Iterable[MachineCharge],
    now: datetime,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    assigned: AssignmentsByMachine = NO_JOBS,
) -> Iterator[LineItem]:
    """Yield the lines of a bill (`charges.period_charges` of the same period): their amounts add up to its total.

    `assigned` says which job each machine is for, and when.

    The rounding error of a line is carried to the next, so that a line is off by a nano-dollar at most.
    """
    exact_sum = rounded_nanos = 0
    for one in charges:
        assignments = assigned.get(one.machine.id, UNASSIGNED)
        for begin, end in _pieces(one.charge.usage, now, since, until, assignments):
            piece = _charge(one.charge.usage, now, begin, end)
            if piece.billed_us or piece.high or piece.unpriced_us:
                exact_sum += piece.amount
                amount = money(exact_sum) - Money(rounded_nanos)
                rounded_nanos += amount.nanos
                yield _item(one.machine, piece, (begin, end), amount, now, key_at(assignments, one.charge.usage, begin))


def _charge(usage: Usage, now: datetime, begin: datetime, end: datetime) -> Charge:
    since = max(begin, end - MICRO) if usage.resource is Resource.TRAFFIC else begin  # counted at its end, all at once
    return charge(usage, now, since=since, until=end)


def _pieces(
    usage: Usage, now: datetime, since: datetime | None, until: datetime | None, assignments: Sequence[Assignment]
) -> Iterator[tuple[datetime, datetime]]:
    """Cut a usage, within a period, at the midnights of UTC, where its price changed and where the job changed."""
    begin, end = billed_span(usage, now)
    if usage.resource is Resource.TRAFFIC:
        end = max(from_iso(usage.end) if usage.end else begin, begin + MICRO)
        yield max(begin, midnight((end - MICRO).date(), UTC)), end
        return
    begin, end = max(begin, since or begin), min(end, until or end)
    changes = (from_iso(segment.at) for segment in usage.segments[1:])
    midnights = (day.end for day in periods("day", begin, end, UTC))
    cuts = {moment for moment in (*changes, *cut_times(assignments), *midnights) if begin < moment < end}
    yield from ((first, last) for first, last in pairwise([begin, *sorted(cuts), end]) if first < last)


def _item(
    machine: Machine, charge: Charge, piece: tuple[datetime, datetime], amount: Money, now: datetime, job: str
) -> LineItem:
    (begin, end), use = piece, charge.usage
    price = _price_at(use, begin)
    is_free = price is not None and price.nanos > 0 and not charge.high
    until = end if use.resource is Resource.TRAFFIC else begin + charge.billed_us * MICRO
    return LineItem(
        machine=machine,
        begin=begin,
        end=end,
        charge=charge,
        price_interval=price,
        amount=amount,
        low=amount if charge.low == charge.amount else min(money(charge.low), amount),
        high=amount if charge.high == charge.amount else max(money(charge.high), amount),
        units=Fraction(0) if is_free else billed_units(use, begin, until),
        is_running=use.end is None and end >= now,
        job=job,
    )


def _price_at(usage: Usage, moment: datetime) -> PriceInterval | None:
    started = [segment for segment in usage.segments[1:] if from_iso(segment.at) <= moment]
    return started[-1] if started else next(iter(usage.segments), None)
