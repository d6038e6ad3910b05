"""What stands in the way in a subscription is looked at, said with the way out, and never changed."""

from __future__ import annotations

import pytest

from cloudgpu.providers.azure import groups as services
from cloudgpu.providers.azure.account import machine_role as role
from cloudgpu.providers.azure.account.findings import findings
from tests.providers.azure.account.test_machine_role import with_role


def looked(azure):
    return {one.what: one for one in findings(azure, None)}


def test_a_prepared_subscription_has_nothing_in_the_way(account, azure_arm):
    found = looked(with_role(account))
    assert {one.is_ok for one in found.values()} == {True}
    assert {call.action.rpartition(".")[2] for call in azure_arm.calls} >= {"Get"}


def test_looking_changes_nothing(account, azure_arm):
    azure = with_role(account)
    azure_arm.calls.clear()
    findings(azure, "eastus")
    assert {call.action for call in azure_arm.calls if not call.action.startswith("Token.")} <= {
        "Subscriptions.Get",
        "Providers.Get",
        "RoleDefinitions.Get",
        "Permissions.ListForSubscription",
        "NetworkSecurityGroups.ListAll",
    }


def test_a_service_that_is_switched_off_is_needed_and_named_with_the_way(account, azure_arm):
    azure_arm.model.providers["Microsoft.Compute"] = "NotRegistered"
    found = looked(account())["Microsoft.Compute"]
    assert (found.is_ok, found.needed) == (False, True)
    assert services.register_command("Microsoft.Compute") in found.next


def test_a_subscription_that_is_off_and_one_that_spends_its_credit_alone_are_told(account, azure_arm):
    azure_arm.model.subscription |= {"state": "Disabled", "spendingLimit": "On"}
    found = looked(account())
    assert (found["subscription"].is_ok, found["subscription"].needed) == (False, True)
    assert found["spending limit"].is_ok is False


def test_what_is_not_prepared_says_what_is_lost_and_what_prepares_it(account):
    found = looked(account())
    for what in ("machine role", "timers"):
        assert found[what].is_ok is False
        assert found[what].next == "Run: cloudgpu init azure"
        assert not found[what].needed
    assert "does not end a machine's bill" in found["machine role"].message


def test_a_role_that_somebody_took_away_is_told(account):
    azure = with_role(account)
    role.remove(azure)
    assert looked(azure)["machine role"].is_ok is False


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"actions": ["Microsoft.Resources/tags/write"]}, "virtualMachines/deallocate/action"),
        ({"notActions": ["Microsoft.Compute/*/action"]}, "virtualMachines/deallocate/action"),
        ({"actions": ["Microsoft.Compute/virtualMachines/*"]}, "Microsoft.Resources/tags/write"),
        ({"actions": ["*"]}, ""),
    ],
)
def test_a_role_that_no_longer_lets_machines_deallocate_and_tag_themselves_is_told(account, azure_arm, change, says):
    """Machines would go on being billed after a shutdown from inside."""
    azure = with_role(account)
    (definition,) = azure_arm.model.definitions.values()
    definition.facts["permissions"][0] |= change
    found = looked(azure)["machine role"]
    assert found.is_ok is not bool(says)
    assert says in found.message
    assert found.next == ("Run: cloudgpu init azure" if says else "")


def test_a_launcher_that_may_not_give_the_role_is_shown_the_narrow_way(account, azure_arm):
    azure = with_role(account)
    azure_arm.model.permissions = [{"actions": ["*"], "notActions": ["Microsoft.Authorization/*/Write"]}]
    found = looked(azure)["machine role"]
    assert found.is_ok is False
    assert role.guid(azure) in found.next


def test_what_could_not_be_looked_at_is_neither_good_nor_bad(account, azure_arm):
    azure_arm.faults.deny("Providers.Get")
    found = looked(account())
    assert found["Microsoft.Compute"].is_ok is None
    assert found["subscription"].is_ok is True
