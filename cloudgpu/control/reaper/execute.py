"""Ends what a run has decided to end: looks again first, and lets go of whatever has come to life meanwhile.

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
from cloudgpu.control.reaper.batch_stop import goes_in_batches, stop_locked_together, stop_together
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
_BY_USE = (Rule.LEASE, Rule.IDLE, Rule.UNLABELLED)  # what anybody's work takes back


def execute_decisions(
    session: Session, views: Sequence[MachineView], decisions: Sequence[Decision], judge: Judge, *, apart: bool = False
) -> Outcome:
    """Carry out the ends among these decisions, one for each of `views`; return what came of each.

    A warning that runs out within a minute is waited for. Each machine is looked at again, with its samples of now, and
    judged again by them: what came to life is spared. `apart`: each region by itself, so that one that is silent delays
    no end in another. The caller holds the reaper's lock.
    """
    check = _checker(session)
    items = [EndItem(one, decision) for one, decision in zip(views, decisions, strict=True) if decision.ends]
    places = _by_region(items) if apart else {"": items}
    ways = [partial(_execute_group, items=some, judge=judge, check=check) for some in places.values() if some]
    return _run_parallel(session, ways)


def _checker(session: Session) -> Check:
    """Return what raises where this run has lost the reaper's lock; any thread may call it.

    A session beside this one holds no lock, and would find none lost.
    """
    one_by_one = Lock()

    def check() -> None:
        with one_by_one:
            session.check_lock(LOCK)

    return check


def _by_region(items: Sequence[EndItem]) -> dict[str, list[EndItem]]:
    places: dict[str, list[EndItem]] = {}
    for one in items:
        places.setdefault(f"{one.machine.account}/{one.machine.region}", []).append(one)
    return places


def _run_parallel(session: Session, ways: Sequence[Callable[[Session], Outcome]]) -> Outcome:
    """Return what came of all of these, each in a thread and with a ledger connection of its own; of one in this."""
    outcome = Outcome()
    if len(ways) < 2:  # noqa: PLR2004  (one needs no thread, and no connection of its own)
        for way in ways:
            outcome.add(way(session))
        return outcome

    def beside(way: Callable[[Session], Outcome]) -> Outcome:
        with session.for_thread() as own:
            return way(own)

    with Pool(len(ways)) as pool:
        for one in pool.map(beside, ways):
            outcome.add(one)
    return outcome


def _execute_group(session: Session, *, items: Sequence[EndItem], judge: Judge, check: Check) -> Outcome:
    _wait_out(session, items)
    ends, outcome = recheck(session, items, judge)
    late = [one for one in ends if one.decision.rule in _BY_USE and one.is_stale(session.clock())]
    if late:  # the others of a large pass, or a slow cloud, have taken minutes
        fresh, more = recheck(session, late, judge)
        outcome.add(more)
        again = {one.id for one in late}
        ends = [one for one in ends if one.id not in again] + fresh
    outcome.add(_end_items(session, ends, judge, check))
    return outcome


def _end_items(session: Session, items: Sequence[EndItem], judge: Judge, check: Check) -> Outcome:
    together, apart, clusters = list[EndItem](), list[EndItem](), dict[str, list[EndItem]]()
    for one in items:
        if one.machine.cluster is not None:
            clusters.setdefault(one.machine.cluster.id, []).append(one)
            continue
        batched = one.decision.do is Do.STOP and goes_in_batches(session, one.machine)
        (together if batched else apart).append(one)
    ways: list[Callable[[Session], Outcome]] = []
    if together:
        ways.append(partial(stop_together, items=together, judge=judge, check=check))
    ways += [partial(end_cluster, items=some, judge=judge, check=check) for some in clusters.values()]
    ways += [partial(end_each, items=some, judge=judge, check=check) for some in _by_region(apart).values()]
    outcome = _run_parallel(session, ways)
    if outcome.ended:
        clean_up_local_files(session)
    return outcome


def _wait_out(session: Session, items: Sequence[EndItem]) -> None:
    """Wait for warnings that run out within seconds, rather than leave their machines to the next run."""
    ends = [one.decision.after for one in items if one.decision.after is not None]
    left = max(((end - session.clock()).total_seconds() for end in ends), default=0.0)
    if left > 0:
        session.pause(left)


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
                outcome.add(_nodes_ended(session, some, requested))
    return outcome


def _request_nodes(session: Session, items: Sequence[EndItem]) -> frozenset[str]:
    """Write which of these are terminated, or stopped one by one, before any is; return them, by id."""
    stops = [one.machine for one in _nodes_apart(session, items) if one.decision.do is Do.STOP]
    ends = [one.machine for one in items if one.decision.do is Do.TERMINATE]
    why = items[0].decision.why
    requested = request_all(session, "stop", stops, why, is_judged=True) if stops else frozenset()
    return requested | (request_all(session, "terminate", ends, why, is_judged=True) if ends else frozenset())


def _nodes_apart(session: Session, items: Sequence[EndItem]) -> list[EndItem]:
    """Return those that do not end by one call for several."""
    return [one for one in items if one.decision.do is not Do.STOP or not goes_in_batches(session, one.machine)]


def _nodes_ended(session: Session, items: Sequence[EndItem], requested: frozenset[str]) -> Outcome:
    apart = _nodes_apart(session, items)
    together = [one for one in items if one not in apart]
    outcome = stop_locked_together(session, together) if together else Outcome()
    by_id = {one.id: one for one in apart}
    found = run_on_machines(
        session,
        [one.machine for one in apart],
        lambda own, machine: _node_done_in_two_tries(own, by_id[machine.id], is_requested=machine.id in requested),
    )
    for item, result in zip(apart, found, strict=True):
        if isinstance(result, LedgerUnavailable):
            raise result
        if isinstance(result, CloudgpuError):
            outcome.unconfirmed.append(item.left(with_remedy(result)))
        else:
            outcome.ended.append(item.done(result.state))
    return outcome


def _node_done_in_two_tries(session: Session, item: EndItem, *, is_requested: bool) -> Machine:
    """End it; once more where a provider did not answer on the way: each step goes on where the one before it ended."""
    try:
        return _node_done(session, item, is_requested=is_requested)
    except LedgerUnavailable:
        raise
    except ProviderUnavailable as error:
        if isinstance(error, Silent):
            raise
    session.pause(RETRY_AFTER_S)
    return _node_done(session, item, is_requested=is_requested)


def _node_done(session: Session, item: EndItem, *, is_requested: bool) -> Machine:
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

    One whose turn comes late is looked at once more; all are judged a last time once nobody else can be at them.
    `check` raises where this run has lost the reaper's lock.
    """
    outcome = Outcome()
    if len(items) < 2:  # noqa: PLR2004  (one needs no thread, and no connection of its own)
        for item in items:
            outcome.add(_end_one(session, item, judge, check))
        return outcome

    def in_session_of_its_own(item: EndItem) -> Outcome:
        with session.for_thread() as own:
            return _end_one(own, item, judge, check)

    with Pool(MAX_PARALLEL) as pool:
        for one in pool.map(in_session_of_its_own, items):
            outcome.add(one)
    return outcome


def _end_one(session: Session, item: EndItem, judge: Judge, check: Callable[[], None]) -> Outcome:
    if session.is_locked(lock_of(item.machine)):
        return Outcome(skipped=[busy(item)])
    ends, outcome = recheck(session, [item], judge) if item.is_stale(session.clock()) else ([item], Outcome())
    for one in ends:
        try:
            machine = _done_in_two_tries(session, one, _last_check(session, one, judge, check))
            outcome.ended.append(one.done(machine.state))
        except _EndOutdated as kept:
            outcome.add(kept.outcome)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            outcome.unconfirmed.append(one.left(with_remedy(error)))
    return outcome


def _done_in_two_tries(session: Session, item: EndItem, check: MachineCheck) -> Machine:
    """End it; once more where a provider did not answer on the way: each step goes on where the one before it ended."""
    does, machine = _DOES[item.decision.do], item.machine
    try:
        return does(session, machine, item.decision.why, check)
    except LedgerUnavailable:
        raise
    except InvalidRequest:
        if not _is_last_resort(item):
            raise
        return _terminated(session, machine, item.decision.why, check)
    except ProviderUnavailable as error:
        if error.field == "lock" or isinstance(error, Silent):
            raise
    session.pause(RETRY_AFTER_S)
    return does(session, session.ledger.machine(machine.id) or machine, item.decision.why, check)


def _is_last_resort(item: EndItem) -> bool:
    """Say whether nothing but termination is left: a spot machine without a launch record, whose stop was refused.

    Whether it can be stopped is not known before that, and no image of it can be kept.
    """
    machine, one = item.machine, item.decision
    ends = one.do is Do.STOP and one.rule in (Rule.RENEW_UNTIL, Rule.BUDGET)
    return ends and machine.stoppable is None and machine.market == "spot" and machine.parkable is False


class _EndOutdated(Exception):
    """It is not to be ended as was decided: between the sync and its lock somebody has done something."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _last_check(session: Session, item: EndItem, judge: Judge, check: Callable[[], None]) -> MachineCheck:
    """Return what is called once nobody else can be at the machine, and raises where it is to be left."""

    def still(_row: Machine) -> None:
        check()
        ends, outcome = split_still_to_end(session, [item], judge)
        if not ends:
            raise _EndOutdated(outcome)
        if ends[0].decision.do is not item.decision.do:
            raise _EndOutdated(Outcome(skipped=[item.left("it has changed meanwhile; the next run checks again")]))

    return still


def _parked(session: Session, machine: Machine, why: str, check: MachineCheck) -> Machine:
    """End the machine and leave its disk; the looks that come make the image, so that no run waits for that."""
    with lifecycle.lock_machine(session, machine):
        machine = session.ledger.machine(machine.id) or machine
        check(machine)
        return park(session, machine, why=why, finish=False)


def _stopped(session: Session, machine: Machine, why: str, check: MachineCheck) -> Machine:
    return lifecycle.stop(session, machine, why=why, check=check)


def _terminated(session: Session, machine: Machine, why: str, check: MachineCheck) -> Machine:
    return lifecycle.terminate_with_resources(session, machine, why=why, check=check, is_judged=True).machine


def _remove_retained(session: Session, machine: Machine, why: str, check: MachineCheck) -> Machine:
    if not machine.is_named_resource:
        return _terminated(session, machine, why, check)
    check(machine)
    return remove_named(session, machine)


_DOES: dict[Do, Callable[[Session, Machine, str, MachineCheck], Machine]] = {
    Do.STOP: _stopped,
    Do.PARK: _parked,
    Do.IMAGE: _parked,
    Do.TERMINATE: _terminated,
    Do.REMOVE: _remove_retained,
}
