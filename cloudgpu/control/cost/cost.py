"""Answers `cost`: what this ledger's machines, disks and retained resources have cost and go on costing.

Beside the amounts it says credits, sustained use discounts, and how long each budget lasts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.catalog.read import gpu_of, speeds
from cloudgpu.control.advice.desktop_choice import desktop_named
from cloudgpu.control.inputs.periods import CostRequest, parse_cost
from cloudgpu.control.session.last_run import read_last_run
from cloudgpu.core.advice.compare import clouds_of, desktops_cost
from cloudgpu.core.billing.charge_notes import gaps_within
from cloudgpu.core.billing.charges import money, shares
from cloudgpu.core.billing.cost_groups import (
    By,
    CostQuery,
    CostTotals,
    Ended,
    billed_within,
    costs as grouped,
    of_owner,
    time_owned_within,
)
from cloudgpu.core.billing.forecast import Horizon, burn_rate, open_usages, remaining
from cloudgpu.core.catalog.gpus import Work
from cloudgpu.core.events.job_lines import SUBJECT
from cloudgpu.core.jobs.job import Job, jobs_of
from cloudgpu.core.jobs.shares import guest_since, job_cost, machine_assignments, tariff_cost, tariff_rows
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Usage
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.periods import midnight, period, periods
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.advice.compare_sentences import desktop_value
from cloudgpu.views.budgets import credits_value
from cloudgpu.views.cost import (
    burn_value,
    group_names,
    groups_value,
    lost_value,
    projection_value,
    total_value,
    with_fees,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.advice.desktop import Desktop
    from cloudgpu.core.billing.cost_groups import Ended
    from cloudgpu.core.billing.discounts import AfterCredits
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.core.values.money import Money
    from cloudgpu.ledger.log.base import View
    from cloudgpu.views.documents.money.cost import (
        BudgetForecast,
        CostDocument,
        CostHead,
        CostToCome,
        Credit,
        Credits as CreditsValue,
        DayCost,
        Deductions,
        Fees,
        Projections,
    )
    from cloudgpu.views.documents.parts import DesktopLine


def deductions(session: Session, machines: list[Machine], query: CostQuery, now: datetime) -> Deductions:
    """Return `sustained_use` and `credits`: what comes off, and is in no amount. Reads uses only where one is due."""
    if not session.settings.credits and not any(machine.provider == "gcp" for machine in machines):
        return {"sustained_use": [], "credits": None}
    # Read apart from the rows, a usage that ends in between would be in both, or be of a machine that is in none.
    return session.ledger.read(lambda view: _deducted(session, view, query, now))


def _deducted(session: Session, view: View, query: CostQuery, now: datetime) -> Deductions:
    found: Deductions = {"sustained_use": [], "credits": None}
    machines = view.billable_machines()

    def ended(since: datetime | None) -> Iterable[tuple[str, Usage]]:
        return view.uses("" if since is None else iso(since))

    if any(machine.provider == "gcp" for machine in machines):
        from cloudgpu.core.billing.deductions import sustained_use_discounts

        discounts = sustained_use_discounts(machines, ended, now, query.since, query.until)
        found["sustained_use"] = [
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

        given = session.settings.credits
        found["credits"] = _credits(after_credits(given, machines, ended, now, query.since, query.until))
    return found


def _credits(found: AfterCredits) -> CreditsValue:
    uses: list[Credit] = [
        {"name": use.credit.name, "used_usd": usd(use.used), "remaining_usd": usd(use.left)} for use in found.uses
    ]
    return {"before_usd": usd(found.before), "after_usd": usd(found.after), "applied": uses}


def budget_forecasts(session: Session, now: datetime) -> list[BudgetForecast]:
    """Return how each budget stands and when it will be empty if what runs now goes on.

    `empty_at` null: it lasts to the end of its period, or for ever.
    """
    from cloudgpu.control.budgets.store import budgets, standings

    found = budgets(session)
    return [
        {
            "name": standing.budget.name,
            "limit_usd": usd(standing.budget.limit),
            "remaining_usd": usd(standing.left),
            "exhausted_at": None if standing.empty_in is None else iso(now + standing.empty_in),
        }
        for standing in (standings(session, found) if found else ())
    ]


MAX_NAMED = 8
DAYS = 31  # as many of the last days are told one by one: the present month is among them
NOTHING_OFF: Deductions = {"sustained_use": [], "credits": None}
ASSUMPTION = (
    "Assumes that running machines stay up until renew-until, or to the end of the lease in that row, and that "
    "stopped machines and retained disks and images cost the same until the day or month ends."
)


def costs(session: Session, request: CostRequest | None = None, *, days: bool = False) -> CostDocument:
    """Return what everything of this ledger has cost, in groups, with what goes on costing; as `docs/cost.md` says.

    Without options: by machine, since ever. Asks no cloud: what ran at the last sync is counted as running, and what
    was left of prepaid credit is what a run of the reaper last read. Of one owner alone there are no budgets, discounts
    and credits: those are of the whole ledger. `days`: also what each of the last days cost, for which the usages of
    that time are read.
    """
    now = session.clock()
    query = request or parse_cost(session.settings, now)
    last = _last_days(query.asked, now) if days else None
    read = _read(session, query.asked, last)
    read = replace(read, rows=with_tariffs(session, read.rows))
    of_all = query.asked.owner is None
    if query.asked.owner is not None:
        read = _of_owner(read, query.asked.owner)
    machines, ended = read.rows, read.ended
    jobs = all_jobs(session) if query.asked.by is By.JOB else {}
    found = grouped(machines, ended, now, query.asked, machine_assignments(jobs.values()))
    names = group_names(found.groups, machines, query.asked, {job.id: job.name for job in jobs.values()})
    return {
        **_head(query, now),
        "groups": groups_value(found, names, query.asked.by, query.currency),
        "total": total_value(found.total, query.asked.by, query.currency),
        "total_usd": usd(money(found.total.amount)),
        "days": None if last is None else _days(read, last, now),
        "this_month_usd": None if last is None else _this_month(read, last, now),
        "unpriced": list(found.total.unpriced),
        "unmetered": [gap.value() for gap in gaps_within(machines, query.asked.since, query.asked.until)],
        "interrupted": lost_value(found.total.interrupted),
        "failed": lost_value(found.total.failed),
        **to_come(machines, found.total, query.asked, now),
        "budgets": budgets_left(session, now) if of_all else [],
        "prepaid": credits_value(read_last_run(session.ledger).credits, machines, now) if of_all else [],
        **(deductions(session, machines, query.asked, now) if of_all else NOTHING_OFF),
        "fees": _fees(session, found.total),
        "desktop": _desktop(session, machines, ended, query, now),
    }


def _desktop(
    session: Session, machines: list[Machine], ended: Sequence[Ended], request: CostRequest, now: datetime
) -> DesktopLine | None:
    """Return what a desktop would have cost; what was spent is said all the same where the desktop cannot be read."""
    try:
        return desktop_line(session, machines, ended, request.asked, now, request.currency)
    except InvalidRequest as error:
        session.report(f"what a desktop would have cost is not known: {error.message}")
        return None


def desktop_line(
    session: Session,
    machines: Sequence[Machine],
    ended: Iterable[Ended],
    query: CostQuery,
    now: datetime,
    currency: Currency | None = None,
) -> DesktopLine:
    """Return what the desktop of the settings would have cost in a period, kept busy for all billed hours of GPUs.

    Scaled by speed at training. `ended` are the usages that ended, where the sums in the rows are not what is asked.
    `currency` is one whose rate was asked for. `compare` knows more: which of these hours were work. Raises
    InvalidRequest for a desktop that cannot be read.
    """
    desktop = desktop_named(session, currency=currency)
    counted, _ = clouds_of(machines)
    ran = billed_within(counted, ended, query, now)
    worked = _work(counted, ran, desktop)
    elapsed = max([time_owned_within(counted, query, now), *ran.values()])
    cost = desktops_cost(desktop, elapsed, worked)
    when = "by then" if query.until and query.until <= now else "by now"
    return desktop_value(desktop, cost, when)


def _work(machines: Sequence[Machine], ran: Mapping[str, timedelta], desktop: Desktop) -> timedelta:
    speed, seconds = speeds(desktop, Work.TRAINING), 0.0
    for machine in machines:
        gpu = gpu_of(machine) if ran[machine.id] else None
        if gpu is not None:
            scale = gpu.count * gpu.share / (float(speed(gpu).ratio) * desktop.gpus)
            seconds += scale * ran[machine.id].total_seconds()
    return timedelta(seconds=int(seconds))


def budgets_left(session: Session, now: datetime) -> list[BudgetForecast]:
    """Return how each budget stands; what was spent is said all the same where a budget's file cannot be read."""
    try:
        return budget_forecasts(session, now)
    except InvalidRequest as error:
        session.report(f"how long the budgets last is not known: {error.message}")
        return []


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read, once: the rows, the usages that ended and are needed beside them, and those of the last days."""

    rows: list[Machine]
    ended: Sequence[Ended]
    recent: Sequence[Ended]


def _read(session: Session, asked: CostQuery, last: CostQuery | None) -> _Read:
    """Return the rows, and the usages that ended as of the same line of the ledger, where those are needed."""
    if asked.from_totals and last is None:
        return _Read(session.ledger.billable_machines(), (), ())

    def uses(view: View, query: CostQuery) -> list[Ended]:
        return list(view.uses("" if query.since is None else iso(query.since)))

    # Read apart, a usage that ends in between would be in both, or in none.
    return session.ledger.read(
        lambda view: _Read(
            view.billable_machines(),
            () if asked.from_totals else uses(view, asked),
            () if last is None else uses(view, last),
        )
    )


def _of_owner(read: _Read, owner: str) -> _Read:
    """Return what is of this owner; raise InvalidRequest where the ledger has nobody of this name."""
    theirs, uses = of_owner(list(read.rows), read.ended, owner)
    if read.rows and not theirs:
        known = sorted({str(machine.owner) for machine in read.rows if machine.owner})
        raise InvalidRequest(
            f"No machine in this ledger belongs to {owner!r}.",
            field="--owner",
            value=owner,
            next=f"Owners here: {', '.join(known[:MAX_NAMED])}",
        )
    return _Read(list(theirs), uses, of_owner(list(read.rows), read.recent, owner)[1])


def _last_days(query: CostQuery, now: datetime) -> CostQuery:
    """Return the last days of the period, of which each is told: whole days, and the begin of the period."""
    end = now if query.until is None else min(now, query.until)
    last = period("day", end - timedelta(microseconds=1), query.zone).begin
    first = midnight(last.astimezone(query.zone).date() - timedelta(days=DAYS - 1), query.zone)
    since = first if query.since is None else max(first, query.since)
    return CostQuery(By.DAY, query.zone, min(since, end), end, query.owner)


def _days(read: _Read, last: CostQuery, now: datetime) -> list[DayCost]:
    """Return what each of these days cost, also those without any; their amounts add up to the total's last digit."""
    groups = grouped(read.rows, read.recent, now, last).groups
    begin, end = last.since or now, last.until or now
    each = [one.begin for one in periods("day", begin, end, last.zone)]
    amounts = shares(groups[key].amount if (key := iso(one)) in groups else 0 for one in each)
    return [
        {"day": one.astimezone(last.zone).date().isoformat(), "usd": usd(amount)}
        for one, amount in zip(each, amounts, strict=True)
    ]


def _this_month(read: _Read, last: CostQuery, now: datetime) -> str | None:
    """Return what the present month has cost so far; None where the period does not reach over all of it.

    A unit that has begun is in it, as it is in the total.
    """
    month = period("month", now, last.zone)
    if (last.since and last.since > month.begin) or (last.until or now) < now:
        return None
    of_month = CostQuery(By.MONTH, last.zone, month.begin, month.end, last.owner)
    return usd(money(grouped(read.rows, read.recent, now, of_month).total.amount))


def _head(request: CostRequest, now: datetime) -> CostHead:
    query = request.asked
    return {
        "by": str(query.by),
        "owner": query.owner,
        "since": None if query.since is None else iso(query.since),
        "until": None if query.until is None else iso(query.until),
        "tz": request.tz,
        "as_of": iso(now),
        "currency": None if request.currency is None else request.currency.value(),
    }


def to_come(machines: list[Machine], total: CostTotals, query: CostQuery, now: datetime) -> CostToCome:
    """Return the burn rate, and the total projected; None where the period that was asked for is over."""
    found = open_usages(machines, now)
    rate = burn_value(burn_rate(found, now))
    if query.until is not None and query.until <= now:
        return {"burn": rate, "projected": None}
    ends = {Horizon.DAY: period("day", now, query.zone).end, Horizon.MONTH: period("month", now, query.zone).end}
    if query.until is not None:
        ends = {goal: min(end, query.until) for goal, end in ends.items()}
    to = {
        goal: projection_value(total, remaining(found, now, goal, ends.get(goal)), ends.get(goal)) for goal in Horizon
    }
    projected: Projections = {
        "assumption": ASSUMPTION,
        "end_of_day": to[Horizon.DAY],
        "end_of_month": to[Horizon.MONTH],
        "leases_end": to[Horizon.LEASES],
        "renew_until": to[Horizon.RENEWALS],
    }
    return {"burn": rate, "projected": projected}


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


def all_jobs(session: Session) -> dict[str, Job]:
    """Return every job of the ledger by its id, oldest first.

    Read apart from the rows: a job line more or less moves costs between rows, and changes no sum.
    """
    return jobs_of(session.ledger.events(SUBJECT))


def job_spent(session: Session, job: Job, *, jobs: Mapping[str, Job] | None = None) -> Money:
    """Return what a job has cost up to now: its row of `cost --by job`, to the nano-dollar. Asks no cloud.

    `jobs` are all of them by id, where the caller has folded them; they say with whom the job shared a machine.
    """
    return jobs_spent(session, [job], jobs=jobs)[job.id]


def jobs_spent(session: Session, wanted: Iterable[Job], *, jobs: Mapping[str, Job] | None = None) -> dict[str, Money]:
    """Return what each of these jobs has cost up to now, by id; reads the rows and what ended once."""
    asked, now = list(wanted), session.clock()
    guests = [since for one in asked if (since := guest_since(one)) is not None]

    def read(view: View) -> tuple[list[Machine], Sequence[Ended]]:
        return view.billable_machines(), list(view.uses(iso(min(guests)))) if guests else ()

    machines, ended = session.ledger.read(read)
    known = all_jobs(session) if jobs is None else jobs
    shares = machine_assignments({**known, **{one.id: one for one in asked}}.values())
    mine = [machine for machine in machines if machine.id in shares]
    gone = [one for one in ended if one[0] in shares]
    costs = {one.id: job_cost(one.id, shares, mine, gone, now) for one in asked}
    return costs | {one.id: asks for one in asked if (asks := tariff_cost(one, now)) is not None}


def with_tariffs(session: Session, machines: Sequence[Machine]) -> list[Machine]:
    """Return `View.billable_machines` with a row for each job that somebody else's Slurm charges for.

    Reads the jobs only where a machine of one's own may have submitted any.
    """
    if not any(machine.provider == "ssh" for machine in machines):
        return list(machines)
    return [*machines, *tariff_rows(all_jobs(session).values(), machines)]
