"""What launches leave on our model of AWS beside disks: who uses it, and what is never taken for free."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from cloudgpu.core.model.offers import Market
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import InvalidRequest
from tests.clouds.aws.ec2 import backend
from tests.clouds.aws.plain import client
from tests.providers.aws.accounts import TAGS, account, calls, machine, own
from tests.providers.aws.attempts import quick


@pytest.fixture
def cloud(aws, tmp_path):
    return quick(account(tmp_path))


def of_kind(cloud, kind):
    return [one for one in cloud.orphans().items if one.kind is kind]


def test_a_region_costs_six_calls(aws, tmp_path):
    provider = quick(account(tmp_path, regions=["us-east-1", "eu-west-1"]))
    with calls(aws) as made:
        provider.orphans()
    wanted = ["Addresses", "KeyPairs", "NetworkInterfaces", "PlacementGroups", "SecurityGroups", "SpotInstanceRequests"]
    assert Counter(made) == {(f"Describe{what}", region): 1 for what in wanted for region in ("us-east-1", "eu-west-1")}


def test_a_region_with_more_placement_groups_than_a_filter_takes_hides_nothing(aws, cloud):
    tags = [{"Key": key, "Value": value} for key, value in TAGS.items()]
    specification = [{"ResourceType": "placement-group", "Tags": tags}]
    for number in range(201):
        client().create_placement_group(
            GroupName=f"cloudgpu-{number}", Strategy="spread", TagSpecifications=specification
        )
    machine(Placement={"GroupName": "cloudgpu-200"})
    groups = of_kind(cloud, Kind.PLACEMENT_GROUP)
    assert len(groups) == 201
    assert [one.name for one in groups if one.attached_to] == ["cloudgpu-200"]


def test_a_request_that_holds_a_machine_which_ec2_has_stopped_is_not_free(aws, cloud):
    """Whoever cancels it ends that machine, and what is on its disk is lost."""
    id_ = machine(market=Market.SPOT, persistent=True)
    aws.interrupt(own(id_))
    assert aws.instance(own(id_)).state == "stopped"
    (request,) = of_kind(cloud, Kind.SPOT_REQUEST)
    assert request.attached_to == id_


def test_a_request_whose_machine_was_terminated_is_free(cloud):
    id_ = machine(market=Market.SPOT, persistent=True)
    (request,) = backend("us-east-1").spot_instance_requests.values()
    request.relaunch = None  # there is no capacity for the next machine yet
    client().terminate_instances(InstanceIds=[own(id_)])
    (found,) = of_kind(cloud, Kind.SPOT_REQUEST)
    assert (found.attached_to, request.state) == (None, "open")
    cloud.remove_orphan(found)
    assert (of_kind(cloud, Kind.SPOT_REQUEST), request.state) == ([], "cancelled")


def test_a_machines_interface_and_its_group_say_who_uses_them(cloud):
    tags = [{"ResourceType": "security-group", "Tags": [{"Key": key, "Value": value} for key, value in TAGS.items()]}]
    group = client().create_security_group(GroupName="ours", Description="x", TagSpecifications=tags)["GroupId"]
    id_ = machine(SecurityGroupIds=[group])
    (found,) = of_kind(cloud, Kind.SECURITY_GROUP)
    assert (found.id, found.name, found.size_gb, found.stored_as) == (f"us-east-1/{group}", "ours", 0, "")
    with pytest.raises(InvalidRequest):
        cloud.remove_orphan(found)
    cloud.terminate(id_)
    cloud.remove_orphan(found)
    assert of_kind(cloud, Kind.SECURITY_GROUP) == []


@pytest.mark.parametrize("bad", ["vol-0123456789abcdef0", "us-east-1/i-0123456789abcdef0", "nowhere/eipalloc-1"])
def test_an_id_of_something_else_is_refused_before_it_is_asked(aws, cloud, bad):
    tags = [{"ResourceType": "elastic-ip", "Tags": [{"Key": "cloudgpu-ledger", "Value": "led-1"}]}]
    client().allocate_address(Domain="vpc", TagSpecifications=tags)
    (address,) = of_kind(cloud, Kind.ADDRESS)
    assert (address.stored_as, address.attached_to) == ("public_ipv4", None)
    with calls(aws) as made, pytest.raises(InvalidRequest):
        cloud.remove_orphan(replace(address, id=bad))
    assert made == []
