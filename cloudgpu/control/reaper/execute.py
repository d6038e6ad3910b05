"""Ends what a run of the reaper has decided to end: checks each machine again first, and skips one in use by then.

A cluster ends as a whole or not at all: its lock is held, the decision is made once more, and node 0 ends last. It has
the engine and its queue, which can be queried as long as any node runs. An error of one node does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock

from cloudgpu.control.clusters.together import call_for_each, run_on_machines
from cloudgpu.control.inventory.local_files import clean_up_local_files
from cloudgpu.control.inventory.stop_proof import error_text
from cloudgpu.control.lifecycle import lifecycle
from cloudgpu.control.lifecycle.lifecycle import end_locked, request_all, stop_locked
from cloudgpu.control.lifecycle.parking import park
from cloudgpu.control.reaper.batch_stop import stop_batch, stop_locked_batch, supports_batch_stop
from cloudgpu.control.reaper.observe import (
    REAPER_LOCK,
    RETRY_AFTER_S,
    Decide,
    lock_each,
    recheck,
    split_by_current_record,
)
from cloudgpu.control.resources.named import remove_named
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.machine import Machine, node_of
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.reaper.result import EndItem, Outcome, busy, lock_of
from cloudgpu.errors import (
    AnswerTimeout,
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    LockBusy,
    ProviderUnavailable,
    internal_error,
)

LockCheck = Callable[[], None]  # raises if this run has lost the reaper's lock
_ACTIVITY_RULES = (Rule.LEASE, Rule.IDLE, Rule.UNLABELLED)  # these do not end a machine that is in use again


def execute_decisions(
    session: Session,
    views: Sequence[MachineView],
    decisions: Sequence[Decision],
    decide: Decide,
    *,
    by_region: bool = False,
) -> Outcome:
    """Execute the stops and terminations among these decisions, one for each of `views`; return their outcomes.

    A warning that runs out within a minute is waited for. Each machine is checked again by new samples, and one that is
    in use again is skipped. `by_region`: regions in parallel, so that a silent one does not delay the others. The
    caller holds the reaper's lock.
    """
    check_lock = Lock()

    def check() -> None:
        """Raise if this run has lost the reaper's lock. Any thread may call it: the session of another has no lock."""
        with check_lock:
            session.check_lock(REAPER_LOCK)

    items = [EndItem(view, decision) for view, decision in zip(views, decisions, strict=True) if decision.ends]
    groups = _by_region(items) if by_region else {"": items}
    calls = [partial(_execute_group, items=group, decide=decide, check=check) for group in groups.values() if group]
    return _run_parallel(session, calls)


def _by_region(items: Sequence[EndItem]) -> dict[str, list[EndItem]]:
    """Return the machines to end by account and region."""
    groups: dict[str, list[EndItem]] = {}
    for item in items:
        groups.setdefault(f"{item.machine.account}/{item.machine.region}", []).append(item)
    return groups


def _run_parallel(
    session: Session, calls: Sequence[Callable[[Session], Outcome]], *, max_parallel: int | None = None
) -> Outcome:
    """Return the outcome of all these calls, each in a thread with its own ledger; a single call in this thread."""
    if len(calls) == 1:
        return calls[0](session)
    outcome = Outcome()
    for result in call_for_each(
        session, lambda own_session, call: call(own_session), calls, max_parallel or len(calls)
    ):
        outcome.add(result)
    return outcome


def _execute_group(session: Session, *, items: Sequence[EndItem], decide: Decide, check: LockCheck) -> Outcome:
    """Wait for warnings that are due, check these machines again, and end those that are still to be ended."""
    _wait_for_due_warnings(session, items)
    ends, outcome = recheck(session, items, decide)
    stale = [item for item in ends if item.decision.rule in _ACTIVITY_RULES and item.is_stale(session.clock())]
    if stale:  # ending the others may have taken minutes
        still_due, stale_outcome = recheck(session, stale, decide)
        outcome.add(stale_outcome)
        stale_ids = {item.id for item in stale}
        ends = [item for item in ends if item.id not in stale_ids] + still_due
    outcome.add(_end_items(session, ends, decide, check))
    return outcome


def _end_items(session: Session, items: Sequence[EndItem], decide: Decide, check: LockCheck) -> Outcome:
    """End the machines in parallel: in batches where the provider can, clusters as a whole, others one by one."""
    batch, one_by_one, clusters = list[EndItem](), list[EndItem](), dict[str, list[EndItem]]()
    for item in items:
        if item.machine.cluster is not None:
            clusters.setdefault(item.machine.cluster.id, []).append(item)
            continue
        in_batch = item.decision.do is ReaperAction.STOP and supports_batch_stop(session, item.machine)
        (batch if in_batch else one_by_one).append(item)
    calls = [partial(stop_batch, items=batch, decide=decide, check=check)] if batch else []
    calls += [partial(end_cluster, items=group, decide=decide, check=check) for group in clusters.values()]
    calls += [partial(end_each, items=group, decide=decide, check=check) for group in _by_region(one_by_one).values()]
    outcome = _run_parallel(session, calls)
    if outcome.ended:
        clean_up_local_files(session)
    return outcome


def _wait_for_due_warnings(session: Session, items: Sequence[EndItem]) -> None:
    """Wait for warnings that run out within seconds, rather than leave their machines to the next run."""
    due_at = [item.decision.after for item in items if item.decision.after is not None]
    remaining_s = max(((end - session.clock()).total_seconds() for end in due_at), default=0.0)
    if remaining_s > 0:
        session.pause(remaining_s)


def end_cluster(session: Session, items: Sequence[EndItem], decide: Decide, check: LockCheck) -> Outcome:
    """End the nodes of one cluster as decided for all of them; ends without proof are `unconfirmed`.

    `check` raises where this run has lost the reaper's lock.
    """
    with lock_each(session, items) as (locked, busy):
        ends, outcome = split_by_current_record(session, locked, decide)
        outcome.skipped += busy
        if ends:
            check()
            requested_ids = _request_nodes(session, ends)
            *earlier_nodes, last_to_end = sorted(ends, key=lambda item: -node_of(item.machine))
            for group in (earlier_nodes, [last_to_end]):
                outcome.add(_end_nodes(session, group, requested_ids))
    return outcome


def _request_nodes(session: Session, items: Sequence[EndItem]) -> frozenset[str]:
    """Record which nodes will be terminated, or stopped one by one, before any is; return their ids."""
    stops = [item.machine for item in _single_call_nodes(session, items) if item.decision.do is ReaperAction.STOP]
    ends = [item.machine for item in items if item.decision.do is ReaperAction.TERMINATE]
    why = items[0].decision.why
    requested = request_all(session, "stop", stops, why, is_by_reaper=True) if stops else frozenset()
    return requested | (request_all(session, "terminate", ends, why, is_by_reaper=True) if ends else frozenset())


def _single_call_nodes(session: Session, items: Sequence[EndItem]) -> list[EndItem]:
    """Return the nodes that are ended by a call for each, not in one call for several."""
    return [
        item
        for item in items
        if item.decision.do is not ReaperAction.STOP or not supports_batch_stop(session, item.machine)
    ]


def _end_nodes(session: Session, items: Sequence[EndItem], requested_ids: frozenset[str]) -> Outcome:
    """End some nodes of a cluster, whose locks the caller holds; `requested_ids` are recorded as requested."""
    one_by_one = _single_call_nodes(session, items)
    batch = [item for item in items if item not in one_by_one]
    outcome = stop_locked_batch(session, batch) if batch else Outcome()
    by_id = {item.id: item for item in one_by_one}
    results = run_on_machines(
        session,
        [item.machine for item in one_by_one],
        lambda thread_session, machine: _with_retry(
            thread_session,
            partial(_end_node, thread_session, by_id[machine.id], is_requested=machine.id in requested_ids),
        ),
    )
    for item, result in zip(one_by_one, results, strict=True):
        if isinstance(result, LedgerUnavailable):
            raise result
        if isinstance(result, CloudgpuError):
            outcome.unconfirmed.append(item.as_not_ended(error_text(result)))
        else:
            outcome.ended.append(item.as_ended(result.state))
    return outcome


def _with_retry(session: Session, end: Callable[[], Machine]) -> Machine:
    """Return what `end` returns, after another try where the provider did not answer: that continues the first."""
    try:
        return end()
    except LedgerUnavailable:
        raise
    except ProviderUnavailable as error:
        if isinstance(error, AnswerTimeout | LockBusy):
            raise
    session.pause(RETRY_AFTER_S)
    return end()


def _end_node(session: Session, item: EndItem, *, is_requested: bool) -> Machine:
    """End one node as decided, under the lock that the caller holds; return the machine."""
    machine, why = session.ledger.machine(item.id) or item.machine, item.decision.why
    match item.decision.do:
        case ReaperAction.STOP:
            return stop_locked(session, machine, why=why, is_requested=is_requested)
        case ReaperAction.PARK | ReaperAction.IMAGE:
            return park(session, machine, why=why, finish=False)
        case ReaperAction.REMOVE if machine.is_named_resource:
            return remove_named(session, machine)
        case _:
            return end_locked(session, machine, why=why, is_requested=is_requested).machine


MachineCheck = Callable[[Machine], None]  # raises if the machine is not to be ended any more
MAX_PARALLEL = 4  # machines ended in parallel: each waits for its own proof


def end_each(session: Session, items: Sequence[EndItem], decide: Decide, check: LockCheck) -> Outcome:
    """End these machines as decided, some in parallel; an end without proof is `unconfirmed`, and stops no other.

    One that waited long is checked once more; for all, the decision is made a last time under their locks.
    `check` raises where this run has lost the reaper's lock.
    """
    calls = [partial(_end_one, item=item, decide=decide, check=check) for item in items]
    return _run_parallel(session, calls, max_parallel=MAX_PARALLEL)


def _end_one(session: Session, item: EndItem, decide: Decide, check: LockCheck) -> Outcome:
    """End one machine as decided, unless it is locked, or the decision has changed meanwhile."""
    if session.is_locked(lock_of(item.machine)):
        return Outcome(skipped=[busy(item)])
    ends, outcome = recheck(session, [item], decide) if item.is_stale(session.clock()) else ([item], Outcome())
    for due_item in ends:
        try:
            still_due = _check_under_lock(session, due_item, decide, check)
            machine = _with_retry(session, partial(_end_or_terminate, session, due_item, still_due))
            outcome.ended.append(due_item.as_ended(machine.state))
        except _EndOutdated as outdated:
            outcome.add(outdated.outcome)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            outcome.unconfirmed.append(due_item.as_not_ended(error_text(error)))
        except Exception as bug:  # noqa: BLE001  (the other machines have to be ended all the same)
            outcome.unconfirmed.append(due_item.as_not_ended(error_text(internal_error(bug))))
    return outcome


def _end_or_terminate(session: Session, item: EndItem, check: MachineCheck) -> Machine:
    """End the machine as decided; terminate one for which that is refused, if nothing else is left."""
    try:
        return _end(session, session.ledger.machine(item.id) or item.machine, item.decision, check)
    except InvalidRequest:
        if not _is_last_resort(item):
            raise
        return _terminate(session, item.machine, item.decision.why, check)


def _is_last_resort(item: EndItem) -> bool:
    """Say whether nothing but termination is left: a spot machine without a launch record, whose stop was refused.

    Whether it can be stopped is not known before that, and no image of it can be kept.
    """
    machine, decision = item.machine, item.decision
    is_forced_stop = decision.do is ReaperAction.STOP and decision.rule in (Rule.RENEW_UNTIL, Rule.BUDGET)
    return is_forced_stop and machine.stoppable is None and machine.market == "spot" and machine.parkable is False


class _EndOutdated(Exception):
    """The decision to end a machine is outdated: somebody changed it between the sync and its lock."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _check_under_lock(session: Session, item: EndItem, decide: Decide, check: LockCheck) -> MachineCheck:
    """Return the check that is made under the machine's lock; it raises _EndOutdated if the machine is to be left."""

    def check_still_due(_machine: Machine) -> None:
        check()
        ends, outcome = split_by_current_record(session, [item], decide)
        if not ends:
            raise _EndOutdated(outcome)
        if ends[0].decision.do is not item.decision.do:
            raise _EndOutdated(
                Outcome(skipped=[item.as_not_ended("it has changed meanwhile; the next run checks again")])
            )

    return check_still_due


def _end(session: Session, machine: Machine, decision: Decision, check: MachineCheck) -> Machine:
    """Stop, park, remove or terminate the machine as decided; `check` is called under its lock."""
    why = decision.why
    match decision.do:
        case ReaperAction.STOP:
            return lifecycle.stop(session, machine, why=why, check=check, is_by_reaper=True)
        case ReaperAction.PARK | ReaperAction.IMAGE:  # later syncs make the image, so that no run waits for that
            with lifecycle.lock_machine(session, machine):
                machine = session.ledger.machine(machine.id) or machine
                check(machine)
                return park(session, machine, why=why, finish=False)
        case ReaperAction.REMOVE if machine.is_named_resource:
            check(machine)
            return remove_named(session, machine)
        case ReaperAction.TERMINATE | ReaperAction.REMOVE:
            return _terminate(session, machine, why, check)
    raise AssertionError(f"{decision.do} ends no machine")


def _terminate(session: Session, machine: Machine, why: str, check: MachineCheck) -> Machine:
    return lifecycle.terminate_with_resources(session, machine, why=why, check=check, is_by_reaper=True).machine
