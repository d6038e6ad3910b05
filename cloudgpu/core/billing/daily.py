"""The cost of each calendar day by project, exact, from a single read of the usages."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, tzinfo
from itertools import chain
from typing import NamedTuple

from cloudgpu.core.billing.charges import CostTimeline, cost_timeline
from cloudgpu.core.billing.cost_groups import Grouping, with_full_names
from cloudgpu.core.billing.rules import (
    FAR_FUTURE_US,
    MAX_CLOCK_DIFFERENCE_US,
    PARTS_PER_NANO_HOUR,
    RateInterval,
    Rule,
    in_months,
    parse_us,
    rule_of,
    to_us,
)
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import EndedUsage, Usage
from cloudgpu.core.values.times import EPOCH, MICRO, periods


class CostRange(NamedTuple):
    """A cost as a range around its estimate, in exact parts (`core.billing.rules.PARTS_PER_NANO`); equal if certain."""

    low: int
    amount: int
    high: int


NO_COST = CostRange(0, 0, 0)


@dataclass(frozen=True, slots=True)
class DailyCosts:
    """The cost by project of each day that has any, in order; the project is "" if none was named.

    `without_price` names what was billed and has no price: it is in no sum. Each is text like `NAME (RESOURCE)`.
    """

    days: Mapping[date, Mapping[str, CostRange]]
    without_price: tuple[str, ...]

    @property
    def total(self) -> CostRange:
        """The total, equal to that of `core.billing.cost_groups.costs` for the same period."""
        return add_ranges(sums for day in self.days.values() for sums in day.values())


def add_ranges(sums: Iterable[CostRange]) -> CostRange:
    """Return the total of these sums."""
    low = amount = high = 0
    for one in sums:
        low, amount, high = low + one.low, amount + one.amount, high + one.high
    return CostRange(low, amount, high)


class TimedUsage(NamedTuple):
    """The cost over time of one resource of a machine."""

    machine_id: str
    resource: str
    timeline: CostTimeline


def timed_usages(machines: Iterable[Machine], ended: Iterable[EndedUsage], now: datetime) -> list[TimedUsage]:
    """Return the cost over time of the usages of `View.billable_machines`, and of ended ones (`View.ended_usages`)."""
    now_us = to_us(now)
    open_usages = ((machine.id, use) for machine in machines for use in machine.open_usage)
    return [
        TimedUsage(machine_id, use.resource, timeline_of(use, now_us)) for machine_id, use in chain(ended, open_usages)
    ]


def daily(
    machines: Iterable[Machine],
    ended: Iterable[EndedUsage],
    now: datetime,
    zone: tzinfo,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DailyCosts:
    """Return what machines (`View.billable_machines`) and ended usages cost on each day of `zone`.

    As of `now`, within [`since`, `until`) where they are given. A project that was read from a tag gets the
    full name that launches gave it.
    """
    machines = list(machines)
    return daily_of(machines, timed_usages(machines, ended, now), zone, since=since, until=until)


def daily_of(
    machines: Iterable[Machine],
    usages: Iterable[TimedUsage],
    zone: tzinfo,
    *,
    since: datetime | None,
    until: datetime | None,
) -> DailyCosts:
    """Return what these machines and their usages (`timed_usages`) cost on each day of `zone`: as `daily` does."""
    by_id = {machine.id: machine for machine in with_full_names(list(machines), Grouping.PROJECT)}
    first = 0 if since is None else to_us(since)
    last = FAR_FUTURE_US if until is None else to_us(until)
    intervals_by_project: defaultdict[str, _ProjectIntervals] = defaultdict(_ProjectIntervals)
    without_price: dict[str, None] = {}
    for machine_id, resource, timeline in usages:
        machine = by_id[machine_id]
        intervals_by_project[machine.project or ""].add(timeline)
        if timeline.is_unpriced and max(timeline.begin, first) < min(timeline.end, last):
            without_price[f"{machine.name} ({resource})"] = None
    return DailyCosts(_by_day(intervals_by_project, zone, first, last), tuple(without_price))


def timeline_of(usage: Usage, now: int) -> CostTimeline:
    """Return a usage's cost over time, as `core.billing.charges.cost_timeline` does, but faster for most usages."""
    segments, resource, market = usage.segments, usage.resource, usage.market
    may_be_range = not segments or resource == "traffic" or usage.reason == "interrupted"
    may_be_range = may_be_range or bool(usage.maybe_until or usage.maybe_since)
    if may_be_range or usage.continues or usage.why_maybe_less or usage.sure_from:
        return cost_timeline(usage, now)
    begin = parse_us(usage.begin)
    rule = rule_of(usage.provider, market, resource, usage.licence)
    run = max(0, (now if usage.end is None else parse_us(usage.end)) - begin)
    billed_us = rule.billed_us(run, interrupted=False)
    is_uncertain = rule.maybe_granularity_us or rule.maybe_minimum_us
    if is_uncertain and rule.max_billed_us(run, interrupted=False) != billed_us:
        return cost_timeline(usage, now)
    if market == "spot" and resource == "instance" and parse_us(segments[0].at) > begin + MAX_CLOCK_DIFFERENCE_US:
        return cost_timeline(usage, now)
    if usage.per == "hour":
        return _by_hours(usage, begin, begin + billed_us) or cost_timeline(usage, now)
    if len(segments) > 1:
        return cost_timeline(usage, now)
    return _by_months(begin, begin + billed_us, usage.quantity * segments[0].nanos, rule)


def _by_hours(usage: Usage, begin: int, end: int) -> CostTimeline | None:
    """Return the cost over time at hourly prices; None if it is not known when a price changed."""
    segments, price_factor = usage.segments, usage.quantity * PARTS_PER_NANO_HOUR
    if len(segments) == 1:
        intervals = [(begin, end, segments[0].nanos * price_factor)]
        return CostTimeline(begin, end, intervals, intervals, intervals)
    intervals, at, rate = [], begin, segments[0].nanos * price_factor
    for segment in segments[1:]:
        if segment.maybe_from is not None:
            return None
        changes_at = min(end, max(begin, parse_us(segment.at)))
        intervals.append((at, changes_at, rate))
        at, rate = changes_at, segment.nanos * price_factor
    intervals.append((at, end, rate))
    return CostTimeline(begin, end, intervals, intervals, intervals)


def _by_months(begin: int, end: int, nanos: int, rule: Rule) -> CostTimeline:
    """Return the cost over time at a monthly price, as a range if the length of a billed month is not known."""
    month_hours = rule.month_hours
    months = list(in_months(begin, end)) if month_hours is None else [(begin, end, month_hours)]
    amount = [(first, last, nanos * (PARTS_PER_NANO_HOUR // hours)) for first, last, hours in months]
    if not rule.maybe_month_hours:
        return CostTimeline(begin, end, amount, amount, amount)
    maybe_hours = rule.maybe_month_hours
    low = [(first, last, nanos * (PARTS_PER_NANO_HOUR // max(hours, maybe_hours))) for first, last, hours in months]
    high = [(first, last, nanos * (PARTS_PER_NANO_HOUR // min(hours, maybe_hours))) for first, last, hours in months]
    return CostTimeline(begin, end, low, amount, high)


@dataclass(slots=True)
class _ProjectIntervals:
    """The rate intervals of one project: certain ones, and those whose low, amount and high differ."""

    certain: list[RateInterval] = field(default_factory=list)
    low: list[RateInterval] = field(default_factory=list)
    amount: list[RateInterval] = field(default_factory=list)
    high: list[RateInterval] = field(default_factory=list)

    def add(self, timeline: CostTimeline) -> None:
        if timeline.low is timeline.amount is timeline.high:
            self.certain += timeline.amount
        else:
            self.low += timeline.low
            self.amount += timeline.amount
            self.high += timeline.high

    def __iter__(self) -> Iterator[RateInterval]:
        return chain(self.certain, self.low, self.amount, self.high)


def _by_day(
    projects: Mapping[str, _ProjectIntervals], zone: tzinfo, first: int, last: int
) -> dict[date, dict[str, CostRange]]:
    all_intervals = [interval for project_intervals in projects.values() for interval in project_intervals]
    begin = max(first, min((interval[0] for interval in all_intervals), default=0))
    end = min(last, max((interval[1] for interval in all_intervals), default=0))
    if begin >= end:
        return {}
    names, day_bounds = _days(begin, end, zone)
    days: dict[date, dict[str, CostRange]] = {}
    for project, project_intervals in sorted(projects.items()):
        certain = _cost_by_day(project_intervals.certain, day_bounds, begin, end)
        by_bound = [
            _cost_by_day(intervals, day_bounds, begin, end)
            for intervals in (project_intervals.low, project_intervals.amount, project_intervals.high)
        ]
        for number, name in enumerate(names):
            sums = CostRange(*(certain[number] + bound[number] for bound in by_bound))
            if sums.high:
                days.setdefault(name, {})[project] = sums
    return dict(sorted(days.items()))


def _days(begin: int, end: int, zone: tzinfo) -> tuple[list[date], list[int]]:
    """Return the days of an interval, and the begin of each; the last edge is the end of the last day."""
    days = list(periods("day", EPOCH + begin * MICRO, EPOCH + end * MICRO, zone))
    edges = [to_us(period.begin) for period in days] + [to_us(days[-1].end)]
    return [period.begin.astimezone(zone).date() for period in days], edges


def _cost_by_day(intervals: Sequence[RateInterval], day_bounds: list[int], since: int, until: int) -> list[int]:
    """Return the cost of rate intervals between each two edges."""
    costs, changes = [0] * len(day_bounds), [0] * len(day_bounds)
    for begin, end, rate in intervals:
        begin, end = max(begin, since), min(end, until)  # noqa: PLW2901  (the inner loop)
        if begin >= end:
            continue
        first = bisect_right(day_bounds, begin) - 1
        if end <= day_bounds[first + 1]:
            costs[first] += rate * (end - begin)
            continue
        last = bisect_right(day_bounds, end) - 1
        costs[first] += rate * (day_bounds[first + 1] - begin)
        costs[last] += rate * (end - day_bounds[last])
        changes[first + 1] += rate
        changes[last] -= rate
    rate = 0
    for number in range(len(day_bounds) - 1):
        rate += changes[number]
        costs[number] += rate * (day_bounds[number + 1] - day_bounds[number])
    return costs[:-1]
