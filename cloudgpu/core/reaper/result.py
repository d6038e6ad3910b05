"""What one run of the reaper is to end, what came of it, and all that it found, decided and did: values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cloudgpu.core.budgets.credit import CreditReading
from cloudgpu.core.model.identity import AccountElsewhere, QueriedAccount, Unanswered
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.reaper.clusters import blocked_by_other_nodes
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.values.naming import lock_name

STOP_UNCONFIRMED, PARTLY_UNKNOWN = 9, 8  # exit codes, as cloudgpu.errors has them
# How long an observation is current: ending the machines before this one may have taken a quarter of an hour.
CHECK_VALID_FOR = timedelta(minutes=1)
OTHER_NODE_STAYS = "another node of its cluster cannot be ended with it now; the next run checks again"


@dataclass(frozen=True, slots=True)
class EndedItem:
    """An action (`do`) executed and confirmed. `now` is the state afterwards; of a renewal the lease's new end."""

    machine: str
    name: str
    do: ReaperAction
    rule: Rule
    why: str
    now: str


@dataclass(frozen=True, slots=True)
class GivenWarning:
    """A warning that was given: when it will be ended (None: it will not) and by which ways people were told."""

    machine: str
    name: str
    rule: Rule
    why: str
    due: datetime | None
    how: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotEnded:
    """A machine on which a decided action (`do`) was not executed, and why: it is used again, another command has it.

    Among `ReaperRun.unconfirmed` it may still be billed though a rule ends it.
    """

    machine: str
    name: str
    do: ReaperAction
    why: str


@dataclass(frozen=True, slots=True)
class EndItem:
    """A machine that is to be ended, as last observed, and why; `observed_at` is when it was observed again."""

    view: MachineView
    decision: Decision
    observed_at: datetime | None = None

    @property
    def machine(self) -> Machine:
        """The machine as it was seen last."""
        return self.view.machine

    @property
    def id(self) -> str:
        """Its cloudgpu-id."""
        return self.decision.machine

    def is_stale(self, now: datetime) -> bool:
        """Say whether it was observed so long ago that somebody may be using it by now."""
        return self.observed_at is None or now - self.observed_at > CHECK_VALID_FOR

    def as_ended(self, now: str) -> EndedItem:
        """Return it as executed; `now` is the machine's state since."""
        decision = self.decision
        return EndedItem(decision.machine, decision.name, decision.do, decision.rule, decision.why, now)

    def as_not_ended(self, why: str) -> NotEnded:
        """Return it as not executed, and why."""
        return NotEnded(self.decision.machine, self.decision.name, self.decision.do, why)


@dataclass(slots=True)
class Outcome:
    """The outcome of a run's decisions; `redecided` are the decisions that a second sync has changed."""

    ended: list[EndedItem] = field(default_factory=list)
    skipped: list[NotEnded] = field(default_factory=list)
    unconfirmed: list[NotEnded] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    redecided: list[Decision] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Add the outcome of others."""
        self.ended += other.ended
        self.skipped += other.skipped
        self.unconfirmed += other.unconfirmed
        self.unanswered += other.unanswered
        self.redecided += other.redecided

    def latest(self, decisions: Iterable[Decision]) -> tuple[Decision, ...]:
        """Return these decisions, each as a second sync has changed it."""
        redecided = {decision.machine: decision for decision in self.redecided}
        return tuple(redecided.get(decision.machine, decision) for decision in decisions)


def split_ends(end_items: Sequence[EndItem], machines: Sequence[Machine]) -> tuple[list[EndItem], Outcome]:
    """Return those that are to be ended, and the others; of a cluster all nodes that run are, or none."""
    ends = [item for item in end_items if item.decision.ends]
    not_ending = [item for item in end_items if not item.decision.ends]
    blocked = blocked_by_other_nodes([item.id for item in ends], machines)
    outcome = Outcome(
        skipped=[item.as_not_ended(item.decision.why) for item in not_ending],
        redecided=[item.decision for item in not_ending],
    )
    outcome.skipped += [item.as_not_ended(OTHER_NODE_STAYS) for item in ends if item.id in blocked]
    return [item for item in ends if item.id not in blocked], outcome


def lock_of(machine: Machine) -> str:
    """Return the lock that keeps every other process from this machine."""
    return lock_name(machine.key or machine.id)


def busy(item: EndItem) -> NotEnded:
    """Return that another command is working on it."""
    return item.as_not_ended("another command is working on it; the next run checks again")


@dataclass(frozen=True, slots=True)
class ReaperRun:
    """One run. `busy`: why nothing was done: another one holds the lock, or no run was due.

    `decisions` has one for each machine, also "keep"; `views` is what each was decided by, in the same order. `ended`,
    `renewed` and `warned` are what was done, `skipped` what was not. `unconfirmed` may still be billed.
    `unanswered` are parts of the providers that said nothing, `faults` what else keeps the answer from being whole (a
    policy that cannot be resolved). `sentences` say what the sync has put right. `undelivered` are receivers of alerts
    that did not take theirs. `credits` are those of prepaid accounts, as they were read. `queried` are the
    accounts that were queried; `not_queried` are those that only a credential on this computer names, and that it does
    not open.
    """

    begun_at: datetime
    duration: timedelta = timedelta(0)
    dry_run: bool = False
    busy: str = ""
    views: tuple[MachineView, ...] = ()
    decisions: tuple[Decision, ...] = ()
    ended: tuple[EndedItem, ...] = ()
    renewed: tuple[EndedItem, ...] = ()
    warned: tuple[GivenWarning, ...] = ()
    skipped: tuple[NotEnded, ...] = ()
    unconfirmed: tuple[NotEnded, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
    faults: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    undelivered: tuple[str, ...] = ()
    queried: tuple[QueriedAccount, ...] = ()
    not_queried: tuple[Unanswered, ...] = ()
    credits: tuple[CreditReading, ...] = ()

    @property
    def exit_code(self) -> int:
        """What the command ends with: 9 where a stop is not proved, 8 where a part of the answer is missing, else 0."""
        if self.unconfirmed:
            return STOP_UNCONFIRMED
        return PARTLY_UNKNOWN if self.unanswered or self.faults else 0

    def without_accounts_queried_elsewhere(self) -> ReaperRun:
        """Return it without accounts that another computer has queried lately: nothing is wrong with them."""
        gaps = (gap for gap in self.unanswered if not (isinstance(gap, AccountElsewhere) and gap.was_asked_lately))
        return replace(self, unanswered=tuple(gaps))

    @property
    def is_complete_here(self) -> bool:
        """Whether all that this computer can reach was judged, and what was to end is proved to have ended."""
        has_gap = any(not isinstance(gap, AccountElsewhere) for gap in self.unanswered)
        return not (self.unconfirmed or has_gap or self.faults)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happened that anybody has to hear of."""
        happened = (*self.ended, *self.renewed, *self.warned, *self.unconfirmed, *self.sentences, *self.undelivered)
        return self.exit_code == 0 and not happened

    @property
    def decided(self) -> dict[str, int]:
        """How many machines each decision was taken for, by its word."""
        return dict(sorted(Counter(str(decision.do) for decision in self.decisions).items()))
