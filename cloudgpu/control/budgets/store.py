"""The budgets in force, those of the ledger and those of files: set, removed, and the status of each.

Reservations for jobs with a deadline that have no machine now count, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from cloudgpu.config.files.user_files import zone_of
from cloudgpu.control.session.last_run import are_runs_current
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.roles import payers_only
from cloudgpu.core.budgets.admission import Billed, budget_sums, earliest_relevant
from cloudgpu.core.budgets.budget import SUBJECT, Budget, budgets_of
from cloudgpu.core.budgets.commitments import Prices, StandIn
from cloudgpu.core.budgets.exposure import Exposure
from cloudgpu.core.budgets.status import BudgetState, status_of
from cloudgpu.core.events import job_lines
from cloudgpu.core.events.general_lines import budget_removed, budget_set
from cloudgpu.core.events.log import Draft
from cloudgpu.core.jobs.deadline import is_carried, may_reserve, reservation_of
from cloudgpu.core.jobs.job import Job, jobs_of
from cloudgpu.core.model.machine import Budgeted, Machine, existing_volumes
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger.log.base import View

_PRICE_PERIOD = {"usd_per_hour": "hour"}  # a month for all other units


def budgets(session: Session) -> tuple[Budget, ...]:
    """Return every budget, those of the ledger first.

    Raises InvalidRequest for a fault in a file, and for a name that stands both in the ledger and in a file: neither
    is to win unseen.
    """
    by_name, of_files = _budgets_of_ledger_and_files(session)
    for one in of_files:
        if one.name in by_name:
            raise InvalidRequest(
                f"The budget {one.name} is in the ledger and in {one.file}: it is not known which one counts.",
                field="budget",
                value=one.name,
                next=f"Run: cloudgpu budget rm {one.name} (the file then counts), or rename the file.",
            )
    return (*by_name.values(), *of_files)


def budgets_for_run(session: Session) -> tuple[tuple[Budget, ...], tuple[str, ...]]:
    """Return every budget that a run counts, and a sentence for each of a file whose name the ledger has, too.

    The ledger's wins in a run, so that its machines are judged. Raises InvalidRequest for a fault in a file.
    """
    of_ledger, of_files = _budgets_of_ledger_and_files(session)
    duplicates = tuple(
        f"the budget {one.name} is in the ledger and in {one.file}: only the ledger's counts"
        for one in of_files
        if one.name in of_ledger
    )
    return (*of_ledger.values(), *(one for one in of_files if one.name not in of_ledger)), duplicates


def _budgets_of_ledger_and_files(session: Session) -> tuple[dict[str, Budget], tuple[Budget, ...]]:
    """Return the budgets of the ledger, by name, and those of files."""
    of_ledger, folders = budgets_of(session.ledger.events(SUBJECT), zone_of), session.home.budget_dirs
    return of_ledger, _load_files(folders) if folders else ()


def ledger_budgets(session: Session) -> dict[str, Budget]:
    """Return the budgets that the ledger has, by name."""
    return budgets_of(session.ledger.events(SUBJECT), zone_of)


def _file_budgets(session: Session) -> tuple[Budget, ...]:
    folders = session.home.budget_dirs
    return _load_files(folders) if folders else ()


def _load_files(folders: Sequence[Path]) -> tuple[Budget, ...]:
    from cloudgpu.config.budgets import load_budgets  # reads YAML

    return load_budgets(folders)


def set_budget(session: Session, budget: Budget, *, overwrite: bool = False) -> Budget | None:
    """Write a budget into the ledger; return the one that it replaces, None for none such.

    Raises InvalidRequest for a name that is taken, unless `overwrite` and it is one of the ledger's; RoleNeeded.
    """
    payers_only(session, "Setting a budget")
    _check_no_file(session, budget.name)
    replaced: list[Budget] = []

    def decision(view: View) -> Sequence[Draft]:
        found = ledger_budgets(session).get(budget.name)
        if found is not None and not overwrite:
            raise InvalidRequest(
                f"A budget called {budget.name} is there already: {found.limit.text()}, {found.period.text}, "
                f"{found.scope.text}.",
                field="NAME",
                value=budget.name,
                next="Add --replace to change it, or choose another name.",
            )
        replaced.extend([found] if found else [])
        return [budget_set(budget.body(), session.clock(), view.head()[0])]

    session.ledger.decide(decision)
    return replaced[0] if replaced else None


def _check_no_file(session: Session, name: str) -> None:
    for budget in _file_budgets(session):
        if budget.name == name:
            raise InvalidRequest(
                f"The budget {name} is in the file {budget.file}.",
                field="NAME",
                value=name,
                next="Change it there, or choose another name.",
            )


def remove_budget(session: Session, name: str) -> Budget:
    """Take a budget out of the ledger and return it as it was.

    Raises InvalidRequest for one that is not there, RoleNeeded.
    """
    payers_only(session, "Removing a budget")
    removed: list[Budget] = []

    def current_budget() -> Budget:
        found = ledger_budgets(session)
        if name not in found:
            raise _unknown_budget(session, name, found)
        return found[name]

    def decision(view: View) -> Sequence[Draft]:
        removed.append(current_budget())
        return [budget_removed(name, session.clock(), view.head()[0])]

    current_budget()  # before a ledger is created without need
    session.ledger.decide(decision)
    return removed[0]


def find_budgets(session: Session, name: str | None) -> tuple[Budget, ...]:
    """Return the budget of this name alone, or all; raise InvalidRequest for a name that none has."""
    found = budgets(session)
    if name is None:
        return found
    named = tuple(budget for budget in found if budget.name == name)
    if not named:
        raise _unknown_budget(session, name, {budget.name: budget for budget in found})
    return named


def _unknown_budget(session: Session, name: str, by_name: dict[str, Budget]) -> InvalidRequest:
    in_file = next((budget for budget in _file_budgets(session) if budget.name == name), None)
    if in_file is not None:
        return InvalidRequest(
            f"The budget {name} is in the file {in_file.file}.", field="NAME", value=name, next="Remove the file."
        )
    return unknown_word(f"No budget is called {name!r}", name, by_name, field="NAME", next="Run: cloudgpu budget ls")


def budget_states(session: Session, chosen: Iterable[Budget]) -> tuple[BudgetState, ...]:
    """Return how each of these budgets stands, by the ledger as it is. Asks nobody."""
    budgets, now = tuple(chosen), session.clock()
    if not budgets:
        return ()
    begin = earliest_relevant([one for one in budgets if one.period.kind != "total"] or budgets, now)

    def read_costs(view: View) -> tuple[list[Exposure | Machine], Billed, Billed]:
        ended = [] if begin is None else view.billed_costs(iso(begin))
        unpriced = list(view.ended_usages(unpriced=True)) if any(one.period.kind == "total" for one in budgets) else []
        return [*view.exposures(), *reserved(session, view)], ended, unpriced

    machines, ended, unpriced = session.ledger.read(read_costs)
    volumes = existing_volumes(machine for machine in machines if not isinstance(machine, Exposure))
    prices = counted_prices(session)
    counted = budget_sums(
        budgets, machines, lambda _since: ended, prices, now, volumes, unpriced=lambda _since: unpriced
    )
    today = budget_sums(budgets, machines, lambda _since: (), replace(prices, today=True), now, volumes)
    return tuple(status_of(one, other, now) for one, other in zip(counted, today, strict=True))


def counted_prices(session: Session) -> Prices:
    """Return the prices that count if the ledger has none: the price list's, or substitutes for those."""
    listed = cache(_list_price_nanos)
    return Prices(
        lambda subject: listed(subject.provider, subject.instance_type, subject.region),
        cache(_attached_price),
        reaper_runs=are_runs_current(session.ledger, session.clock()),
    )


def _list_price_nanos(provider: str | None, instance_type: str | None, region: str | None) -> int | None:
    from cloudgpu.catalog import on_demand_price

    if not (provider and instance_type and region):
        return None
    try:
        price = on_demand_price(provider, instance_type, region)
    except InvalidRequest:  # no provider or type of the list
        return None
    return None if price is None else price.per_hour.nanos


def _attached_price(provider: str, region: str, kind: str, resource: str) -> StandIn:
    """Return the listed price of a kind of storage; else the most expensive known, times 1.5."""
    from cloudgpu.catalog import counted_price
    from cloudgpu.catalog.storage import PriceClass

    price_class = PriceClass(resource) if resource in list(PriceClass) else None
    found = counted_price(provider, region, kind, price_class)
    why = found.source if found.upper_bound else ""
    return StandIn(found.price.nanos, _PRICE_PERIOD.get(found.unit, "month"), why)


def reserved(session: Session, view: View, budgeted: Budgeted | None = None) -> list[Exposure]:
    """Return the reservations of jobs that wait for a machine, but for the job that `budgeted` is launched for."""
    key = budgeted.key if isinstance(budgeted, Machine) else ""
    return list(_reserved_exposures(session, view, key))


def _reserved_exposures(session: Session, view: View, key: str) -> Iterator[Exposure]:
    if not _may_have_reservations(view):
        return
    for job in jobs_of(session.ledger.events(job_lines.SUBJECT)).values():
        if may_reserve(job) and not key.startswith(f"{job.id}-") and not is_carried(_attempt_machines(view, job)):
            reservation = reservation_of(job, session.clock())
            if reservation is not None:
                yield reservation


def _may_have_reservations(view: View) -> bool:
    """Say whether a job with a deadline may not be over; most admissions read no more of jobs than this."""
    with_deadline, ended = set[str](), set[str]()
    for line in view.summaries(("job_requested", "job_ended", "job_closed")):
        if line.kind != "job_requested":
            ended.add(line.body["job"])
        elif line.body["spec"].get("deadline") is not None:
            with_deadline.add(line.body["job"])
    return bool(with_deadline - ended)


def _attempt_machines(view: View, job: Job) -> list[Machine]:
    """Return the machine of a job's open attempt, or what its launch may have made; empty for none."""
    attempt = job.attempt
    if attempt is None:
        return []
    if attempt.machine is None:
        return [] if attempt.key is None else view.launched(attempt.key)
    machine = view.machine(attempt.machine)
    return [] if machine is None else [machine]
