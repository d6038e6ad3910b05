"""AWS's own budget on the whole account, which sends mail even if nothing of cloudgpu runs. It stops nothing.

AWS brings its figures up to date every 8 to 12 hours (docs.aws.amazon.com/cost-management/latest/userguide/
budgets-managing-costs.html), so this alert comes late. A budget that only notifies costs nothing (AWS
price list, BudgetsUsage, $0.00 per budget-day). Its name says that it is ours: AWS allows each name once.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from cloudgpu.core.model.account import BudgetAlert
from cloudgpu.core.values.money import Money
from cloudgpu.providers.aws.account.roles import caller_identity
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


def read_alert(aws: Aws) -> BudgetAlert | None:
    """Return the alert as AWS has it, None for none; without `emails` where somebody changed it. Up to five calls."""
    account_id, _ = caller_identity(aws)
    answer = _call_budgets(
        aws, VIEW, "describe_budget", tolerated="NotFoundException", AccountId=account_id, BudgetName=BUDGET_NAME
    )
    if answer is None:
        return None
    budget = answer["Budget"]
    limit = budget.get("BudgetLimit", {})
    cost_types = {name: budget.get("CostTypes", {}).get(name) for name in COST_TYPES}
    if limit.get("Unit") != "USD" or budget.get("TimeUnit") != "MONTHLY" or cost_types != COST_TYPES:
        return BudgetAlert(Money(0), ())
    return BudgetAlert(Money.usd(Decimal(limit["Amount"])), _emails(aws, account_id))


def make(aws: Aws, alert: BudgetAlert) -> None:
    """Create the budget as `alert` says. One that differs is deleted first: AWS has no call that changes all of it."""
    existing = read_alert(aws)
    if existing == alert:
        return
    if existing is not None:
        remove(aws)
    subscribers = [{"SubscriptionType": "EMAIL", "Address": email} for email in alert.emails]
    budget = {
        "BudgetName": BUDGET_NAME,
        "BudgetType": "COST",
        "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": f"{alert.per_month.dollars:f}", "Unit": "USD"},
        "CostTypes": COST_TYPES,
    }
    notifications = [{"Notification": _notification(*one), "Subscribers": subscribers} for one in NOTIFICATIONS]
    _call_budgets(
        aws,
        MODIFY,
        "create_budget",
        AccountId=caller_identity(aws)[0],
        Budget=budget,
        NotificationsWithSubscribers=notifications,
    )


def remove(aws: Aws) -> None:
    """Take the budget away. Idempotent."""
    _call_budgets(
        aws,
        MODIFY,
        "delete_budget",
        tolerated="NotFoundException",
        AccountId=caller_identity(aws)[0],
        BudgetName=BUDGET_NAME,
    )


def _emails(aws: Aws, account_id: str) -> tuple[str, ...]:
    """Return who gets mail, where all NOTIFICATIONS go to the same people; empty otherwise."""
    addresses: set[tuple[str, ...]] = set()
    for kind, percent in NOTIFICATIONS:
        answer = _call_budgets(
            aws,
            VIEW,
            "describe_subscribers_for_notification",
            tolerated="NotFoundException",
            AccountId=account_id,
            BudgetName=BUDGET_NAME,
            Notification=_notification(kind, percent),
        )
        addresses.add(tuple(one["Address"] for one in (answer or {}).get("Subscribers", [])))
    return addresses.pop() if len(addresses) == 1 else ()


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
    found = call_tolerating(
        aws, aws.client("budgets", region), action, region, permission, BUDGET_NAME, (tolerated,), **parameters
    )
    return None if found == tolerated else found
