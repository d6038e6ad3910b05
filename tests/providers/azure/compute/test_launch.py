"""What a launch makes at Azure, read back from the model; no fault on the way makes a second, or leaves one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from math import inf
from pathlib import Path

import pytest

from cloudgpu.core.launch.attempt import attempt_from_json, attempt_to_json
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.launch import BootPart, Network
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import (
    AuthFailed,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    RateLimited,
)
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.compute import launch
from tests.listened import Waits, in_a_part
from tests.providers.azure.attempts import (
    A10,
    CALLER,
    LAUNCHED,
    USUAL,
    attempt_at,
    calls,
    launched,
    offered,
    provider_of,
)

CHECKOUT = Path(__file__).parents[4]
PUT = "VirtualMachines.CreateOrUpdate"


@pytest.fixture
def provider(azure_arm, tmp_path):
    return provider_of(azure_arm, tmp_path)


def body_of(server, action=PUT):
    """Return what was sent to make something, the last time."""
    return [one.body for one in server.calls if one.action == action][-1]


def told_by(provider):
    """Return what a provider says from now on beside what it gives back."""
    said = []
    provider._azure.notify = said.append
    return said


def nothing_left(server):
    return not server.resources() and not server.billable()


# What is made


def test_a_machine_is_made_as_it_was_asked_for_by_one_call(azure_arm, provider):
    attempt = attempt_at(provider)
    with calls(azure_arm) as made:
        found = launched(provider, attempt)
    body, name = body_of(azure_arm), ids.group_of(attempt.token)
    assert sorted(made) == sorted(LAUNCHED)
    assert (found.id, found.state, found.zone) == (f"eastus/{name}", State.RUNNING, "eastus")
    assert found.address is not None
    assert (found.address.user, found.address.port) == ("cloudgpu", 22)
    assert found.address.host in azure_arm.instance(found.id).addresses
    properties = body["properties"]
    assert properties["hardwareProfile"] == {"vmSize": "Standard_NC4as_T4_v3"}
    assert properties["storageProfile"]["imageReference"]["version"] != "latest"
    assert properties["osProfile"]["linuxConfiguration"]["disablePasswordAuthentication"] is True
    assert "adminPassword" not in properties["osProfile"]
    assert "identity" not in body
    assert "zones" not in body
    assert not {"priority", "evictionPolicy", "billingProfile"} & set(properties)


def test_all_that_a_launch_makes_goes_with_its_machine_and_its_group(azure_arm, provider):
    found = launched(provider, attempt_at(provider))
    properties = body_of(azure_arm)["properties"]
    (interface,) = properties["networkProfile"]["networkInterfaceConfigurations"]
    (inside,) = interface["properties"]["ipConfigurations"]
    address = inside["properties"]["publicIPAddressConfiguration"]
    assert properties["storageProfile"]["osDisk"]["deleteOption"] == "Delete"
    assert interface["properties"]["deleteOption"] == address["properties"]["deleteOption"] == "Delete"
    groups = {ids.resource(one).group for one in azure_arm.resources() if ids.resource(one)}
    assert groups == {found.id.partition("/")[2]}
    assert properties["storageProfile"]["osDisk"]["name"] == f"{groups.pop()}-os"


def test_what_can_be_tagged_is_tagged_in_the_call_that_makes_it(azure_arm, provider):
    attempt = attempt_at(provider)
    launched(provider, attempt)
    body = body_of(azure_arm)
    (interface,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    (inside,) = interface["properties"]["ipConfigurations"]
    address = inside["properties"]["publicIPAddressConfiguration"]
    assert body["tags"] == interface["tags"] == address["tags"] == dict(attempt.tags)
    for action in ("ResourceGroups", "NetworkSecurityGroups", "VirtualNetworks"):
        assert body_of(azure_arm, f"{action}.CreateOrUpdate")["tags"].items() >= dict(attempt.tags).items()


def test_ssh_is_open_to_the_caller_alone(azure_arm, provider):
    found = launched(provider, attempt_at(provider))
    assert azure_arm.allows(found.id, "203.0.113.7", 22)
    assert not azure_arm.allows(found.id, "203.0.113.8", 22)
    assert not azure_arm.allows(found.id, "203.0.113.7", 8888)
    assert dict(provider.allowed(found.id)) == {"caller": CALLER}


def test_a_spot_machine_has_its_policy_and_the_users_price(azure_arm, provider):
    item = offered(provider, market=Market.SPOT)
    assert launched(provider, attempt_at(provider, item)).market is Market.SPOT
    first = body_of(azure_arm)["properties"]
    launched(provider, attempt_at(provider, item, max_price=Money.usd("0.4"), key="second"))
    second = body_of(azure_arm)["properties"]
    assert (first["priority"], first["evictionPolicy"], first["billingProfile"]) == (
        "Spot",
        "Deallocate",
        {"maxPrice": -1},
    )
    assert second["billingProfile"] == {"maxPrice": 0.4}


def test_a_trusted_launch_without_secure_boot_where_image_and_size_take_it(azure_arm, provider):
    launched(provider, attempt_at(provider))
    wanted = {"securityType": "TrustedLaunch", "uefiSettings": {"secureBootEnabled": False, "vTpmEnabled": True}}
    assert body_of(azure_arm)["properties"]["securityProfile"] == wanted


def test_encryption_at_the_host_is_asked_for_by_the_settings(azure_arm, tmp_path):
    launched_by = provider_of(azure_arm, tmp_path, encryption_at_host=True)
    launched(launched_by, attempt_at(launched_by))
    assert body_of(azure_arm)["properties"]["securityProfile"]["encryptionAtHost"] is True


def test_a_zone_is_named_where_the_user_names_it(azure_arm, provider):
    found = launched(provider, attempt_at(provider, offered(provider, name="Standard_NV36ads_A10_v5", zone="eastus-2")))
    assert body_of(azure_arm)["zones"] == ["2"]
    assert found.zone == "eastus-2"


def test_the_boot_data_bring_user_host_key_and_lease(azure_arm, provider):
    parts = (BootPart("on_start", "echo hello\n"), BootPart("packages", "git"))
    attempt = attempt_at(provider, parts=parts)
    found = launched(provider, attempt)
    hook, config = azure_arm.user_data(found.id)
    assert f"expires={attempt.tags['cloudgpu-expires']}\n" in hook.text
    assert attempt.boot.host_public_key in config.text
    assert "echo hello" in config.text


def test_a_share_of_an_a10_gets_its_driver_by_the_extension(azure_arm, provider):
    found = launched(provider, attempt_at(provider, offered(provider, A10)))
    body = body_of(azure_arm, "VirtualMachineExtensions.CreateOrUpdate")["properties"]
    assert (body["publisher"], body["type"]) == ("Microsoft.HpcCompute", "NvidiaGpuDriverLinux")
    assert found.accelerators[0].share < 1


def test_an_extension_that_is_refused_loses_no_machine(azure_arm, provider):
    azure_arm.faults.add("VirtualMachineExtensions.CreateOrUpdate", error="OperationNotAllowed", times=100)
    said = told_by(provider)
    assert launched(provider, attempt_at(provider, offered(provider, A10))).state is State.RUNNING
    assert [one for one in said if "has no GPU driver" in one] == said != []


def test_no_public_address_where_none_is_wanted(azure_arm, provider):
    found = launched(provider, attempt_at(provider, setup=replace(USUAL, network=Network(public_ip=False))))
    assert not azure_arm.instance(found.id).addresses
    assert found.address is not None
    assert "PublicIPAddresses.CreateOrUpdate" not in {one.action for one in azure_arm.calls}
    assert dict(provider.allowed(found.id)) == {"inside": "10.77.0.0/16"}


def test_somebody_elses_network_and_group_are_used_as_they_are(azure_arm, provider, sdk):
    sdk.group("theirs")
    space = {
        "addressSpace": {"addressPrefixes": ["10.9.0.0/16"]},
        "subnets": [{"name": "lab", "properties": {"addressPrefix": "10.9.1.0/24"}}],
    }
    sdk.network.virtual_networks.begin_create_or_update(
        "theirs", "net", {"location": "eastus", "properties": space}
    ).result()
    rules = {"location": "eastus", "properties": {"securityRules": []}}
    group = sdk.network.network_security_groups.begin_create_or_update("theirs", "rules", rules).result().id
    subnet = sdk.network.virtual_networks.get("theirs", "net").subnets[0].id
    setup = replace(USUAL, network=Network(subnet=subnet, security_group=group))
    attempt = attempt_at(provider, setup=setup)
    with calls(azure_arm) as made:
        found = launched(provider, attempt)
    assert not {"NetworkSecurityGroups.CreateOrUpdate", "VirtualNetworks.CreateOrUpdate"} & set(made)
    assert dict(provider.allowed(found.id)) == {}
    with pytest.raises(InvalidRequest, match="Somebody else's security group"):
        provider.allow(found.id, "caller", CALLER)


def test_a_subnets_own_group_is_named_beside_the_users_and_all_its_networks_ranges_may_connect(
    azure_arm, provider, sdk
):
    sdk.group("theirs")
    groups = sdk.network.network_security_groups
    rules = {"location": "eastus", "properties": {"securityRules": []}}
    subnets_own, users = (
        groups.begin_create_or_update("theirs", name, rules).result().id for name in ("subnets", "users")
    )
    properties = {"addressPrefix": "10.8.1.0/24", "networkSecurityGroup": {"id": subnets_own}}
    space = {
        "addressSpace": {"addressPrefixes": ["10.9.0.0/16", "fd00::/48", "10.8.0.0/16"]},
        "subnets": [{"name": "lab", "properties": properties}],
    }
    networks = sdk.network.virtual_networks
    networks.begin_create_or_update("theirs", "net", {"location": "eastus", "properties": space}).result()
    subnet = networks.get("theirs", "net").subnets[0].id
    remark = "the subnet has a security group of its own, which has to let the caller in, too: cloudgpu leaves it alone"
    for group in (users, None):
        setup = replace(USUAL, network=Network(subnet=subnet, security_group=group))
        attempt = attempt_at(provider, setup=setup)
        assert remark in provider.resolve(attempt.request, offered(provider)).remarks
    found = launched(provider, attempt)
    assert dict(provider.allowed(found.id)) == {"inside": "10.9.0.0/16", "inside-2": "10.8.0.0/16"}


# Never two


def test_a_replay_in_another_process_returns_the_same_machine_by_two_looks(azure_arm, provider, tmp_path):
    attempt = attempt_at(provider)
    first = launched(provider, attempt)
    again = provider_of(azure_arm, tmp_path / "other", ssh_port=2222)
    with calls(azure_arm) as made:
        found = launched(again, attempt_from_json(attempt_to_json(attempt)))
    assert found.id == first.id
    assert made == ["VirtualMachines.Get", "PublicIPAddresses.List"]


@pytest.mark.parametrize("action", [PUT, "ResourceGroups.CreateOrUpdate", "VirtualNetworks.CreateOrUpdate"])
def test_a_lost_reply_never_launches_twice(azure_arm, provider, action):
    azure_arm.faults.lose_reply(action)
    found = launched(provider, attempt_at(provider))
    assert [one.id for one in azure_arm.instances()] == [found.id]


def test_replies_that_go_on_being_lost_find_the_machine_that_was_made(azure_arm, provider):
    azure_arm.faults.lose_reply(PUT, times=100)
    found = launched(provider, attempt_at(provider))
    assert [one.id for one in azure_arm.instances(live=True)] == [found.id]


def test_a_machine_that_goes_on_being_made_at_the_deadline_is_uncertain_and_then_found(azure_arm, provider):
    azure_arm.dwell(creating=inf)
    attempt = attempt_at(provider)
    with pytest.raises(LaunchUncertain, match="not known whether Azure has made"):
        launched(provider, attempt, minutes=2)
    azure_arm.finish(ids.group_of(attempt.token))
    assert launched(provider, attempt).id == f"eastus/{ids.group_of(attempt.token)}"
    assert len(azure_arm.instances()) == 1


@pytest.mark.parametrize(
    ("read", "times", "error"),
    [
        ("Operations.Get", 1, "ResourceNotFound"),
        ("Operations.Get", 1, "AuthorizationFailed"),
        ("VirtualMachines.Get", 2, "ResourceNotFound"),  # the first is the look before anything is sent
        ("VirtualMachines.Get", 3, "ResourceNotFound"),
    ],
)
def test_a_read_that_fails_after_the_call_was_taken_deletes_no_machine(azure_arm, provider, read, times, error):
    attempt = attempt_at(provider)
    azure_arm.faults.add(read, error=error, times=times)
    with calls(azure_arm) as made:
        found = launched(provider, attempt)
    assert "ResourceGroups.Delete" not in made
    assert [one.id for one in azure_arm.instances(live=True)] == [found.id]


def test_a_machine_that_azure_took_and_goes_on_not_showing_is_uncertain_and_then_found(azure_arm, provider):
    attempt = attempt_at(provider)
    fault = azure_arm.faults.add("VirtualMachines.Get", error="ResourceNotFound", times=100)
    with calls(azure_arm) as made, pytest.raises(LaunchUncertain):
        launched(provider, attempt)
    assert "ResourceGroups.Delete" not in made
    azure_arm.faults.remove(fault)
    assert launched(provider, attempt).state is State.RUNNING
    assert len(azure_arm.instances()) == 1


def test_a_replay_that_is_refused_deletes_no_machine_of_the_first_sending(azure_arm, provider):
    attempt = attempt_at(provider)
    first = launched(provider, attempt)
    azure_arm.faults.add("VirtualMachines.Get", error="ResourceNotFound")
    azure_arm.faults.add(PUT, error="RequestDisallowedByPolicy", status=403)
    assert launched(provider, attempt).id == first.id
    assert [one.id for one in azure_arm.instances(live=True)] == [first.id]


def test_a_launch_that_began_elsewhere_and_goes_on_is_waited_for(azure_arm, provider):
    azure_arm.dwell(creating=20)
    attempt = attempt_at(provider)
    with ThreadPoolExecutor(2) as pool:
        found = {one.id for one in pool.map(lambda _: launched(provider, attempt), range(2))}
    assert len(found) == len(azure_arm.instances(live=True)) == 1


def test_a_replay_waits_for_a_machine_that_is_being_made_and_says_what_becomes_of_it(azure_arm, provider):
    """Azure may still find no capacity: a machine that is not made yet is none, and leaves what it had made."""
    azure_arm.dwell(creating=60)
    attempt = attempt_at(provider)
    with pytest.raises(LaunchUncertain):
        launched(provider, attempt, minutes=0)
    assert launched(provider, attempt).state is State.RUNNING


def test_a_deletion_whose_answer_names_no_operation_is_followed_by_the_group_itself(azure_arm, provider, monkeypatch):
    """The SDK takes such an answer for the end; the disk of the failed launch is billed until the group is gone."""
    waited = launch.complete

    def complete(azure, action, begin, **how):
        return begin(False) if action == groups.DELETE else waited(azure, action, begin, **how)

    monkeypatch.setattr(launch, "complete", complete)
    azure_arm.dwell(group=60)
    azure_arm.stockout(times=1)
    with pytest.raises(NoCapacity):
        launched(provider, attempt_at(provider))
    assert nothing_left(azure_arm)


def test_who_may_neither_make_a_group_nor_delete_one_is_told_so_and_nothing_is_uncertain(azure_arm, provider):
    attempt = attempt_at(provider)
    azure_arm.faults.deny("ResourceGroups.CreateOrUpdate")
    azure_arm.faults.deny("ResourceGroups.Delete")
    with pytest.raises(AuthFailed, match="resourceGroups/write"):
        launched(provider, attempt)


def test_credentials_that_end_on_the_way_are_said_as_such(azure_arm, provider):
    attempt = attempt_at(provider)
    azure_arm.faults.add(PUT, error="AuthorizationFailed", times=100)
    with pytest.raises(AuthFailed):
        launched(provider, attempt)
    assert nothing_left(azure_arm)


# Refusals leave nothing


@pytest.mark.parametrize(
    "error", ["AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest", "SkuNotAvailable"]
)
def test_no_capacity_is_said_when_all_that_was_made_is_gone(azure_arm, provider, error):
    azure_arm.stockout(error=error)
    with pytest.raises(NoCapacity, match=error):
        launched(provider, attempt_at(provider))
    assert nothing_left(azure_arm)


def test_what_a_failed_attempt_left_and_cannot_be_removed_is_uncertain(azure_arm, provider):
    azure_arm.stockout(times=1)
    azure_arm.faults.add("ResourceGroups.Delete", error="ScopeLocked", status=409, times=1)
    attempt = attempt_at(provider)
    with pytest.raises(LaunchUncertain, match="could not be removed yet"):
        launched(provider, attempt)
    assert azure_arm.billable()
    found = launched(provider, attempt)  # the same once more: it begins anew, and there is capacity
    assert [one.id for one in azure_arm.instances(live=True)] == [found.id]


def test_a_limit_that_azure_finds_full_is_a_limit_and_leaves_nothing(azure_arm, provider):
    attempt = attempt_at(provider)
    azure_arm.quota("eastus", "cores", 0)
    with pytest.raises(QuotaExceeded, match="Cores quota") as caught:
        launched(provider, attempt)
    assert "cloudgpu quota --provider azure" in caught.value.next
    assert nothing_left(azure_arm)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("InvalidParameter", InvalidRequest),
        ("RequestDisallowedByPolicy", InvalidRequest),
        ("ReadOnlyDisabledSubscription", AuthFailed),
    ],
)
def test_a_refusal_is_said_as_what_it_is_and_leaves_nothing(azure_arm, provider, error, kind):
    attempt = attempt_at(provider)
    azure_arm.faults.add(PUT, error=error, status=409, times=100)
    with pytest.raises(kind):
        launched(provider, attempt)
    assert nothing_left(azure_arm)


def test_throttled_again_and_again_is_throttled_and_waits_as_it_was_told(azure_arm, tmp_path):
    waits = []
    provider = provider_of(azure_arm, tmp_path, pause=waits.append)
    attempt = attempt_at(provider)
    azure_arm.faults.add("ResourceGroups.CreateOrUpdate", error="TooManyRequests", retry_after=7, times=100)
    with pytest.raises(RateLimited):
        launched(provider, attempt)
    assert waits == [7.0] * 3


def test_a_call_that_waits_as_azure_says_is_not_taken_for_silent(azure_arm, tmp_path):
    waits = Waits()
    provider = provider_of(azure_arm, tmp_path, pause=waits)
    attempt = attempt_at(provider)
    azure_arm.faults.add("ResourceGroups.CreateOrUpdate", error="TooManyRequests", retry_after=7, times=100)
    with pytest.raises(RateLimited):
        in_a_part(lambda: launched(provider, attempt))
    assert (waits.all, waits.given_up) == ([7.0] * 3, [])


def test_throttled_once_is_sent_again(azure_arm, provider):
    azure_arm.faults.add(PUT, error="TooManyRequests", retry_after=3)
    assert launched(provider, attempt_at(provider)).state is State.RUNNING


def test_a_silent_azure_is_no_proof_of_anything(azure_arm, provider):
    attempt = attempt_at(provider)
    azure_arm.faults.offline(region="eastus")
    with pytest.raises(ProviderUnavailable):
        launched(provider, attempt)


def test_a_group_that_is_just_being_deleted_is_waited_for_and_not_used(azure_arm, provider):
    azure_arm.dwell(group=30, deleting=10)
    attempt = attempt_at(provider)
    first = launched(provider, attempt)
    provider.terminate(first.id)
    azure_arm.advance(15)  # the machine has gone, and its group is going
    begun = azure_arm.clock.now()
    found = launched(provider, attempt)
    assert found.launched_at is not None
    assert found.launched_at >= begun + timedelta(seconds=10)


def test_boot_data_that_are_too_large_are_refused_before_anything_is_made(azure_arm, provider):
    noise = "".join(f"{number * 7919 % 100_003:x}" for number in range(60_000))
    attempt = attempt_at(provider, parts=(BootPart("on_start", f"# {noise}\n"),))
    with calls(azure_arm) as made, pytest.raises(InvalidRequest, match="bytes of boot data; Azure takes 65,535"):
        launched(provider, attempt)
    assert made == []


# The machine's own identity


@pytest.fixture
def with_role(azure_arm, tmp_path):
    """Return a provider whose account has the machine role, as `init` makes it."""
    document = (CHECKOUT / "policies" / "permissions" / "azure-machine.json").read_text()
    provider_of(azure_arm, tmp_path).make_machine_role(document)
    options = provider_of(azure_arm, tmp_path).machine_role(document).options
    return provider_of(azure_arm, tmp_path, machine_role=options["machine_role"])


def test_a_machine_may_deallocate_and_tag_itself_and_nobody_else(azure_arm, with_role):
    mine, other = (launched(with_role, attempt_at(with_role, key=key)) for key in ("one", "two"))
    deallocate, tags = "Microsoft.Compute/virtualMachines/deallocate/action", "Microsoft.Resources/tags/write"
    assert all(azure_arm.may(mine.id, one, mine.id) for one in (deallocate, tags))
    assert not any(azure_arm.may(mine.id, one, other.id) for one in (deallocate, tags))
    assert not azure_arm.may(mine.id, "Microsoft.Compute/virtualMachines/delete", mine.id)


def test_a_role_that_cannot_be_given_loses_no_machine(azure_arm, with_role):
    azure_arm.faults.deny("RoleAssignments.Create")
    said = told_by(with_role)
    found = launched(with_role, attempt_at(with_role))
    assert found.state is State.RUNNING
    assert ["cannot deallocate itself" in one for one in said] == [True]
    assert not azure_arm.may(found.id, "Microsoft.Compute/virtualMachines/deallocate/action", found.id)


def test_a_role_that_was_not_given_is_given_by_the_replay(azure_arm, with_role):
    fault = azure_arm.faults.deny("RoleAssignments.Create")
    attempt = attempt_at(with_role)
    found = launched(with_role, attempt)
    azure_arm.faults.remove(fault)
    launched(with_role, attempt)
    assert azure_arm.may(found.id, "Microsoft.Compute/virtualMachines/deallocate/action", found.id)
