"""What one run of the reaper found, decided and did: values, for whoever shows or records them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloudgpu.core.budgets.credit import KnownCredit
from cloudgpu.core.model.identity import AccountElsewhere, QueriedAccount, Unanswered
from cloudgpu.core.policies.policy import Do, Rule
from cloudgpu.core.reaper.decisions import Decision, MachineView

PROVED_NOT, UNKNOWN_PART = 9, 8  # exit codes, as cloudgpu.errors has them


@dataclass(frozen=True, slots=True)
class Ended:
    """Something that was carried out and proved. `now` is the state afterwards; of a renewal the lease's new end."""

    machine: str
    name: str
    do: Do
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
    """A machine of which something was decided and not done, and why: it came to life, somebody else is at work on it.

    Among `ReaperRun.unconfirmed` it may still be billed though a rule ends it.
    """

    machine: str
    name: str
    do: Do
    why: str


@dataclass(frozen=True, slots=True)
class ReaperRun:
    """One run. `busy`: another one holds the lock, so that nothing was done.

    `decisions` has one for each machine, also "keep"; `seen` is what each was judged by, in the same order. `ended`,
    `renewed` and `warned` are what was done, `spared` what was left in the end. `unproved` may still be billed.
    `unanswered` are parts of the providers that said nothing, `faults` what else keeps the answer from being whole (a
    policy that cannot be resolved). `sentences` say what the sync has put right. `undelivered` are receivers of alerts
    that did not take theirs. `credits` are those of accounts that are paid in advance, as they were read. `asked` are
    the accounts that were asked; `closed` are those that only a credential on this computer names, and that it does not
    open.
    """

    begun_at: datetime
    duration: timedelta = timedelta(0)
    dry_run: bool = False
    busy: str = ""
    seen: tuple[MachineView, ...] = ()
    decisions: tuple[Decision, ...] = ()
    ended: tuple[Ended, ...] = ()
    renewed: tuple[Ended, ...] = ()
    warned: tuple[GivenWarning, ...] = ()
    skipped: tuple[NotEnded, ...] = ()
    unconfirmed: tuple[NotEnded, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
    faults: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    undelivered: tuple[str, ...] = ()
    queried: tuple[QueriedAccount, ...] = ()
    not_queried: tuple[Unanswered, ...] = ()
    credits: tuple[KnownCredit, ...] = ()

    @property
    def exit_code(self) -> int:
        """What the command ends with: 9 where a stop is not proved, 8 where a part of the answer is missing, else 0."""
        if self.unconfirmed:
            return PROVED_NOT
        return UNKNOWN_PART if self.unanswered or self.faults else 0

    def without_remote_accounts(self) -> ReaperRun:
        """Return it without what is tended elsewhere: a mail every ten minutes would tell of nothing that is wrong."""
        gaps = (gap for gap in self.unanswered if not (isinstance(gap, AccountElsewhere) and gap.tended))
        return replace(self, unanswered=tuple(gaps))

    @property
    def is_complete_here(self) -> bool:
        """Whether all that this computer can reach was judged, and what was to end is proved to have ended."""
        gaps = [gap for gap in self.unanswered if not isinstance(gap, AccountElsewhere)]
        return not (self.unconfirmed or gaps or self.faults)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happened that anybody has to hear of."""
        happened = (*self.ended, *self.renewed, *self.warned, *self.unconfirmed, *self.sentences, *self.undelivered)
        return self.exit_code == 0 and not happened

    @property
    def decided(self) -> dict[str, int]:
        """How many machines each decision was taken for, by its word."""
        return dict(sorted(Counter(str(decision.do) for decision in self.decisions).items()))
