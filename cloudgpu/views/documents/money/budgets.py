"""Documents of `budget`."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.views.documents.parts import DecimalText, FailedReceiver, MachineReference, Time, Usd

BudgetAction = Annotated[str, Literal["warn", "stop", "park", "terminate"]]


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
    """The recorded rate: units of that currency for one US dollar."""
    rate_as_of: str | None
    """The day of that rate."""
    period: str
    """`day`, `week`, `month`, `total` or `rolling:30d`."""
    tz: str
    """The time zone in which its periods begin."""
    scope: str
    """What it covers, like `project=vision,provider=aws`; `all`."""
    thresholds: list[float]
    """Percentages that raise an alert."""
    forecast: float | None
    """The percentage at which the forecast raises an alert."""
    actions: list[str]
    """Some of `notify`, `refuse`, `stop`."""
    allow_override: bool
    """Whether `--override` passes it."""
    file: str | None
    """The file that defines it; null for the ledger."""


class BudgetStatus(Budget):
    """A budget and its status."""

    since: Time | None
    """When the period began; null for `total`."""
    until: Time | None
    """When it ends; now for a rolling period."""
    spent_usd: Usd
    """What was spent in the period, at most."""
    spent_percent: float
    """The same in percent of the limit, rounded down."""
    committed_usd: Usd
    """What runs, up to its renew-until, and what is retained, up to the period's end."""
    remaining_usd: Usd
    """What is not spent; below zero if it was exceeded."""
    forecast_usd: Usd
    """The forecast cost at the period's end, at present prices."""
    burn_usd_per_hour: Usd
    """What an hour costs now."""
    exhausted_in_s: float | None
    """Seconds until the budget is exhausted at that rate; null: not within the period."""
    overshoot_usd: Usd
    """By how much it can be exceeded before the next check."""
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
    """The budget of this name that was replaced."""
    terminates: list[str]
    """The existing machines that it would terminate, since they can be neither stopped nor parked."""
    warning: str | None
    """If its limit is below what is spent and committed already: the sums, and what the reaper does next."""


class BudgetsDocument(TypedDict):
    """The budgets."""

    budgets: list[BudgetStatus]
    """Those of the ledger, then those of files."""


class BudgetRemovedDocument(TypedDict):
    """A budget that was removed."""

    removed: Budget
    """The removed budget."""


class BudgetStop(MachineReference):
    """What a budget with the action `stop` would do to a machine."""

    budget: str
    """The budget that is exceeded."""
    do: BudgetAction
    """`terminate`, which deletes its disk, is for a machine that can be neither stopped nor parked."""
    why: str
    """The reason, with the sums."""


class Delivery(TypedDict):
    """Receivers that accepted a message, and those that did not."""

    sent: list[str]
    """Receivers that accepted what was waiting for them."""
    failed: list[FailedReceiver]
    """`receiver` and `why` of those that did not."""


class AlertRun(Delivery):
    """Which receiver got what."""

    raised: list[str]
    """Keys of alerts that are new."""
    cleared: list[str]
    """Keys of alerts that no longer apply."""
    pending: int
    """How many messages are still to be delivered."""
    active: list[str]
    """The titles of all alerts that apply now."""


class BudgetEvaluation(TypedDict):
    """The status of budgets, and what they would do."""

    budgets: list[BudgetStatus]
    """The budgets that were checked."""
    exhausted: list[str]
    """Budgets that are spent; exit code 3 if one of them refuses or stops."""
    stops: list[BudgetStop]
    """What budgets with the action `stop` would do now, in this order; nothing is stopped here."""
    alerts: AlertRun | None
    """Which receiver got what; null if one budget was named."""


class BudgetCheckDocument(BudgetEvaluation):
    """The status of the budgets, and what they would do."""

    deadman: str | None
    """Why the heartbeat URL (`deadman`) was not called. Null: it was, none is set, or one budget was named."""


class BudgetTestDocument(Delivery):
    """A sample alert that was sent; exit code 8 if a receiver did not accept it."""


class CreditDocument(TypedDict):
    """The balance of a prepaid account. Once it is used up, its provider stops what runs and deletes its data."""

    account: str
    """The account, as the computer that read it calls it."""
    provider: str
    """Its provider."""
    left_usd: Usd
    """The balance at `as_of`."""
    usd_per_hour: Usd
    """What the account spends an hour now: what the ledger knows, and what its provider named beyond that."""
    as_of: Time
    """When a run of the reaper last read it."""
    ends_at: Time | None
    """When nothing is left at that rate; null where nothing is spent."""
    page: str
    """Where to pay in more."""
