"""What tests of the aws provider rest on: tokens, refusals, faults, states, quotas."""

from __future__ import annotations

import base64
import gzip
import math
import threading
import time

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.clouds.aws.images import PUBLIC
from tests.clouds.aws.plain import client, image, launch, look, spot
from tests.clouds.rest import cut_off

P_ON_DEMAND = "L-417A185B"


@pytest.fixture
def ec2(aws):
    return client()


def refused(call, **asked):
    with pytest.raises(ClientError) as said:
        call(**asked)
    return said.value.response["Error"]["Code"]


def refused_launch(ec2, **asked):
    return refused(lambda: launch(ec2, **asked))


def status_of(call):
    with pytest.raises(ClientError) as said:
        call()
    return said.value.response["ResponseMetadata"]["HTTPStatusCode"]


# Tokens.


def test_the_same_token_launches_one_machine(aws, ec2):
    first = launch(ec2, ClientToken="one")
    assert launch(ec2, ClientToken="one")["InstanceId"] == first["InstanceId"]
    assert len(aws.instances()) == 1


def test_a_lost_reply_can_be_asked_for_again(aws, ec2):
    aws.faults.lose_reply("RunInstances")
    with pytest.raises(ConnectionClosedError):
        launch(ec2, ClientToken="one")
    (made,) = aws.instances()
    assert launch(ec2, ClientToken="one")["InstanceId"] == made.id
    assert [call.answered for call in aws.called("RunInstances")] == [False, True]


def test_the_same_token_with_other_parameters_is_a_mismatch(aws, ec2):
    launch(ec2, ClientToken="one")
    assert refused_launch(ec2, ClientToken="one", InstanceType="g4dn.2xlarge") == "IdempotentParameterMismatch"


def test_a_token_does_not_span_regions(aws, ec2):
    launch(ec2, ClientToken="one")
    launch(client(region="us-west-2"), ClientToken="one")
    assert len(aws.instances()) == 2


def test_a_token_that_launched_nothing_can_be_used_again(aws, ec2):
    aws.faults.add("RunInstances", error="InsufficientInstanceCapacity")
    assert refused_launch(ec2, ClientToken="one") == "InsufficientInstanceCapacity"
    launch(ec2, ClientToken="one", InstanceType="g4dn.2xlarge")


def test_a_token_in_two_hands_at_once_launches_one_machine(aws, ec2):
    asked = {"ImageId": image(), "ClientToken": "one"}
    both = [threading.Thread(target=launch, args=(ec2,), kwargs=asked) for _ in range(4)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(aws.instances()) == 1
    assert len(aws.called("RunInstances")) == 4


def test_a_replay_shows_the_machine_as_it_is_now(aws, ec2):
    aws.dwell(shutting_down=10)
    made = launch(ec2, ClientToken="one")["InstanceId"]
    assert launch(ec2, ClientToken="one")["State"]["Name"] == "running"
    ec2.terminate_instances(InstanceIds=[made])
    assert launch(ec2, ClientToken="one")["State"]["Name"] == "shutting-down"
    aws.advance(11)
    assert refused_launch(ec2, ClientToken="one") == "IdempotentInstanceTerminated"
    aws.model.shows_terminated = True
    assert launch(ec2, ClientToken="one")["State"]["Name"] == "terminated"
    assert len(aws.instances()) == 1


def test_a_token_in_another_zone_is_another_launch(aws, ec2):
    for zone in ("us-east-1a", "us-east-1b", "us-east-1b"):
        launch(ec2, ClientToken="one", Placement={"AvailabilityZone": zone})
    assert sorted(one.availability_zone for one in aws.instances()) == ["us-east-1a", "us-east-1b"]


def test_a_volume_has_a_token_too(aws, ec2):
    asked = {"AvailabilityZone": "us-east-1b", "Size": 20, "VolumeType": "gp3", "ClientToken": "one"}
    assert ec2.create_volume(**asked)["VolumeId"] == ec2.create_volume(**asked)["VolumeId"]
    assert refused(ec2.create_volume, **{**asked, "Size": 30}) == "IdempotentParameterMismatch"


# Faults.


@pytest.mark.parametrize("status", [400, 500])
def test_no_capacity_in_one_zone_of_one_market(aws, ec2, status):
    where = {"zone": "us-east-1b", "market": "spot"}
    aws.faults.add("RunInstances", error="InsufficientInstanceCapacity", status=status, **where)
    here = {"Placement": {"AvailabilityZone": "us-east-1b"}, "ImageId": image()}
    launch(ec2, **here)
    launch(ec2, InstanceMarketOptions=spot(), ImageId=here["ImageId"], Placement={"AvailabilityZone": "us-east-1c"})
    assert status_of(lambda: launch(ec2, InstanceMarketOptions=spot(), **here)) == status
    launch(ec2, InstanceMarketOptions=spot(), **here)


def test_a_zone_is_known_by_its_subnet(aws, ec2):
    (subnet,) = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1c"]}])["Subnets"]
    aws.faults.add("RunInstances", error="InsufficientInstanceCapacity", zone="us-east-1c")
    assert refused_launch(ec2, SubnetId=subnet["SubnetId"]) == "InsufficientInstanceCapacity"


def test_a_region_can_be_silent_or_say_so(aws, ec2):
    fault = aws.faults.offline("us-east-1")
    with pytest.raises(ConnectionClosedError):
        ec2.describe_instances()
    client(region="us-west-2").describe_instances()
    aws.faults.remove(fault)
    aws.faults.offline("us-east-1", status=503)
    assert refused(ec2.describe_instances) == "Unavailable"


def test_a_refused_connection_launches_nothing(aws, ec2):
    aws.faults.refuse("RunInstances")
    with pytest.raises(ConnectionClosedError):
        launch(ec2)
    assert aws.instances() == []
    assert aws.called("RunInstances")[0].status == 0


@pytest.mark.parametrize(
    ("service", "call", "code"),
    [
        ("ec2", "describe_instances", "UnauthorizedOperation"),
        ("service-quotas", "list_requested_service_quota_change_history", "AccessDeniedException"),
        ("iam", "list_roles", "AccessDenied"),
    ],
)
def test_each_service_denies_in_its_own_words(aws, service, call, code):
    action = "".join(word.title() for word in call.split("_"))
    aws.faults.deny(action, service={"service-quotas": "servicequotas"}.get(service, service))
    assert refused(getattr(client(service), call)) == code


def test_a_hook_sees_each_call_and_can_drop_it(aws, ec2):
    seen = []

    def hook(number, action, phase):
        seen.append((number, action, phase))
        return "drop" if action == "RunInstances" and phase == "after" else None

    aws.on_call = hook
    with pytest.raises(ConnectionClosedError):
        launch(ec2)
    assert seen == [(n, a, p) for n, a in [(1, "GetParameter"), (2, "RunInstances")] for p in ("before", "after")]
    assert len(aws.instances()) == 1


def test_what_is_not_modelled_is_remembered(aws, ec2):
    with pytest.raises(ClientError):
        ec2.describe_capacity_reservations()
    assert aws.unmodelled.pop().startswith("ec2 DescribeCapacityReservations: NotImplementedError")


# Refusals.


def test_a_launch_that_cannot_be_is_refused(aws, ec2):
    arm = next(one for one in PUBLIC if one.architecture == "arm64").id_in("us-east-1")
    small = [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 5}}]
    assert refused_launch(ec2, UserData="#" + "x" * 16_384) == "InvalidParameterValue"
    assert refused_launch(ec2, ImageId=arm) == "InvalidParameterValue"
    assert refused_launch(ec2, ImageId=image("us-west-2")) == "InvalidAMIID.NotFound"
    assert refused_launch(ec2, BlockDeviceMappings=small) == "InvalidBlockDeviceMapping"
    assert refused_launch(ec2, KeyName="nobody") == "InvalidKeyPair.NotFound"
    assert refused_launch(ec2, InstanceType="p9.large") == "InvalidParameterValue"
    assert refused_launch(ec2, InstanceType="p3.2xlarge", Placement={"AvailabilityZone": "us-east-1a"}) == "Unsupported"
    assert refused_launch(client(region="eu-west-1"), InstanceType="p3.2xlarge") == "Unsupported"
    assert aws.instances() == []


def test_user_data_of_just_16384_bytes_is_taken(aws, ec2):
    launch(ec2, UserData="#" + "x" * 16_383)
    assert len(aws.instances()) == 1


def test_a_dry_run_checks_and_launches_nothing(aws, ec2):
    assert refused_launch(ec2, DryRun=True) == "DryRunOperation"
    assert refused_launch(ec2, DryRun=True, InstanceType="p9.large") == "InvalidParameterValue"
    assert aws.instances() == []


def test_a_quota_is_counted_in_vcpus_of_its_family(aws, ec2):
    aws.model.quotas["us-east-1", P_ON_DEMAND] = 8.0
    asked = {"InstanceType": "p3.2xlarge", "Placement": {"AvailabilityZone": "us-east-1b"}, "ImageId": image()}
    made = launch(ec2, **asked)
    assert refused_launch(ec2, **asked) == "VcpuLimitExceeded"
    launch(ec2)
    launch(ec2, **asked, InstanceMarketOptions=spot())
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    launch(ec2, **asked)


def test_quotas_are_shown_and_raised_on_request(aws):
    quotas = client("service-quotas")
    aws.model.quotas["us-east-1", P_ON_DEMAND] = 0.0
    assert quotas.get_service_quota(ServiceCode="ec2", QuotaCode=P_ON_DEMAND)["Quota"]["Value"] == 0
    assert client("service-quotas", "us-west-2").get_service_quota(ServiceCode="ec2", QuotaCode=P_ON_DEMAND)
    asked = {"ServiceCode": "ec2", "QuotaCode": P_ON_DEMAND, "DesiredValue": 8.0}
    assert quotas.request_service_quota_increase(**asked)["RequestedQuota"]["Status"] == "PENDING"
    assert refused(quotas.request_service_quota_increase, **asked) == "ResourceAlreadyExistsException"
    assert {one["QuotaCode"] for one in quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]} >= {P_ON_DEMAND}
    history = quotas.list_requested_service_quota_change_history_by_quota(ServiceCode="ec2", QuotaCode=P_ON_DEMAND)
    assert [one["DesiredValue"] for one in history["RequestedQuotas"]] == [8.0]


# States.


def test_states_last_as_long_as_the_server_says(aws, ec2):
    aws.dwell(pending=30, stopping=60, shutting_down=10)
    made = launch(ec2)["InstanceId"]
    seen = []
    for seconds, call in ((29, None), (2, ec2.stop_instances), (59, None), (2, ec2.terminate_instances), (9, None)):
        aws.advance(seconds)
        seen.append(look(ec2, made)["State"]["Name"])
        if call:
            call(InstanceIds=[made])
            seen.append(look(ec2, made)["State"]["Name"])
    aws.advance(2)
    seen.append(look(ec2, made)["State"]["Name"])
    states = "pending running stopping stopping stopped shutting-down shutting-down terminated"
    assert " ".join(seen) == states


def test_a_state_can_last_until_told(aws, ec2):
    aws.dwell(pending=math.inf)
    made = launch(ec2)["InstanceId"]
    assert refused(ec2.stop_instances, InstanceIds=[made]) == "IncorrectInstanceState"
    aws.finish(made)
    assert look(ec2, made)["State"]["Name"] == "running"


def test_why_a_machine_stopped_is_said_as_aws_says_it(aws, ec2):
    by_user, inside, taken = (launch(ec2), launch(ec2), launch(ec2, InstanceMarketOptions=spot()))
    ec2.describe_instances()
    ec2.stop_instances(InstanceIds=[by_user["InstanceId"]])
    aws.shut_down(inside["InstanceId"])
    aws.interrupt(taken["InstanceId"])
    said = [look(ec2, one["InstanceId"]) for one in (by_user, inside, taken)]
    assert [one["State"]["Name"] for one in said] == ["stopped", "stopped", "terminated"]
    assert [one["StateReason"]["Code"] for one in said] == [
        "Client.UserInitiatedShutdown",
        "Client.InstanceInitiatedShutdown",
        "Server.SpotInstanceTermination",
    ]
    assert said[0]["StateTransitionReason"].startswith("User initiated (2")
    assert said[0]["StateTransitionReason"].endswith(" GMT)")


def test_a_terminated_machine_is_shown_for_an_hour(aws, ec2):
    made = launch(ec2, ClientToken="one")["InstanceId"]
    ec2.terminate_instances(InstanceIds=[made])
    ec2.describe_instances()
    aws.advance(3590)
    assert look(ec2, made)["State"]["Name"] == "terminated"
    aws.advance(20)
    assert refused(ec2.describe_instances, InstanceIds=[made]) == "InvalidInstanceID.NotFound"
    assert refused_launch(ec2, ClientToken="one") == "IdempotentInstanceTerminated"


def test_shut_down_from_inside_ends_what_says_so(aws, ec2):
    made = launch(ec2, InstanceInitiatedShutdownBehavior="terminate")["InstanceId"]
    ec2.describe_instances()
    aws.shut_down(made)
    assert look(ec2, made)["State"]["Name"] == "terminated"


def test_one_machine_in_a_wrong_state_fails_the_whole_stop(aws, ec2):
    runs, gone = launch(ec2)["InstanceId"], launch(ec2)["InstanceId"]
    ec2.terminate_instances(InstanceIds=[gone])
    assert refused(ec2.stop_instances, InstanceIds=[runs, gone]) == "IncorrectInstanceState"
    assert look(ec2, runs)["State"]["Name"] == "running"
    assert refused(ec2.start_instances, InstanceIds=[gone]) == "IncorrectInstanceState"
    ec2.terminate_instances(InstanceIds=[gone])


def test_a_stopped_machine_has_no_public_address_and_a_new_one_when_started(aws, ec2):
    made = launch(ec2)["InstanceId"]
    before = look(ec2, made)
    ec2.stop_instances(InstanceIds=[made])
    assert "PublicIpAddress" not in look(ec2, made)
    aws.advance(3600)
    ec2.start_instances(InstanceIds=[made])
    after = look(ec2, made)
    assert after["PublicIpAddress"].startswith("127.20.")
    assert after["PublicIpAddress"] != before["PublicIpAddress"]
    assert after["PrivateIpAddress"] == before["PrivateIpAddress"]
    assert (after["LaunchTime"] - before["LaunchTime"]).total_seconds() >= 3600


def test_no_public_address_where_none_is_asked_for(aws, ec2):
    (subnet,) = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1c"]}])["Subnets"]
    spec = {"DeviceIndex": 0, "SubnetId": subnet["SubnetId"], "AssociatePublicIpAddress": False}
    made = look(ec2, launch(ec2, NetworkInterfaces=[spec])["InstanceId"])
    assert "PublicIpAddress" not in made
    assert made["PrivateIpAddress"].startswith("127.21.")


def test_a_security_group_is_free_when_its_machine_is_gone(aws, ec2):
    group = ec2.create_security_group(GroupName="g", Description="d")["GroupId"]
    made = launch(ec2, SecurityGroupIds=[group])["InstanceId"]
    assert refused(ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    ec2.terminate_instances(InstanceIds=[made])
    ec2.describe_instances()
    assert ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    ec2.delete_security_group(GroupId=group)


def test_machines_are_found_by_lifecycle_token_and_request(aws, ec2):
    launch(ec2, ClientToken="one")
    made = launch(ec2, ClientToken="two", InstanceMarketOptions=spot())
    for name, value in (
        ("instance-lifecycle", "spot"),
        ("client-token", "two"),
        ("spot-instance-request-id", made["SpotInstanceRequestId"]),
    ):
        found = ec2.describe_instances(Filters=[{"Name": name, "Values": [value]}])["Reservations"]
        assert [one["Instances"][0]["InstanceId"] for one in found] == [made["InstanceId"]]
    wild = ec2.describe_instances(Filters=[{"Name": "instance-type", "Values": ["g4dn.*", "p3.*"]}])["Reservations"]
    assert len(wild) == 2


def test_what_moto_drops_can_be_read_in_the_calls(aws, ec2):
    disk = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 64, "VolumeType": "gp3", "Iops": 4000, "Encrypted": True}}
    options = {"HttpTokens": "required", "InstanceMetadataTags": "enabled"}
    script = gzip.compress(b"#cloud-config\nusers: [{name: cloudgpu}]\n")
    made = launch(ec2, BlockDeviceMappings=[disk], MetadataOptions=options, UserData=script)
    (call,) = aws.called("RunInstances")
    assert call.parameters["MetadataOptions"] == options
    assert call.parameters["BlockDeviceMappings"] == [disk]
    assert (call.service, call.region, call.status) == ("ec2", "us-east-1", 200)
    assert base64.b64decode(call.parameters["UserData"]) == script
    assert aws.user_data(made["InstanceId"])[0].text.startswith("#cloud-config\nusers")
    (volume,) = ec2.describe_volumes()["Volumes"]
    assert (volume["Size"], volume["Iops"], volume["Encrypted"]) == (64, 4000, True)


def test_calls_take_their_time_side_by_side(aws, ec2):
    image_id = image()
    aws.faults.latency_s = 0.4
    begun = time.monotonic()
    threads = [threading.Thread(target=launch, args=(ec2,), kwargs={"ImageId": image_id}) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert 0.4 <= time.monotonic() - begun < 3.0  # one after another: 3.2


def test_a_request_cut_off_by_the_death_of_its_sender_is_no_request(aws):
    cut_off(aws.url, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded")
    assert not aws.calls
    assert not aws.unmodelled
