"""Reads budgets from the ledger and from files, sets and removes those of the ledger, and computes the status of each.

The status includes reservations: cost that is reserved for jobs with a deadline which have no machine now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from cloudgpu.config.files.user_files import zone_of
from cloudgpu.control.session.last_run import are_runs_current
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.roles import require_payer_role
from cloudgpu.core.budgets.admission import BilledUsages, budget_sums
from cloudgpu.core.budgets.budget import SUBJECT, Budget, budgets_of, earliest_relevant
from cloudgpu.core.budgets.commitments import Prices, SubstitutePrice
from cloudgpu.core.budgets.exposure import Exposure
from cloudgpu.core.budgets.status import BudgetState, status_of
from cloudgpu.core.events import job_events
from cloudgpu.core.events.general_events import budget_removed, budget_set
from cloudgpu.core.events.log import Draft
from cloudgpu.core.jobs.deadline import has_running_machine, may_reserve, reservation_of
from cloudgpu.core.jobs.job import Job, jobs_of
from cloudgpu.core.model.machine import Machine, existing_volumes
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger.log.base import View

_PERIOD_OF_UNIT = {"usd_per_hour": "hour"}  # a month for all other units


def budgets(session: Session) -> tuple[Budget, ...]:
    """Return every budget, those of the ledger first.

    Raises InvalidRequest for an error in a file, and for a name that is both in the ledger and in a file.
    """
    in_files, in_ledger = _file_budgets(session), budgets_of(session.ledger.events(SUBJECT), zone_of)
    for budget in in_files:
        if budget.name in in_ledger:
            raise InvalidRequest(
                f"The budget {budget.name} is in the ledger and in {budget.file}: it is not known which one counts.",
                field="budget",
                value=budget.name,
                next=f"Run: cloudgpu budget rm {budget.name} (the file then counts), or rename the file.",
            )
    return _with_all_names(session, (*in_ledger.values(), *in_files))


def _with_all_names(session: Session, budgets: Iterable[Budget]) -> tuple[Budget, ...]:
    """Return the budgets, those of an account with all names that it has or had.

    Earlier machines keep the name that the account had: a budget that counted one name alone would begin anew, or end.
    """
    return tuple(_with_names(session, budget) if budget.scope.account else budget for budget in budgets)


def _with_names(session: Session, budget: Budget) -> Budget:
    names = session.names().all_names(budget.scope.account or "")
    return replace(budget, scope=replace(budget.scope, account_names=names))


def budgets_for_reaper_run(session: Session) -> tuple[tuple[Budget, ...], tuple[str, ...]]:
    """Return every budget that a run of the reaper counts, and a sentence for each name in the ledger and in a file.

    Of those, the run counts the one of the ledger. Raises InvalidRequest for an error in a file.
    """
    in_files, in_ledger = _file_budgets(session), budgets_of(session.ledger.events(SUBJECT), zone_of)
    duplicates = tuple(
        f"the budget {budget.name} is in the ledger and in {budget.file}: only the ledger's counts"
        for budget in in_files
        if budget.name in in_ledger
    )
    counted = (*in_ledger.values(), *(budget for budget in in_files if budget.name not in in_ledger))
    return _with_all_names(session, counted), duplicates


def ledger_budgets(session: Session) -> dict[str, Budget]:
    """Return the budgets that the ledger has, by name."""
    return budgets_of(session.ledger.events(SUBJECT), zone_of)


def _file_budgets(session: Session) -> tuple[Budget, ...]:
    folders = session.home.budget_dirs
    if not folders:
        return ()
    from cloudgpu.config.budgets import load_budgets  # only here, because it imports YAML

    return load_budgets(folders)


def set_budget(session: Session, budget: Budget, *, overwrite: bool = False) -> Budget | None:
    """Write a budget to the ledger; return the one that it replaces, or None.

    Raises InvalidRequest for a name that a file has, or the ledger if not `overwrite`; RoleNeeded.
    """
    require_payer_role(session, "Setting a budget")
    in_file = _file_budget(session, budget.name)
    if in_file is not None:
        raise InvalidRequest(
            f"The budget {budget.name} is in the file {in_file.file}.",
            field="NAME",
            value=budget.name,
            next="Change it there, or choose another name.",
        )
    replaced: list[Budget] = []

    def build_events(view: View) -> Sequence[Draft]:
        existing = ledger_budgets(session).get(budget.name)
        if existing is not None and not overwrite:
            raise InvalidRequest(
                f"A budget called {budget.name} is there already: {existing.limit.text()}, {existing.period.text}, "
                f"{existing.scope.text}.",
                field="NAME",
                value=budget.name,
                next="Add --replace to change it, or choose another name.",
            )
        replaced.extend([existing] if existing else [])
        return [budget_set(budget.body(), session.clock(), view.head()[0])]

    session.ledger.decide(build_events)
    return replaced[0] if replaced else None


def _file_budget(session: Session, name: str) -> Budget | None:
    return next((budget for budget in _file_budgets(session) if budget.name == name), None)


def remove_budget(session: Session, name: str) -> Budget:
    """Remove a budget from the ledger and return it. Raises InvalidRequest for an unknown name, RoleNeeded."""
    require_payer_role(session, "Removing a budget")
    removed: list[Budget] = []

    def current_budget() -> Budget:
        by_name = ledger_budgets(session)
        if name not in by_name:
            raise _unknown_budget_error(session, name, by_name)
        return by_name[name]

    def build_events(view: View) -> Sequence[Draft]:
        removed.append(current_budget())
        return [budget_removed(name, session.clock(), view.head()[0])]

    current_budget()  # raises before `decide` would create a ledger
    session.ledger.decide(build_events)
    return removed[0]


def find_budgets(session: Session, name: str | None) -> tuple[Budget, ...]:
    """Return the budget of this name, or all for None. Raises InvalidRequest for an unknown name."""
    all_budgets = budgets(session)
    matches = all_budgets if name is None else tuple(budget for budget in all_budgets if budget.name == name)
    if name is not None and not matches:
        raise _unknown_budget_error(session, name, {budget.name: budget for budget in all_budgets})
    return matches


def _unknown_budget_error(session: Session, name: str, by_name: dict[str, Budget]) -> InvalidRequest:
    in_file = _file_budget(session, name)
    if in_file is not None:
        return InvalidRequest(
            f"The budget {name} is in the file {in_file.file}.", field="NAME", value=name, next="Remove the file."
        )
    return unknown_word(f"No budget is called {name!r}", name, by_name, field="NAME", next="Run: cloudgpu budget ls")


def budget_states(session: Session, chosen: Iterable[Budget]) -> tuple[BudgetState, ...]:
    """Return the status of each of these budgets, by the ledger. Asks no provider."""
    budgets, now = _with_all_names(session, chosen), session.clock()
    if not budgets:
        return ()
    begin = earliest_relevant([budget for budget in budgets if budget.period.kind != "total"] or budgets, now)

    def read_costs(view: View) -> tuple[list[Exposure | Machine], BilledUsages, BilledUsages]:
        ended = [] if begin is None else view.billed_costs(iso(begin))
        has_total = any(budget.period.kind == "total" for budget in budgets)
        unpriced = list(view.ended_usages(unpriced=True)) if has_total else []
        return [*view.exposures(), *reservations_of_jobs(session, view)], ended, unpriced

    machines, ended, unpriced = session.ledger.read(read_costs)
    volumes = existing_volumes(machine for machine in machines if not isinstance(machine, Exposure))
    prices = fallback_prices(session)
    sums = budget_sums(
        budgets, machines, lambda _since: ended, prices, now, volumes, unpriced_ended=lambda _since: unpriced
    )
    sums_today = budget_sums(budgets, machines, lambda _since: (), replace(prices, at_spot_prices=True), now, volumes)
    return tuple(status_of(*pair, now) for pair in zip(sums, sums_today, strict=True))


def fallback_prices(session: Session) -> Prices:
    """Return the prices that budgets count for what has none in the ledger: list prices, or substitutes for those."""
    list_price = cache(_list_price_nanos)
    return Prices(
        lambda subject: list_price(subject.provider, subject.instance_type, subject.region),
        cache(_attached_price),
        reaper_runs=are_runs_current(session.ledger, session.clock()),
    )


def _list_price_nanos(provider: str | None, instance_type: str | None, region: str | None) -> int | None:
    from cloudgpu.catalog import on_demand_price

    if not (provider and instance_type and region):
        return None
    try:
        price = on_demand_price(provider, instance_type, region)
    except InvalidRequest:  # the list does not have the provider or type
        return None
    return None if price is None else price.per_hour.nanos


def _attached_price(provider: str, region: str, kind: str, resource: str) -> SubstitutePrice:
    """Return the list price of storage or an address; if the list has none, 1.5 times the most expensive known."""
    from cloudgpu.catalog import counted_price
    from cloudgpu.catalog.storage import FLAT_PRICE_UNIT, PriceClass

    price_class = PriceClass(resource) if resource in list(PriceClass) else None
    counted = counted_price(provider, region, kind, price_class)
    why = counted.source if counted.upper_bound else ""
    by_size = counted.unit != FLAT_PRICE_UNIT
    return SubstitutePrice(counted.price.nanos, _PERIOD_OF_UNIT.get(counted.unit, "month"), why, by_size)


def reservations_of_jobs(session: Session, view: View, budgeted: Machine | None = None) -> list[Exposure]:
    """Return the reservations of jobs that wait for a machine, except the job that `budgeted` is launched for."""
    if not _may_have_reservations(view):
        return []
    key = "" if budgeted is None else budgeted.key
    waiting_jobs = (
        job
        for job in jobs_of(session.ledger.events(job_events.SUBJECT)).values()
        if may_reserve(job)
        and not key.startswith(f"{job.id}-")  # the key of a job's launch begins with the job's id
        and not has_running_machine(_attempt_machines(view, job))
    )
    reservations = (reservation_of(job, session.clock()) for job in waiting_jobs)
    return [reservation for reservation in reservations if reservation is not None]


def _may_have_reservations(view: View) -> bool:
    """Return whether a job with a deadline may not have ended. Most admissions need to read no more about jobs."""
    deadline_job_ids, ended_job_ids = set[str](), set[str]()
    for event in view.summaries(("job_requested", "job_ended", "job_closed")):
        if event.kind != "job_requested":
            ended_job_ids.add(event.body["job"])
        elif event.body["spec"].get("deadline") is not None:
            deadline_job_ids.add(event.body["job"])
    return bool(deadline_job_ids - ended_job_ids)


def _attempt_machines(view: View, job: Job) -> list[Machine]:
    """Return the machine of a job's open attempt, or the machines of its launch; empty if there is none."""
    attempt = job.attempt
    if attempt is None:
        return []
    if attempt.machine is None:
        return [] if attempt.key is None else view.launched(attempt.key)
    machine = view.machine(attempt.machine)
    return [] if machine is None else [machine]
