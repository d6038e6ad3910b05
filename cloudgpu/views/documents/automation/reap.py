"""The document of `reap`."""

from cloudgpu.views.documents.automation.activity import ReapVerdict, WhyDocument
from cloudgpu.views.documents.parts import (
    AccountCoverage,
    IncompleteAnswer,
    MachineAction,
    MachineReference,
    ReapAction,
    Time,
)


class MachineDecision(ReapVerdict, MachineReference):
    """A [verdict](#reap_verdict) about one machine of a run."""

    provider: str | None
    """Where it runs."""
    account: str | None
    """The account."""
    region: str | None
    """The region."""
    state: str
    """The machine's state when that was decided."""
    activity: str
    """`ACTIVE`, `IDLE` or `UNKNOWN`."""


class ExecutedAction(MachineAction):
    """What was done to a machine."""

    state: str
    """What it is now, read back."""


class Renewal(MachineAction):
    """A lease that was moved: the action is `renew`, the rule `lease`."""

    expires: Time
    """The new end of its lease."""


class GivenNotice(MachineReference):
    """A warning that was sent."""

    rule: str
    """Which rule warns."""
    why: str
    """The message to people."""
    due: Time | None
    """When the machine will be ended; null: this is only a notice."""
    how: list[str]
    """`ledger`; `alert` if there is a receiver of alerts; `terminal` if a terminal of the machine took it."""


class UnconfirmedAction(MachineReference):
    """An action that was decided, and is not done or not confirmed."""

    do: ReapAction
    """The action that was decided."""
    why: str
    """Why that was not done, or is not verified."""


class ReapDocument(AccountCoverage, IncompleteAnswer):
    """A run of the reaper over all machines."""

    started_at: Time
    """When the run began."""
    took_s: float
    """How long it took, in seconds."""
    dry_run: bool
    """Nothing was changed anywhere: `decisions` are what a run would do."""
    busy: str | None
    """Why nothing was done: another run is at work, or no full run is due; null otherwise."""
    exit_code: int
    """The command's exit code: 9 if `unconfirmed` is not empty, else 8 if `unanswered` or `errors` is not, else 0."""
    decided: dict[str, int]
    """The number of machines for each decision."""
    decisions: list[MachineDecision]
    """One for each machine, also `keep`, with its reason."""
    ended: list[ExecutedAction]
    """What was stopped, parked, terminated or removed, and is verified as not billed."""
    renewed: list[Renewal]
    """Leases that were moved."""
    warned: list[GivenNotice]
    """Warnings that were sent."""
    skipped: list[UnconfirmedAction]
    """What was to be ended and was not: it came into use, or another command works on it."""
    unconfirmed: list[UnconfirmedAction]
    """What may still be billed though a rule ends it; exit code 9."""
    errors: list[str]
    """What else could not be evaluated or set: missing policies, timers; exit code 8."""
    notes: list[str]
    """What the queries corrected in the ledger; in a full run also what is orphaned."""
    undelivered: list[str]
    """Receivers of alerts that did not accept theirs, and why."""
    explained: list[WhyDocument]
    """With `--explain`: why each machine counts as in use, idle or unknown; else empty."""
