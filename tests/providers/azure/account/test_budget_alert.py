"""Azure's own budget: made, changed by its latest tag, told as it is, taken away."""

from __future__ import annotations

from cloudgpu.core.model.account import BudgetAlert
from cloudgpu.core.values.money import Money
from cloudgpu.providers.azure.account import budget_alert as backstop

ADA = BudgetAlert(Money.usd("300"), ("ada@example.org",))


def test_a_budget_is_as_it_was_set_last_and_keeps_the_month_in_which_it_began(account, azure_arm):
    azure = account()
    assert backstop.read_alert(azure) is None
    backstop.make(azure, ADA)
    (first,) = azure_arm.model.budgets.values()
    began = first["properties"]["timePeriod"]
    azure_arm.advance(40 * 86_400)
    two = BudgetAlert(Money.usd("49.99"), ("ada@example.org", "lab@example.org"))
    for _ in range(2):
        backstop.make(azure, two)
        assert backstop.read_alert(azure) == two
    (now,) = azure_arm.model.budgets.values()
    assert now["properties"]["timePeriod"]["startDate"] == began["startDate"]
    for _ in range(2):
        backstop.remove(azure)
    assert backstop.read_alert(azure) is None


def test_a_budget_that_somebody_changed_names_nobody(account, azure_arm):
    azure = account()
    backstop.make(azure, ADA)
    (made,) = azure_arm.model.budgets.values()
    made["properties"]["notifications"].popitem()
    assert backstop.read_alert(azure) == BudgetAlert(Money.usd("300"), ())


def test_a_budget_that_has_ended_names_nobody_and_is_set_to_go_on(account, azure_arm):
    """Without an end, Azure gives one ten years after the start: "endDate" of the budgets' API."""
    azure = account()
    backstop.make(azure, ADA)
    (made,) = azure_arm.model.budgets.values()
    made["properties"]["timePeriod"]["endDate"] = "2020-01-01T00:00:00Z"
    assert backstop.read_alert(azure) == BudgetAlert(Money.usd("300"), ())
    backstop.make(azure, ADA)
    assert backstop.read_alert(azure) == ADA
