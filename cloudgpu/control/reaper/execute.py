"""Ends what a run has decided to end: checks each machine again first, and skips one that is in use by then.

A cluster ends whole or not at all: its lock held, judged once more, its other nodes first and node 0 last. Node 0 has
the engine and its queue, and can be asked for as long as anything runs. Once the end has begun it goes on: what keeps
one node running keeps no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock

from cloudgpu.control.clusters.together import run_on_machines
from cloudgpu.control.inventory.local_files import clean_up_local_files
from cloudgpu.control.inventory.stop_proof import with_remedy
from cloudgpu.control.lifecycle import lifecycle
from cloudgpu.control.lifecycle.lifecycle import end_locked, request_all, stop_locked
from cloudgpu.control.lifecycle.parking import park
from cloudgpu.control.reaper.batch_stop import stop_batch, stop_locked_batch, supports_batch_stop
from cloudgpu.control.reaper.observe import LOCK, RETRY_AFTER_S, Judge, lock_each, recheck, split_still_to_end
from cloudgpu.control.resources.named import remove_named
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.machine import Machine, node_of
from cloudgpu.core.policies.policy import Do, Rule
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.reaper.result import EndItem, Outcome, busy, lock_of
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, ProviderUnavailable, Silent
from cloudgpu.parallel import Pool

Check = Callable[[], None]
_USE_RULES = (Rule.LEASE, Rule.IDLE, Rule.UNLABELLED)  # these end no machine that is in use again


def execute_decisions(
    session: Session, views: Sequence[MachineView], decisions: Sequence[Decision], judge: Judge, *, apart: bool = False
) -> Outcome:
    """Carry out the ends among these decisions, one for each of `views`; return what came of each.

    A warning that runs out within a minute is waited for. Each machine is checked again by fresh samples, and one that
    is in use again is skipped. `apart`: each region by itself, so that one that is silent delays no end in another.
    The caller holds the reaper's lock.
    """
    check = _checker(session)
    items = [EndItem(one, decision) for one, decision in zip(views, decisions, strict=True) if decision.ends]
    groups = _by_region(items) if apart else {"": items}
    calls = [partial(_execute_group, items=some, judge=judge, check=check) for some in groups.values() if some]
    return _run_parallel(session, calls)


def _checker(session: Session) -> Check:
    """Return a check that raises if this run has lost the reaper's lock; any thread may call it.

    It asks this session: the session of another thread holds no lock, and would find none lost.
    """
    one_by_one = Lock()

    def check() -> None:
        with one_by_one:
            session.check_lock(LOCK)

    return check


def _by_region(items: Sequence[EndItem]) -> dict[str, list[EndItem]]:
    groups: dict[str, list[EndItem]] = {}
    for one in items:
        groups.setdefault(f"{one.machine.account}/{one.machine.region}", []).append(one)
    return groups


def _run_parallel(session: Session, calls: Sequence[Callable[[Session], Outcome]]) -> Outcome:
    """Return what came of all of these, each in a thread and with a ledger connection of its own; of one in this."""
    outcome = Outcome()
    if len(calls) < 2:  # noqa: PLR2004  (one needs no thread, and no connection of its own)
        for call in calls:
            outcome.add(call(session))
        return outcome

    def run_in_thread(call: Callable[[Session], Outcome]) -> Outcome:
        with session.for_thread() as thread_session:
            return call(thread_session)

    with Pool(len(calls)) as pool:
        for one in pool.map(run_in_thread, calls):
            outcome.add(one)
    return outcome


def _execute_group(session: Session, *, items: Sequence[EndItem], judge: Judge, check: Check) -> Outcome:
    _wait_for_due_warnings(session, items)
    ends, outcome = recheck(session, items, judge)
    stale = [one for one in ends if one.decision.rule in _USE_RULES and one.is_stale(session.clock())]
    if stale:  # the others of a large run, or a slow cloud, have taken minutes
        fresh, more = recheck(session, stale, judge)
        outcome.add(more)
        stale_ids = {one.id for one in stale}
        ends = [one for one in ends if one.id not in stale_ids] + fresh
    outcome.add(_end_items(session, ends, judge, check))
    return outcome


def _end_items(session: Session, items: Sequence[EndItem], judge: Judge, check: Check) -> Outcome:
    batch, single, clusters = list[EndItem](), list[EndItem](), dict[str, list[EndItem]]()
    for one in items:
        if one.machine.cluster is not None:
            clusters.setdefault(one.machine.cluster.id, []).append(one)
            continue
        batched = one.decision.do is Do.STOP and supports_batch_stop(session, one.machine)
        (batch if batched else single).append(one)
    calls: list[Callable[[Session], Outcome]] = []
    if batch:
        calls.append(partial(stop_batch, items=batch, judge=judge, check=check))
    calls += [partial(end_cluster, items=some, judge=judge, check=check) for some in clusters.values()]
    calls += [partial(end_each, items=some, judge=judge, check=check) for some in _by_region(single).values()]
    outcome = _run_parallel(session, calls)
    if outcome.ended:
        clean_up_local_files(session)
    return outcome


def _wait_for_due_warnings(session: Session, items: Sequence[EndItem]) -> None:
    """Wait for warnings that run out within seconds, rather than leave their machines to the next run."""
    due = [one.decision.after for one in items if one.decision.after is not None]
    remaining_s = max(((end - session.clock()).total_seconds() for end in due), default=0.0)
    if remaining_s > 0:
        session.pause(remaining_s)


def end_cluster(session: Session, items: Sequence[EndItem], judge: Judge, check: Callable[[], None]) -> Outcome:
    """End the nodes of one cluster as is decided of all of them; what is not proved is named.

    `check` raises where this run has lost the reaper's lock.
    """
    with lock_each(session, items) as (mine, busy):
        ends, outcome = split_still_to_end(session, mine, judge)
        outcome.skipped += busy
        if ends:
            check()
            requested = _request_nodes(session, ends)
            *others, last = sorted(ends, key=lambda one: -node_of(one.machine))
            for some in (others, [last]):
                outcome.add(_end_nodes(session, some, requested))
    return outcome


def _request_nodes(session: Session, items: Sequence[EndItem]) -> frozenset[str]:
    """Write which of these are terminated, or stopped one by one, before any is; return them, by id."""
    stops = [one.machine for one in _single_call_nodes(session, items) if one.decision.do is Do.STOP]
    ends = [one.machine for one in items if one.decision.do is Do.TERMINATE]
    why = items[0].decision.why
    requested = request_all(session, "stop", stops, why, is_by_reaper=True) if stops else frozenset()
    return requested | (request_all(session, "terminate", ends, why, is_by_reaper=True) if ends else frozenset())


def _single_call_nodes(session: Session, items: Sequence[EndItem]) -> list[EndItem]:
    """Return those that do not end by one call for several."""
    return [one for one in items if one.decision.do is not Do.STOP or not supports_batch_stop(session, one.machine)]


def _end_nodes(session: Session, items: Sequence[EndItem], requested: frozenset[str]) -> Outcome:
    single = _single_call_nodes(session, items)
    batch = [one for one in items if one not in single]
    outcome = stop_locked_batch(session, batch) if batch else Outcome()
    by_id = {one.id: one for one in single}
    results = run_on_machines(
        session,
        [one.machine for one in single],
        lambda own, machine: _end_node_with_retry(own, by_id[machine.id], is_requested=machine.id in requested),
    )
    for item, result in zip(single, results, strict=True):
        if isinstance(result, LedgerUnavailable):
            raise result
        if isinstance(result, CloudgpuError):
            outcome.unconfirmed.append(item.left(with_remedy(result)))
        else:
            outcome.ended.append(item.done(result.state))
    return outcome


def _end_node_with_retry(session: Session, item: EndItem, *, is_requested: bool) -> Machine:
    """End it; once more where a provider did not answer on the way: each step goes on where the one before it ended."""
    try:
        return _end_node(session, item, is_requested=is_requested)
    except LedgerUnavailable:
        raise
    except ProviderUnavailable as error:
        if isinstance(error, Silent):
            raise
    session.pause(RETRY_AFTER_S)
    return _end_node(session, item, is_requested=is_requested)


def _end_node(session: Session, item: EndItem, *, is_requested: bool) -> Machine:
    machine, why = session.ledger.machine(item.id) or item.machine, item.decision.why
    match item.decision.do:
        case Do.STOP:
            return stop_locked(session, machine, why=why, is_requested=is_requested)
        case Do.PARK | Do.IMAGE:
            return park(session, machine, why=why, finish=False)
        case Do.REMOVE if machine.is_named_resource:
            return remove_named(session, machine)
        case _:
            return end_locked(session, machine, why=why, is_requested=is_requested).machine


MachineCheck = Callable[[Machine], None]
MAX_PARALLEL = 4  # machines ended side by side: each waits for its own proof


def end_each(session: Session, items: Sequence[EndItem], judge: Judge, check: Callable[[], None]) -> Outcome:
    """End these machines as is decided of each, some side by side; what cannot be proved is named, and stops no other.

    One that waited long is checked once more; all are judged a last time under their locks.
    `check` raises where this run has lost the reaper's lock.
    """
    outcome = Outcome()
    if len(items) < 2:  # noqa: PLR2004  (one needs no thread, and no connection of its own)
        for item in items:
            outcome.add(_end_one(session, item, judge, check))
        return outcome

    def end_in_thread(item: EndItem) -> Outcome:
        with session.for_thread() as own:
            return _end_one(own, item, judge, check)

    with Pool(MAX_PARALLEL) as pool:
        for one in pool.map(end_in_thread, items):
            outcome.add(one)
    return outcome


def _end_one(session: Session, item: EndItem, judge: Judge, check: Callable[[], None]) -> Outcome:
    if session.is_locked(lock_of(item.machine)):
        return Outcome(skipped=[busy(item)])
    ends, outcome = recheck(session, [item], judge) if item.is_stale(session.clock()) else ([item], Outcome())
    for one in ends:
        try:
            machine = _end_with_retry(session, one, _last_check(session, one, judge, check))
            outcome.ended.append(one.done(machine.state))
        except _EndOutdated as outdated:
            outcome.add(outdated.outcome)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            outcome.unconfirmed.append(one.left(with_remedy(error)))
    return outcome


def _end_with_retry(session: Session, item: EndItem, check: MachineCheck) -> Machine:
    """End it; once more where a provider did not answer on the way: each step goes on where the one before it ended."""
    action, machine = _ACTIONS[item.decision.do], item.machine
    try:
        return action(session, machine, item.decision.why, check)
    except LedgerUnavailable:
        raise
    except InvalidRequest:
        if not _is_last_resort(item):
            raise
        return _terminate(session, machine, item.decision.why, check)
    except ProviderUnavailable as error:
        if error.field == "lock" or isinstance(error, Silent):
            raise
    session.pause(RETRY_AFTER_S)
    return action(session, session.ledger.machine(machine.id) or machine, item.decision.why, check)


def _is_last_resort(item: EndItem) -> bool:
    """Say whether nothing but termination is left: a spot machine without a launch record, whose stop was refused.

    Whether it can be stopped is not known before that, and no image of it can be kept.
    """
    machine, decision = item.machine, item.decision
    is_forced_stop = decision.do is Do.STOP and decision.rule in (Rule.RENEW_UNTIL, Rule.BUDGET)
    return is_forced_stop and machine.stoppable is None and machine.market == "spot" and machine.parkable is False


class _EndOutdated(Exception):
    """The decision to end a machine is outdated: somebody changed it between the sync and its lock."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _last_check(session: Session, item: EndItem, judge: Judge, check: Callable[[], None]) -> MachineCheck:
    """Return the check that is made under the machine's lock; it raises _EndOutdated if the machine is to be left."""

    def check_still_due(_machine: Machine) -> None:
        check()
        ends, outcome = split_still_to_end(session, [item], judge)
        if not ends:
            raise _EndOutdated(outcome)
        if ends[0].decision.do is not item.decision.do:
            raise _EndOutdated(Outcome(skipped=[item.left("it has changed meanwhile; the next run checks again")]))

    return check_still_due


def _park(session: Session, machine: Machine, why: str, check: MachineCheck) -> Machine:
    """End the machine and leave its disk; later syncs make the image, so that no run waits for that."""
    with lifecycle.lock_machine(session, machine):
        machine = session.ledger.machine(machine.id) or machine
        check(machine)
        return park(session, machine, why=why, finish=False)


def _stop(session: Session, machine: Machine, why: str, check: MachineCheck) -> Machine:
    return lifecycle.stop(session, machine, why=why, check=check)


def _terminate(session: Session, machine: Machine, why: str, check: MachineCheck) -> Machine:
    return lifecycle.terminate_with_resources(session, machine, why=why, check=check, is_by_reaper=True).machine


def _remove_retained(session: Session, machine: Machine, why: str, check: MachineCheck) -> Machine:
    if not machine.is_named_resource:
        return _terminate(session, machine, why, check)
    check(machine)
    return remove_named(session, machine)


_ACTIONS: dict[Do, Callable[[Session, Machine, str, MachineCheck], Machine]] = {
    Do.STOP: _stop,
    Do.PARK: _park,
    Do.IMAGE: _park,
    Do.TERMINATE: _terminate,
    Do.REMOVE: _remove_retained,
}
