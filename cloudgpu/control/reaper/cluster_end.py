"""Ends a cluster whole or not at all: its lock held, judged once more, its other nodes first and node 0 last.

Node 0 has the engine and its queue, and can be asked for as long as anything runs. Once the end has begun it goes on:
what keeps one node running keeps no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cloudgpu.control.clusters.together import each
from cloudgpu.control.inventory.protection import with_remedy
from cloudgpu.control.lifecycle.lifecycle import end_locked, request_all, stop_locked
from cloudgpu.control.lifecycle.parking import park
from cloudgpu.control.reaper.batch_stop import goes_in_batches, stop_locked_together
from cloudgpu.control.reaper.observe import AGAIN_AFTER_S
from cloudgpu.control.reaper.recheck import Judge, lock_each, split_still_to_end
from cloudgpu.control.resources.named import remove_named
from cloudgpu.core.clusters.completeness import node_of
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.policy import Do
from cloudgpu.core.reaper.result import EndItem, Outcome
from cloudgpu.errors import CloudgpuError, LedgerUnavailable, ProviderUnavailable, Silent

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session


def end_cluster(session: Session, items: Sequence[EndItem], judge: Judge, check: Callable[[], None]) -> Outcome:
    """End the nodes of one cluster as is decided of all of them; what is not proved is named.

    `check` raises where this run has lost the reaper's lock.
    """
    with lock_each(session, items) as (mine, busy):
        ends, outcome = split_still_to_end(session, mine, judge)
        outcome.skipped += busy
        if ends:
            check()
            requested = _request_all(session, ends)
            *others, last = sorted(ends, key=lambda one: -node_of(one.machine))
            for some in (others, [last]):
                outcome.add(_ended(session, some, requested))
    return outcome


def _request_all(session: Session, items: Sequence[EndItem]) -> frozenset[str]:
    """Write which of these are terminated, or stopped one by one, before any is; return them, by id."""
    stops = [one.machine for one in _apart(session, items) if one.decision.do is Do.STOP]
    ends = [one.machine for one in items if one.decision.do is Do.TERMINATE]
    why = items[0].decision.why
    requested = request_all(session, "stop", stops, why, is_judged=True) if stops else frozenset()
    return requested | (request_all(session, "terminate", ends, why, is_judged=True) if ends else frozenset())


def _apart(session: Session, items: Sequence[EndItem]) -> list[EndItem]:
    """Return those that do not end by one call for several."""
    return [one for one in items if one.decision.do is not Do.STOP or not goes_in_batches(session, one.machine)]


def _ended(session: Session, items: Sequence[EndItem], requested: frozenset[str]) -> Outcome:
    apart = _apart(session, items)
    together = [one for one in items if one not in apart]
    outcome = stop_locked_together(session, together) if together else Outcome()
    by_id = {one.id: one for one in apart}
    found = each(
        session,
        [one.machine for one in apart],
        lambda own, machine: _done_in_two_tries(own, by_id[machine.id], is_requested=machine.id in requested),
    )
    for item, result in zip(apart, found, strict=True):
        if isinstance(result, LedgerUnavailable):
            raise result
        if isinstance(result, CloudgpuError):
            outcome.unconfirmed.append(item.left(with_remedy(result)))
        else:
            outcome.ended.append(item.done(result.state))
    return outcome


def _done_in_two_tries(session: Session, item: EndItem, *, is_requested: bool) -> Machine:
    """End it; once more where a provider did not answer on the way: each step goes on where the one before it ended."""
    try:
        return _done(session, item, is_requested=is_requested)
    except LedgerUnavailable:
        raise
    except ProviderUnavailable as error:
        if isinstance(error, Silent):
            raise
    session.pause(AGAIN_AFTER_S)
    return _done(session, item, is_requested=is_requested)


def _done(session: Session, item: EndItem, *, is_requested: bool) -> Machine:
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
