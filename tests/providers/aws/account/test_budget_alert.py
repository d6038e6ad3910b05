"""AWS's own budget on our model of AWS: changed where it is, so that no failure leaves the account without one."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.account import BudgetAlert
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed
from tests.clouds.aws.plain import client
from tests.providers.aws.accounts import account

ADA = BudgetAlert(Money.usd("300"), ("ada@example.org",))
LAB = BudgetAlert(Money.usd("49.99"), ("ben@example.org", "lab@example.org"))
WHICH = {"AccountId": "123456789012", "BudgetName": "cloudgpu-backstop"}
TOPIC = {"SubscriptionType": "SNS", "Address": "arn:aws:sns:us-east-1:123456789012:bills"}


def notifications():
    return client("budgets").describe_notifications_for_budget(**WHICH)["Notifications"]


def test_a_budget_is_changed_where_it_is_and_as_it_was_set_last(aws, tmp_path):
    own = account(tmp_path)
    assert own.budget_alert() is None
    for alert in (ADA, LAB, LAB, ADA):
        own.set_budget_alert(alert)
        assert own.budget_alert() == alert
    assert len(notifications()) == 3
    assert [call.action for call in aws.calls].count("UpdateBudget") == 2
    assert aws.called("DeleteBudget") == []


@pytest.mark.parametrize("action", ["UpdateBudget", "CreateSubscriber", "DeleteSubscriber", "CreateNotification"])
def test_a_change_that_fails_half_way_leaves_a_budget_that_mails_somebody_and_is_finished_later(aws, tmp_path, action):
    own = account(tmp_path)
    own.set_budget_alert(ADA)
    client("budgets").delete_notification(**WHICH, Notification=notifications()[0])
    aws.faults.deny(action, service="budgets", times=1)
    with pytest.raises(AuthFailed):
        own.set_budget_alert(LAB)
    left = own.budget_alert()
    assert left.per_month in (ADA.per_month, LAB.per_month)
    for one in notifications():
        assert client("budgets").describe_subscribers_for_notification(**WHICH, Notification=one)["Subscribers"]
    own.set_budget_alert(LAB)
    assert own.budget_alert() == LAB


def test_somebodys_topic_is_left_to_a_notification_and_is_not_one_of_those_who_get_mail(aws, tmp_path):
    own = account(tmp_path)
    own.set_budget_alert(ADA)
    for one in notifications():
        client("budgets").create_subscriber(**WHICH, Notification=one, Subscriber=TOPIC)
    assert own.budget_alert() == ADA
    own.set_budget_alert(LAB)
    for one in notifications():
        told = client("budgets").describe_subscribers_for_notification(**WHICH, Notification=one)["Subscribers"]
        assert TOPIC in told


@pytest.mark.parametrize(
    "changed",
    [
        {"CostFilters": {"Service": ["Amazon Simple Storage Service"]}},
        {"FilterExpression": {"Dimensions": {"Key": "SERVICE", "Values": ["Amazon Simple Storage Service"]}}},
        {"TimePeriod": {"Start": 1_700_000_000, "End": 1_900_000_000}},
        {"TimeUnit": "ANNUALLY"},
    ],
)
def test_a_budget_that_somebody_narrowed_names_nobody_and_is_put_right(aws, tmp_path, changed):
    """One that counts a single service, or that AWS deletes at its end, would never mail."""
    own = account(tmp_path)
    own.set_budget_alert(ADA)
    budget = client("budgets").describe_budget(**WHICH)["Budget"]
    kept = {key: budget[key] for key in ("BudgetName", "BudgetType", "BudgetLimit", "TimeUnit", "CostTypes")}
    client("budgets").update_budget(AccountId=WHICH["AccountId"], NewBudget=kept | changed)
    assert own.budget_alert().emails == ()
    own.set_budget_alert(ADA)
    assert own.budget_alert() == ADA


@pytest.mark.parametrize(
    ("before_call", "there", "meanwhile"),
    [("CreateBudget", None, ADA), ("CreateSubscriber", ADA, LAB), ("DeleteSubscriber", ADA, LAB)],
)
def test_two_who_set_the_budget_at_once_end_with_one_as_the_later_says(aws, tmp_path, before_call, there, meanwhile):
    own, colleague = account(tmp_path), account(tmp_path / "colleague")
    if there is not None:
        own.set_budget_alert(there)

    def before(number, _action, phase):
        if phase == "before" and aws.calls[number - 1].action == before_call:
            aws.on_call = None
            colleague.set_budget_alert(meanwhile)

    aws.on_call = before
    own.set_budget_alert(LAB)
    assert own.budget_alert() == LAB
