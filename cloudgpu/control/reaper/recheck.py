"""Looks again at what is to be ended: what its provider says now, and its samples of now.

What is to be ended is an `EndItem`: one machine with its decision. An `Outcome` says what came of some. The
locks are taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from cloudgpu.control.inventory.sync_some import sync_some
from cloudgpu.control.pricing.traffic import record
from cloudgpu.control.reaper.observe import RETRY_AFTER_S, probe_twice
from cloudgpu.control.session.session import Session
from cloudgpu.core.activity.report import Report
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.reaper.result import EndItem, NotEnded, Outcome, busy, lock_of, split_ends
from cloudgpu.core.reaper.seen import with_report, with_row
from cloudgpu.errors import LedgerUnavailable, ProviderUnavailable, Silent

LOCK = "reaper"
Judge = Callable[[Sequence[MachineView], Sequence[Machine]], list[Decision]]  # by all rows of the clusters among them


def cluster_nodes(session: Session, views: Sequence[MachineView], *, at_work: bool = True) -> list[Machine]:
    """Return the ledger's rows of all nodes of the clusters of these machines, those that have ended, too.

    Without `at_work`, not of a cluster on which a command works: that its launch is not whole yet is no news then.
    """
    wanted = {one.machine.cluster.id for one in views if one.machine.cluster is not None}
    if not wanted:
        return []
    machines = [
        machine for machine in session.ledger.machines() if machine.cluster is not None and machine.cluster.id in wanted
    ]
    if at_work:
        return machines
    locks = {lock_of(machine) for machine in machines}
    busy = {name for name in locks if session.is_locked(name)}
    return [machine for machine in machines if lock_of(machine) not in busy]


@contextmanager
def lock_each(session: Session, items: Sequence[EndItem]) -> Iterator[tuple[list[EndItem], list[NotEnded]]]:
    """Hold the machines' locks; yield those that are held, and those on which somebody else is at work. Waits for none.

    Machines of one request share a lock.
    """
    with ExitStack() as locks:
        free: dict[str, bool] = {}
        for item in items:
            name = lock_of(item.machine)
            if name not in free:
                free[name] = _is_locked(session, name, locks)
        mine = [item for item in items if free[lock_of(item.machine)]]
        yield mine, [busy(item) for item in items if not free[lock_of(item.machine)]]


def _is_locked(session: Session, name: str, locks: ExitStack) -> bool:
    try:
        locks.enter_context(session.lock(name, wait=False))
    except LedgerUnavailable:
        raise
    except ProviderUnavailable:
        return False
    return True


def split_still_to_end(session: Session, items: Sequence[EndItem], judge: Judge) -> tuple[list[EndItem], Outcome]:
    """Judge these machines once more by their rows of now; return those that are still to be ended, and the others.

    Between a sync and the lock somebody may have held a machine, extended its lease, or ended it.
    """
    latest = [replace(item.seen, machine=session.ledger.machine(item.id) or item.machine) for item in items]
    rows = cluster_nodes(session, latest)
    decisions = judge(latest, rows)
    judged = [replace(item, seen=seen, decision=one) for item, seen, one in zip(items, latest, decisions, strict=True)]
    return split_ends(judged, rows)


def recheck(session: Session, items: Sequence[EndItem], judge: Judge) -> tuple[list[EndItem], Outcome]:
    """Return those that are still to be ended, by a sync of now, and what came of the others."""
    outcome, now = Outcome(), session.clock()
    fresh = _recheck_views(session, items, outcome)
    rows = cluster_nodes(session, fresh)
    again = [EndItem(one, decision, now) for one, decision in zip(fresh, judge(fresh, rows), strict=True)]
    ends, others = split_ends(again, rows)
    outcome.add(others)
    return ends, outcome


def _recheck_views(session: Session, items: Sequence[EndItem], outcome: Outcome) -> list[MachineView]:
    """Return what is known now of those that answered again; the others are named, and left alone."""
    living = [one for one in items if one.machine.terminated_at is None and not one.machine.is_named_resource]
    silent = sync_some(session, [one.machine for one in living])
    again = [one.machine for one in living if one.id in silent and not isinstance(silent[one.id], Silent)]
    if again:
        session.pause(RETRY_AFTER_S)
        asked = {machine.id for machine in again}
        silent = {one: fault for one, fault in silent.items() if one not in asked} | sync_some(session, again)
    outcome.unanswered += [Unanswered(one.machine.name, silent[one.id].message) for one in living if one.id in silent]
    remaining = [one for one in items if one.id not in silent]
    machines = {one.id: session.ledger.machine(one.id) or one.machine for one in remaining}
    running = [
        machine for machine in machines.values() if machine.state == State.RUNNING and machine.terminated_at is None
    ]
    reports = probe_twice(session, running) if running else {}
    if reports:
        _count_traffic(session, machines, reports)
    return [with_report(with_row(one.seen, machines[one.id]), reports.get(one.id)) for one in remaining]


def _count_traffic(session: Session, machines: Mapping[str, Machine], reports: Mapping[str, Report]) -> None:
    """Write the bytes out that the machines' counters show, before they end; what one says wrongly ends no run."""
    for machine, report in reports.items():
        if report.answer is not None:
            with suppress(ValueError, KeyError, TypeError):
                record(session, machines[machine], report.answer)
