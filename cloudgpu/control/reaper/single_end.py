"""Ends machines one by one where that takes more than a stop: parking, terminating, removing an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cloudgpu.control.inventory.protection import with_remedy
from cloudgpu.control.lifecycle import lifecycle
from cloudgpu.control.lifecycle.parking import park
from cloudgpu.control.reaper.observe import AGAIN_AFTER_S
from cloudgpu.control.reaper.recheck import Judge, recheck, split_still_to_end
from cloudgpu.control.resources.named import remove_named
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.policy import Do, Rule
from cloudgpu.core.reaper.result import EndItem, Outcome, busy, lock_of
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, ProviderUnavailable, Silent
from cloudgpu.parallel import Pool

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session

Check = Callable[[Machine], None]
LANES = 4  # machines ended side by side: each waits for its own proof


def end_each(session: Session, items: Sequence[EndItem], judge: Judge, check: Callable[[], None]) -> Outcome:
    """End these machines as is decided of each, some side by side; what cannot be proved is named, and stops no other.

    One whose turn comes late is looked at once more; all are judged a last time once nobody else can be at them.
    `check` raises where this run has lost the reaper's lock.
    """
    outcome = Outcome()
    if len(items) < 2:  # noqa: PLR2004  (one needs no thread, and no connection of its own)
        for item in items:
            outcome.add(_end(session, item, judge, check))
        return outcome

    def in_session_of_its_own(item: EndItem) -> Outcome:
        with session.for_thread() as own:
            return _end(own, item, judge, check)

    with Pool(LANES) as pool:
        for one in pool.map(in_session_of_its_own, items):
            outcome.add(one)
    return outcome


def _end(session: Session, item: EndItem, judge: Judge, check: Callable[[], None]) -> Outcome:
    if session.is_locked(lock_of(item.machine)):
        return Outcome(skipped=[busy(item)])
    ends, outcome = recheck(session, [item], judge) if item.is_stale(session.clock()) else ([item], Outcome())
    for one in ends:
        try:
            machine = _end_with_retry(session, one, _last_check(session, one, judge, check))
            outcome.ended.append(one.done(machine.state))
        except _NotAnyMore as kept:
            outcome.add(kept.outcome)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            outcome.unconfirmed.append(one.left(with_remedy(error)))
    return outcome


def _end_with_retry(session: Session, item: EndItem, check: Check) -> Machine:
    """End it; once more where a provider did not answer on the way: each step goes on where the one before it ended."""
    does, machine = _DOES[item.decision.do], item.machine
    try:
        return does(session, machine, item.decision.why, check)
    except LedgerUnavailable:
        raise
    except InvalidRequest:
        if not _is_last_resort(item):
            raise
        return _terminate(session, machine, item.decision.why, check)
    except ProviderUnavailable as error:
        if error.field == "lock" or isinstance(error, Silent):
            raise
    session.pause(AGAIN_AFTER_S)
    return does(session, session.ledger.machine(machine.id) or machine, item.decision.why, check)


def _is_last_resort(item: EndItem) -> bool:
    """Say whether nothing but termination is left: a spot machine without a launch record, whose stop was refused.

    Whether it can be stopped is not known before that, and no image of it can be kept.
    """
    machine, one = item.machine, item.decision
    ends = one.do is Do.STOP and one.rule in (Rule.RENEW_UNTIL, Rule.BUDGET)
    return ends and machine.stoppable is None and machine.market == "spot" and machine.parkable is False


class _NotAnyMore(Exception):
    """It is not to be ended as was decided: between the sync and its lock somebody has done something."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _last_check(session: Session, item: EndItem, judge: Judge, check: Callable[[], None]) -> Check:
    """Return what is called once nobody else can be at the machine, and raises where it is to be left."""

    def still(_row: Machine) -> None:
        check()
        ends, outcome = split_still_to_end(session, [item], judge)
        if not ends:
            raise _NotAnyMore(outcome)
        if ends[0].decision.do is not item.decision.do:
            raise _NotAnyMore(Outcome(skipped=[item.left("it has changed meanwhile; the next run checks again")]))

    return still


def _park(session: Session, machine: Machine, why: str, check: Check) -> Machine:
    """End the machine and leave its disk; the looks that come make the image, so that no run waits for that."""
    with lifecycle.lock_machine(session, machine):
        machine = session.ledger.machine(machine.id) or machine
        check(machine)
        return park(session, machine, why=why, finish=False)


def _stop(session: Session, machine: Machine, why: str, check: Check) -> Machine:
    return lifecycle.stop(session, machine, why=why, check=check)


def _terminate(session: Session, machine: Machine, why: str, check: Check) -> Machine:
    return lifecycle.terminate_with_resources(session, machine, why=why, check=check).machine


def _remove_failed(session: Session, machine: Machine, why: str, check: Check) -> Machine:
    if not machine.is_named_resource:
        return _terminate(session, machine, why, check)
    check(machine)
    return remove_named(session, machine)


_DOES: dict[Do, Callable[[Session, Machine, str, Check], Machine]] = {
    Do.STOP: _stop,
    Do.PARK: _park,
    Do.IMAGE: _park,
    Do.TERMINATE: _terminate,
    Do.REMOVE: _remove_failed,
}
