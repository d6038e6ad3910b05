"""Ends a cluster whole or not at all: its lock held, judged once more, its other nodes first and node 0 last.

Node 0 has the engine and its queue, and can be asked for as long as anything runs. Once the end has begun it goes on:
what keeps one node running keeps no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cloudgpu.control.clusters.together import each
from cloudgpu.control.inventory.protection import with_remedy
from cloudgpu.control.lifecycle.lifecycle import end_locked, stop_locked
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
            *others, last = sorted(ends, key=lambda one: -node_of(one.machine))
            for some in (others, [last]):
                outcome.add(_end(session, some))
    return outcome


def _end(session: Session, items: Sequence[EndItem]) -> Outcome:
    together = [one for one in items if one.decision.do is Do.STOP and goes_in_batches(session, one.machine)]
    apart = [one for one in items if one not in together]
    outcome = stop_locked_together(session, together) if together else Outcome()
    by_id = {one.id: one for one in apart}
    found = each(session, [one.machine for one in apart], lambda own, machine: _end_with_retry(own, by_id[machine.id]))
    for item, result in zip(apart, found, strict=True):
        if isinstance(result, LedgerUnavailable):
            raise result
        if isinstance(result, CloudgpuError):
            outcome.unconfirmed.append(item.left(with_remedy(result)))
        else:
            outcome.ended.append(item.done(result.state))
    return outcome


def _end_with_retry(session: Session, item: EndItem) -> Machine:
    """End it; once more where a provider did not answer on the way: each step goes on where the one before it ended."""
    try:
        return _end_once(session, item)
    except LedgerUnavailable:
        raise
    except ProviderUnavailable as error:
        if isinstance(error, Silent):
            raise
    session.pause(AGAIN_AFTER_S)
    return _end_once(session, item)


def _end_once(session: Session, item: EndItem) -> Machine:
    machine, why = session.ledger.machine(item.id) or item.machine, item.decision.why
    match item.decision.do:
        case Do.STOP:
            return stop_locked(session, machine, why=why)
        case Do.PARK | Do.IMAGE:
            return park(session, machine, why=why, finish=False)
        case Do.REMOVE if machine.is_named_resource:
            return remove_named(session, machine)
        case _:
            return end_locked(session, machine, why=why).machine
