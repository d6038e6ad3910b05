"""A machine's exposure: what budgets count of it, stored in the ledger, so that an admission reads only that.

Made by the same functions that judge a whole machine, and only where nothing but the machine itself decides: a price
that is not known, or a volume that stands for itself, leaves it None, and the machine is judged whole. The provider's
billing rules are in it: where those change, the projections are made anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, NoReturn

from cloudgpu.core.billing.rates import RateInterval, from_us, has_one_price
from cloudgpu.core.billing.rules import PARTS_PER_NANO_HOUR, Rule, in_months, parse_us, price_pieces, rule_of
from cloudgpu.core.budgets.commitments import OVERDUE, Prices, StandIn, commitments_of
from cloudgpu.core.model.machine import BudgetedMachine, Machine
from cloudgpu.core.model.usage import Usage
from cloudgpu.core.policies.guards import guards_of
from cloudgpu.core.values.money import HOUR_MICROS

HOURLY = 0
_LONGEST_MONTH = 31 * 24
_DAY = 24 * HOUR_MICROS
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
        return (end - begin) * PARTS_PER_NANO_HOUR
    if unit > HOURLY:
        return (end - begin) * (PARTS_PER_NANO_HOUR // unit)
    return _start_before(end, -unit) - _start_before(begin, -unit)


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


def _start_before(moment: int, month_hours: int) -> int:
    """Return what a nano-dollar a month of the calendar costs from 1970 up to a moment, in exact parts."""
    begin, cost, rate = _month(*_month_of(moment // _DAY), month_hours)
    return cost + (moment - begin) * rate


@cache
def _month_of(day: int) -> tuple[int, int]:
    """Return year and month of a day of UTC; days are counted from 1970 on."""
    moment = from_us(day * _DAY)
    return moment.year, moment.month


@cache
def _month(year: int, month: int, month_hours: int) -> tuple[int, int, int]:
    """Return when a month begins, what a nano-dollar a month has cost up to then, and what it costs a microsecond."""
    begin, cost = _year(year, month_hours)
    for _ in range(1, month):
        begin, cost, _rate = _next_start(begin, cost, month_hours)
    return begin, cost, _next_start(begin, cost, month_hours)[2]


@cache
def _year(year: int, month_hours: int) -> tuple[int, int]:
    """Return when a year begins, and what a nano-dollar a month has cost up to then."""
    if year <= _FIRST_YEAR:
        return 0, 0
    begin, cost = _year(year - 1, month_hours)
    for _ in range(12):
        begin, cost, _rate = _next_start(begin, cost, month_hours)
    return begin, cost


def _next_start(begin: int, cost: int, month_hours: int) -> tuple[int, int, int]:
    """Return when the month that begins there ends, the cost up to then, and the cost of a microsecond of it."""
    _, end, hours = next(in_months(begin, begin + 32 * _DAY))
    rate = PARTS_PER_NANO_HOUR // min(hours, month_hours)
    return end, cost + (end - begin) * rate, rate


_LONG_AGO = 0  # before every lease ends
_NEVER = 2**62  # microseconds; later than any time that can be written
_Items = list[tuple[int, int, int | None, bool]]
_Lengths = tuple[tuple[int, int, int], ...]
_Part = tuple[int, int, int | None, int]
_SimpleUsage = tuple[int, int, int, int, int]
_ComplexUsage = tuple[int, _Lengths, list[_Part]]


class Exposure(NamedTuple):
    """The cost of a machine that budgets count, at any time.

    `ended_total` is what its ended usages with a price have cost at most, in exact parts. It costs each
    of `items` from now on: (nano-dollars, unit as `unit_of`, microseconds behind its `renew_until` up to which,
    or None: without an end, and whether since `sent` already). `today` are they at today's spot price, None
    where that makes no difference. `late`: it may run when that is over; `only_reaper`: nothing else ends it.

    `uses` are billed still, each at one price: (nano-dollars, begin, unit, granule, least length). `others` are, too:
    (begin, lengths, parts). One is billed to the latest of its lengths (since when it runs, the granule, the least) as
    of now, and costs the parts (nano-dollars, from when, to when or None, unit) up to then.
    """

    id: str
    name: str
    provider: str
    account: str
    project: str
    owner: str
    is_named_resource: bool
    ended_total: int
    renew_until: int | None
    late: bool
    only_reaper: bool
    sent: int | None
    items: _Items
    today: _Items | None
    uses: list[_SimpleUsage]
    others: list[_ComplexUsage]

    def until(self, now: int, *, reaper_runs: bool) -> int | None:
        """Return when what its lease ends is over at the latest, as `commitments_of` says; None: never."""
        if self.renew_until is None or (self.only_reaper and not reaper_runs):
            return None
        return self.renew_until if self.renew_until > now else now + OVERDUE * self.late

    def flows(self, now: int) -> list[tuple[int, int, int, int]]:
        """Return the maximal cost of its usages up to now, as (nano-dollars, begin, end, unit)."""
        flows = []
        for nanos, begin, unit, granule, least in self.uses:
            run = -((begin - now) // granule) * granule
            flows.append((nanos, begin, begin + max(run, least), unit))
        for begin, lengths, parts in self.others:
            at = max(now, begin)
            end = max([since + max(least, -((since - at) // granule) * granule) for since, granule, least in lengths])
            flows += [
                (nanos, first, end if last is None else min(end, last), unit) for nanos, first, last, unit in parts
            ]
        return flows


class _DependsOnOthers(Exception):
    """What budgets count of this machine depends on more than the machine."""


class _Volumes:
    def __iter__(self) -> Iterator[tuple[str, str]]:
        raise _DependsOnOthers


def _no_price(_row: BudgetedMachine) -> NoReturn:
    raise _DependsOnOthers


def _no_substitute(_provider: str, _region: str, _kind: str, _resource: str) -> StandIn:
    raise _DependsOnOthers


_NO_PRICES = Prices(_no_price, _no_substitute)
_NO_TODAY_PRICES = Prices(_no_price, _no_substitute, today=True)


def exposure_of(machine: Machine) -> Exposure | None:
    """Return what budgets count of a machine; None where it has to be judged whole."""
    if machine.is_named_resource and machine.terminated_at is None:
        return None
    try:
        uses, others = _open_usages(machine)
        items = _items(machine, _NO_PRICES)
        today = _items(machine, _NO_TODAY_PRICES) if machine.market == "spot" else items
    except _DependsOnOthers:
        return None
    guards = guards_of(machine)
    return Exposure(
        id=machine.id,
        name=machine.name,
        provider=machine.provider,
        account=machine.account,
        project=machine.project,
        owner=machine.owner,
        is_named_resource=machine.is_named_resource,
        ended_total=sum(usage_total[2] for usage_total in machine.usage_totals.values()),
        renew_until=None if machine.renew_until is None else parse_us(machine.renew_until),
        late=bool(machine.billed or machine.state == "unknown"),
        only_reaper=guards is not None and guards.only_reaper,
        sent=parse_us(machine.intended_at) if machine.launch_status == "open" and machine.intended_at else None,
        items=items,
        today=None if today == items else today,
        uses=uses,
        others=others,
    )


def _items(machine: Machine, prices: Prices) -> _Items:
    """Return what goes on costing, that of one unit and end in one; raise _DependsOnOthers where more is asked for."""
    end = None if machine.renew_until is None else parse_us(machine.renew_until)
    sums: dict[tuple[int, int | None, bool], int] = {}
    for commitment in commitments_of(machine, _LONG_AGO, prices, _Volumes()).items:
        after_end = None if commitment.until is None or end is None else commitment.until - end
        key = (unit_of(commitment.per, commitment.rule), after_end, commitment.since is not None)
        sums[key] = sums.get(key, 0) + commitment.nanos
    return [(nanos, *key) for key, nanos in sums.items()]


def _open_usages(machine: Machine) -> tuple[list[_SimpleUsage], list[_ComplexUsage]]:
    """Return the usages that are billed still, merged by begin and end; raise _DependsOnOthers without a price."""
    plain: dict[tuple[int, int, int, int], int] = {}
    others = []
    for use in machine.open_usage:
        if use.end is not None or not use.segments or use.maybe_until or use.resource == "traffic":
            raise _DependsOnOthers
        begin, lengths, parts = _billed_parts(use)
        nanos, first, last, unit = parts[0] if len(parts) == 1 else (0, 0, 0, 0)
        if last is None and len(lengths) == 1 and lengths[0][0] == begin == first:
            key = begin, unit, *lengths[0][1:]
            plain[key] = plain.get(key, 0) + nanos
        else:
            others.append((begin, lengths, parts))
    return [(nanos, *key) for key, nanos in plain.items()], others


def _billed_parts(usage: Usage) -> tuple[int, _Lengths, list[_Part]]:
    """Return an open usage as `Exposure.uses` has it: `billing.max_cost_intervals` of it, at any time."""
    rule_key = usage.provider, usage.market, usage.resource, usage.licence
    (unit, upper_bounds), begin = _billing(*rule_key, usage.per), parse_us(usage.begin)
    if has_one_price(usage) and not usage.maybe_since:
        nanos = usage.quantity * usage.segments[0].nanos
        return begin, tuple((begin, *one) for one in upper_bounds), [(nanos, begin, None, unit)]
    rule, first = rule_of(*rule_key), begin
    lengths = [(begin, *one) for one in upper_bounds]
    if usage.continues:
        origin = parse_us(usage.continues or "")
        first = origin + rule.billed_us(begin - origin, interrupted=False)
        lengths = [(origin, *one) for one in upper_bounds]
    elif usage.maybe_since:
        first = min(begin, parse_us(usage.maybe_since or ""))
        lengths = [(begin, rule.granularity_us, rule.minimum_us), *((first, *one) for one in upper_bounds)]
    pieces = [piece for piece in price_pieces(usage, first, _NEVER, 1) if piece[0] < piece[1]]
    parts = [(usage.quantity * nanos, begins, None if ends == _NEVER else ends, unit) for begins, ends, nanos in pieces]
    return begin, tuple(lengths), parts


@cache
def _billing(provider: str, market: str, resource: str, licence: str, per: str) -> tuple[int, list[tuple[int, int]]]:
    """Return the unit of a price, and by which granules and least lengths it is billed: `Rule.max_billed_us`.

    These are the rules of runs that are not interrupted, as no open usage is.
    """
    rule = rule_of(provider, market, resource, licence)
    least = max(rule.minimum_us, rule.maybe_minimum_us)
    granules = {rule.granularity_us, max(rule.granularity_us, rule.maybe_granularity_us)}
    return unit_of(per, rule), [(granule, least) for granule in sorted(granules)]
