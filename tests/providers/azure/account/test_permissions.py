"""What a credential may do at Azure is read from what its roles allow, wildcards and all."""

from __future__ import annotations

import pytest

from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.azure.account.permissions import PROBES, allows, permissions

START = "Microsoft.Compute/virtualMachines/start/action"


@pytest.mark.parametrize(
    ("rights", "allowed"),
    [
        ([], False),
        ([{"actions": ["*"]}], True),
        ([{"actions": ["microsoft.compute/VIRTUALMACHINES/*"]}], True),
        ([{"actions": ["Microsoft.Compute/*/read"]}], False),
        ([{"actions": ["*/action"]}], True),
        ([{"actions": ["*"], "notActions": ["Microsoft.Compute/*/action"]}], False),
        ([{"actions": ["*"], "notActions": ["*/start/*"]}, {"actions": [START]}], True),
        ([{"actions": ["Microsoft.Compute/virtualMachines"]}], False),
        ([{"actions": [START], "condition": "a clause"}], None),
        ([{"actions": [START], "condition": "a clause"}, {"actions": ["*"]}], True),
    ],
)
def test_an_action_is_allowed_by_any_entry_that_does_not_take_it_out_again(rights, allowed):
    assert allows(rights, START) is allowed


def test_a_credential_that_may_everything_is_denied_nothing_by_one_call(account, azure_arm):
    found = permissions(account())
    assert {one.allowed for one in found} == {True}
    assert [one.action for one in found] == [one.action for one in PROBES]
    assert [call.action for call in azure_arm.calls if "Token" not in call.action] == [
        "Permissions.ListForSubscription"
    ]


def test_what_a_contributor_lacks_is_named(account, azure_arm):
    azure_arm.model.permissions = [{"actions": ["*"], "notActions": ["Microsoft.Authorization/*/Write"]}]
    lacking = [one for one in permissions(account()) if one.allowed is False]
    assert [one.action for one in lacking] == ["Microsoft.Authorization/roleAssignments/write"]
    assert not lacking[0].needed


def test_a_region_that_is_none_is_refused(account):
    with pytest.raises(InvalidRequest, match="did you mean 'eastus'"):
        permissions(account(), "eastuss")
