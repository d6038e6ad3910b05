"""The bodies of ledger lines that are not about one machine, as types. `core.events.kinds` maps kinds to them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from cloudgpu.core.events.bodies import Nanos, Time
from cloudgpu.core.model.records import CreditRecord, ScheduledRunRecord

# -- syncs, runs and accounts


class UnansweredRecord(TypedDict):
    """A scope that did not answer a sync, and why."""

    scope: str
    why: str


class AccountSynced(TypedDict):
    """A sync of one account: how many machines, what did not answer, known machines not in the answer (`unseen`).

    `resources`: disks and images were listed, too. `pinned`: all prices were queried, and answered.
    """

    machines: int
    unanswered: list[UnansweredRecord]
    unseen: list[str]
    resources: bool
    pinned: bool


class RunResult(TypedDict, total=False):
    """What a run of the reaper did; or only `why` it was aborted.

    It saw `machines`, and `decided` counts its decisions by action. `stopped` and `warned` count machines, `unproved`
    those whose end is not confirmed. `unanswered` are the scopes that did not answer; it took `took_s` seconds.
    """

    why: str
    machines: int
    decided: dict[str, int]
    stopped: int
    warned: int
    unproved: int
    unanswered: list[str]
    took_s: float


class ReapFinished(RunResult):
    """A run of the reaper: what it did, when one last was ok, each home's latest (`scheduled`); or only `why`.

    `cron`: it was a scheduled run. `sweep`: it was a full run, which also lists disks and images; `ok_at` and
    `sweep_at` are when such runs last succeeded. `credits` are readings of prepaid accounts.
    """

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
    """An account is no longer queried, unless it is configured or used again.

    `identities` are the provider's own ids of the account; `host` is the computer of the request.
    """

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


class LimitCurrencyRecord(TypedDict):
    """A limit in another currency, with the exchange rate and date that were recorded with it."""

    amount: str
    code: str
    per_usd: str
    as_of: str
    source: str


class BudgetPeriodRecord(TypedDict):
    """A budget's period: of the calendar, `total`, or `rolling` over `days`."""

    kind: str
    days: int


class ScopeRecord(TypedDict):
    """The scope of a budget: what matches all of these; None: any."""

    project: str | None
    provider: str | None
    owner: str | None
    account: str | None
    instance: str | None


class BudgetSet(TypedDict):
    """A budget in US dollars, set or replaced; `thresholds` and `forecast` are percent of it."""

    name: str
    nanos: Nanos
    quoted_limit: LimitCurrencyRecord | None
    period: BudgetPeriodRecord
    scope: ScopeRecord
    thresholds: list[int]
    forecast: int | None
    actions: list[str]
    tz: str
    allow_override: bool


class BudgetRemoved(TypedDict):
    """A budget was removed."""

    name: str


class ExceededBudget(TypedDict):
    """A budget that was overridden, and the most by which it may be exceeded."""

    name: str
    nanos: Nanos


class BudgetOverridden(TypedDict):
    """Somebody overrode budgets."""

    machine: str
    name: str
    reason: str
    passed: list[ExceededBudget]
    host: str


# -- alerts and reports


class AlertRaised(TypedDict):
    """Something is wrong, for the `number`-th time under this key; `to` are its receivers."""

    key: str
    number: int
    kind: str
    title: str
    text: str
    facts: dict[str, str]
    urgent: bool
    to: list[str]


class AlertSent(TypedDict):
    """A receiver has accepted the alerts `news`: key and number of each."""

    receiver: str
    news: list[list[str | int]]


class AlertCleared(TypedDict):
    """The cause of an alert is gone."""

    key: str
    number: int


class ReportSent(TypedDict):
    """A receiver has accepted the report of a month."""

    month: str
    receiver: str


# -- policies and people


class PolicyPublished(TypedDict):
    """A policy, or the lab's limits (`limits`), was published as YAML; `tz` is for schedules without a time zone."""

    name: str
    text: str
    tz: str


class PolicyWithdrawn(TypedDict):
    """A policy, or the limits, is not published any more."""

    name: str


class OwnerNamed(TypedDict):
    """An owner's name belongs to this person, a user of the database: by their own claim, or assigned by a payer."""

    owner: str
    person: str


class TeamSet(TypedDict):
    """The ledger is a team's: the database roles of its members and of its payers."""

    members: str
    payers: str


# -- the ledger


class LedgerOpened(TypedDict):
    """A ledger's first line: its id, and the number of the format of its lines."""

    ledger: str
    format: int


class LedgerDoubted(TypedDict):
    """The ledger may lack lines: those before line `seq`, or 0 if that is not known."""

    why: str
    seq: int


class LedgerSettled(TypedDict):
    """The ledger counts as complete again; `found` is the problem that was resolved."""

    found: str | None
    why: str


class LedgerMoved(TypedDict):
    """The ledger continues at `to`; `goes_on` is the hash of its next line there. Always the last line here."""

    to: str
    goes_on: str


LedgerMoving = TypedDict("LedgerMoving", {"from": str, "to": str})
LedgerMoving.__doc__ = "A ledger is being moved here: the copy is whole, and nothing but `ledger_arrived` follows."


LedgerArrived = TypedDict("LedgerArrived", {"from": str})
LedgerArrived.__doc__ = "A ledger that was moved is in use here."
