"""Ends machines one by one where that takes more than a stop: parking, terminating, removing an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cloudgpu.control import lifecycle
from cloudgpu.control.park import park
from cloudgpu.control.reap_carry import Item, Judge, Outcome, each_alone, still_to_end
from cloudgpu.control.things import remove_named
from cloudgpu.core.decisions import Do
from cloudgpu.errors import CloudgpuError, LedgerUnavailable

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

Row = dict[str, Any]
LANES = 4  # machines ended side by side: each waits for its own proof


def end_each(session: Session, items: Sequence[Item], judge: Judge, check: Callable[[], None]) -> Outcome:
    """End these machines as is decided of each, some side by side; what cannot be proved is named, and stops no other.

    `check` raises where this pass has lost the reaper's lock.
    """
    outcome = Outcome()
    if len(items) < 2:  # noqa: PLR2004  (one needs no thread, and no connection of its own)
        for item in items:
            outcome.add(_ended(session, item, judge, check))
        return outcome

    def in_lane(item: Item) -> Outcome:
        with session.beside() as own:
            return _ended(own, item, judge, check)

    with ThreadPoolExecutor(max_workers=LANES) as pool:
        for one in pool.map(in_lane, items):
            outcome.add(one)
    return outcome


def _ended(session: Session, item: Item, judge: Judge, check: Callable[[], None]) -> Outcome:
    with each_alone(session, [item]) as (mine, busy):
        ends, outcome = still_to_end(session, mine, judge)
        outcome.spared += busy
    for one in ends:
        check()
        try:
            row = _DOES[one.decision.do](session, one.row, one.decision.why)
            outcome.ended.append(one.done(row["state"]))
        except LedgerUnavailable:
            raise
        except CloudgpuError as fault:
            outcome.unproved.append(one.left(fault.message))
    return outcome


def _parked(session: Session, row: Row, why: str) -> Row:
    """End the machine and leave its disk; the looks that come make the image, so that no pass waits for that."""
    with lifecycle.alone(session, row):
        return park(session, session.ledger.machine(row["id"]) or row, why=why, finish=False)


def _stopped(session: Session, row: Row, why: str) -> Row:
    return lifecycle.stop(session, row, why=why)


def _terminated(session: Session, row: Row, why: str) -> Row:
    return lifecycle.end(session, row, why=why)


def _removed(session: Session, row: Row, why: str) -> Row:
    return remove_named(session, row) if row.get("thing") else lifecycle.end(session, row, why=why)


_DOES: dict[Do, Callable[[Session, Row, str], Row]] = {
    Do.STOP: _stopped,
    Do.PARK: _parked,
    Do.IMAGE: _parked,
    Do.TERMINATE: _terminated,
    Do.REMOVE: _removed,
}
