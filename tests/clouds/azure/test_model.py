"""Our model of Azure behaves as Azure's documentation says, seen by unmodified SDKs over TLS."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError, ServiceResponseError

from tests.clouds.azure.model import SUBSCRIPTION, machine_id
from tests.clouds.azure.sdk import Sdk, machine, security

T4 = "Standard_NC4as_T4_v3"
SPOT = {"priority": "Spot", "evictionPolicy": "Deallocate", "billingProfile": {"maxPrice": -1}}


@pytest.fixture
def sdk(azure_arm):
    return Sdk(azure_arm)


@pytest.fixture
def box(sdk):
    """A machine that runs, alone in its group; its name is `box`."""
    return sdk.launch("box", identity={"type": "SystemAssigned"}).result()


def power(sdk, name="box"):
    found = sdk.compute.virtual_machines.get(name, name, expand="instanceView")
    return found.instance_view.statuses[-1].code


# A machine and its bill.


@pytest.mark.soak
def test_one_put_makes_disk_interface_and_address_and_their_groups_end_takes_all(azure_arm, sdk, box):
    assert azure_arm.billable() == [("address", "box-ip"), ("disk", "box-os"), ("machine", "box")]
    assert box.identity.principal_id
    assert power(sdk) == "PowerState/running"
    sdk.resources.resource_groups.begin_delete("box").result()
    assert azure_arm.resources() == []


def test_a_shutdown_from_inside_is_billed_until_somebody_deallocates(azure_arm, sdk, box):
    azure_arm.shut_down("eastus/box")
    assert power(sdk) == "PowerState/stopped"
    assert ("machine", "box") in azure_arm.billable()
    sdk.compute.virtual_machines.begin_deallocate("box", "box").result()
    assert power(sdk) == "PowerState/deallocated"
    assert azure_arm.billable() == [("address", "box-ip"), ("disk", "box-os")]


def test_states_last_as_long_as_they_are_told(azure_arm, sdk, box):
    azure_arm.dwell(deallocating=40, starting=math.inf)
    sdk.compute.virtual_machines.begin_deallocate("box", "box", polling=False)
    assert power(sdk) == "PowerState/deallocating"
    azure_arm.advance(41)
    assert power(sdk) == "PowerState/deallocated"
    sdk.compute.virtual_machines.begin_start("box", "box", polling=False)
    azure_arm.advance(86_400)
    assert power(sdk) == "PowerState/starting"
    azure_arm.finish("eastus/box")
    assert power(sdk) == "PowerState/running"


def test_the_listing_of_states_has_no_tags_and_the_other_no_states(azure_arm, sdk):
    sdk.launch("box", tags={"cloudgpu-id": "x"}).result()
    (plain,) = sdk.compute.virtual_machines.list_all()
    (status,) = sdk.compute.virtual_machines.list_all(status_only="true")
    assert (plain.tags, plain.instance_view) == ({"cloudgpu-id": "x"}, None)
    assert (status.tags, status.instance_view.statuses[-1].code) == (None, "PowerState/running")


def test_a_list_comes_in_pages(azure_arm, sdk):
    azure_arm.model.page = 2
    for name in ("a", "b", "c", "d", "e"):
        sdk.group(name, tag="x")
    assert [one.name for one in sdk.resources.resource_groups.list(filter="tagName eq 'tag'")] == list("abcde")
    assert len(azure_arm.called("ResourceGroups.List")) == 3


# A launch that goes wrong.


def test_no_capacity_is_said_in_the_operation_and_leaves_a_failed_machine_and_its_disk(azure_arm, sdk):
    azure_arm.stockout(size=T4, region="eastus")
    with pytest.raises(HttpResponseError) as caught:
        sdk.launch("box").result()
    assert (caught.value.status_code, caught.value.error.code) == (200, "AllocationFailed")
    assert azure_arm.instance("box").provisioning == "Failed"
    assert azure_arm.billable() == [("address", "box-ip"), ("disk", "box-os")]
    sdk.launch("far", "westus2").result()


def test_what_a_failed_create_leaves_can_be_less(azure_arm, sdk):
    azure_arm.model.leaves = frozenset()
    azure_arm.stockout(times=1)
    with pytest.raises(HttpResponseError):
        sdk.launch("box").result()
    assert azure_arm.billable() == []


def test_a_deallocated_machine_may_find_no_capacity_when_it_starts(azure_arm, sdk, box):
    sdk.compute.virtual_machines.begin_deallocate("box", "box").result()
    azure_arm.stockout()
    with pytest.raises(HttpResponseError, match="AllocationFailed"):
        sdk.compute.virtual_machines.begin_start("box", "box").result()
    assert power(sdk) == "PowerState/deallocated"


def test_a_limit_and_a_size_that_is_withheld_come_as_conflicts_at_once(azure_arm, sdk):
    azure_arm.quota("eastus", "Standard NCASv3_T4 Family", 6)
    sdk.launch("one").result()
    with pytest.raises(ResourceExistsError, match=r"Current Limit: 6, Current Usage: 4, Additional Required: 4") as no:
        sdk.launch("two")
    assert no.value.error.code == "OperationNotAllowed"
    sdk.compute.virtual_machines.begin_deallocate("one", "one").result()
    with pytest.raises(ResourceExistsError):
        sdk.launch("two")
    sdk.launch("two", **SPOT).result()
    azure_arm.restrict(T4, "westus2")
    with pytest.raises(ResourceExistsError) as caught:
        sdk.launch("far", "westus2")
    assert caught.value.error.code == "SkuNotAvailable"


def test_the_same_put_is_the_same_machine_and_another_one_a_conflict(azure_arm, sdk, box):
    again = sdk.launch("box", identity={"type": "SystemAssigned"}).result()
    assert again.vm_id == box.vm_id
    with pytest.raises(ResourceExistsError, match=r"hardwareProfile\.vmSize") as caught:
        sdk.launch("box", size="Standard_NC8as_T4_v3", identity={"type": "SystemAssigned"})
    assert caught.value.error.code == "PropertyChangeNotAllowed"
    assert len(azure_arm.instances()) == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"evictionPolicy": "Deallocate"}, "only on Azure Spot"),
        ({"size": "Standard_Bogus"}, "VM size is not valid"),
        ({"zones": ["1"]}, "not available in location 'eastus' zones '1'"),
        ({"priority": "Spot", "billingProfile": {"maxPrice": 0}}, "maxPrice"),
        ({"size": "Standard_ND96asr_v4", "securityProfile": {"securityType": "TrustedLaunch"}}, ""),
    ],
)
def test_what_azure_refuses_at_once_is_refused(sdk, more, says):
    if not says:
        assert sdk.launch("box", **more).result().provisioning_state == "Succeeded"
        return
    with pytest.raises(HttpResponseError, match=says):
        sdk.launch("box", **more)


def test_custom_data_is_weighed_after_decoding(azure_arm, sdk):
    import base64

    body = machine("box")["properties"]["osProfile"]
    fits = {**body, "customData": base64.b64encode(b"#" * 65_535).decode()}
    sdk.launch("box", osProfile=fits).result()
    assert azure_arm.user_data("box")[0].text == "#" * 65_535
    with pytest.raises(HttpResponseError, match="at most 65535"):
        sdk.launch("two", osProfile={**fits, "customData": base64.b64encode(b"#" * 65_536).decode()})


# Groups.


def test_a_group_that_is_going_takes_nothing_new(azure_arm, sdk, box):
    azure_arm.dwell(group=60, deleting=20)
    sdk.resources.resource_groups.begin_delete("box", polling=False)
    with pytest.raises(ResourceExistsError) as caught:
        sdk.group("box")
    assert caught.value.error.code == "ResourceGroupBeingDeleted"
    assert ("machine", "box") in azure_arm.billable()
    azure_arm.advance(21)
    assert azure_arm.instances() == []
    assert sdk.resources.resource_groups.check_existence("box")
    azure_arm.advance(40)
    assert not sdk.resources.resource_groups.check_existence("box")
    with pytest.raises(ResourceNotFoundError):
        sdk.compute.virtual_machines.get("box", "box")


def test_a_machine_leaves_what_its_delete_options_keep(azure_arm, sdk, box):
    keep = {"properties": {"storageProfile": {"osDisk": {"createOption": "FromImage", "deleteOption": "Detach"}}}}
    sdk.compute.virtual_machines.begin_update("box", "box", keep).result()
    sdk.compute.virtual_machines.begin_delete("box", "box").result()
    assert azure_arm.billable() == [("disk", "box-os")]
    assert sdk.compute.disks.get("box", "box-os").disk_state == "Unattached"


def test_a_patch_replaces_tags_and_the_tags_call_merges_them(sdk, box):
    at = machine_id("box")
    merge = {"operation": "Merge", "properties": {"tags": {"hold": "1"}}}
    sdk.resources.tags.begin_update_at_scope(at, merge).result()
    sdk.resources.tags.begin_update_at_scope(at, {**merge, "properties": {"tags": {"seen": "2"}}}).result()
    assert sdk.compute.virtual_machines.get("box", "box").tags == {"hold": "1", "seen": "2"}
    sdk.resources.tags.begin_update_at_scope(at, {**merge, "operation": "Delete"}).result()
    assert sdk.compute.virtual_machines.get("box", "box").tags == {"seen": "2"}
    sdk.compute.virtual_machines.begin_update("box", "box", {"tags": {"only": "this"}}).result()
    assert sdk.compute.virtual_machines.get("box", "box").tags == {"only": "this"}


# The network.


def test_who_gets_in_is_whom_the_rules_let(azure_arm, sdk, box):
    assert not azure_arm.allows("box", "203.0.113.9", 22)
    sdk.network.network_security_groups.begin_create_or_update("box", "box", security("eastus", "203.0.113.9/32"))
    assert azure_arm.allows("box", "203.0.113.9", 22)
    assert not azure_arm.allows("box", "203.0.113.10", 22)
    assert not azure_arm.allows("box", "203.0.113.9", 23)
    rule = security("eastus", "0.0.0.0/0")["properties"]["securityRules"][0]["properties"]
    later = {**rule, "access": "Deny", "priority": 90 + 10}
    with pytest.raises(HttpResponseError, match="the same priority"):
        sdk.network.security_rules.begin_create_or_update("box", "box", "no", {"properties": later})
    first = {"properties": {**rule, "priority": 200}}
    sdk.network.security_rules.begin_create_or_update("box", "box", "all", first).result()
    assert azure_arm.allows("box", "198.51.100.1", 22)
    sdk.network.security_rules.begin_delete("box", "box", "all").result()
    assert not azure_arm.allows("box", "198.51.100.1", 22)


def test_what_is_in_use_is_not_deleted(sdk, box):
    network, compute = sdk.network, sdk.compute
    refused = (
        lambda: network.network_security_groups.begin_delete("box", "box"),
        lambda: network.virtual_networks.begin_delete("box", "box"),
        lambda: network.public_ip_addresses.begin_delete("box", "box-ip"),
        lambda: network.network_interfaces.begin_delete("box", "box-nic"),
        lambda: compute.disks.begin_delete("box", "box-os"),
    )
    for one in refused:
        with pytest.raises(HttpResponseError):
            one()


# Spot, timers, roles.


def test_an_eviction_deallocates_after_the_notice(azure_arm, sdk):
    sdk.launch("box", **SPOT).result()
    sdk.compute.virtual_machines.simulate_eviction("box", "box")
    azure_arm.advance(29)
    assert azure_arm.instance("box").state == "running"
    azure_arm.advance(2)
    assert azure_arm.instance("box").state == "deallocated"
    sdk.launch("gone", **{**SPOT, "evictionPolicy": "Delete"}).result()
    azure_arm.interrupt("eastus/gone")
    assert azure_arm.billable() == [("address", "box-ip"), ("disk", "box-os")]
    sdk.launch("kept").result()
    with pytest.raises(HttpResponseError, match="not an Azure Spot"):
        sdk.compute.virtual_machines.simulate_eviction("kept", "kept")


def test_a_timer_fires_on_the_clock_and_a_cancelled_one_does_not(azure_arm, sdk, box):
    def submit(hours):
        at = datetime.now(UTC) + timedelta(hours=hours)
        body = {"schedule": {"deadline": at.isoformat(), "deadlineType": "InitiateAt"}, "executionParameters": {}}
        body |= {"resources": {"ids": [machine_id("box")]}, "correlationid": str(uuid.uuid4())}
        said = sdk.schedule.scheduled_actions.virtual_machines_submit_deallocate("eastus", body)
        return said.results[0].operation.operation_id

    first, second = submit(1), submit(3)
    asked = {"operationIds": [first], "correlationid": "x"}
    sdk.schedule.scheduled_actions.virtual_machines_cancel_operations("eastus", asked)
    azure_arm.advance(2 * 3600)
    assert azure_arm.instance("box").state == "running"
    azure_arm.advance(3601)
    assert azure_arm.instance("box").state == "deallocated"
    both = {"operationIds": [first, second, "nothing"], "correlationid": "x"}
    said = sdk.schedule.scheduled_actions.virtual_machines_get_operation_status("eastus", both)
    assert [one.operation and one.operation.state for one in said.results] == ["Cancelled", "Succeeded", None]
    with pytest.raises(HttpResponseError):
        submit(-1)


def test_a_machines_identity_may_what_it_was_assigned_and_only_there(azure_arm, sdk, box):
    import requests

    sdk.launch("other", identity={"type": "SystemAssigned"}).result()
    role, scope = str(uuid.uuid4()), machine_id("box")
    permissions = [{"actions": ["Microsoft.Compute/virtualMachines/deallocate/action"]}]
    facts = {
        "role_name": "machine",
        "permissions": permissions,
        "assignable_scopes": [f"/subscriptions/{SUBSCRIPTION}"],
    }
    made = sdk.authorization.role_definitions.create_or_update(f"/subscriptions/{SUBSCRIPTION}", role, facts)
    whose = {"role_definition_id": made.id, "principal_id": box.identity.principal_id}
    with pytest.raises(HttpResponseError, match="PrincipalNotFound"):
        sdk.authorization.role_assignments.create(scope, str(uuid.uuid4()), whose)
    whose["principal_type"] = "ServicePrincipal"
    sdk.authorization.role_assignments.create(scope, str(uuid.uuid4()), whose)
    with pytest.raises(ResourceExistsError, match="RoleAssignmentExists"):
        sdk.authorization.role_assignments.create(scope, str(uuid.uuid4()), whose)
    deallocate = "Microsoft.Compute/virtualMachines/deallocate/action"
    assert azure_arm.may("box", deallocate, "box")
    assert not azure_arm.may("box", deallocate, "other")
    assert not azure_arm.may("box", "Microsoft.Compute/virtualMachines/delete", "box")
    headers = {"Authorization": f"Bearer {azure_arm.machine_token('box')}"}
    for name, status in (("other", 403), ("box", 202)):
        url = f"{azure_arm.url}{machine_id(name)}/deallocate?api-version=2024-03-01"
        assert requests.post(url, headers=headers, timeout=10).status_code == status
    assert azure_arm.instance("box").state == "deallocated"


# Faults on demand.


def test_a_lost_reply_is_a_call_that_was_done(azure_arm, sdk):
    sdk.group("box")
    azure_arm.faults.lose_reply("ResourceGroups.Delete")
    with pytest.raises(ServiceResponseError):
        sdk.resources.resource_groups.begin_delete("box")
    assert not sdk.resources.resource_groups.check_existence("box")
    (call,) = azure_arm.called("ResourceGroups.Delete")
    assert (call.status, call.answered) == (202, False)


def test_errors_throttles_and_denials_come_in_azures_words(azure_arm, sdk):
    azure_arm.faults.add("ResourceGroups.List", error="TooManyRequests", retry_after=7)
    with pytest.raises(HttpResponseError) as caught:
        list(sdk.resources.resource_groups.list())
    assert (caught.value.status_code, caught.value.response.headers["Retry-After"]) == (429, "7")
    azure_arm.faults.deny("VirtualMachines.Deallocate")
    with pytest.raises(HttpResponseError, match="virtualMachines/deallocate/action") as denied:
        sdk.compute.virtual_machines.begin_deallocate("box", "box")
    assert denied.value.error.code == "AuthorizationFailed"


def test_the_launcher_may_what_it_is_given(azure_arm, sdk, box):
    azure_arm.model.permissions = [{"actions": ["*/read"], "notActions": []}]
    assert power(sdk) == "PowerState/running"
    with pytest.raises(HttpResponseError, match=r"'Microsoft.Compute/virtualMachines/start/action'"):
        sdk.compute.virtual_machines.begin_start("box", "box")
    (row,) = sdk.authorization.permissions.list_for_resource_group("box")
    assert row.actions == ["*/read"]


# Disks and images.


def test_a_snapshot_becomes_an_image_and_a_machine(azure_arm, sdk, box):
    compute = sdk.compute
    source = {"createOption": "Copy", "sourceResourceId": azure_arm.resources("Microsoft.Compute/disks")[0]}
    body = {"location": "eastus", "properties": {"creationData": source}}
    snapshot = compute.snapshots.begin_create_or_update("box", "shot", body).result()
    system = {"osType": "Linux", "osState": "Generalized", "snapshot": {"id": snapshot.id}}
    facts = {"storageProfile": {"osDisk": system}, "hyperVGeneration": "V2"}
    image = compute.images.begin_create_or_update("box", "kept", {"location": "eastus", "properties": facts}).result()
    disk = {"createOption": "FromImage", "deleteOption": "Delete"}
    sdk.launch("again", storageProfile={"imageReference": {"id": image.id}, "osDisk": disk}).result()
    with pytest.raises(ResourceNotFoundError):
        sdk.launch("far", "westus2", storageProfile={"imageReference": {"id": image.id}, "osDisk": disk})


def test_a_volume_goes_to_one_machine_and_outlives_it(azure_arm, sdk, box):
    compute = sdk.compute
    empty = {"creationData": {"createOption": "Empty"}, "diskSizeGB": 100}
    disk = compute.disks.begin_create_or_update("box", "data", {"location": "eastus", "properties": empty}).result()
    assert disk.disk_state == "Unattached"
    asked = {"dataDisksToAttach": [{"diskId": disk.id, "lun": 3}]}
    profile = compute.virtual_machines.begin_attach_detach_data_disks("box", "box", asked).result()
    assert [(one.lun, one.name) for one in profile.data_disks] == [(3, "data")]
    sdk.launch("two").result()
    with pytest.raises(ResourceExistsError, match="already attached"):
        compute.virtual_machines.begin_attach_detach_data_disks("two", "two", asked)
    compute.virtual_machines.begin_delete("box", "box").result()
    assert compute.disks.get("box", "data").disk_state == "Unattached"


def test_what_is_sold_is_said_with_its_restrictions(azure_arm, sdk):
    azure_arm.restrict(T4, "eastus")
    found = {one.name: one for one in sdk.compute.resource_skus.list(filter="location eq 'eastus'")}
    assert found[T4].restrictions[0].reason_code == "NotAvailableForSubscription"
    gpus = {one.name: one.value for one in found["Standard_NV6ads_A10_v5"].capabilities}["GPUs"]
    assert gpus == "1"  # of a sixth of one, as Azure says it
    usages = {one.name.value: one for one in sdk.compute.usage.list("eastus")}
    assert usages[found[T4].family].limit > 0


def test_a_higher_limit_is_asked_for_and_granted(azure_arm, sdk):
    azure_arm.dwell(quota=600)
    at = f"subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eastus"
    limit = {"limitObjectType": "LimitValue", "value": 9000}
    body = {"properties": {"limit": limit, "name": {"value": "cores"}}}
    sdk.quota.quota.begin_create_or_update("cores", at, body, polling=False)
    assert sdk.quota.quota.get("cores", at).properties.limit.value == 2000
    azure_arm.advance(601)
    assert sdk.quota.quota.get("cores", at).properties.limit.value == 9000
