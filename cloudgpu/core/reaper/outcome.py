"""What a run ends: one machine with its decision, and what came of some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.reaper.clusters import blocked_by_other_nodes
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.reaper.result import Ended, NotEnded
from cloudgpu.core.values.naming import lock_name

GOOD_FOR = timedelta(minutes=1)  # a look: machines before this one may have taken a quarter of an hour to end
PARTLY = "another node of its cluster cannot be ended with it now; the next run checks again"


@dataclass(frozen=True, slots=True)
class EndItem:
    """A machine that is to be ended, as it was seen last, and why; `looked_at` is when the second look at it began."""

    seen: MachineView
    decision: Decision
    looked_at: datetime | None = None

    @property
    def machine(self) -> Machine:
        """The machine as it was seen last."""
        return self.seen.machine

    @property
    def id(self) -> str:
        """Its cloudgpu-id."""
        return self.decision.machine

    def is_stale(self, now: datetime) -> bool:
        """Say whether so much time has passed since the look at it that somebody may be at work there by now."""
        return self.looked_at is None or now - self.looked_at > GOOD_FOR

    def done(self, now: str) -> Ended:
        """Return that it was carried out; `now` is what the machine is since."""
        one = self.decision
        return Ended(one.machine, one.name, one.do, one.rule, one.why, now)

    def left(self, why: str) -> NotEnded:
        """Return that it was not carried out, and why."""
        return NotEnded(self.decision.machine, self.decision.name, self.decision.do, why)


@dataclass(slots=True)
class Outcome:
    """What came of the decisions of a run; `again` are the decisions that a second sync has changed."""

    ended: list[Ended] = field(default_factory=list)
    spared: list[NotEnded] = field(default_factory=list)
    unproved: list[NotEnded] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    again: list[Decision] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Take what came of others along."""
        self.ended += other.ended
        self.spared += other.spared
        self.unproved += other.unproved
        self.unanswered += other.unanswered
        self.again += other.again

    def latest(self, decisions: Iterable[Decision]) -> tuple[Decision, ...]:
        """Return these decisions, each as a second sync has changed it."""
        again = {one.machine: one for one in self.again}
        return tuple(again.get(one.machine, one) for one in decisions)


def split_ends(judged: Sequence[EndItem], machines: Sequence[Machine]) -> tuple[list[EndItem], Outcome]:
    """Return those that are to be ended, and the others; of a cluster all nodes that run are, or none."""
    ends = [one for one in judged if one.decision.ends]
    kept = [one for one in judged if not one.decision.ends]
    partly = blocked_by_other_nodes([one.id for one in ends], machines)
    outcome = Outcome(spared=[one.left(one.decision.why) for one in kept], again=[one.decision for one in kept])
    outcome.spared += [one.left(PARTLY) for one in ends if one.id in partly]
    return [one for one in ends if one.id not in partly], outcome


def lock_of(machine: Machine) -> str:
    """Return the lock that keeps every other process from this machine."""
    return lock_name(machine.key or machine.id)


def busy(item: EndItem) -> NotEnded:
    """Return that somebody else is at work on it."""
    return item.left("another command is working on it; the next run checks again")
