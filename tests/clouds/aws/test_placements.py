"""Our model of AWS where several machines are launched at once: placement groups, counts, tokens, room in a zone."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.clouds.aws.plain import client, launch, look, spot

G4 = "g4dn.xlarge"


@pytest.fixture
def ec2(aws):
    return client()


@pytest.fixture
def group(ec2):
    ec2.create_placement_group(GroupName="close", Strategy="cluster")
    return {"Placement": {"GroupName": "close"}}


def refused(code, call, **asked):
    with pytest.raises(ClientError) as caught:
        call(**asked)
    assert caught.value.response["Error"]["Code"] == code


def several(ec2, count, **more):
    """Launch so many and return them."""
    launch(ec2, MinCount=count, MaxCount=count, ClientToken="all", **more)
    found = ec2.describe_instances(Filters=[{"Name": "client-token", "Values": ["all"]}])["Reservations"]
    return [one for part in found for one in part["Instances"]]


@pytest.mark.soak
def test_a_group_is_there_once_and_unknown_after_its_end(ec2, group):
    refused("InvalidPlacementGroup.Duplicate", ec2.create_placement_group, GroupName="close", Strategy="spread")
    refused("MissingParameter", ec2.create_placement_group, GroupName="other")
    (found,) = ec2.describe_placement_groups(GroupNames=["close"])["PlacementGroups"]
    assert (found["State"], found["Strategy"], found["GroupId"][:3]) == ("available", "cluster", "pg-")
    ec2.delete_placement_group(GroupName="close")
    for call, asked in (
        (ec2.delete_placement_group, {"GroupName": "close"}),
        (ec2.describe_placement_groups, {"GroupNames": ["close"]}),
        (ec2.describe_placement_groups, {"GroupIds": [found["GroupId"]]}),
    ):
        refused("InvalidPlacementGroup.Unknown", call, **asked)
    refused("InvalidPlacementGroup.Unknown", launch, ec2=ec2, **group)


def test_a_group_is_in_use_while_its_machines_shut_down(aws, ec2, group):
    made = launch(ec2, **group)["InstanceId"]
    assert look(ec2, made)["Placement"]["GroupName"] == "close"
    aws.dwell(shutting_down=30)
    ec2.terminate_instances(InstanceIds=[made])
    refused("InvalidPlacementGroup.InUse", ec2.delete_placement_group, GroupName="close")
    aws.advance(31)
    ec2.delete_placement_group(GroupName="close")


def test_a_group_takes_only_types_that_can_be_placed_and_one_zone(ec2, group):
    refused("InvalidParameterCombination", launch, ec2=ec2, InstanceType="t3.micro", **group)
    zones = {one["AvailabilityZone"]: one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]}
    launch(ec2, SubnetId=zones["us-east-1b"], **group)
    refused("InvalidParameterValue", launch, ec2=ec2, SubnetId=zones["us-east-1c"], **group)


def test_several_of_one_call_have_an_index_each_and_a_token_for_so_many(ec2):
    assert sorted(one["AmiLaunchIndex"] for one in several(ec2, 3)) == [0, 1, 2]
    assert len(several(ec2, 3)) == 3, "a replay returns those that there are"
    refused("IdempotentParameterMismatch", several, ec2=ec2, count=4)
    refused("InvalidParameterValue", launch, ec2=ec2, MinCount=2, MaxCount=1)


def test_a_zone_with_room_for_two_makes_none_of_three_and_two_of_one_to_three(aws, ec2):
    zone = look(ec2, launch(ec2)["InstanceId"])["Placement"]["AvailabilityZone"]
    aws.leave(G4, zone, 2)
    refused("InsufficientInstanceCapacity", launch, ec2=ec2, MinCount=3, MaxCount=3)
    assert len(aws.instances()) == 1
    launch(ec2, MinCount=1, MaxCount=3)
    assert len(aws.instances()) == 3


def test_a_stopped_machine_gives_its_room_back_and_needs_it_again(aws, ec2):
    made = launch(ec2)["InstanceId"]
    zone = look(ec2, made)["Placement"]["AvailabilityZone"]
    aws.leave(G4, zone, 0)
    ec2.stop_instances(InstanceIds=[made])
    other = launch(ec2)["InstanceId"]
    refused("InsufficientInstanceCapacity", ec2.start_instances, InstanceIds=[made])
    ec2.terminate_instances(InstanceIds=[other])
    ec2.start_instances(InstanceIds=[made])


def test_each_of_several_on_spot_has_a_request_of_its_own(ec2):
    made = several(ec2, 2, InstanceMarketOptions=spot())
    requests = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert {one["InstanceId"] for one in requests} == {one["InstanceId"] for one in made}
    assert len({one["SpotInstanceRequestId"] for one in made}) == 2


def test_the_next_machine_of_a_persistent_request_of_several_comes_alone(aws, ec2):
    lasting = {"SpotInstanceType": "persistent", "InstanceInterruptionBehavior": "terminate"}
    made = several(ec2, 2, InstanceMarketOptions=spot(**lasting))
    aws.interrupt(made[1]["InstanceId"])
    assert len(aws.instances(live=True)) == 2
