"""One run over every account: observe, decide, warn, renew, end what is to be ended, prove it, and record all of it.

A nightly run (a `sweep`) also reports how many resources are orphaned, and what they cost.
"""

from __future__ import annotations

import gc
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NoReturn

from cloudgpu.config.policies.chosen import ChosenPolicy, check_readable, unresolved_policies
from cloudgpu.config.policies.find import changed_terms
from cloudgpu.control.budgets.admission import read_credits
from cloudgpu.control.budgets.store import budget_states, budgets_for_reaper_run
from cloudgpu.control.lifecycle.timers import RepairResult, repair_timers
from cloudgpu.control.outage.outage import continue_without_ledger, ledger_remedy
from cloudgpu.control.policies.resolve import find_policy, policies_of
from cloudgpu.control.reaper.execute import execute_decisions
from cloudgpu.control.reaper.foreign import find_overdue, name_of, overdue_sentence, stop_overdue
from cloudgpu.control.reaper.notify import (
    clear_outage_marker,
    deliver_all,
    notify_outage_once,
    ping_failed_run,
    renew_leases,
    send_warnings,
)
from cloudgpu.control.reaper.observe import (
    REAPER_LOCK,
    Decide,
    Snapshot,
    cluster_nodes,
    machine_views,
    observe_dry_run,
    observe_machines,
    store_new_samples,
)
from cloudgpu.control.session.guarding import completed_run, home_id
from cloudgpu.control.session.identity import machines_to_evaluate
from cloudgpu.control.session.last_run import totals_after_run
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.control.team.authorization import authorization_of
from cloudgpu.control.team.roles import require_payer_role
from cloudgpu.core.activity.report import Report
from cloudgpu.core.budgets.enforcement import allowed_stops
from cloudgpu.core.budgets.status import BudgetState
from cloudgpu.core.events.annotations import not_before_last
from cloudgpu.core.events.general_bodies import RunResult
from cloudgpu.core.events.general_events import reap_finished
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import decision_made
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.policy import ReaperAction
from cloudgpu.core.reaper.decide import MAX_IDLE_STOPS, RUN_INTERVAL, decide
from cloudgpu.core.reaper.decisions import Decision, MachineView, budget_warning_counts
from cloudgpu.core.reaper.result import EndedItem, NotEnded, Outcome, ReaperRun
from cloudgpu.core.resources.orphan import Cleanup, CleanupOptions
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, LockBusy
from cloudgpu.ledger.log.storage_errors import LedgerAway
from cloudgpu.parallel import Pool

GC_THRESHOLDS = (1_000_000, 10, 10)  # the default, 700 new objects, took a third of the CPU time with 10,000 machines


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect cyclic garbage only every million new objects inside the block; restore the thresholds afterwards.

    Objects outside cycles are freed at once as always.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@dataclass(frozen=True, slots=True)
class ReapOptions:
    """Options of a run.

    `dry_run` decides and changes nothing. `policy` evaluates all machines by this one. `max_stops` is how many machines
    may end for idle time alone. A `sweep` also lists disks and images. `cron`: a scheduled run, without a terminal;
    `interval` is how often runs come.
    """

    dry_run: bool = False
    policy: str | None = None
    max_stops: int = MAX_IDLE_STOPS
    sweep: bool = False
    cron: bool = False
    interval: timedelta = RUN_INTERVAL


@rare_garbage_collection()
def reap(session: Session, options: ReapOptions) -> ReaperRun:
    """Make one run and return what it found, decided and did; its `busy` is set where another run is under way.

    Raises InvalidRequest, before anything is done, for a policy, limits or a budget that cannot be read, and for an
    unknown `policy`; RoleNeeded where a member gives one; LedgerUnavailable. Errors of providers are in the result.
    """
    started_at = session.clock()
    if options.dry_run:
        return _decide_only(session, options, started_at)
    try:
        if options.policy is not None:
            require_payer_role(session, f"Ending everybody's machines by the policy {options.policy}")
        run = _reap(session, options, started_at)
    except LedgerAway as error:
        return _reap_without_ledger(session, options, started_at, error)
    except LedgerUnavailable as error:  # for example a ledger that refuses this user: nothing ends unrecorded
        return _report_no_ledger(session, options, error)
    clear_outage_marker(session)
    return run


def _reap_without_ledger(session: Session, options: ReapOptions, started_at: datetime, fault: LedgerAway) -> ReaperRun:
    """Make the run with a ledger that can be read but not written: a full disk must not keep machines running."""
    with continue_without_ledger(session, fault) as stand_in:
        if not (
            fault.is_disk_full and stand_in.is_readable
        ):  # a standby, for example, may have outdated holds and budgets
            return _report_no_ledger(session, options, fault)
        run = _reap(session, options, started_at)
        if stand_in.deliver():
            clear_outage_marker(session)
            return run
    message = f"{fault.message.removesuffix('.')}; what this run did is not in it yet. {ledger_remedy(stand_in)}"
    return replace(run, faults=(*run.faults, message))


def _report_no_ledger(session: Session, options: ReapOptions, error: LedgerUnavailable) -> NoReturn:
    """Report to the heartbeat address, and in a cron run once to owners, that no run can be made. Raises `error`."""
    ping_failed_run(session)
    if options.cron:
        notify_outage_once(session, error)
    raise error


def _reap(session: Session, options: ReapOptions, started_at: datetime) -> ReaperRun:
    """Make the run under the reaper's lock; an error in it is recorded as a failed run, and raised."""
    with ExitStack() as stack:
        stack.enter_context(session.for_the_lab())
        try:
            stack.enter_context(session.lock(REAPER_LOCK, wait=False))
        except LockBusy as busy_error:
            return ReaperRun(started_at, busy=busy_error.message)
        try:
            return _decide_and_execute(session, options, started_at)
        except LedgerAway:
            raise
        except CloudgpuError as error:
            _report_aborted(session, options, error.message)
            raise
        except Exception as defect:
            _report_aborted(session, options, f"a defect: {type(defect).__name__}: {defect}")
            raise


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """What a run has decided, and the inputs: machines, policies, agent reports and budgets.

    `decide_again` decides anew about some of the machines, by their latest records.
    """

    snapshot: Snapshot
    policies: Mapping[str, ChosenPolicy]
    views: list[MachineView]
    reports: Mapping[str, Report]
    budgets: tuple[BudgetState, ...]
    decide_again: Decide
    decisions: list[Decision]
    duplicate_budgets: tuple[str, ...]  # budgets that are both in the ledger and in a file

    def initial_run(self, started_at: datetime) -> ReaperRun:
        """Return the run before anything is executed."""
        return ReaperRun(
            started_at,
            views=tuple(self.views),
            decisions=tuple(self.decisions),
            unanswered=self.snapshot.unanswered,
            faults=(*unresolved_policies(self.policies, self.snapshot.machines), *self.duplicate_budgets),
            sentences=self.snapshot.sentences,
            queried=self.snapshot.queried,
            not_queried=self.snapshot.not_queried,
        )


def _decide_only(session: Session, options: ReapOptions, started_at: datetime) -> ReaperRun:
    """Return the run that would be made: what is decided, and nothing of it done."""
    _check_readable(session, options)
    evaluation = _decide(session, options, observe_dry_run(session))
    run, now = evaluation.initial_run(started_at), session.clock()
    overdue = find_overdue(session, evaluation.snapshot.foreign)
    would_stop = [f"{name_of(instance)} would be stopped: {overdue_sentence(instance, now)}" for instance in overdue]
    return replace(run, dry_run=True, sentences=(*run.sentences, *would_stop), duration=session.clock() - started_at)


def _decide_and_execute(session: Session, options: ReapOptions, started_at: datetime) -> ReaperRun:
    """Observe, decide and execute; repair timers, read credits, send alerts, and record the run."""
    _check_readable(session, options)
    evaluation = _decide(session, options, observe_machines(session, sweep=options.sweep))
    run = _execute_decisions(
        session, evaluation, evaluation.initial_run(started_at)
    )  # first, since a full disk may refuse the writes below
    machines = session.ledger.billable_machines()
    if options.policy is None:
        session.ledger.append(list(changed_terms(session.home_terms, machines, session.clock())))
    launched = [machine for machine in machines if not machine.is_named_resource]
    repaired = repair_timers(session, launched, sweep=options.sweep)
    run = replace(
        run,
        faults=(*run.faults, *(f"a timer in the cloud could not be set: {error.message}" for error in repaired.errors)),
        sentences=(*run.sentences, *_repair_sentences(repaired), *(orphans_sentence(session) if options.sweep else ())),
    )
    run = replace(run, credits=tuple(read_credits(session, run.queried)))
    if options.cron:  # a run by hand does not promise the next
        gaps = (*run.unanswered, *run.not_queried)
        session.current_run = completed_run(session, options.interval, run.queried, gaps, evaluation.snapshot.unread)
    undelivered = deliver_all(session, run, evaluation.budgets, machines)
    run = replace(run, undelivered=undelivered, duration=session.clock() - started_at)
    record_run(session, run, cron=options.cron, sweep=options.sweep)
    if options.sweep:
        store_new_samples(session, [machine for machine in launched if machine.id not in evaluation.reports])
    return run


def _execute_decisions(session: Session, evaluation: _Evaluation, run: ReaperRun) -> ReaperRun:
    """Record the decisions, warn, renew and end; return the run with the outcomes."""
    machines = {view.machine.id: view.machine for view in evaluation.views}
    record_decisions(session, evaluation.decisions, machines)
    warned = send_warnings(session, evaluation.decisions, _reachable(evaluation))
    (renewed, not_ended), outcome = _renew_and_end(session, evaluation)
    if outcome.redecided:
        latest = {
            decision.machine: session.ledger.machine(decision.machine) or machines[decision.machine]
            for decision in outcome.redecided
        }
        record_decisions(session, outcome.redecided, latest)
        warned += send_warnings(session, outcome.redecided, {})
    if evaluation.snapshot.foreign:
        outcome.add(stop_overdue(session, find_overdue(session, evaluation.snapshot.foreign)))
    return replace(
        run,
        decisions=outcome.latest(run.decisions),
        ended=tuple(outcome.ended),
        renewed=tuple(renewed),
        warned=tuple(warned),
        skipped=(*not_ended, *outcome.skipped),
        unconfirmed=tuple(outcome.unconfirmed),
        unanswered=(*run.unanswered, *outcome.unanswered),
    )


def _renew_and_end(session: Session, evaluation: _Evaluation) -> tuple[tuple[list[EndedItem], list[NotEnded]], Outcome]:
    """Renew leases and end machines, in parallel: a lease whose region is silent does not delay ends elsewhere."""
    views, decisions, decide_again = evaluation.views, evaluation.decisions, evaluation.decide_again
    by_region = bool(evaluation.snapshot.unanswered)

    def renew_in_thread() -> tuple[list[EndedItem], list[NotEnded]]:
        with session.for_thread() as thread_session:
            return renew_leases(thread_session, views, decisions)

    if not (
        any(decision.ends for decision in decisions)
        and any(decision.do is ReaperAction.RENEW for decision in decisions)
    ):
        return renew_leases(session, views, decisions), execute_decisions(
            session, views, decisions, decide_again, by_region=by_region
        )
    with Pool(1) as pool:
        renewing = pool.submit(renew_in_thread)
        outcome = execute_decisions(session, views, decisions, decide_again, by_region=by_region)
        return renewing.result(), outcome


def _repair_sentences(result: RepairResult) -> list[str]:
    sentences = [f"{name}: it had no timer in the cloud; now it has one" for name in result.set]
    sentences += [f"{name}: its timer in the cloud is set to its renew-until" for name in result.moved]
    return sentences + [
        f"{name}: its timer in the cloud, which had outlived it, is taken away" for name in result.dropped
    ]


def _check_readable(session: Session, options: ReapOptions) -> None:
    """Raise InvalidRequest for input that a run cannot use, before it asks any provider."""
    if options.max_stops < 0:
        raise InvalidRequest(
            f"--max-stops is {options.max_stops}.",
            field="--max-stops",
            value=str(options.max_stops),
            next="Name 0 or more, like --max-stops 20.",
        )
    if options.policy is not None:
        find_policy(session, options.policy)
    check_readable(policies_of(session, living_machines(session.ledger.machines()), options.policy))
    budgets_for_reaper_run(session)


def _decide(session: Session, options: ReapOptions, snapshot: Snapshot) -> _Evaluation:
    """Return the decisions about these machines, with all that they are based on."""
    snapshot = replace(snapshot, machines=tuple(machines_to_evaluate(session, snapshot.machines)))
    policies = policies_of(session, snapshot.machines, options.policy)
    check_readable(policies)  # now including machines that were just found
    views, reports = machine_views(session, snapshot.machines, policies, snapshot.answered, store=not options.dry_run)
    budgets, duplicates = budgets_for_reaper_run(session)
    statuses = budget_states(session, budgets)
    warned = budget_warning_counts(snapshot.machines)
    stops = allowed_stops(authorization_of(session), statuses, snapshot.machines, warned, session.clock())

    def decide_again(views_to_decide: Sequence[MachineView], machines: Sequence[Machine]) -> list[Decision]:
        now, max_stops = session.clock(), options.max_stops
        return decide(
            views_to_decide, stops, now, interval=options.interval, max_idle_stops=max_stops, machines=machines
        )

    decisions = decide_again(views, cluster_nodes(session, views, include_locked=False))
    return _Evaluation(snapshot, policies, views, reports, statuses, decide_again, decisions, duplicates)


def _reachable(evaluation: _Evaluation) -> dict[str, Machine]:
    """Return the machines with an address that did not just fail to answer over SSH: their terminals can be tried."""
    silent = {id_ for id_, report in evaluation.reports.items() if report.machine_now is None}
    machines = (view.machine for view in evaluation.views)
    return {machine.id: machine for machine in machines if machine.address and machine.id not in silent}


def _report_aborted(session: Session, options: ReapOptions, why: str) -> None:
    """Record that this run failed, and report it to the heartbeat address; the caller raises the error."""
    with suppress(CloudgpuError):
        record_run(session, None, cron=options.cron, sweep=options.sweep, why=why)
    ping_failed_run(session)


def orphans_sentence(session: Session) -> tuple[str, ...]:
    """Return the sentence of what `cloudgpu orphans --clean` would remove; none where that is nothing. Removes nothing.

    Accounts that did not answer are ignored: the run has reported them.
    """
    from cloudgpu.control.resources.orphans import survey

    try:
        orphans = [
            orphan for orphan in survey(session, CleanupOptions(spare=True)).orphans if orphan.do is not Cleanup.STAY
        ]
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        return (f"which resources are orphaned is not known: {error.message}",)
    if not orphans:
        return ()
    costs = [orphan.cost.per_month for orphan in orphans]
    total = Money(sum(cost.nanos for cost in costs if cost is not None))
    unpriced = f", and {costs.count(None)} without a known price" if None in costs else ""
    resources = "1 thing is" if len(orphans) == 1 else f"{len(orphans)} things are"
    return (f"{resources} orphaned, {total.text()} a month{unpriced}: see cloudgpu orphans",)


def record_decisions(session: Session, decisions: Iterable[Decision], machines: Mapping[str, Machine]) -> None:
    """Record each decision that differs from the last one of its machine, and each decision to end one."""
    now = session.clock()
    changed = [
        (decision, machines[decision.machine])
        for decision in decisions
        if decision.ends or _is_changed(machines[decision.machine], decision)
    ]
    if changed:
        session.ledger.append([_decision_event(one, not_before_last(machine, now)) for one, machine in changed])


def _is_changed(machine: Machine, decision: Decision) -> bool:
    """Return whether a decision differs from the last one that is recorded of its machine."""
    last_decision = machine.decision
    if last_decision is None or (last_decision.do, last_decision.rule, last_decision.activity) != (
        decision.do,
        decision.rule,
        decision.activity,
    ):
        return True
    return (from_iso(last_decision.at) if last_decision.at else None) != decision.at


def _decision_event(decision: Decision, now: datetime) -> Draft:
    return decision_made(
        decision.machine,
        now,
        do=str(decision.do),
        rule=str(decision.rule),
        why=decision.why,
        activity=decision.activity,
        at=decision.at,
        host=platform.node(),
    )


def record_run(session: Session, run: ReaperRun | None, *, cron: bool, sweep: bool, why: str = "") -> None:
    """Record that the run has ended, and how; without a result, `why` it failed before it decided anything."""
    result = RunResult(why=why) if run is None else _run_result(run)
    now, ok = session.clock(), run is not None and run.is_complete_here
    totals = totals_after_run(session, ok=ok, sweep=sweep, now=now, new_credits=() if run is None else run.credits)
    event = reap_finished(
        result,
        now,
        ok=ok,
        host=platform.node(),
        home=home_id(session),
        cron=cron,
        sweep=sweep,
        ok_at=totals.ok_at,
        sweep_at=totals.sweep_at,
        runs=totals.runs,
        credit_readings=totals.credits,
    )
    session.ledger.append([event])


def _run_result(run: ReaperRun) -> RunResult:
    return {
        "machines": len(run.decisions),
        "decided": dict(run.decided),
        "stopped": len(run.ended),
        "warned": len(run.warned),
        "unproved": len(run.unconfirmed),
        "unanswered": [gap.scope for gap in run.unanswered],
        "took_s": round(run.duration.total_seconds(), 3),
    }
