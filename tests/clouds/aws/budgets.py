"""What moto's AWS Budgets lacks: who is told of a notification."""

from __future__ import annotations

from typing import Any

from moto.budgets.models import budgets_backends

from tests.clouds.aws.errors import AwsError
from tests.clouds.aws.model import ACCOUNT


def subscribers(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer DescribeSubscribersForNotification."""
    known = budgets_backends[ACCOUNT]["aws"].budgets[asked["AccountId"]]
    for one in known[asked["BudgetName"]].notifications if asked["BudgetName"] in known else ():
        if {**one.details, "NotificationState": ""} == {**asked["Notification"], "NotificationState": ""}:
            return {"Subscribers": one.subscribers}
    raise AwsError("NotFoundException", "Unable to find the notification.")
