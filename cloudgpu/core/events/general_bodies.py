"""What the lines of a lab say, those of no machine: a type for each body. `core.events.kinds` has them by kind."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from cloudgpu.core.events.bodies import Nanos, Time
from cloudgpu.core.model.records import CreditRecord, ScheduledRunRecord

# -- syncs, runs and accounts


class UnansweredRecord(TypedDict):
    """What did not answer, and why."""

    scope: str
    why: str


class AccountSynced(TypedDict):
    """A sync of one account: how many machines, what did not answer, and what was not in the answer (`unseen`)."""

    machines: int
    unanswered: list[UnansweredRecord]
    unseen: list[str]
    resources: bool
    pinned: bool


class RunResult(TypedDict, total=False):
    """What a run of the reaper did; or only `why` it broke off."""

    why: str
    machines: int
    decided: dict[str, int]
    stopped: int
    warned: int
    unproved: int
    unanswered: list[str]
    took_s: float


class ReapFinished(RunResult):
    """A run of the reaper: what it did, when one last was ok, each home's latest (`scheduled`); or only `why`."""

    verb: str
    ok: bool
    host: str
    home: str
    cron: bool
    sweep: bool
    ok_at: Time | None
    sweep_at: Time | None
    scheduled: NotRequired[list[ScheduledRunRecord]]
    credits: NotRequired[list[CreditRecord]]


class AccountForgotten(TypedDict):
    """An account is no longer queried, unless it is configured or used again."""

    account: str
    provider: str
    identities: list[str]
    why: str
    host: str


class AccountRenamed(TypedDict):
    """An account, or its host `region`, is called `new` from now on."""

    account: str
    region: str | None
    new: str
    identities: list[str]
    why: str
    host: str


# -- budgets


class PaidInRecord(TypedDict):
    """A limit in another currency, with the rate and its day that were recorded together with it."""

    amount: str
    code: str
    per_usd: str
    as_of: str
    source: str


class SpanRecord(TypedDict):
    """A budget's period: of the calendar, `total`, or `rolling` over `days`."""

    kind: str
    days: int


class ScopeRecord(TypedDict):
    """What a budget is about: what is as all of these say; None: any."""

    project: str | None
    provider: str | None
    owner: str | None
    account: str | None
    instance: str | None


class BudgetSet(TypedDict):
    """A budget in US dollars, set or replaced; `thresholds` and `forecast` are percent of it."""

    name: str
    nanos: Nanos
    quoted_limit: PaidInRecord | None
    period: SpanRecord
    scope: ScopeRecord
    thresholds: list[int]
    forecast: int | None
    actions: list[str]
    tz: str
    allow_override: bool


class BudgetRemoved(TypedDict):
    """A budget was removed."""

    name: str


class Passed(TypedDict):
    """A budget that was overridden, and by how much at most."""

    name: str
    nanos: Nanos


class BudgetOverridden(TypedDict):
    """Somebody overrode budgets."""

    machine: str
    name: str
    reason: str
    passed: list[Passed]
    host: str


# -- alerts and reports


class AlertRaised(TypedDict):
    """Something is wrong: the `number`-th time that its key appeared; `to` are the receivers of then."""

    key: str
    number: int
    kind: str
    title: str
    text: str
    facts: dict[str, str]
    urgent: bool
    to: list[str]


class AlertSent(TypedDict):
    """A receiver has taken these alerts: key and number of each."""

    receiver: str
    news: list[list[str | int]]


class AlertCleared(TypedDict):
    """An alert fell back."""

    key: str
    number: int


class ReportSent(TypedDict):
    """A receiver has taken the report of a month."""

    month: str
    receiver: str


# -- policies and people


class PolicyPublished(TypedDict):
    """A policy, or `limits`: those of the lab, was published as YAML; `tz` is of schedules that name none."""

    name: str
    text: str
    tz: str


class PolicyWithdrawn(TypedDict):
    """A policy, or the limits, is not published any more."""

    name: str


class OwnerNamed(TypedDict):
    """An owner's name is this person's, a user of the database: by their own claim, or as a payer says."""

    owner: str
    person: str


class TeamSet(TypedDict):
    """The ledger is a team's: the database's roles of those who write, and of those who decide."""

    members: str
    payers: str


# -- the ledger


class LedgerOpened(TypedDict):
    """A ledger's first line: its id, and the number of the format of its lines."""

    ledger: str
    format: int


class LedgerDoubted(TypedDict):
    """The ledger may lack lines: it ends before line `seq`, or 0 where nobody knows."""

    why: str
    seq: int


class LedgerSettled(TypedDict):
    """The ledger is taken for whole again; `found` is what was in doubt."""

    found: str | None
    why: str


class LedgerMoved(TypedDict):
    """The ledger is at `to`; `goes_on` is the hash of its next line there. Always the last line here."""

    to: str
    goes_on: str


LedgerMoving = TypedDict("LedgerMoving", {"from": str, "to": str})
LedgerMoving.__doc__ = "A ledger is being moved here: the copy is whole, and nothing but `ledger_arrived` follows."


LedgerArrived = TypedDict("LedgerArrived", {"from": str})
LedgerArrived.__doc__ = "A ledger that was moved is in use here."
