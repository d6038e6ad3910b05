"""Makes the document of `cost`: what machines, disks and retained resources have cost, and what they cost per hour now.

It also has credits, sustained use discounts, and how long each budget lasts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.catalog.read import gpu_of, speed_ratios
from cloudgpu.control.advice.desktop_choice import load_desktop_of
from cloudgpu.control.inputs.periods import CostRequest, parse_cost
from cloudgpu.control.session.last_run import read_last_run
from cloudgpu.control.session.session import all_jobs
from cloudgpu.core.advice.compare import desktops_cost, rented_machines
from cloudgpu.core.billing.charges import money, rounded_to_sum
from cloudgpu.core.billing.cost_groups import (
    CostQuery,
    CostTotals,
    Grouping,
    billed_within,
    costs as grouped,
    of_owner,
    time_owned_within,
)
from cloudgpu.core.billing.forecast import Horizon, burn_rate, open_usages, remaining_cost
from cloudgpu.core.billing.traffic_gaps import gaps_within
from cloudgpu.core.catalog.gpus import Workload
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.jobs.shares import (
    job_cost,
    machine_assignments,
    on_existing_machines_since,
    tariff_cost,
    tariff_records,
)
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import EndedUsage, Usage
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.times import iso, midnight, period, periods
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.advice.compare_sentences import desktop_document
from cloudgpu.views.cost import (
    burn_document,
    credits_document,
    group_names,
    groups_document,
    lost_document,
    projection_document,
    total_document,
    with_fees,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.advice.desktop import Desktop
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.core.model.usage import EndedUsage
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.core.values.money import Money
    from cloudgpu.ledger.log.base import View
    from cloudgpu.views.documents.money.cost import (
        BudgetForecast,
        CostDocument,
        CostHead,
        CostToCome,
        DayCost,
        Deductions,
        Fees,
        Projections,
    )
    from cloudgpu.views.documents.parts import DesktopLine


def deductions(session: Session, machines: list[Machine], query: CostQuery, now: datetime) -> Deductions:
    """Return the sustained use discounts and credits, which no other amount includes. Reads usages only if needed."""
    if not session.settings.credits and not any(machine.provider == "gcp" for machine in machines):
        return {"sustained_use": [], "credits": None}
    # Read together with the machines: a usage that ends between two reads would count twice, or not at all.
    return session.ledger.read(lambda view: _deductions_of(session, view, query, now))


def _deductions_of(session: Session, view: View, query: CostQuery, now: datetime) -> Deductions:
    result: Deductions = {"sustained_use": [], "credits": None}
    machines = view.billable_machines()

    def ended_usages(since: datetime | None) -> Iterable[tuple[str, Usage]]:
        return view.ended_usages("" if since is None else iso(since))

    if any(machine.provider == "gcp" for machine in machines):
        from cloudgpu.core.billing.deductions import sustained_use_discounts

        discounts = sustained_use_discounts(machines, ended_usages, now, query.since, query.until)
        result["sustained_use"] = [
            {
                "account": discount.account,
                "region": discount.region,
                "what": discount.what,
                "month": discount.month,
                "reason": discount.reason,
                "usd": usd(money(discount.amount)),
            }
            for discount in discounts
        ]
    if session.settings.credits:
        from cloudgpu.core.billing.deductions import after_credits

        credited = after_credits(session.settings.credits, machines, ended_usages, now, query.since, query.until)
        result["credits"] = {
            "before_usd": usd(credited.before),
            "after_usd": usd(credited.after),
            "applied": [
                {
                    "name": credit_use.credit.name,
                    "used_usd": usd(credit_use.used),
                    "remaining_usd": usd(credit_use.remaining),
                }
                for credit_use in credited.credit_uses
            ],
        }
    return result


def budget_forecasts(session: Session, now: datetime) -> list[BudgetForecast]:
    """Return the remaining amount of each budget, and when it is exhausted if running machines keep running.

    `exhausted_at` None: it lasts to the end of its period, or for ever.
    """
    from cloudgpu.control.budgets.store import budget_states, budgets

    all_budgets = budgets(session)
    return [
        {
            "name": state.budget.name,
            "limit_usd": usd(state.budget.limit),
            "remaining_usd": usd(state.left),
            "exhausted_at": None if state.exhausted_in is None else iso(now + state.exhausted_in),
        }
        for state in (budget_states(session, all_budgets) if all_budgets else ())
    ]


MAX_NAMED_OWNERS = 8
MAX_DAYS = 31  # the number of last days that are listed one by one, at least all of the present month
NO_DEDUCTIONS: Deductions = {"sustained_use": [], "credits": None}
ASSUMPTION = (
    "Assumes that running machines stay up until renew-until, or to the end of the lease in that row, and that "
    "stopped machines and retained disks and images cost the same until the day or month ends."
)


def cost_document(session: Session, request: CostRequest | None = None, *, days: bool = False) -> CostDocument:
    """Return what everything in this ledger has cost, in groups, and what continues to cost; see docs/cost.md.

    Without a request: by machine, since the beginning. Asks no cloud: what ran at the last sync counts as running, and
    prepaid credit is what a run of the reaper last read. For one owner there are no budgets, discounts and credits,
    which belong to the whole ledger. With `days`, also what each of the last days cost.
    """
    now = session.clock()
    cost_request = request or parse_cost(session.settings, now)
    last_days = _last_days(cost_request.query, now) if days else None
    inputs = _read_costs(session, cost_request.query, last_days)
    inputs = replace(inputs, machines=with_slurm_tariffs(session, inputs.machines))
    all_owners = cost_request.query.owner is None
    if cost_request.query.owner is not None:
        inputs = _inputs_of_owner(inputs, cost_request.query.owner)
    machines, ended_usages = inputs.machines, inputs.ended_usages
    jobs = all_jobs(session) if cost_request.query.by is Grouping.JOB else {}
    grouped_costs = grouped(machines, ended_usages, now, cost_request.query, machine_assignments(jobs.values()))
    names = group_names(grouped_costs.groups, machines, cost_request.query, {job.id: job.name for job in jobs.values()})
    return {
        **_document_head(cost_request, now),
        "groups": groups_document(grouped_costs, names, cost_request.query.by, cost_request.currency),
        "total": total_document(grouped_costs.total, cost_request.query.by, cost_request.currency),
        "total_usd": usd(money(grouped_costs.total.amount)),
        "days": None if last_days is None else _day_costs(inputs, last_days, now),
        "this_month_usd": None if last_days is None else _this_month(inputs, last_days, now),
        "unpriced": list(grouped_costs.total.unpriced),
        "unmetered": [
            gap.document() for gap in gaps_within(machines, cost_request.query.since, cost_request.query.until)
        ],
        "interrupted": lost_document(grouped_costs.total.interrupted),
        "failed": lost_document(grouped_costs.total.failed),
        **projected_costs(machines, grouped_costs.total, cost_request.query, now),
        "budgets": readable_budget_forecasts(session, now) if all_owners else [],
        "prepaid": credits_document(read_last_run(session.ledger).credits, machines, now) if all_owners else [],
        **(deductions(session, machines, cost_request.query, now) if all_owners else NO_DEDUCTIONS),
        "fees": _fees(session, grouped_costs.total),
        "desktop": _desktop_or_none(session, machines, ended_usages, cost_request, now),
    }


def _desktop_or_none(
    session: Session, machines: list[Machine], ended_usages: Sequence[EndedUsage], request: CostRequest, now: datetime
) -> DesktopLine | None:
    """Return what a desktop would have cost; None, with a notice, if the desktop's file cannot be read."""
    try:
        return desktop_line(session, machines, ended_usages, request.query, now, request.currency)
    except InvalidRequest as error:
        session.report(f"what a desktop would have cost is not known: {error.message}")
        return None


def desktop_line(
    session: Session,
    machines: Sequence[Machine],
    ended_usages: Iterable[EndedUsage],
    query: CostQuery,
    now: datetime,
    currency: Currency | None = None,
) -> DesktopLine:
    """Return what the desktop of the settings would have cost in a period, if it had worked for all billed GPU hours.

    Hours are scaled by the GPUs' speed at training. Idle hours count, unlike in `compare`. `ended_usages` are the ended
    usages, needed unless the query is for totals. `currency` is that of --currency, with its rate. Raises
    InvalidRequest for an invalid file of the desktop.
    """
    desktop = load_desktop_of(session, currency=currency)
    rented, _ = rented_machines(machines)
    billed_times = billed_within(rented, ended_usages, query, now)
    elapsed = max([time_owned_within(rented, query, now), *billed_times.values()])
    cost = desktops_cost(desktop, elapsed, _work_time(rented, billed_times, desktop))
    return desktop_document(desktop, cost, "by then" if query.until and query.until <= now else "by now")


def _work_time(machines: Sequence[Machine], billed_times: Mapping[str, timedelta], desktop: Desktop) -> timedelta:
    """Return the time that the desktop's GPUs would have taken for the machines' billed GPU time."""
    speed, seconds = speed_ratios(desktop, Workload.TRAINING), 0.0
    for machine in machines:
        gpu = gpu_of(machine) if billed_times[machine.id] else None
        if gpu is not None:
            scale = gpu.count * gpu.share / (float(speed(gpu).ratio) * desktop.gpus)
            seconds += scale * billed_times[machine.id].total_seconds()
    return timedelta(seconds=int(seconds))


def readable_budget_forecasts(session: Session, now: datetime) -> list[BudgetForecast]:
    """Return the forecast of each budget; an empty list, with a notice, if a budget's file cannot be read."""
    try:
        return budget_forecasts(session, now)
    except InvalidRequest as error:
        session.report(f"how long the budgets last is not known: {error.message}")
        return []


@dataclass(frozen=True, slots=True)
class _CostInputs:
    """The machines in the ledger, the ended usages of the period (`ended_usages`), and those of the last days."""

    machines: list[Machine]
    ended_usages: Sequence[EndedUsage]
    recent_ended_usages: Sequence[EndedUsage]


def _read_costs(session: Session, query: CostQuery, last_days: CostQuery | None) -> _CostInputs:
    """Return the machines, and the ended usages if they are needed, from one read of the ledger."""
    if query.totals_suffice and last_days is None:
        return _CostInputs(session.ledger.billable_machines(), (), ())

    def ended_usages(view: View, period: CostQuery) -> list[EndedUsage]:
        return list(view.ended_usages("" if period.since is None else iso(period.since)))

    # Read together: a usage that ends between two reads would count twice, or not at all.
    return session.ledger.read(
        lambda view: _CostInputs(
            view.billable_machines(),
            () if query.totals_suffice else ended_usages(view, query),
            () if last_days is None else ended_usages(view, last_days),
        )
    )


def _inputs_of_owner(inputs: _CostInputs, owner: str) -> _CostInputs:
    """Return the inputs of this owner. Raises InvalidRequest if the ledger has no machine of this owner."""
    owned, usages = of_owner(list(inputs.machines), inputs.ended_usages, owner)
    if inputs.machines and not owned:
        owners = sorted({str(machine.owner) for machine in inputs.machines if machine.owner})
        raise InvalidRequest(
            f"No machine in this ledger belongs to {owner!r}.",
            field="--owner",
            value=owner,
            next=f"Owners here: {', '.join(owners[:MAX_NAMED_OWNERS])}",
        )
    return _CostInputs(list(owned), usages, of_owner(list(inputs.machines), inputs.recent_ended_usages, owner)[1])


def _last_days(query: CostQuery, now: datetime) -> CostQuery:
    """Return the query for the last MAX_DAYS days of the period; only its first day may be cut."""
    end = now if query.until is None else min(now, query.until)
    last_midnight = period("day", end - timedelta(microseconds=1), query.zone).begin
    first_midnight = midnight(last_midnight.astimezone(query.zone).date() - timedelta(days=MAX_DAYS - 1), query.zone)
    since = first_midnight if query.since is None else max(first_midnight, query.since)
    return CostQuery(Grouping.DAY, query.zone, min(since, end), end, query.owner)


def _day_costs(inputs: _CostInputs, last_days: CostQuery, now: datetime) -> list[DayCost]:
    """Return the cost of each of these days, also of days without cost; rounded so that they add up to the total.

    That of a day on which nothing has a known price is null.
    """
    groups = grouped(inputs.machines, inputs.recent_ended_usages, now, last_days).groups
    begin, end = last_days.since or now, last_days.until or now
    day_begins = [day.begin for day in periods("day", begin, end, last_days.zone)]
    amounts = rounded_to_sum(groups[key].amount if (key := iso(day)) in groups else 0 for day in day_begins)
    unpriced = {key for key, totals in groups.items() if totals.is_unpriced}
    return [
        {
            "day": day.astimezone(last_days.zone).date().isoformat(),
            "usd": None if iso(day) in unpriced else usd(amount),
        }
        for day, amount in zip(day_begins, amounts, strict=True)
    ]


def _this_month(inputs: _CostInputs, last_days: CostQuery, now: datetime) -> str | None:
    """Return the cost of the present month so far, with started billing increments.

    None if the period cuts it, or nothing of it has a known price.
    """
    this_month = period("month", now, last_days.zone)
    if (last_days.since and last_days.since > this_month.begin) or (last_days.until or now) < now:
        return None
    month_query = CostQuery(Grouping.MONTH, last_days.zone, this_month.begin, this_month.end, last_days.owner)
    total = grouped(inputs.machines, inputs.recent_ended_usages, now, month_query).total
    return None if total.is_unpriced else usd(money(total.amount))


def _document_head(request: CostRequest, now: datetime) -> CostHead:
    query = request.query
    return {
        "by": str(query.by),
        "owner": query.owner,
        "since": None if query.since is None else iso(query.since),
        "until": None if query.until is None else iso(query.until),
        "tz": request.tz,
        "as_of": iso(now),
        "currency": None if request.currency is None else request.currency.to_json(),
    }


def projected_costs(machines: Sequence[Machine], total: CostTotals, query: CostQuery, now: datetime) -> CostToCome:
    """Return the burn rate and the projected totals, which are None if the period has ended."""
    usages = open_usages(machines, now)
    burn = burn_document(burn_rate(usages, now))
    if query.until is not None and query.until <= now:
        return {"burn": burn, "projected": None}
    ends = {Horizon.DAY: period("day", now, query.zone).end, Horizon.MONTH: period("month", now, query.zone).end}
    if query.until is not None:
        ends = {horizon: min(end, query.until) for horizon, end in ends.items()}
    projections = {
        horizon: projection_document(total, remaining_cost(usages, now, horizon, ends.get(horizon)), ends.get(horizon))
        for horizon in Horizon
    }
    projected: Projections = {
        "assumption": ASSUMPTION,
        "end_of_day": projections[Horizon.DAY],
        "end_of_month": projections[Horizon.MONTH],
        "leases_end": projections[Horizon.LEASES],
        "renew_until": projections[Horizon.RENEWALS],
    }
    return {"burn": burn, "projected": projected}


def _fees(session: Session, total: CostTotals) -> Fees:
    fees = session.settings.fees
    configured = fees.tax_percent is not None or fees.support_percent is not None
    return {
        "tax_percent": None if fees.tax_percent is None else f"{fees.tax_percent:f}",
        "support_percent": None if fees.support_percent is None else f"{fees.support_percent:f}",
        "label": fees.label,
        "total_usd": with_fees(total, fees.factor) if configured else None,
        "sentence": fees.summary,
    }


def job_spent(session: Session, job: Job, *, jobs: Mapping[str, Job] | None = None) -> Money:
    """Return what a job has cost up to now, as in `cost --by job`, to the nano-dollar. Asks no cloud.

    `jobs` are all jobs by id, if the caller has read them already: jobs may have shared a machine.
    """
    return jobs_spent(session, [job], jobs=jobs)[job.id]


def jobs_spent(session: Session, wanted: Iterable[Job], *, jobs: Mapping[str, Job] | None = None) -> dict[str, Money]:
    """Return what each of these jobs has cost up to now, by id, from one read of the ledger."""
    requested, now = list(wanted), session.clock()
    existing_machine_starts = [since for job in requested if (since := on_existing_machines_since(job)) is not None]

    def read(view: View) -> tuple[list[Machine], Sequence[EndedUsage]]:
        return view.billable_machines(), list(
            view.ended_usages(iso(min(existing_machine_starts)))
        ) if existing_machine_starts else ()

    machines, ended_usages = session.ledger.read(read)
    jobs_by_id = all_jobs(session) if jobs is None else jobs
    assignments = machine_assignments({**jobs_by_id, **{job.id: job for job in requested}}.values())
    job_machines = [machine for machine in machines if machine.id in assignments]
    job_usages = [(machine_id, usage) for machine_id, usage in ended_usages if machine_id in assignments]
    costs = {job.id: job_cost(job.id, assignments, job_machines, job_usages, now) for job in requested}
    return costs | {job.id: tariff for job in requested if (tariff := tariff_cost(job, now)) is not None}


def with_slurm_tariffs(session: Session, machines: Sequence[Machine]) -> list[Machine]:
    """Return these machines, and one more record for each job that ran in somebody else's Slurm, at its tariff.

    Reads the jobs only if there is an own machine, which may have submitted such jobs.
    """
    has_own = any(machine.provider == "ssh" for machine in machines)
    return [*machines, *(tariff_records(all_jobs(session).values(), machines) if has_own else ())]
