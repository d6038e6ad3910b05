"""What moto's AWS Budgets lacks: a change of a budget, and who is told of a notification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.budgets.models import budgets_backends

from tests.clouds.aws.errors import AwsError
from tests.clouds.aws.model import ACCOUNT

Asked = dict[str, Any]


def _budget(asked: Asked, name: str) -> Any:
    known = budgets_backends[ACCOUNT]["aws"].budgets[asked["AccountId"]]
    if name not in known:
        raise AwsError("NotFoundException", f"Unable to get budget: {name} - the budget doesn't exist.")
    return known[name]


def _notification(asked: Asked) -> Any:
    for one in _budget(asked, asked["BudgetName"]).notifications:
        if {**one.details, "NotificationState": ""} == {**asked["Notification"], "NotificationState": ""}:
            return one
    raise AwsError("NotFoundException", "Unable to find the notification.")


def _update(asked: Asked) -> Asked:
    """Replace all of a budget but its name and what is calculated; without a period it keeps the one that it has."""
    new = asked["NewBudget"]
    found = _budget(asked, new["BudgetName"])
    found.budget = {key: found.budget[key] for key in ("TimePeriod", "LastUpdatedTime")} | new
    return {}


def _subscribe(asked: Asked) -> Asked:
    found = _notification(asked)
    if asked["Subscriber"] in found.subscribers:
        raise AwsError("DuplicateRecordException", "The subscriber already exists.")
    found.subscribers.append(asked["Subscriber"])
    return {}


def _unsubscribe(asked: Asked) -> Asked:
    """Take a subscriber away; "Deleting the last subscriber to a notification also deletes the notification"."""
    found = _notification(asked)
    if asked["Subscriber"] not in found.subscribers:
        raise AwsError("NotFoundException", "Unable to find the subscriber.")
    found.subscribers.remove(asked["Subscriber"])
    if not found.subscribers:
        _budget(asked, asked["BudgetName"]).notifications.remove(found)
    return {}


CALLS: dict[str, Callable[[Asked], Asked]] = {
    "CreateSubscriber": _subscribe,
    "DeleteSubscriber": _unsubscribe,
    "DescribeSubscribersForNotification": lambda asked: {"Subscribers": _notification(asked).subscribers},
    "UpdateBudget": _update,
}
