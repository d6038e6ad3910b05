"""One pass over every account: look, decide, warn, renew, end what is to be ended, prove it, and record all of it.

A nightly pass also records how many resources are left over, and what they go on costing.
"""

from __future__ import annotations

import gc
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NoReturn

from cloudgpu.config.policies.chosen import ChosenPolicy, refuse_broken, unresolved
from cloudgpu.config.policies.find import changed_terms
from cloudgpu.control.budgets.admission import read_credits
from cloudgpu.control.budgets.store import budget_states, budgets_for_run
from cloudgpu.control.lifecycle.timers import RepairResult, repair
from cloudgpu.control.outage.outage import continue_without_ledger, ledger_remedy
from cloudgpu.control.policies.resolve import find_policy, policies_of
from cloudgpu.control.reaper.execute import execute_decisions
from cloudgpu.control.reaper.foreign import name_of, overdue, sentence, stop_overdue
from cloudgpu.control.reaper.notify import deliver_all, note_ledger_is_back, notify_once, ping_no_run, renew, warn
from cloudgpu.control.reaper.observe import (
    LOCK,
    Judge,
    Snapshot,
    cluster_nodes,
    gather,
    machine_views,
    observe_machines,
    rehearse,
)
from cloudgpu.control.session.guarding import own_home, own_run
from cloudgpu.control.session.identity import judged_here
from cloudgpu.control.session.last_run import earlier
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.control.team.authorization import authorization_of
from cloudgpu.control.team.roles import payers_only
from cloudgpu.core.activity.report import Report
from cloudgpu.core.budgets.enforcement import allowed_stops
from cloudgpu.core.budgets.status import BudgetState
from cloudgpu.core.events.annotations import not_before_last
from cloudgpu.core.events.general_bodies import RunResult
from cloudgpu.core.events.general_lines import reap_finished
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_lines import decision_made
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.policy import Do
from cloudgpu.core.reaper.decide import MAX_IDLE_STOPS, decide
from cloudgpu.core.reaper.decisions import Decision, MachineView, warned_by_budget
from cloudgpu.core.reaper.result import EndedItem, NotEnded, Outcome, ReaperRun
from cloudgpu.core.resources.orphan import Cleanup, CleanupOptions
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.log.storage_errors import LedgerAway
from cloudgpu.parallel import Pool

GC_THRESHOLDS = (1_000_000, 10, 10)  # new objects: 10,000 machines make fewer; 700 took a third of the CPU time


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Look for cycles every million new objects inside, and as before afterwards.

    What no cycle holds is let go of at once all the same.
    """
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


INTERVAL = timedelta(minutes=10)  # how often runs come, where nobody says otherwise


@dataclass(frozen=True, slots=True)
class ReapOptions:
    """What a run is asked to be.

    `dry_run` decides and changes nothing anywhere. `policy` judges all machines by this one. `max_stops` is how many
    machines idle time alone may end. A `sweep` looks at disks and images, too. `cron`: nobody is looking on; `interval`
    is how often runs come.
    """

    dry_run: bool = False
    policy: str | None = None
    max_stops: int = MAX_IDLE_STOPS
    sweep: bool = False
    cron: bool = False
    interval: timedelta = INTERVAL


@rare_garbage_collection()
def reap(session: Session, request: ReapOptions) -> ReaperRun:
    """Make one run and return what it found, decided and did; `busy` says that another one is at it.

    Raises InvalidRequest, before anything is done, for a policy, limits or a budget that cannot be read, and for a
    policy that was named and is not there; RoleNeeded where a member names one; LedgerUnavailable. What a provider does
    not answer is in the result.
    """
    begun = session.clock()
    if request.dry_run:
        return _decide_only(session, request, begun)
    try:
        if request.policy is not None:
            payers_only(session, f"Ending everybody's machines by the policy {request.policy}")
        found = _reap(session, request, begun)
    except LedgerAway as error:
        return _without_ledger(session, request, begun, error)
    except LedgerUnavailable as error:  # one that refuses this user, say: nothing ends behind its back
        return _report_no_ledger(session, request, error)
    note_ledger_is_back(session)
    return found


def _without_ledger(session: Session, request: ReapOptions, begun: datetime, fault: LedgerAway) -> ReaperRun:
    """Make the run by what can be read of a ledger that cannot be written: on a full disk machines end, too."""
    with continue_without_ledger(session, fault) as aside:
        if not (fault.full and aside.is_readable):  # a standby, say, may tell of holds and budgets of long ago
            return _report_no_ledger(session, request, fault)
        found = _reap(session, request, begun)
        if aside.offer():
            note_ledger_is_back(session)
            return found
    message = f"{fault.message.removesuffix('.')}; what this pass did is not in it yet. {ledger_remedy(aside)}"
    return replace(found, faults=(*found.faults, message))


def _report_no_ledger(session: Session, request: ReapOptions, error: LedgerUnavailable) -> NoReturn:
    """Say outside, and to owners once where nobody looks on, that no run can be made. Raises `fault`."""
    ping_no_run(session)
    if request.cron:
        notify_once(session, error)
    raise error


def _reap(session: Session, request: ReapOptions, begun: datetime) -> ReaperRun:
    with ExitStack() as held:
        held.enter_context(session.for_the_lab())
        try:
            held.enter_context(session.lock(LOCK, wait=False))
        except LedgerUnavailable:
            raise
        except ProviderUnavailable as other:
            return ReaperRun(begun, busy=other.message)
        try:
            return _decide_and_execute(session, request, begun)
        except LedgerAway:
            raise
        except CloudgpuError as error:
            _report_aborted(session, request, error.message)
            raise
        except Exception as defect:
            _report_aborted(session, request, f"a defect: {type(defect).__name__}: {defect}")
            raise


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """What a run has decided, and by what."""

    sight: Snapshot
    held: Mapping[str, ChosenPolicy]
    seen: list[MachineView]
    reports: Mapping[str, Report]
    budgets: tuple[BudgetState, ...]
    judge: Judge
    decisions: list[Decision]
    clashes: tuple[str, ...]  # budgets that stand in a file, too

    def found(self, begun: datetime) -> ReaperRun:
        """Return the run as it is before anything is carried out."""
        return ReaperRun(
            begun,
            seen=tuple(self.seen),
            decisions=tuple(self.decisions),
            unanswered=self.sight.unanswered,
            faults=(*unresolved(self.held, self.sight.rows), *self.clashes),
            sentences=self.sight.sentences,
            queried=self.sight.asked,
            not_queried=self.sight.closed,
        )


def _decide_only(session: Session, request: ReapOptions, begun: datetime) -> ReaperRun:
    _check_readable(session, request)
    judged = _decide(session, request, rehearse(session))
    found, now = judged.found(begun), session.clock()
    would = [f"{name_of(one)} would be stopped: {sentence(one, now)}" for one in overdue(session, judged.sight.foreign)]
    return replace(found, dry_run=True, sentences=(*found.sentences, *would), duration=session.clock() - begun)


def _decide_and_execute(session: Session, request: ReapOptions, begun: datetime) -> ReaperRun:
    _check_readable(session, request)
    judged = _decide(session, request, observe_machines(session, sweep=request.sweep))
    run = _execute_decisions(session, judged, judged.found(begun))  # before all that a full disk would refuse
    machines = session.ledger.billable_machines()
    if request.policy is None:
        session.ledger.append(list(changed_terms(session.home_terms, machines, session.clock())))
    repaired = repair(session, [machine for machine in machines if not machine.is_named_resource], sweep=request.sweep)
    run = replace(
        run,
        faults=(*run.faults, *(f"a timer in the cloud could not be set: {one.message}" for one in repaired.faults)),
        sentences=(*run.sentences, *_repair_lines(repaired), *(orphans_sentence(session) if request.sweep else ())),
    )
    run = replace(run, credits=tuple(read_credits(session, run.queried)))
    if request.cron:  # one by hand says nothing of the next
        session.own_run = own_run(session, request.interval, run.queried, (*run.unanswered, *run.not_queried))
    refused = deliver_all(session, run, judged.budgets, machines)
    run = replace(run, undelivered=refused, duration=session.clock() - begun)
    record_run(session, run, cron=request.cron, sweep=request.sweep)
    if request.sweep:
        gather(
            session,
            [machine for machine in machines if not machine.is_named_resource and machine.id not in judged.reports],
        )
    return run


def _execute_decisions(session: Session, judged: _Evaluation, run: ReaperRun) -> ReaperRun:
    """Record what was decided, warn, renew, end; return the run with what came of it."""
    rows = {one.machine.id: one.machine for one in judged.seen}
    record_decisions(session, judged.decisions, rows)
    warned = warn(session, judged.decisions, _reachable(judged))
    (renewed, not_ended), outcome = _renew_and_end(session, judged)
    if outcome.again:
        latest = {one.machine: session.ledger.machine(one.machine) or rows[one.machine] for one in outcome.again}
        record_decisions(session, outcome.again, latest)
        warned += warn(session, outcome.again, {})
    late = overdue(session, judged.sight.foreign) if judged.sight.foreign else []
    if late:
        outcome.add(stop_overdue(session, late))
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


def _renew_and_end(session: Session, judged: _Evaluation) -> tuple[tuple[list[EndedItem], list[NotEnded]], Outcome]:
    """Renew and end, side by side where there is both: a lease whose region is silent delays no end elsewhere."""
    views, decisions, apart = judged.seen, judged.decisions, bool(judged.sight.unanswered)

    def beside() -> tuple[list[EndedItem], list[NotEnded]]:
        with session.for_thread() as own:
            return renew(own, views, decisions)

    if not (any(one.ends for one in decisions) and any(one.do is Do.RENEW for one in decisions)):
        return renew(session, views, decisions), execute_decisions(session, views, decisions, judged.judge, apart=apart)
    with Pool(1) as pool:
        renewing = pool.submit(beside)
        outcome = execute_decisions(session, views, decisions, judged.judge, apart=apart)
        return renewing.result(), outcome


def _repair_lines(repaired: RepairResult) -> list[str]:
    set_ = [f"{name}: it had no timer in the cloud; now it has one" for name in repaired.set]
    set_ += [f"{name}: its timer in the cloud is set to its renew-until" for name in repaired.moved]
    return set_ + [f"{name}: its timer in the cloud, which had outlived it, is taken away" for name in repaired.dropped]


def _check_readable(session: Session, request: ReapOptions) -> None:
    """Raise InvalidRequest for what a run cannot be made by: before it has looked, so that it does nothing by half."""
    if request.max_stops < 0:
        raise InvalidRequest(
            f"--max-stops is {request.max_stops}.",
            field="--max-stops",
            value=str(request.max_stops),
            next="Name 0 or more, like --max-stops 20.",
        )
    if request.policy is not None:
        find_policy(session, request.policy)
    refuse_broken(policies_of(session, living_machines(session.ledger.machines()), request.policy))
    budgets_for_run(session)


def _decide(session: Session, request: ReapOptions, sight: Snapshot) -> _Evaluation:
    sight = replace(sight, rows=tuple(judged_here(session, sight.rows)))
    policies = policies_of(session, sight.rows, request.policy)
    refuse_broken(policies)  # those of machines, too, that were found just now
    views, reports = machine_views(session, sight.rows, policies, sight.answered, keep=not request.dry_run)
    counted, clashes = budgets_for_run(session)
    standing = budget_states(session, counted)
    over = allowed_stops(authorization_of(session), standing, sight.rows, warned_by_budget(sight.rows), session.clock())

    def judge(some: Sequence[MachineView], machines: Sequence[Machine]) -> list[Decision]:
        now, most = session.clock(), request.max_stops
        return decide(some, over, now, interval=request.interval, max_idle_stops=most, machines=machines)

    decisions = judge(views, cluster_nodes(session, views, at_work=False))
    return _Evaluation(sight, policies, views, reports, standing, judge, decisions, clashes)


def _reachable(judged: _Evaluation) -> dict[str, Machine]:
    """Return the machines that run and did not just fail to answer over SSH: to be told at their terminals."""
    silent = {one for one, report in judged.reports.items() if report.machine_now is None}
    machines = (one.machine for one in judged.seen)
    return {machine.id: machine for machine in machines if machine.address and machine.id not in silent}


def _report_aborted(session: Session, request: ReapOptions, why: str) -> None:
    """Say outside and in the ledger that this run was not made; what ended it is what the user hears of."""
    from cloudgpu.control.alerts.alerts import ping

    with suppress(CloudgpuError):
        record_run(session, None, cron=request.cron, sweep=request.sweep, why=why)
    with suppress(CloudgpuError):
        ping(session, ok=False)


def orphans_sentence(session: Session) -> tuple[str, ...]:
    """Return the sentence of what `cloudgpu orphans --clean` would remove; none where that is nothing. Removes nothing.

    What did not answer is no error here: the run has named it.
    """
    from cloudgpu.control.resources.orphans import survey

    try:
        found = [one for one in survey(session, CleanupOptions(spare=True)).orphans if one.do is not Cleanup.STAY]
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        return (f"which resources are orphaned is not known: {error.message}",)
    if not found:
        return ()
    costs = [one.cost.per_month for one in found]
    total = Money(sum(cost.nanos for cost in costs if cost is not None))
    more = f", and {costs.count(None)} without a known price" if None in costs else ""
    resources = "1 thing is" if len(found) == 1 else f"{len(found)} things are"
    return (f"{resources} orphaned, {total.text()} a month{more}: see cloudgpu orphans",)


def record_decisions(session: Session, decisions: Iterable[Decision], machines: Mapping[str, Machine]) -> None:
    """Write a line for each decision that is another one than the last of its machine, which its row has: what and why.

    An end is written each time that it is decided: it is why the machine is asked to stop now.
    """
    now = session.clock()
    news = [(one, machines[one.machine]) for one in decisions if one.ends or _is_news(machines[one.machine], one)]
    if news:
        session.ledger.append([_line(one, not_before_last(row, now)) for one, row in news])


def _is_news(machine: Machine, decision: Decision) -> bool:
    known = machine.decision
    if known is None or (known.do, known.rule, known.activity) != (decision.do, decision.rule, decision.activity):
        return True
    at = known.at
    return (from_iso(at) if at else None) != decision.at


def _line(decision: Decision, now: datetime) -> Draft:
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
    """Write that the run has ended, and how; without a result, `why` it broke off before it could judge anything."""
    result = RunResult(why=why) if run is None else _run_result(run)
    now, ok = session.clock(), run is not None and run.is_complete_here
    before = earlier(session, ok=ok, sweep=sweep, now=now, read=() if run is None else run.credits)
    line = reap_finished(
        result,
        now,
        ok=ok,
        host=platform.node(),
        home=own_home(session),
        cron=cron,
        sweep=sweep,
        ok_at=before.ok_at,
        sweep_at=before.sweep_at,
        runs=before.runs,
        left=before.left,
    )
    session.ledger.append([line])


def _run_result(run: ReaperRun) -> RunResult:
    return {
        "machines": len(run.decisions),
        "decided": dict(run.decided),
        "stopped": len(run.ended),
        "warned": len(run.warned),
        "unproved": len(run.unconfirmed),
        "unanswered": [one.scope for one in run.unanswered],
        "took_s": round(run.duration.total_seconds(), 3),
    }
