"""The parts of a report as plain values: days, projects, machines, idle time, savings, idle resources."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

from cloudgpu.core.billing.charges import money, rounded_to_sum
from cloudgpu.core.billing.daily import NO_COST, CostRange, add_ranges
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.reaper.savings import RULE
from cloudgpu.core.values.money import hours_text, usd

if TYPE_CHECKING:
    from cloudgpu.core.activity.utilization import Hour
    from cloudgpu.core.billing.cost_groups import CostTotals
    from cloudgpu.core.billing.daily import DailyCosts
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.core.reaper.savings import Stop
    from cloudgpu.core.resources.idle_costs import OngoingCost
    from cloudgpu.core.values.money import Money
    from cloudgpu.views.documents.money.report import (
        BilledTimes,
        IdleCost,
        IdleResource,
        OwnerSum,
        ProjectSum,
        ReportDay,
        ReportJob,
        ReportMachine,
        ReportRest,
        RetainedSum,
        RuleSavings,
        SavingsSums,
        SpotSavings,
        StopSavings,
    )
    from cloudgpu.views.documents.parts import CostBounds, MaybePriced

MAX_DAYS = 400  # for more, a chart shows months
MAX_MACHINES = 200
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class MachineSummary:
    """One machine of a report: its record, its cost, the use of its billed hours, and the cost of its idle time."""

    machine: Machine
    totals: CostTotals
    hours: Sequence[Hour]
    idle: CostRange


class DaysOfReport(NamedTuple):
    """What each day cost, or each month of many days."""

    step: Literal["day", "month"]
    days: list[ReportDay]


class MachinesOfReport(NamedTuple):
    """The costs of machines: the most expensive ones, the sum of the others, and that of named volumes and images."""

    first: list[ReportMachine]
    left_out: int
    rest: ReportRest
    volumes_and_images: RetainedSum


def days_document(daily: DailyCosts, last_day: date) -> DaysOfReport:
    """Return what each day cost, from the first that cost anything to `last_day`, by month where they are many.

    Amounts are rounded so that all of them add up to the rounded total.
    """
    if not daily.days:
        return DaysOfReport("day", [])
    first_day = next(iter(daily.days))
    last_day = max(last_day, next(reversed(tuple(daily.days))))
    is_by_month = (last_day - first_day).days >= MAX_DAYS
    sums: dict[str, dict[str, list[CostRange]]] = {}
    for day in _dates(first_day, last_day):
        projects = sums.setdefault(f"{day:%Y-%m}" if is_by_month else f"{day}", {})
        for project, costs in daily.days.get(day, {}).items():
            projects.setdefault(project, []).append(costs)
    return DaysOfReport("month" if is_by_month else "day", list(_rounded_days(sums)))


def _dates(first: date, last: date) -> Iterator[date]:
    return (first + timedelta(days=number) for number in range((last - first).days + 1))


def _rounded_days(sums: Mapping[str, Mapping[str, Iterable[CostRange]]]) -> Iterator[ReportDay]:
    cells = [
        (day, project, add_ranges(costs).amount)
        for day, costs_by_project in sums.items()
        for project, costs in costs_by_project.items()
    ]
    amounts = dict(zip([cell[:2] for cell in cells], rounded_to_sum(cell[2] for cell in cells), strict=True))
    for day, projects in sums.items():
        rounded = {project: amounts[day, project] for project in projects}
        yield {
            "day": day,
            "usd": usd(sum(rounded.values(), start=money(NO_COST.amount))),
            "projects": {project: usd(amount) for project, amount in rounded.items()},
        }


def projects_document(daily: DailyCosts) -> list[ProjectSum]:
    """Return the cost of each project, the highest first; "" is without project."""
    sums: dict[str, list[CostRange]] = {}
    for day in daily.days.values():
        for project, costs in day.items():
            sums.setdefault(project, []).append(costs)
    return [{"name": name, **_cost(total, amount)} for name, total, amount in _most_first(sums)]


def owners_document(machines: Iterable[Machine], totals_by_id: Mapping[str, CostTotals]) -> list[OwnerSum]:
    """Return the cost of each owner's machines, named volumes and images, the highest first; "" is without owner.

    `totals_by_id` is by the id of a machine, volume or image. Amounts are rounded so that they add up to the rounded
    total.
    """
    by_owner: dict[str, list[CostTotals]] = {}
    for machine in machines:
        if machine.id in totals_by_id:
            by_owner.setdefault(str(machine.owner or ""), []).append(totals_by_id[machine.id])
    sums = {owner: [_sums(totals) for totals in owned] for owner, owned in by_owner.items()}
    return [
        {"name": owner, **_maybe_priced(total, amount, by_owner[owner])} for owner, total, amount in _most_first(sums)
    ]


def _most_first(sums: Mapping[str, Sequence[CostRange]]) -> list[tuple[str, CostRange, Money]]:
    """Return the names with their total, exact and rounded so that they add up, the most expensive first."""
    totals = sorted(
        ((name, add_ranges(costs)) for name, costs in sums.items()), key=lambda pair: (-pair[1].amount, pair[0])
    )
    amounts = rounded_to_sum(total.amount for _, total in totals)
    return [(name, total, amount) for (name, total), amount in zip(totals, amounts, strict=True)]


def jobs_document(totals_by_id: Mapping[str, CostTotals], jobs: Mapping[str, Job]) -> list[ReportJob]:
    """Return the cost of each job, the highest first, then the cost that is of no single job; empty if no job ran.

    `totals_by_id` are the groups by job of `core.billing.cost_groups`. The amounts add up to the total.
    """
    if not any(totals_by_id):
        return []
    keys = sorted(totals_by_id, key=lambda key: (key not in jobs, -totals_by_id[key].amount, key))
    amounts = rounded_to_sum(totals_by_id[key].amount for key in keys)
    return [_job(key, totals_by_id[key], amount, jobs.get(key)) for key, amount in zip(keys, amounts, strict=True)]


def _job(key: str, totals: CostTotals, amount: Money, job: Job | None) -> ReportJob:
    return {
        "id": key,
        "name": key if job is None else job.name,
        "state": None if job is None else str(job.state),
        **_maybe_priced(_sums(totals), amount, [totals]),
        "billed_s": round(totals.billed_us / _SECOND_US),
        "without_price": totals.without_price,
    }


def machines_document(summaries: Iterable[MachineSummary], resources: Iterable[CostTotals]) -> MachinesOfReport:
    """Return the machines, most expensive first, `MAX_MACHINES` at most, the sum of the others and of `resources`.

    All of them add up to the total.
    """
    machines = sorted(summaries, key=lambda summary: (-summary.totals.amount, summary.machine.id))
    first, rest = machines[:MAX_MACHINES], machines[MAX_MACHINES:]
    resource_totals, rest_totals = list(resources), [summary.totals for summary in rest]
    resource_sums = [_sums(totals) for totals in resource_totals]
    exact_sums = [
        *(_sums(summary.totals) for summary in first),
        add_ranges(_sums(summary.totals) for summary in rest),
        add_ranges(resource_sums),
    ]
    amounts = rounded_to_sum(summary.amount for summary in exact_sums)
    return MachinesOfReport(
        first=[_machine(summary, amount) for summary, amount in zip(first, amounts, strict=False)],
        left_out=len(rest),
        rest={"number": len(rest), **_maybe_priced(exact_sums[-2], amounts[-2], rest_totals), **_times(rest)},
        volumes_and_images={
            "number": len(resource_sums),
            **_maybe_priced(exact_sums[-1], amounts[-1], resource_totals),
        },
    )


def _machine(summary: MachineSummary, amount: Money) -> ReportMachine:
    machine = summary.machine
    cost = _maybe_priced(_sums(summary.totals), amount, [summary.totals])
    return {
        "id": machine.id,
        "name": machine.name,
        "provider": machine.provider,
        "account": machine.account,
        "region": machine.region,
        "instance_type": machine.instance_type,
        "market": machine.market,
        "state": machine.state,
        "owner": machine.owner,
        "project": machine.project,
        "gpu": _gpus(machine),
        **cost,
        **_times([summary]),
        "idle_usd": None if cost["usd"] is None else usd(money(summary.idle.amount)),
        "marks": summary.totals.price_marks,
        "without_price": summary.totals.without_price,
    }


def _gpus(machine: Machine) -> str | None:
    """Return `T4`, `8 x A100`, `1/6 of A10`; None for a machine without one."""
    gpus = [(accelerator.name, accelerator.number, accelerator.share) for accelerator in machine.accelerators or ()]
    return ", ".join(_gpu(*gpu) for gpu in gpus) or None


def _gpu(name: str, count: int, share: float) -> str:
    part = name if share >= 1 else f"{share:.3g} of {name}"
    return part if count == 1 else f"{count} x {part}"


def _times(summaries: Sequence[MachineSummary]) -> BilledTimes:
    """Return the billed time in whole seconds, and how much of it was GPU work, other use, idle and not known."""
    billed_s = round(sum(summary.totals.billed_us for summary in summaries) / _SECOND_US)
    gpu_s = used_s = idle_s = 0.0
    for hour in (hour for summary in summaries for hour in summary.hours):
        gpu_s += hour.gpu_s
        used_s += hour.used_s
        idle_s += hour.idle_s
    known_s = round(gpu_s) + round(used_s) + round(idle_s)
    return {
        "billed_s": billed_s,
        "gpu_s": round(gpu_s),
        "used_s": round(used_s),
        "idle_s": round(idle_s),
        "unknown_s": max(0, billed_s - known_s),
    }


def idle_document(summaries: Sequence[MachineSummary]) -> IdleCost:
    """Return what all machines cost while nobody used them, for how long, and for how long their use is not known.

    Machines that are free, such as the user's own, are left out: their idle hours cost nothing.
    """
    total = add_ranges(summary.idle for summary in summaries)
    counted = [summary for summary in summaries if summary.totals.high or summary.totals.without_price]
    times, has_price = _times(counted), not counted or any(summary.totals.high for summary in counted)
    cost = _cost(total, money(total.amount))
    return {
        "usd": cost["usd"] if has_price else None,
        "low_usd": cost["low_usd"] if has_price else None,
        "high_usd": cost["high_usd"] if has_price else None,
        "hours": hours_text(times["idle_s"] * _SECOND_US),
        "unknown_hours": hours_text(times["unknown_s"] * _SECOND_US),
    }


def stops_document(stops: Sequence[Stop]) -> StopSavings:
    """Return what stops by rules have saved at most, in all and by rule, and how that is counted."""
    by_rule: dict[str, list[Stop]] = {}
    for stop in stops:
        by_rule.setdefault(stop.rule, []).append(stop)
    rules: list[RuleSavings] = [
        {"rule": rule, **_stops_document(rule_stops)} for rule, rule_stops in sorted(by_rule.items())
    ]
    return {**_stops_document(stops), "by_rule": rules, "rule": RULE}


def _stops_document(stops: Sequence[Stop]) -> SavingsSums:
    duration = sum((stop.saved_time for stop in stops), timedelta())
    priced = [stop.exact_avoided_cost for stop in stops if stop.exact_avoided_cost is not None]
    return {
        "usd": usd(money(sum(priced))) if priced or not stops else None,
        "hours": hours_text(duration // timedelta(microseconds=1)),
        "number": len(stops),
        "without_price": len(stops) - len(priced),
    }


def spot_document(summaries: Iterable[MachineSummary]) -> SpotSavings:
    """Return what spot machines cost less than the same hours on demand; None where nothing is known to compare with.

    A machine counts if its last launch was on spot, or if its cost is not its on-demand cost.
    """
    spot = [
        summary
        for summary in summaries
        if summary.machine.market == "spot" or summary.totals.list_cost != summary.totals.cost_of_runs_with_list_price
    ]
    on_demand, compared = (
        sum(summary.totals.list_cost for summary in spot),
        sum(summary.totals.cost_of_runs_with_list_price for summary in spot),
    )
    known = on_demand > 0 or compared > 0
    return {
        "usd": usd(money(on_demand - compared)) if known else None,
        "on_demand_usd": usd(money(on_demand)) if known else None,
        "without_on_demand": sum(summary.totals.runs_without_list_price for summary in spot),
        "machines": len(spot),
    }


def idle_resource_document(cost: OngoingCost) -> IdleResource:
    """Return a resource that costs money without a running machine; `usd_per_month` null where no price is known."""
    return {
        "name": cost.name,
        "kind": cost.kind,
        "provider": cost.provider,
        "region": cost.region,
        "usd_per_month": None if cost.per_month is None else usd(cost.per_month),
        "since": cost.since,
        "why": cost.why,
    }


def _sums(totals: CostTotals) -> CostRange:
    return CostRange(totals.low, totals.amount, totals.high)


def _maybe_priced(sums: CostRange, amount: Money, parts: Collection[CostTotals]) -> MaybePriced:
    """Return an amount and its bounds; null where something of its `parts` was billed, and none of it has a price."""
    if any(totals.without_price for totals in parts) and not any(totals.high for totals in parts):
        return {"usd": None, "low_usd": None, "high_usd": None}
    bounds = _cost(sums, amount)
    return {"usd": bounds["usd"], "low_usd": bounds["low_usd"], "high_usd": bounds["high_usd"]}


def _cost(sums: CostRange, amount: Money) -> CostBounds:
    """Return an amount and its bounds; a bound that equals the exact amount is the rounded amount."""
    low, high = (amount if bound == sums.amount else money(bound) for bound in (sums.low, sums.high))
    return {"usd": usd(amount), "low_usd": usd(low), "high_usd": usd(high)}
