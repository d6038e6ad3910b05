"""Budgets as values: a limit on a scope over a period, its alerts and actions, and the events that define it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import Any

from cloudgpu.core.events.general_bodies import BudgetSet, LimitCurrencyRecord, ScopeRecord
from cloudgpu.core.events.log import BUDGET_REMOVED, BUDGET_SET, Event
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import tag_value
from cloudgpu.core.values.times import Period, period
from cloudgpu.core.values.units import QuotedAmount

SUBJECT = "budgets"  # of every line about a budget


class Action(StrEnum):
    """What a budget does: alert at its thresholds, refuse requests above it, stop machines once it is spent."""

    NOTIFY = "notify"
    REFUSE = "refuse"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class BudgetPeriod:
    """The period after which a budget restarts: a calendar's `kind`, `total` (never), or `rolling` over `days`."""

    kind: str
    days: int = 0

    @property
    def text(self) -> str:
        """The period as `--period` takes it."""
        return f"rolling:{self.days}d" if self.days else self.kind

    @property
    def window(self) -> timedelta:
        """The length of a rolling period."""
        return timedelta(days=self.days)


@dataclass(frozen=True, slots=True)
class Scope:
    """The resources that a budget covers: those that match it all; None: any. `instance` is a machine's name or id.

    `account_names` are all names that the account has or had; empty where it was never renamed.
    """

    project: str | None = None
    provider: str | None = None
    owner: str | None = None
    account: str | None = None
    instance: str | None = None
    account_names: frozenset[str] = field(default=frozenset(), compare=False)

    def covers(self, subject: Machine) -> bool:
        """Say whether a machine or a retained resource is covered. Values read from tags are compared as tags."""
        name_and_id = ("", "") if subject.is_named_resource else (subject.name, subject.id or "")
        return self.matches(subject.provider, subject.account, subject.project, subject.owner, *name_and_id)

    def matches(self, provider: str, account: str, project: str, owner: str, name: str, id: str) -> bool:  # noqa: A002
        """Say whether a resource with these values is covered; without name and id it is no machine."""
        if self.instance is not None and self.instance not in (name, id):
            return False
        return (
            _matches(self.provider, provider)
            and (_matches(self.account, account) or account in self.account_names)
            and _matches(self.project, project)
            and _matches(self.owner, owner)
        )

    def may_cover(self, provider: str, account: str) -> bool:
        """Say whether machines of this account can be covered."""
        is_account = self.account in (None, account) or account in self.account_names
        return self.provider in (None, provider) and is_account

    def body(self) -> ScopeRecord:
        """Return it as a ledger event stores it."""
        return {
            "project": self.project,
            "provider": self.provider,
            "owner": self.owner,
            "account": self.account,
            "instance": self.instance,
        }

    @property
    def text(self) -> str:
        """The scope as `--scope` takes it; `all` for everything."""
        return ",".join(f"{key}={value}" for key, value in self.body().items() if value is not None) or "all"


def _matches(wanted: str | None, value: str | None) -> bool:
    return wanted is None or wanted == value or (bool(value) and tag_value(wanted) == value)


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit in US dollars, before credits. `thresholds` and `forecast` are percent of it; None: no such alert.

    `zone` is that of `tz`, in which its days, weeks and months start. `quoted_limit`: what it was set in, if not in
    USD. `file` is the path of the file that defines it, empty for the ledger.
    """

    name: str
    limit: Money
    period: BudgetPeriod
    scope: Scope = Scope()
    thresholds: tuple[int, ...] = (50, 80, 100)
    forecast: int | None = 100
    actions: frozenset[Action] = frozenset((Action.NOTIFY, Action.REFUSE))
    tz: str = "UTC"
    zone: tzinfo = field(default=UTC, compare=False)
    allow_override: bool = True
    quoted_limit: QuotedAmount | None = None
    file: str = ""

    @property
    def refuses(self) -> bool:
        """Whether it refuses requests that would exceed it: with the action `refuse`, or `stop`."""
        return bool(self.actions & {Action.REFUSE, Action.STOP})

    def body(self) -> BudgetSet:
        """Return it as a ledger event stores it."""
        return {
            "name": self.name,
            "nanos": self.limit.nanos,
            "quoted_limit": None if self.quoted_limit is None else _limit_record(self.quoted_limit),
            "period": {"kind": self.period.kind, "days": self.period.days},
            "scope": self.scope.body(),
            "thresholds": list(self.thresholds),
            "forecast": self.forecast,
            "actions": sorted(self.actions),
            "tz": self.tz,
            "allow_override": self.allow_override,
        }


def budget_from(body: Mapping[str, Any], zone_of: Callable[[str], tzinfo]) -> Budget:
    """Return the budget whose `body()` this is."""
    return Budget(
        name=body["name"],
        limit=Money(body["nanos"]),
        period=BudgetPeriod(**body["period"]),
        scope=Scope(**body["scope"]),
        thresholds=tuple(body["thresholds"]),
        forecast=body["forecast"],
        actions=frozenset(map(Action, body["actions"])),
        tz=body["tz"],
        zone=zone_of(body["tz"]),
        allow_override=body["allow_override"],
        quoted_limit=body["quoted_limit"] and _limit_currency(body["quoted_limit"]),
    )


def _limit_record(limit: QuotedAmount) -> LimitCurrencyRecord:
    return {"amount": f"{limit.value:f}", **limit.currency.to_json()}


def _limit_currency(body: Mapping[str, Any]) -> QuotedAmount:
    day = date.fromisoformat(body["as_of"])
    return QuotedAmount(Decimal(body["amount"]), Currency(body["code"], Decimal(body["per_usd"]), day, body["source"]))


def budgets_of(lines: Iterable[Event], zone_of: Callable[[str], tzinfo]) -> dict[str, Budget]:
    """Return the budgets that these events define, by name, in the order in which each was first set."""
    budgets: dict[str, Budget] = {}
    for line in sorted(lines, key=lambda line: line.seq):
        if line.kind == BUDGET_SET:
            budgets[line.body["name"]] = budget_from(line.body, zone_of)
        elif line.kind == BUDGET_REMOVED:
            budgets.pop(line.body["name"], None)
    return budgets


def earliest_relevant(budgets: Iterable[Budget], now: datetime) -> datetime | None:
    """Return since when spending matters to any of these budgets; None: since ever."""
    periods = [current_period(budget, now) for budget in budgets]
    limited = [period.begin for period in periods if period is not None]
    return min(limited) if len(limited) == len(periods) else None


def current_period(budget: Budget, now: datetime) -> Period | None:
    """Return the period that counts now, of a rolling budget the window that ends now; None for a total one."""
    if budget.period.kind == "total":
        return None
    if budget.period.days:
        return Period(now - budget.period.window, now)
    return period(budget.period.kind, now, budget.zone)
