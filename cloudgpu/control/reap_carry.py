"""What is carried out at the end of a pass: one machine with its decision, what came of it, and the locks it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.reaper.decisions import Decision, Seen
from cloudgpu.core.reaper.result import Done, Left
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import LedgerUnavailable, ProviderUnavailable

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

Row = dict[str, Any]
LOCK = "reaper"
Judge = Callable[[Sequence[Seen]], list[Decision]]


@dataclass(frozen=True, slots=True)
class Item:
    """A machine that is to be ended, as it was seen last, and why; `looked_at` is when the second look at it began."""

    seen: Seen
    decision: Decision
    looked_at: datetime | None = None

    @property
    def row(self) -> Row:
        """Its row."""
        return dict(self.seen.row)

    @property
    def id(self) -> str:
        """Its cloudgpu-id."""
        return self.decision.machine

    def done(self, now: str) -> Done:
        """Return that it was carried out; `now` is what the machine is since."""
        one = self.decision
        return Done(one.machine, one.name, one.do, one.rule, one.why, now)

    def left(self, why: str) -> Left:
        """Return that it was not carried out, and why."""
        return Left(self.decision.machine, self.decision.name, self.decision.do, why)


@dataclass(slots=True)
class Outcome:
    """What came of the decisions of a pass; `again` are the decisions that a second look has changed."""

    ended: list[Done] = field(default_factory=list)
    spared: list[Left] = field(default_factory=list)
    unproved: list[Left] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    again: list[Decision] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Take what came of others along."""
        self.ended += other.ended
        self.spared += other.spared
        self.unproved += other.unproved
        self.unanswered += other.unanswered
        self.again += other.again


@contextmanager
def each_alone(session: Session, items: Sequence[Item]) -> Iterator[tuple[list[Item], list[Left]]]:
    """Hold the machines' locks; yield those that are held, and those on which somebody else is at work. Waits for none.

    Machines of one request share a lock.
    """
    with ExitStack() as locks:
        free: dict[str, bool] = {}
        for item in items:
            name = lock_of(item.row)
            if name not in free:
                free[name] = _is_taken(session, name, locks)
        mine = [item for item in items if free[lock_of(item.row)]]
        yield mine, [busy(item) for item in items if not free[lock_of(item.row)]]


def lock_of(row: Row) -> str:
    """Return the lock that keeps every other process from this machine."""
    return lock_name(row["key"] or row["id"])


def busy(item: Item) -> Left:
    """Return that somebody else is at work on it."""
    return item.left("another command is at work on it; the next pass looks again")


def _is_taken(session: Session, name: str, locks: ExitStack) -> bool:
    try:
        locks.enter_context(session.hold(name, wait=False))
    except LedgerUnavailable:
        raise
    except ProviderUnavailable:
        return False
    return True


def still_to_end(session: Session, items: Sequence[Item], judge: Judge) -> tuple[list[Item], Outcome]:
    """Judge these machines once more by their rows of now; return those that are still to be ended, and the others.

    Between a look and the lock somebody may have held a machine, extended its lease, or ended it.
    """
    latest = [replace(item.seen, row=session.ledger.machine(item.id) or item.row) for item in items]
    decisions = judge(latest)
    judged = [replace(item, seen=seen, decision=one) for item, seen, one in zip(items, latest, decisions, strict=True)]
    ends = [one for one in judged if one.decision.ends]
    kept = [one for one in judged if not one.decision.ends]
    return ends, Outcome(spared=[one.left(one.decision.why) for one in kept], again=[one.decision for one in kept])
