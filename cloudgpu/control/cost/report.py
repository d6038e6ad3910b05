"""Makes the report: one document of all that was spent, by the ledger, from which its page and Markdown are rendered.

It also parses the options: a period, a currency, a desktop to compare with.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack, cast

from cloudgpu.config.settings import CLOUDS
from cloudgpu.control.activity.utilization import utilization_of
from cloudgpu.control.advice.compare import PeriodCosts, compare_with_desktop
from cloudgpu.control.advice.compare_request import CompareOptions, CompareRequest, parse_compare
from cloudgpu.control.cost.cost import projected_costs, readable_budget_forecasts, with_slurm_tariffs
from cloudgpu.control.cost.report_files import REPORT_KIND
from cloudgpu.control.inputs.periods import PeriodOptions, parse_month
from cloudgpu.control.inventory.listing import oldest_synced_at
from cloudgpu.control.session.last_run import read_last_run
from cloudgpu.control.session.session import all_jobs
from cloudgpu.core.billing.charges import CostTimeline
from cloudgpu.core.billing.cost_groups import CostQuery, Costs, Grouping, costs as grouped, with_full_names
from cloudgpu.core.billing.daily import TimedUsage, daily_of, timed_usages
from cloudgpu.core.billing.rules import FAR_FUTURE_US, to_us
from cloudgpu.core.billing.traffic_gaps import gaps_within
from cloudgpu.core.jobs.shares import machine_assignments
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Resource
from cloudgpu.core.reaper.savings import KINDS, idle_cost, policy_stops
from cloudgpu.core.resources.idle_costs import idle_costs_of
from cloudgpu.core.values.times import iso
from cloudgpu.core.values.typed import check_keywords
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.cost import credits_document, total_document
from cloudgpu.views.report import document as values
from cloudgpu.views.report.summary import summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import EventSummary
    from cloudgpu.views.documents.money.report import PriceAges, ReportBasis, ReportDocument, ReportJob


class ReportOptions(PeriodOptions, total=False):
    """The options of `report`, parsed as on the command line."""

    month: str | None  # "2026-10", or "last"; in place of since and until
    desktop: str | Path | None  # a name, or a YAML file; None: the setting
    work: str | None  # "training", "inference"


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The parsed request of a report.

    The period begins at `since`; its end, time zone and currency are those of `compare`. The comparison is for the same
    period, except that of a calendar month, which is for all time until its end: nobody buys a desktop for a month.
    """

    compare: CompareRequest
    since: datetime | None

    @property
    def query(self) -> CostQuery:
        """The query for the costs of the period, with the zone in which its days begin."""
        request = self.compare
        return CostQuery(Grouping.INSTANCE, request.zone, self.since, request.until)


def parse_report(session: Session, **options_with_month: Unpack[ReportOptions]) -> ReportRequest:
    """Return the request of these options. Raises InvalidRequest that names the invalid option."""
    check_keywords("report", options_with_month, ReportOptions.__annotations__)
    month = options_with_month.get("month")
    options = cast("CompareOptions", {name: value for name, value in options_with_month.items() if name != "month"})
    if month is not None:
        _check_only_month(month, options_with_month)
        calendar_month = parse_month(month, session.clock(), options_with_month.get("tz") or session.settings.tz)
        options["since"], options["until"] = calendar_month.begin, calendar_month.end
    request = parse_compare(session, **options)
    return ReportRequest(request if month is None else replace(request, since=None), request.since)


def _check_only_month(month: str, options: ReportOptions) -> None:
    for option, value in (("--since", options.get("since")), ("--until", options.get("until"))):
        if value is not None:
            raise InvalidRequest(
                f"--month {month} is a whole period, and {option} is given too.",
                field=option,
                value=str(value),
                next="Name the month, or the period's two ends.",
            )


def report_document(session: Session, request: ReportRequest | None = None) -> ReportDocument:
    """Return the document of `report`, described in docs/report.md. Asks no cloud.

    Without a request: since the beginning, in dollars, compared with the desktop of the settings.
    """
    request, now = request or parse_report(session), session.clock()
    with _without_garbage_collection():
        return _report_document(replace(session, clock=lambda: now), request, now)  # all parts have the same time


def _report_document(session: Session, request: ReportRequest, now: datetime) -> ReportDocument:
    query, currency = request.query, request.compare.currency
    inputs, events = _read_inputs(session, query)
    by_machine = grouped(inputs.machines, inputs.ended_usages, now, query)
    usages = timed_usages(inputs.machines, inputs.ended_usages, now)
    days = daily_of(inputs.machines, usages, query.zone, since=query.since, until=query.until)
    machines = _machine_summaries(inputs, by_machine, usages, query)
    last_moment = now if query.until is None else min(now, query.until)
    costs = replace(inputs, cost=days) if request.compare.since == query.since else None
    day_documents = values.days_document(days, last_moment.astimezone(query.zone).date())
    named_costs = [
        by_machine.groups[machine.id]
        for machine in inputs.machines
        if machine.is_named_resource and machine.id in by_machine.groups
    ]
    machine_documents = values.machines_document(machines, named_costs)
    document: ReportDocument = {
        "kind": REPORT_KIND,
        "as_of": iso(now),
        "tz": request.compare.tz,
        "since": None if query.since is None else iso(query.since),
        "until": None if query.until is None else iso(query.until),
        "currency": None if currency is None else currency.to_json(),
        "about": _report_basis(session, inputs, by_machine),
        "comparison": compare_with_desktop(session, request.compare, costs),
        "step": day_documents.step,
        "days": day_documents.days,
        "projects": values.projects_document(days),
        "owners": values.owners_document(with_full_names(list(inputs.machines), Grouping.OWNER), by_machine.groups),
        "total": total_document(by_machine.total, Grouping.PROJECT, currency),
        "budgets": readable_budget_forecasts(session, now),
        "prepaid": credits_document(read_last_run(session.ledger).credits, inputs.machines, now),
        **projected_costs(inputs.machines, by_machine.total, query, now),
        "jobs": _job_costs(session, inputs, query, now),
        "machines": machine_documents.first,
        "machines_left_out": machine_documents.left_out,
        "other_machines": machine_documents.rest,
        "named_resources": machine_documents.volumes_and_images,
        "idle": values.idle_document(machines),
        "savings": {
            "stops": values.stops_document(
                policy_stops(inputs.machines, inputs.ended_usages, events, now, since=query.since, until=query.until)
            ),
            "spot": values.spot_document(machines),
        },
        "idle_resources": [values.idle_resource_document(cost) for cost in idle_costs_of(inputs.machines, now)],
        "prices": _price_ages(inputs.machines, now),
        "unmetered": [gap.document() for gap in gaps_within(inputs.machines, query.since, query.until)],
        "unpriced": list(by_machine.total.unpriced),
        "summary": [],
    }
    document["summary"] = summary(document)
    return document


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause Python's garbage collection: machines have no cycles, and collecting takes as long as reading them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _read_inputs(session: Session, query: CostQuery) -> tuple[PeriodCosts, Sequence[EventSummary]]:
    """Return what one read of the ledger has, with the hours of activity by machine; and the events about stops."""
    since = "" if query.since is None else iso(query.since)
    machines, ended_usages, events = session.ledger.read(
        lambda view: (view.billable_machines(), list(view.ended_usages(since)), view.summaries(KINDS))
    )
    hours = utilization_of(session, machines, ended_usages, query.since, query.until)
    return PeriodCosts(with_slurm_tariffs(session, machines), ended_usages, hours), events


def _report_basis(session: Session, inputs: PeriodCosts, by_machine: Costs) -> ReportBasis:
    """Return how many machines ran in the period, when the first usage began, and how old and sound the data is."""
    machines = [machine for machine in inputs.machines if not machine.is_named_resource]
    begins = [use.begin for _, use in inputs.ended_usages] + [
        use.begin for machine in inputs.machines for use in machine.open_usage
    ]
    return {
        "machines": sum(
            bool(by_machine.groups[machine.id].billed_us) for machine in machines if machine.id in by_machine.groups
        ),
        "since": min(begins, default=None),
        "view_as_of": oldest_synced_at(session, machines),
        "integrity_problem": session.integrity_problem(),
    }


def _machine_summaries(
    inputs: PeriodCosts, by_machine: Costs, usages: Iterable[TimedUsage], query: CostQuery
) -> list[values.MachineSummary]:
    """Return a summary of each machine that cost anything or ran in the period, with its hours and its idle cost."""
    machines_with_names = with_full_names(list(inputs.machines), Grouping.PROJECT)
    machines = [
        machine for machine in machines_with_names if not machine.is_named_resource and machine.id in by_machine.groups
    ]
    timelines: dict[str, list[CostTimeline]] = {machine.id: [] for machine in machines}
    for usage in usages:
        if usage.resource == Resource.INSTANCE and usage.machine_id in timelines:
            timelines[usage.machine_id].append(usage.timeline)
    since_us = 0 if query.since is None else to_us(query.since)
    until_us = FAR_FUTURE_US if query.until is None else to_us(query.until)
    summaries = []
    for machine in machines:
        hours = inputs.hours.get(machine.id, ())
        idle = idle_cost(hours, timelines[machine.id], since_us, until_us)
        summaries.append(values.MachineSummary(machine, by_machine.groups[machine.id], hours, idle))
    return summaries


def _job_costs(session: Session, inputs: PeriodCosts, query: CostQuery, now: datetime) -> list[ReportJob]:
    """Return what each job has cost in the period."""
    jobs = all_jobs(session)
    if not jobs:
        return []
    by_job = replace(query, by=Grouping.JOB)
    return values.jobs_document(
        grouped(inputs.machines, inputs.ended_usages, now, by_job, machine_assignments(jobs.values())).groups, jobs
    )


def _price_ages(machines: Sequence[Machine], now: datetime) -> list[PriceAges]:
    """Return how old the listed prices are of the clouds that this ledger knows."""
    from cloudgpu.catalog.price_history import price_ages

    ages = [price_ages(kind, now) for kind in CLOUDS if any(machine.provider == kind for machine in machines)]
    return [
        {
            "provider": age.provider,
            "newest": f"{age.newest:%Y-%m-%d}",
            "oldest": f"{age.oldest:%Y-%m-%d}",
            "refreshed_at": None if age.refreshed_at is None else iso(age.refreshed_at),
            "old": age.old_count,
            "items": age.price_count,
        }
        for age in ages
        if age is not None
    ]
