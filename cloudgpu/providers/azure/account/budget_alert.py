"""Azure's own budget on the whole subscription, which mails when nothing of ours lives any more. It stops nothing.

Budgets are compared with the cost once a day, which itself is up to 24 hours old ("Tutorial: Create and manage
budgets"), so this is the last net, not the first. Its amount counts in the currency in which the subscription is
billed: where that is not US dollars, the figure is taken as it is. Its name says that it is ours: a scope has each name
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any

from cloudgpu.core.model.account import BudgetAlert
from cloudgpu.core.values.money import Money
from cloudgpu.providers.azure.calls import find, invoke
from cloudgpu.providers.azure.client import Azure

NAME = "cloudgpu-backstop"
NOTIFICATIONS = {
    "actual80": ("Actual", 80),
    "actual100": ("Actual", 100),
    "forecasted100": ("Forecasted", 100),
}  # percent
_ACTION = "Microsoft.Consumption/budgets"
Raw = Mapping[str, Any]


def read_alert(azure: Azure) -> BudgetAlert | None:
    """Return what there is of the budget; without `emails` where it is not as we make it. One call."""
    found = _read_budget(azure)
    if found is None:
        return None
    properties = found["properties"]
    is_plain = (
        properties.get("category") == "Cost"
        and properties.get("timeGrain") == "Monthly"
        and not properties.get("filter")
    )
    amount = Money.usd(str(Decimal(str(properties["amount"]))))
    return BudgetAlert(amount, _emails(properties.get("notifications") or {}) if is_plain else ())


def make(azure: Azure, alert: BudgetAlert) -> None:
    """Make the budget, or put what there is of it right. Idempotent. Two calls.

    A budget keeps the month in which it began, and is only changed by whoever names its latest `eTag`.
    """
    found = _read_budget(azure)
    began = f"{azure.clock().astimezone(UTC):%Y-%m}-01T00:00:00Z"
    body: dict[str, Any] = {
        "properties": {
            "category": "Cost",
            "timeGrain": "Monthly",
            "amount": float(alert.per_month.dollars),
            "timePeriod": {"startDate": began},
            "notifications": {name: _notification(*one, alert) for name, one in NOTIFICATIONS.items()},
        }
    }
    if found is not None:
        body["properties"]["timePeriod"] = found["properties"]["timePeriod"]
        body |= {"eTag": found["eTag"]} if found.get("eTag") else {}
    budgets = azure.client("consumption").budgets
    invoke(azure, f"{_ACTION}/write", lambda: budgets.create_or_update(_scope(azure), NAME, body), value=NAME)


def remove(azure: Azure) -> None:
    """Take the budget away. Idempotent. One call."""
    budgets = azure.client("consumption").budgets
    find(azure, f"{_ACTION}/delete", lambda: budgets.delete(_scope(azure), NAME), value=NAME)


def _read_budget(azure: Azure) -> Raw | None:
    budgets = azure.client("consumption").budgets
    found = find(azure, f"{_ACTION}/read", lambda: budgets.get(_scope(azure), NAME), value=NAME)
    return None if found is None else found.as_dict()


def _emails(notifications: Mapping[str, Raw]) -> tuple[str, ...]:
    """Return who is mailed, where all of our mails go to the same people; nobody otherwise."""
    enabled = (one for one in notifications.values() if one["enabled"])
    thresholds = {(one.get("thresholdType", "Actual"), float(one["threshold"])) for one in enabled}
    if thresholds != {(kind, float(percent)) for kind, percent in NOTIFICATIONS.values()}:
        return ()
    answers = {tuple(one.get("contactEmails") or ()) for one in notifications.values()}
    return answers.pop() if len(answers) == 1 else ()


def _notification(kind: str, percent: int, alert: BudgetAlert) -> dict[str, Any]:
    return {
        "enabled": True,
        "operator": "GreaterThan",
        "threshold": float(percent),
        "thresholdType": kind,
        "contactEmails": list(alert.emails),
    }


def _scope(azure: Azure) -> str:
    return f"subscriptions/{azure.subscription}"
