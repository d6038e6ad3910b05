"""Documents of `budget`."""

from typing import TypedDict

from cloudgpu.views.documents.parts import DecimalText, FailedReceiver, MachineInRun, Time, Usd


class Budget(TypedDict):
    """A budget."""

    name: str
    """The budget's name."""
    limit_usd: Usd
    """The limit."""
    amount: DecimalText | None
    """The limit in the currency that it was set in; null for US dollars."""
    currency: str
    """That currency."""
    per_usd: DecimalText | None
    """The rate that was recorded: so many for one US dollar."""
    rate_as_of: str | None
    """The day of that rate."""
    period: str
    """`day`, `week`, `month`, `total` or `rolling:30d`."""
    tz: str
    """Where its periods begin."""
    scope: str
    """What it is about, like `project=vision,provider=aws`; `all`."""
    thresholds: list[float]
    """Percentages that raise an alert."""
    forecast: float | None
    """The percentage at which the forecast raises an alert."""
    actions: list[str]
    """Of `notify`, `refuse`, `stop`."""
    allow_override: bool
    """Whether `--override` passes it."""
    file: str | None
    """The file that says it; null for the ledger."""


class BudgetStatus(Budget):
    """A budget and its status."""

    since: Time | None
    """When the period began; null for `total`."""
    until: Time | None
    """When it ends; of a rolling one, now."""
    spent_usd: Usd
    """What was spent in it, at most."""
    spent_percent: float
    """The same in percent of the limit, rounded down."""
    committed_usd: Usd
    """What runs, to its renew-until, and what is retained, to the period's end, at the counted prices."""
    remaining_usd: Usd
    """What is not spent; below zero where it was passed."""
    forecast_usd: Usd
    """The sum at the period's end, at today's prices."""
    burn_usd_per_hour: Usd
    """What an hour costs now."""
    exhausted_in_s: float | None
    """Seconds that the rest lasts at that; null: to the period's end and longer."""
    overshoot_usd: Usd
    """By how much it can be passed before the next check, at the counted prices."""
    exhausted: bool
    """All of it is spent."""
    unpriced: list[str]
    """Machines whose cost is unknown: launches are refused."""
    assumed: list[str]
    """What has no known price, and what is counted instead."""


class BudgetSetDocument(TypedDict):
    """A budget that was set."""

    budget: BudgetStatus
    """The budget and its status."""
    replaced: Budget | None
    """The one of this name that was there."""
    terminates: list[str]
    """The machines there are that it would terminate, since they can be neither stopped nor parked."""
    warning: str | None
    """If its limit is below what is spent and committed already: the sums, and what the reaper does next."""


class BudgetsDocument(TypedDict):
    """The budgets."""

    budgets: list[BudgetStatus]
    """Those of the ledger, then those of files."""


class BudgetRemovedDocument(TypedDict):
    """A budget that was removed."""

    removed: Budget
    """What it was."""


class BudgetStop(MachineInRun):
    """What a budget that stops would do to a machine."""

    budget: str
    """The budget that is passed."""
    do: str
    """`warn`, `stop` or `park`."""
    why: str
    """The reason, with the sums."""


class Delivery(TypedDict):
    """Who took a message, and who did not."""

    sent: list[str]
    """Receivers that took what was waiting for them."""
    failed: list[FailedReceiver]
    """`receiver` and `why` of those that did not."""


class AlertRun(Delivery):
    """Which receiver got what."""

    raised: list[str]
    """Keys of alerts that are new."""
    cleared: list[str]
    """Keys of those that fell back."""
    pending: int
    """How many news somebody is still to have."""
    active: list[str]
    """The titles of all that is wrong now."""


class BudgetJudgement(TypedDict):
    """How budgets stand, and what they would do."""

    budgets: list[BudgetStatus]
    """The budgets that were checked."""
    exhausted: list[str]
    """Budgets that are spent; exit code 3 if one of them refuses or stops."""
    stops: list[BudgetStop]
    """What budgets that stop would do now, in this order; nothing is stopped here."""
    alerts: AlertRun | None
    """Which receiver got what; null if one budget was named."""


class BudgetCheckDocument(BudgetJudgement):
    """The status of the budgets, and what they would do."""

    deadman: str | None
    """Why the dead-man's address was not called. Null: it was, none is set, or one budget was named."""


class BudgetTestDocument(TypedDict):
    """A sample alert that was sent."""

    sent: list[str]
    """The receivers that took the sample."""
    failed: list[FailedReceiver]
    """`receiver` and `why`; exit code 8 then."""


class CreditDocument(TypedDict):
    """What is left of the money that was paid into an account in advance. At zero its provider deletes its data."""

    account: str
    """The account, as the computer that read it calls it."""
    provider: str
    """Its provider."""
    left_usd: Usd
    """What was left at `as_of`."""
    usd_per_hour: Usd
    """What the account spends an hour now: what the ledger knows, and what its provider named beyond that."""
    as_of: Time
    """When a run of the reaper last read it."""
    ends_at: Time | None
    """When nothing is left, if that is spent on; null where nothing is spent."""
    page: str
    """Where to pay in more."""
