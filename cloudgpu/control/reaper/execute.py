"""Ends what a run has decided to end: looks again first, and lets go of whatever has come to life meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from cloudgpu.control.inventory.local_files import clean_up_local_files
from cloudgpu.control.reaper.batch_stop import goes_in_batches, stop_together
from cloudgpu.control.reaper.cluster_end import end_cluster
from cloudgpu.control.reaper.recheck import LOCK, Judge, recheck
from cloudgpu.control.reaper.single_end import end_each
from cloudgpu.core.policies.policy import Do, Rule
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.reaper.result import EndItem, Outcome
from cloudgpu.parallel import Pool

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session

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
    return _side_by_side(session, ways)


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


def _side_by_side(session: Session, ways: Sequence[Callable[[Session], Outcome]]) -> Outcome:
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
    outcome.add(_end(session, ends, judge, check))
    return outcome


def _end(session: Session, items: Sequence[EndItem], judge: Judge, check: Check) -> Outcome:
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
    outcome = _side_by_side(session, ways)
    if outcome.ended:
        clean_up_local_files(session)
    return outcome


def _wait_out(session: Session, items: Sequence[EndItem]) -> None:
    """Wait for warnings that run out within seconds, rather than leave their machines to the next run."""
    ends = [one.decision.after for one in items if one.decision.after is not None]
    left = max(((end - session.clock()).total_seconds() for end in ends), default=0.0)
    if left > 0:
        session.pause(left)
