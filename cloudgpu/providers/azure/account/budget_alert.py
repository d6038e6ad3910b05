"""Azure's own budget on the whole subscription, which sends mail even if nothing of cloudgpu runs. It stops nothing.

Budgets are compared with the cost once a day, which itself is up to 24 hours old ("Tutorial: Create and manage
budgets"), so this alert comes late. Its amount counts in the currency in which the subscription is
billed: where that is not US dollars, the figure is taken as it is. A name is unique in a scope: this one is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any

from cloudgpu.core.model.account import BudgetAlert
from cloudgpu.core.values.money import Money
from cloudgpu.providers.azure.calls import call_or_none, invoke
from cloudgpu.providers.azure.client import Azure

NAME = "cloudgpu-backstop"
NOTIFICATIONS = {
    "actual80": ("Actual", 80),
    "actual100": ("Actual", 100),
    "forecasted100": ("Forecasted", 100),
}  # which cost, and percent of the budget
_ACTION = "Microsoft.Consumption/budgets"
Raw = Mapping[str, Any]


def read_alert(azure: Azure) -> BudgetAlert | None:
    """Return what there is of the budget; without `emails` where somebody changed it, or it has ended. One call."""
    raw_budget = _read_budget(azure)
    if raw_budget is None:
        return None
    properties = raw_budget["properties"]
    ends_on = str(properties["timePeriod"].get("endDate") or "")[:10]
    is_unchanged = (
        properties.get("category") == "Cost"
        and properties.get("timeGrain") == "Monthly"
        and not properties.get("filter")
        and not (ends_on and ends_on <= f"{azure.clock().astimezone(UTC):%Y-%m-%d}")
    )
    amount = Money.usd(str(Decimal(str(properties["amount"]))))
    return BudgetAlert(amount, _emails(properties.get("notifications") or {}) if is_unchanged else ())


def make(azure: Azure, alert: BudgetAlert) -> None:
    """Create the budget, or correct it. Idempotent. Two calls.

    The first month of a budget cannot be changed, and a change has to name its latest `eTag`. Without an end, Azure
    gives it one ten years after its start ("Budgets - Create Or Update", `timePeriod`).
    """
    existing = _read_budget(azure)
    month_start = f"{azure.clock().astimezone(UTC):%Y-%m}-01T00:00:00Z"
    body: dict[str, Any] = {
        "properties": {
            "category": "Cost",
            "timeGrain": "Monthly",
            "amount": float(alert.per_month.dollars),
            "timePeriod": {"startDate": month_start},
            "notifications": {name: _notification(*one, alert) for name, one in NOTIFICATIONS.items()},
        }
    }
    if existing is not None:
        body["properties"]["timePeriod"] = {"startDate": existing["properties"]["timePeriod"]["startDate"]}
        body |= {"eTag": existing["eTag"]} if existing.get("eTag") else {}
    budgets = azure.client("consumption").budgets
    invoke(azure, f"{_ACTION}/write", lambda: budgets.create_or_update(_scope(azure), NAME, body), value=NAME)


def remove(azure: Azure) -> None:
    """Delete the budget. Idempotent. One call."""
    budgets = azure.client("consumption").budgets
    call_or_none(azure, f"{_ACTION}/delete", lambda: budgets.delete(_scope(azure), NAME), value=NAME)


def _read_budget(azure: Azure) -> Raw | None:
    budgets = azure.client("consumption").budgets
    found = call_or_none(azure, f"{_ACTION}/read", lambda: budgets.get(_scope(azure), NAME), value=NAME)
    return None if found is None else found.as_dict()


def _emails(notifications: Mapping[str, Raw]) -> tuple[str, ...]:
    """Return who gets mail, where all NOTIFICATIONS go to the same people; empty otherwise."""
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
