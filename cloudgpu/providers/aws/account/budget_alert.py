"""AWS's own budget on the whole account, which sends mail even if nothing of cloudgpu runs. It stops nothing.

AWS brings its figures up to date every 8 to 12 hours (docs.aws.amazon.com/cost-management/latest/userguide/
budgets-managing-costs.html), so this alert comes late. A budget that only notifies costs nothing (AWS
price list, BudgetsUsage, $0.00 per budget-day). Its name says that it is ours: AWS allows each name once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from cloudgpu.core.model.account import BudgetAlert
from cloudgpu.core.values.money import Money
from cloudgpu.providers.aws.client import Aws, call_tolerating

BUDGET_NAME = "cloudgpu-backstop"
NOTIFICATIONS = (("ACTUAL", 80.0), ("ACTUAL", 100.0), ("FORECASTED", 100.0))  # which cost, and percent of the budget
VIEW, MODIFY = (
    "budgets:ViewBudget",
    "budgets:ModifyBudget",
)  # the only two permissions that IAM has for calls of Budgets
# Before credits are deducted, as cloudgpu counts: else the alert would come only after a credit has run out.
COST_TYPES = {
    "IncludeTax": True,
    "IncludeSubscription": True,
    "IncludeRecurring": True,
    "IncludeOtherSubscription": True,
    "IncludeUpfront": True,
    "IncludeSupport": True,
    "IncludeDiscount": True,
    "IncludeCredit": False,
    "IncludeRefund": False,
    "UseBlended": False,
    "UseAmortized": False,
}
NO_END = datetime(2087, 6, 15, tzinfo=UTC)  # the end that AWS gives a budget without one; at its end AWS deletes it
_NOT_FOUND, _DUPLICATE = "NotFoundException", "DuplicateRecordException"
_NAMED = {"BudgetName": BUDGET_NAME}
Raw = Mapping[str, Any]


def read_alert(aws: Aws) -> BudgetAlert | None:
    """Return the alert as AWS has it, None for none; without `emails` where somebody changed it. Up to five calls."""
    answer = _call_budgets(aws, VIEW, "describe_budget", tolerated=_NOT_FOUND, **_NAMED)
    if answer is None:
        return None
    budget, limit = answer["Budget"], answer["Budget"].get("BudgetLimit", {})
    if limit.get("Unit") != "USD" or not _counts_everything(budget):
        return BudgetAlert(Money(0), ())
    return BudgetAlert(Money.usd(Decimal(limit["Amount"])), _emails(aws))


def _counts_everything(budget: Raw) -> bool:
    """Say whether a budget counts the month's cost of the whole account, and has no end."""
    cost_types = {name: budget.get("CostTypes", {}).get(name) for name in COST_TYPES}
    return (
        (budget["BudgetType"], budget["TimeUnit"], cost_types) == ("COST", "MONTHLY", COST_TYPES)
        and not budget.get("CostFilters")
        and not budget.get("FilterExpression")
        and budget["TimePeriod"]["End"] >= NO_END
    )


def make(aws: Aws, alert: BudgetAlert) -> None:
    """Create the budget as `alert` says, or change the existing one. Idempotent.

    A change that fails half-way leaves a budget that mails somebody, and is completed by the next call: people are
    added before others are removed, since "Deleting the last subscriber to a notification also deletes the
    notification" (API reference, DeleteSubscriber).
    """
    if read_alert(aws) == alert:
        return
    budget = {
        **_NAMED,
        "BudgetType": "COST",
        "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": f"{alert.per_month.dollars:f}", "Unit": "USD"},
        "CostTypes": COST_TYPES,
    }
    subscribers = [_subscriber(email) for email in alert.emails]
    notifications: list[dict[str, Any]] = [
        {"Notification": _notification(*one), "Subscribers": subscribers} for one in NOTIFICATIONS
    ]
    new = {"Budget": budget, "NotificationsWithSubscribers": notifications}
    if _call_budgets(aws, MODIFY, "create_budget", tolerated=_DUPLICATE, **new) is not None:
        return
    period = _call_budgets(aws, VIEW, "describe_budget", **_NAMED)["Budget"]["TimePeriod"] | {"End": NO_END}
    _call_budgets(aws, MODIFY, "update_budget", NewBudget=budget | {"TimePeriod": period})
    for one in notifications:
        _set_subscribers(aws, one["Notification"], alert.emails)


def _set_subscribers(aws: Aws, notification: Raw, emails: tuple[str, ...]) -> None:
    """Let these people alone get a notification's mails. Its topic, to which somebody has it sent as well, stays."""
    named: dict[str, Any] = {**_NAMED, "Notification": notification}
    existing = _email_subscribers(aws, notification)
    if existing is None:
        existing, subscribers = emails, [_subscriber(email) for email in emails]
        _call_budgets(aws, MODIFY, "create_notification", tolerated=_DUPLICATE, **named, Subscribers=subscribers)
    changes = [("create_subscriber", _DUPLICATE, email) for email in emails if email not in existing]
    changes += [("delete_subscriber", _NOT_FOUND, email) for email in existing if email not in emails]
    for action, tolerated, email in changes:
        _call_budgets(aws, MODIFY, action, tolerated=tolerated, **named, Subscriber=_subscriber(email))


def remove(aws: Aws) -> None:
    """Take the budget away. Idempotent."""
    _call_budgets(aws, MODIFY, "delete_budget", tolerated=_NOT_FOUND, **_NAMED)


def _emails(aws: Aws) -> tuple[str, ...]:
    """Return who gets mail, where all NOTIFICATIONS go to the same people; empty otherwise."""
    addresses = {_email_subscribers(aws, _notification(*one)) or () for one in NOTIFICATIONS}
    return addresses.pop() if len(addresses) == 1 else ()


def _email_subscribers(aws: Aws, notification: Raw) -> tuple[str, ...] | None:
    """Return who gets a notification's mails, sorted; None where there is no such notification. One call."""
    action = "describe_subscribers_for_notification"
    answer = _call_budgets(aws, VIEW, action, tolerated=_NOT_FOUND, **_NAMED, Notification=notification)
    if answer is None:
        return None
    return tuple(sorted(one["Address"] for one in answer["Subscribers"] if one["SubscriptionType"] == "EMAIL"))


def _subscriber(email: str) -> dict[str, str]:
    return {"SubscriptionType": "EMAIL", "Address": email}


def _notification(kind: str, percent: float) -> dict[str, Any]:
    return {
        "NotificationType": kind,
        "ComparisonOperator": "GREATER_THAN",
        "Threshold": percent,
        "ThresholdType": "PERCENTAGE",
    }


def _call_budgets(aws: Aws, permission: str, action: str, *, tolerated: str = "", **parameters: Any) -> Any:
    """Call AWS Budgets; return None where it answers with the error `tolerated`."""
    region = aws.options.home_region  # Budgets has one endpoint for all of them
    parameters["AccountId"] = aws.account_id()
    found = call_tolerating(
        aws, aws.client("budgets", region), action, region, permission, BUDGET_NAME, (tolerated,), **parameters
    )
    return None if found == tolerated else found
