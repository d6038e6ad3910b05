"""What launches leave at Azure: groups with what is in them, addresses that cost, roles of machines that are gone."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError

from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.azure.compute import power
from cloudgpu.providers.azure.storage import orphans
from tests.providers.azure.account.test_machine_role import give, with_role
from tests.providers.azure.launched import GROUP, ID, IDENTITY, launch, without_machine


def told(azure, region=None):
    return {one.kind: one for one in orphans.orphans(azure, region).items}


def test_what_a_machine_uses_is_told_as_its_own(account, sdk):
    launch(sdk)
    found = told(account())
    assert set(found) == {Kind.GROUP, Kind.INTERFACE, Kind.ADDRESS}
    assert {one.attached_to for one in found.values()} == {ID}
    assert {one.tags[TAG_LEDGER] for one in found.values()} == {"led-1"}
    assert found[Kind.ADDRESS].stored_as == orphans.ADDRESS
    assert told(account(), "westus2") == {}


def test_what_is_left_is_used_by_nobody_and_goes_in_any_order(account, azure_arm, sdk):
    azure = account()
    without_machine(azure_arm, sdk)
    found = told(azure)
    assert {one.attached_to for one in found.values()} == {None}
    for _ in range(2):
        orphans.remove(azure, found[Kind.ADDRESS])
        orphans.remove(azure, found[Kind.INTERFACE])
        orphans.remove(azure, found[Kind.GROUP])
        azure_arm.advance(600)
    assert azure_arm.resources() == []


def test_nothing_that_a_machine_uses_goes(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    for one in told(azure).values():
        with pytest.raises(InvalidRequest, match="in use by"):
            orphans.remove(azure, one)
    azure_arm.advance(600)
    assert azure_arm.instance(ID).state == "running"


def test_a_group_with_a_kept_disk_is_that_disks_and_stays(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    power.terminate_keeping_disk(azure, ID)
    azure_arm.advance(600)
    (group,) = told(azure).values()
    assert (group.kind, "/disks/" in group.attached_to) == (Kind.GROUP, True)
    with pytest.raises(InvalidRequest, match="the disk") as caught:
        orphans.remove(azure, group)
    assert caught.value.next == "Delete that disk first."


def test_the_role_of_a_machine_that_is_gone_is_told_and_taken_away(account, azure_arm, sdk):
    azure = with_role(account)
    launch(sdk, identity=IDENTITY)
    give(azure, azure_arm)
    given = dict(azure_arm.model.assignments)
    assert told(azure)[Kind.ROLE].attached_to == ID
    with pytest.raises(InvalidRequest, match="in use by its machine"):  # it was made after the look that missed it
        orphans.remove(azure, told(azure)[Kind.ROLE])
    sdk.resources.resource_groups.begin_delete(GROUP).result()
    azure_arm.model.assignments |= given  # whether Azure takes them away with their scope is unverified
    (role,) = told(azure).values()
    assert (role.kind, role.attached_to) == (Kind.ROLE, None)
    for _ in range(2):
        orphans.remove(azure, role)
    assert azure_arm.model.assignments == {}


def test_groups_that_are_not_of_launches_are_nobodys_business(account, sdk):
    sdk.group("cloudgpu", **{TAG_LEDGER: "led-1"})
    sdk.group("theirs", **{TAG_LEDGER: "led-1"})
    assert told(account()) == {}


def test_a_part_that_did_not_answer_is_never_silent(account, azure_arm, sdk):
    launch(sdk)
    azure_arm.faults.add("PublicIPAddresses.ListAll", error="InternalServerError", times=99)
    with pytest.raises(ProviderUnavailable):
        told(account())


def test_a_group_with_the_disk_of_a_failed_launch_goes_with_that(account, azure_arm, sdk):
    azure = account()
    azure_arm.fail("VirtualMachines.CreateOrUpdate", "AllocationFailed")
    with pytest.raises(HttpResponseError):
        launch(sdk)
    sdk.compute.virtual_machines.begin_delete(GROUP, GROUP).result()
    azure_arm.advance(600)
    group = told(azure)[Kind.GROUP]
    assert group.attached_to is None
    orphans.remove(azure, group)
    azure_arm.advance(600)
    assert azure_arm.resources() == []


@pytest.mark.soak
def test_a_group_in_which_something_of_somebodys_lies_stays(account, azure_arm, sdk):
    azure = account()
    without_machine(azure_arm, sdk)
    body = {"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}}
    sdk.compute.disks.begin_create_or_update(GROUP, "mine", body).result()
    with pytest.raises(InvalidRequest, match="mine, which cloudgpu has not made"):
        orphans.remove(azure, told(azure)[Kind.GROUP])
