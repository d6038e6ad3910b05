"""The role of machines at Azure: one per subscription, given to each machine on itself alone, taken away again."""

from __future__ import annotations

import json

import pytest

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.errors import AuthFailed, InvalidRequest
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.account import identity, machine_role as role
from cloudgpu.providers.azure.compute import power
from tests.clouds.azure.model import SUBSCRIPTION
from tests.providers.azure.launched import GROUP, ID, IDENTITY, OTHER, launch

DOCUMENT = (data_dir("policies") / "permissions" / "azure-machine.json").read_text()
DEALLOCATE, TAG = "Microsoft.Compute/virtualMachines/deallocate/action", "Microsoft.Resources/tags/write"


def with_role(account):
    """Return an account whose settings name the role, which is made."""
    azure = account()
    role.make(azure, DOCUMENT)
    return account(**role.read_role(azure, DOCUMENT).options)


def give(azure, server, id_=ID):
    """Give the machine its role, as a launch does."""
    machine = server.resource(id_)
    identity.assign(azure, machine.id, machine.body["identity"]["principalId"])


@pytest.mark.soak
def test_the_role_is_made_once_as_its_document_says_and_taken_away(account, azure_arm):
    azure = account()
    (before,) = role.read_role(azure, DOCUMENT).parts
    assert (before.exists, before.is_ours) == (False, True)
    for _ in range(2):
        role.make(azure, DOCUMENT)
    found = role.read_role(azure, DOCUMENT)
    assert all(part.exists and part.is_ours for part in found.parts)
    assert SUBSCRIPTION in found.account
    (definition,) = azure_arm.model.definitions.values()
    assert definition.facts["permissions"][0]["actions"] == json.loads(DOCUMENT)["Actions"]
    assert definition.facts["assignableScopes"] == [f"/subscriptions/{SUBSCRIPTION}"]
    for _ in range(2):
        role.remove(azure)
    assert not role.read_role(azure, DOCUMENT).parts[0].exists


@pytest.mark.parametrize("not_actions", [[], [DEALLOCATE]])
def test_a_role_that_allows_something_else_is_put_right_and_counts_as_there_to_be_removed(account, sdk, not_actions):
    azure = account()
    role.make(azure, DOCUMENT)
    definitions, scope = sdk.authorization.role_definitions, role.scope(azure)
    actions = json.loads(DOCUMENT)["Actions"] + ([] if not_actions else ["Microsoft.Compute/virtualMachines/write"])
    permissions = [{"actions": actions, "notActions": not_actions, "dataActions": [], "notDataActions": []}]
    changed = {"roleName": role.name(azure), "type": "CustomRole", "permissions": permissions}
    changed |= {"description": "changed", "assignableScopes": [scope]}
    definitions.create_or_update(scope, role.guid(azure), role._definition(changed))
    parts = role.read_role(azure, DOCUMENT).parts
    assert [(one.description, one.exists) for one in parts] == [
        ("custom role", True),
        ("actions of the custom role", False),
    ]
    role.make(azure, DOCUMENT)
    (part,) = role.read_role(azure, DOCUMENT).parts
    assert part.exists


def test_somebody_elses_role_of_this_name_is_never_touched(account, sdk):
    azure = account()
    body = {"properties": {"roleName": role.name(azure), "permissions": [{"actions": ["*"]}]}}
    theirs = "99999999-0000-4000-8000-000000000000"
    sdk.authorization.role_definitions.create_or_update(role.scope(azure), theirs, role._definition(body["properties"]))
    assert not role.read_role(azure, DOCUMENT).parts[0].is_ours
    with pytest.raises(InvalidRequest, match="did not create"):
        role.make(azure, DOCUMENT)


@pytest.mark.soak
def test_a_machine_may_deallocate_and_tag_itself_and_nobody_else(account, azure_arm, sdk):
    azure = with_role(account)
    launch(sdk, identity=IDENTITY)
    launch(sdk, OTHER, identity=IDENTITY)
    give(azure, azure_arm)
    other = f"eastus/{OTHER}"
    for action in (DEALLOCATE, TAG):
        assert azure_arm.may(ID, action, ID)
        assert not azure_arm.may(ID, action, other)
        assert not azure_arm.may(other, action, other)
    for action in ("delete", "write", "start/action", "runCommand/action"):
        assert not azure_arm.may(ID, f"Microsoft.Compute/virtualMachines/{action}", ID)


def test_giving_twice_is_fine_and_a_later_machine_of_that_name_gets_its_own(account, azure_arm, sdk):
    azure = with_role(account)
    launch(sdk, identity=IDENTITY)
    for _ in range(2):
        give(azure, azure_arm)
    assert len(identity.role_assignments(azure, azure.options.machine_role)) == 1
    machine = ids.machine_id(azure.subscription, GROUP)
    assert identity.assignment_name(machine, "one") != identity.assignment_name(machine, "two")


def test_a_machine_that_is_ended_loses_its_role_where_azure_leaves_that_behind(account, azure_arm, sdk):
    azure_arm.model.roles_stay = True
    azure = with_role(account)
    for group in (GROUP, OTHER):
        launch(sdk, group, identity=IDENTITY)
        give(azure, azure_arm, f"eastus/{group}")
    power.terminate(azure, ID)
    azure_arm.advance(600)
    assert [one.scope for one in identity.role_assignments(azure, azure.options.machine_role)] == [
        ids.machine_id(azure.subscription, OTHER)
    ]


def test_without_a_role_in_the_settings_nothing_is_given(account, azure_arm):
    identity.assign(account(), "/subscriptions/x", "someone")
    assert azure_arm.calls == []


def test_who_may_not_give_roles_is_told_so(account, azure_arm, sdk):
    azure = with_role(account)
    launch(sdk, identity=IDENTITY)
    azure_arm.model.permissions[0]["notActions"] = ["Microsoft.Authorization/*/write"]
    with pytest.raises(AuthFailed, match="roleAssignments/write"):
        give(azure, azure_arm)


def test_the_role_goes_although_machines_have_it(account, azure_arm, sdk):
    azure = with_role(account)
    launch(sdk, identity=IDENTITY)
    give(azure, azure_arm)
    role.remove(azure)
    assert azure_arm.model.assignments == {}
    assert azure_arm.model.definitions == {}


def test_the_condition_lets_a_launcher_give_this_role_to_machines_alone(account):
    azure = account()
    text = role.assign_role_command(azure)
    assert text.count(role.guid(azure)) == 2
    assert text.count("{'ServicePrincipal'}") == 2
    assert "roleAssignments/write" in text
    assert "roleAssignments/delete" in text


def test_the_role_of_a_machine_goes_once_its_end_is_asked(account, azure_arm, sdk):
    azure = with_role(account)
    launch(sdk, identity=IDENTITY)
    give(azure, azure_arm)
    power.terminate(azure, ID)
    assert azure_arm.model.assignments == {}
    power.terminate(azure, f"eastus/{OTHER}")


def test_a_machine_whose_end_is_refused_keeps_the_role_by_which_it_deallocates_itself(account, azure_arm, sdk):
    azure = with_role(account)
    launch(sdk, identity=IDENTITY)
    give(azure, azure_arm)
    azure_arm.faults.deny("ResourceGroups.Delete")
    with pytest.raises(AuthFailed):
        power.terminate(azure, ID)
    assert len(azure_arm.model.assignments) == 1


def test_a_role_that_cannot_be_taken_keeps_no_machine_on(account, azure_arm, sdk):
    azure = with_role(account)
    launch(sdk, identity=IDENTITY)
    give(azure, azure_arm)
    azure_arm.faults.deny("RoleAssignments.DeleteById")
    azure_arm.faults.deny("RoleAssignments.Delete")
    power.terminate(azure, ID)
    assert len(azure_arm.model.assignments) == 1
    assert azure_arm.billable() == []
