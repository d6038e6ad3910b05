"""A machine's exposure: what budgets count of it, stored in the ledger, so that an admission reads only that.

It is computed by the functions that evaluate a full machine record, and only if nothing but the machine itself counts:
with an unknown price, or a named volume, there is none, and admission reads the full record. It depends on the
providers' billing rules: when those change, the derived tables of the ledger are built anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, NoReturn

from cloudgpu.core.billing.rates import HOURLY, from_us, has_one_price, unit_of
from cloudgpu.core.billing.rules import (
    DAY_US,
    FAR_FUTURE_US,
    PARTS_PER_NANO_HOUR,
    in_months,
    parse_us,
    price_pieces,
    rule_of,
)
from cloudgpu.core.budgets.commitments import OVERDUE_US, Prices, SubstitutePrice, commitments_of
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Usage
from cloudgpu.core.policies.guards import safeguards_of

_FIRST_YEAR = 1970


def exact_cost(unit: int, begin: int, end: int) -> int:
    """Return what a nano-dollar per unit costs from `begin` to `end`, in exact parts."""
    if begin >= end:
        return 0
    if unit == HOURLY:
        return (end - begin) * PARTS_PER_NANO_HOUR
    if unit > HOURLY:
        return (end - begin) * (PARTS_PER_NANO_HOUR // unit)
    return _cost_since_1970(end, -unit) - _cost_since_1970(begin, -unit)


def _cost_since_1970(moment: int, month_hours: int) -> int:
    """Return what a nano-dollar a month of the calendar costs from 1970 up to a moment, in exact parts."""
    begin, cost, rate = _month(*_month_of(moment // DAY_US), month_hours)
    return cost + (moment - begin) * rate


@cache
def _month_of(day: int) -> tuple[int, int]:
    """Return year and month of a day of UTC; days are counted from 1970 on."""
    moment = from_us(day * DAY_US)
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
    _, end, hours = next(in_months(begin, begin + 32 * DAY_US))
    rate = PARTS_PER_NANO_HOUR // min(hours, month_hours)
    return end, cost + (end - begin) * rate, rate


_LONG_AGO = 0  # microseconds since 1970, before the end of every lease
# The docstring of `Exposure` says what these hold.
_Items = list[tuple[int, int, int | None, bool]]
_Lengths = tuple[tuple[int, int, int], ...]
_Part = tuple[int, int, int | None, int]
_SimpleUsage = tuple[int, int, int, int, int]
_ComplexUsage = tuple[int, _Lengths, list[_Part]]


class Exposure(NamedTuple):
    """What budgets count of a machine, so that its cost up to any time can be computed. Times are microseconds.

    `ended_total` is what its ended usages with a price have cost at most, in exact parts. `items` are its costs from
    now on: (nano-dollars, unit as in `unit_of`, how long after `renew_until` it ends or None for no end, whether it
    costs since `launch_sent_us` already): when its launch was sent if the outcome is not known, else None.
    `items_today` are the items at today's spot price, None if that is no other. `may_run_late`: it may still run after
    its `renew_until`; `only_reaper`: nothing but the reaper ends it.

    `simple_uses` are its open usages at one price: (nano-dollars, begin, unit, billing increment, minimum).
    `complex_uses` are its other open usages: (begin, lengths, parts). Each is billed to the latest end by one of its
    lengths (begin, billing increment, minimum), and costs its parts: (nano-dollars, begin, end or None, unit).
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
    may_run_late: bool
    only_reaper: bool
    launch_sent_us: int | None
    items: _Items
    items_today: _Items | None
    simple_uses: list[_SimpleUsage]
    complex_uses: list[_ComplexUsage]

    def until(self, now: int, *, reaper_runs: bool) -> int | None:
        """Return the latest end of what its lease limits, as `commitments_of` counts it; None: it has no end."""
        if self.renew_until is None or (self.only_reaper and not reaper_runs):
            return None
        return self.renew_until if self.renew_until > now else now + OVERDUE_US * self.may_run_late

    def flows(self, now: int) -> list[tuple[int, int, int, int]]:
        """Return the maximal cost of its usages up to now, as (nano-dollars, begin, end, unit)."""
        flows = []
        for nanos, begin, unit, granule, minimum in self.simple_uses:
            run = -((begin - now) // granule) * granule
            flows.append((nanos, begin, begin + max(run, minimum), unit))
        for begin, lengths, parts in self.complex_uses:
            at = max(now, begin)
            end = max(
                [since + max(minimum, -((since - at) // granule) * granule) for since, granule, minimum in lengths]
            )
            flows += [
                (nanos, first, end if last is None else min(end, last), unit) for nanos, first, last, unit in parts
            ]
        return flows


class _NeedsFullRecord(Exception):
    """What budgets count of this machine depends on more than its record."""


class _Volumes:
    """Raise _NeedsFullRecord as soon as somebody looks for a named volume."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        raise _NeedsFullRecord


def _no_price(_machine: Machine) -> NoReturn:
    raise _NeedsFullRecord


def _no_substitute(_provider: str, _region: str, _kind: str, _resource: str) -> SubstitutePrice:
    raise _NeedsFullRecord


_NO_PRICES = Prices(_no_price, _no_substitute)
_NO_TODAY_PRICES = Prices(_no_price, _no_substitute, at_spot_prices=True)


def exposure_of(machine: Machine) -> Exposure | None:
    """Return what budgets count of a machine; None if that takes its full record."""
    if machine.is_named_resource and machine.terminated_at is None:
        return None
    try:
        simple_uses, complex_uses = _open_usages(machine)
        items = _items(machine, _NO_PRICES)
        items_today = _items(machine, _NO_TODAY_PRICES) if machine.market == "spot" else items
    except _NeedsFullRecord:
        return None
    guards = safeguards_of(machine)
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
        may_run_late=bool(machine.billed or machine.state == "unknown"),
        only_reaper=guards is not None and guards.only_reaper,
        launch_sent_us=parse_us(machine.intended_at)
        if machine.launch_status == "open" and machine.intended_at
        else None,
        items=items,
        items_today=None if items_today == items else items_today,
        simple_uses=simple_uses,
        complex_uses=complex_uses,
    )


def _items(machine: Machine, prices: Prices) -> _Items:
    """Return future costs, summed by unit and end; raise _NeedsFullRecord if an unknown price or a volume counts."""
    end = None if machine.renew_until is None else parse_us(machine.renew_until)
    sums: dict[tuple[int, int | None, bool], int] = {}
    for commitment in commitments_of(machine, _LONG_AGO, prices, _Volumes()).items:
        after_end = None if commitment.until is None or end is None else commitment.until - end
        key = (unit_of(commitment.per, commitment.rule), after_end, commitment.since is not None)
        sums[key] = sums.get(key, 0) + commitment.nanos
    return [(nanos, *key) for key, nanos in sums.items()]


def _open_usages(machine: Machine) -> tuple[list[_SimpleUsage], list[_ComplexUsage]]:
    """Return the usages that are billed still, merged by begin and end; raise _NeedsFullRecord without a price."""
    simple: dict[tuple[int, int, int, int], int] = {}
    complex_uses = []
    for use in machine.open_usage:
        if use.end is not None or not use.segments or use.maybe_until or use.resource == "traffic":
            raise _NeedsFullRecord
        begin, lengths, parts = _billed_parts(use)
        nanos, first, last, unit = parts[0] if len(parts) == 1 else (0, 0, 0, 0)
        if last is None and len(lengths) == 1 and lengths[0][0] == begin == first:
            key = begin, unit, *lengths[0][1:]
            simple[key] = simple.get(key, 0) + nanos
        else:
            complex_uses.append((begin, lengths, parts))
    return [(nanos, *key) for key, nanos in simple.items()], complex_uses


def _billed_parts(usage: Usage) -> tuple[int, _Lengths, list[_Part]]:
    """Return an open usage as `Exposure.complex_uses` has it: its `charges.max_cost_intervals`, at any time."""
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
    pieces = [piece for piece in price_pieces(usage, first, FAR_FUTURE_US, 1) if piece[0] < piece[1]]
    parts = [
        (usage.quantity * nanos, begins, None if ends == FAR_FUTURE_US else ends, unit)
        for begins, ends, nanos in pieces
    ]
    return begin, tuple(lengths), parts


@cache
def _billing(provider: str, market: str, resource: str, licence: str, per: str) -> tuple[int, list[tuple[int, int]]]:
    """Return the unit of a price, and by which granules and least lengths it is billed: `Rule.max_billed_us`.

    These are the rules of runs that are not interrupted, as no open usage is.
    """
    rule = rule_of(provider, market, resource, licence)
    minimum = max(rule.minimum_us, rule.maybe_minimum_us)
    granules = {rule.granularity_us, max(rule.granularity_us, rule.maybe_granularity_us)}
    return unit_of(per, rule), [(granule, minimum) for granule in sorted(granules)]
