"""What a launch makes, read back with plain boto3 point by point; and that no fault on the way makes a second one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.agent.program import source as agent_source
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
from cloudgpu.providers.aws.network.network import group_name, key_name
from tests.clouds.aws.plain import client, look
from tests.providers.aws.accounts import account, calls, own
from tests.providers.aws.attempts import CALLER, USUAL, attempt_at, offered, quick, saved, soon

ONE_TIME = {"market": Market.SPOT}


@pytest.fixture
def provider(aws, tmp_path):
    return quick(account(tmp_path))


def asked(aws):
    """Return the parameters of the one launch as they were sent."""
    (call,) = (one for one in aws.called("RunInstances") if one.status == 200)
    return call.parameters


def machines(aws):
    return aws.instances(live=True)


def launch_once(aws, provider, attempt):
    made = provider.launch(attempt, deadline=soon())
    return made, look(client(), own(made.id)), asked(aws)


# What is made


def test_a_machine_is_made_as_it_was_asked_for(aws, provider):
    attempt = attempt_at(provider)
    made, found, sent = launch_once(aws, provider, attempt)
    assert (made.state, made.id) == (State.PENDING, f"us-east-1/{found['InstanceId']}")
    assert (found["InstanceType"], found["Placement"]["AvailabilityZone"]) == ("g4dn.xlarge", "us-east-1b")
    assert found["ImageId"] == attempt.call["image"]
    assert found["ClientToken"] == sent["ClientToken"] == attempt.token
    assert "InstanceLifecycle" not in found
    assert sent["InstanceInitiatedShutdownBehavior"] == "stop"
    assert "IamInstanceProfile" not in sent
    assert (sent["MinCount"], sent["MaxCount"]) == (1, 1)
    assert "CreditSpecification" not in sent


def test_the_metadata_need_a_session_reach_one_hop_and_show_the_tags(aws, provider):
    _, found, sent = launch_once(aws, provider, attempt_at(provider))
    wanted = {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
        "InstanceMetadataTags": "enabled",
    }
    assert sent["MetadataOptions"] == wanted
    assert found["MetadataOptions"]["HttpTokens"] == "required"


def test_a_machine_gets_the_profile_of_the_settings(aws, tmp_path):
    client("iam").create_instance_profile(InstanceProfileName="cloudgpu-machine")
    provider = quick(account(tmp_path, instance_profile="cloudgpu-machine"))
    _, found, sent = launch_once(aws, provider, attempt_at(provider))
    assert sent["IamInstanceProfile"] == {"Name": "cloudgpu-machine"}
    assert found["IamInstanceProfile"]["Arn"].endswith("/cloudgpu-machine")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "InvalidParameterValue",
            "Value (gone) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance",
        ),
        ("NoSuchEntity", "Instance profile gone not found"),
    ],
)
def test_a_profile_that_is_gone_is_said_with_the_way_out(aws, tmp_path, code, message):
    provider = quick(account(tmp_path, instance_profile="gone"))
    aws.faults.add("RunInstances", error=code, message=message)
    with pytest.raises(InvalidRequest, match="gone") as caught:
        provider.launch(attempt_at(provider), deadline=soon())
    assert caught.value.field == "accounts.lab.instance_profile"
    assert "cloudgpu init aws" in caught.value.next


def test_everything_is_tagged_in_the_creating_call(aws, provider):
    attempt = attempt_at(provider, offered(provider, **ONE_TIME))
    _, found, sent = launch_once(aws, provider, attempt)
    ours = {"Name": attempt.request.name, **attempt.tags}
    by_kind = {
        one["ResourceType"]: {tag["Key"]: tag["Value"] for tag in one["Tags"]} for one in sent["TagSpecifications"]
    }
    assert by_kind["volume"].pop("cloudgpu-boot").startswith("x86_64_sda1_")  # what only a disk needs
    assert by_kind == dict.fromkeys(("instance", "volume", "network-interface", "spot-instances-request"), ours)
    disk = found["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    request = found["SpotInstanceRequestId"]
    for resource in (found["InstanceId"], disk, request):
        read = client().describe_tags(Filters=[{"Name": "resource-id", "Values": [resource]}])["Tags"]
        assert {tag["Key"]: tag["Value"] for tag in read}.items() >= ours.items()
    assert not aws.called("CreateTags")
    assert all(" " not in key and "/" not in key for key in ours)  # others cannot be shown in the metadata


def test_the_root_disk_is_encrypted_and_of_the_size_that_was_resolved(aws, provider):
    setup = replace(USUAL, disk_gb=123)
    _, found, sent = launch_once(aws, provider, attempt_at(provider, setup=setup))
    (mapping,) = sent["BlockDeviceMappings"]
    wanted = {"VolumeSize": 123, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    assert mapping == {"DeviceName": "/dev/sda1", "Ebs": wanted}
    (disk,) = client().describe_volumes(VolumeIds=[found["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]])["Volumes"]
    assert (disk["Size"], disk["Encrypted"], disk["VolumeType"]) == (123, True, "gp3")


def test_a_one_time_spot_machine_is_ended_by_its_own_shutdown_and_keeps_its_disk(aws, provider):
    attempt = attempt_at(provider, offered(provider, **ONE_TIME))
    _, found, sent = launch_once(aws, provider, attempt)
    assert found["InstanceLifecycle"] == "spot"
    options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    assert sent["InstanceMarketOptions"] == {"MarketType": "spot", "SpotOptions": options}
    assert sent["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert sent["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"] is False


def test_a_persistent_spot_machine_is_stopped_and_its_disk_goes_with_it(aws, provider):
    setup = replace(USUAL, persistent=True)
    item = offered(provider, persistent=True, **ONE_TIME)
    _, _, sent = launch_once(aws, provider, attempt_at(provider, item, setup=setup))
    options = {"SpotInstanceType": "persistent", "InstanceInterruptionBehavior": "stop"}
    assert sent["InstanceMarketOptions"] == {"MarketType": "spot", "SpotOptions": options}
    assert sent["InstanceInitiatedShutdownBehavior"] == "stop"
    assert sent["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"] is True


def test_a_price_limit_is_told_to_the_spot_market_and_to_nobody_else(aws, provider):
    limit = Money.usd("0.3055")
    attempt = attempt_at(provider, offered(provider, **ONE_TIME), max_price=limit)
    provider.launch(attempt, deadline=soon())
    assert asked(aws)["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] == "0.3055"
    provider.launch(attempt_at(provider, key="other", max_price=limit), deadline=soon())
    assert "InstanceMarketOptions" not in aws.called("RunInstances")[-1].parameters


def test_a_burstable_machine_buys_no_credits_beyond_its_price(aws, provider):
    item = offered(provider, "t3.small")
    _, _, sent = launch_once(aws, provider, attempt_at(provider, item))
    assert sent["CreditSpecification"] == {"CpuCredits": "standard"}


def test_the_network_is_the_default_one_with_a_public_address_and_our_group(aws, provider):
    attempt = attempt_at(provider)
    _, found, sent = launch_once(aws, provider, attempt)
    (interface,) = sent["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is True
    assert (interface["DeviceIndex"], interface["SubnetId"]) == (0, attempt.call["subnet"])
    (group,) = client().describe_security_groups(GroupIds=interface["Groups"])["SecurityGroups"]
    assert group["GroupName"].startswith("cloudgpu-tester-")
    assert {"Key": "cloudgpu-owner", "Value": "tester"} in group["Tags"]
    (rule,) = group["IpPermissions"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 22, 22)
    assert [(one["CidrIp"], one["Description"]) for one in rule["IpRanges"]] == [(CALLER, "cloudgpu caller")]
    assert rule.get("Ipv6Ranges", []) == []
    assert provider.allowed(f"us-east-1/{found['InstanceId']}") == {"caller": CALLER}


def test_the_key_pair_is_imported_under_a_name_of_its_own(aws, provider):
    attempt = attempt_at(provider)
    _, found, _ = launch_once(aws, provider, attempt)
    line = attempt.boot.client_public_keys[0]
    assert found["KeyName"] == key_name(line)
    (pair,) = client().describe_key_pairs(KeyNames=[found["KeyName"]], IncludePublicKey=True)["KeyPairs"]
    assert pair["PublicKey"].split()[1] == line.split()[1]
    assert {"Key": "cloudgpu-owner", "Value": "tester"} in pair["Tags"]


def test_the_user_data_bring_user_host_key_and_lease(aws, provider):
    parts = (BootPart("on_start", "echo hello\n"), BootPart("packages", "git"), BootPart("disk_gb", "100"))
    attempt = attempt_at(provider, parts=parts, agent_source=agent_source(), jupyter=("jupyter", "lab"))
    made, _, _ = launch_once(aws, provider, attempt)
    hook, config = aws.user_data(own(made.id))
    assert hook.type == "text/cloud-boothook"
    assert f"expires={attempt.tags['cloudgpu-expires']}\n" in hook.text
    assert attempt.boot.host_public_key in config.text
    assert "echo hello" in config.text


def test_no_public_address_where_none_is_wanted(aws, provider):
    setup = replace(USUAL, network=Network(public_ip=False))
    attempt = attempt_at(provider, setup=setup)
    made, _, sent = launch_once(aws, provider, attempt)
    assert sent["NetworkInterfaces"][0]["AssociatePublicIpAddress"] is False
    assert provider.allowed(made.id) == {"inside": "172.31.0.0/16"}


def test_all_ranges_of_its_vpc_reach_a_machine_without_a_public_address(aws, provider):
    ec2 = client()
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    ranges = ("100.64.0.0/16", "100.65.0.0/16")
    added = [ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock=one)["CidrBlockAssociation"] for one in ranges]
    ec2.disassociate_vpc_cidr_block(AssociationId=added[0]["AssociationId"])
    attempt = attempt_at(provider, setup=replace(USUAL, network=Network(public_ip=False)))
    made, _, _ = launch_once(aws, provider, attempt)
    assert provider.allowed(made.id) == {"inside": "172.31.0.0/16", "inside-2": "100.65.0.0/16"}
    (rule,) = ec2.describe_security_groups(Filters=[{"Name": "tag-key", "Values": ["cloudgpu-ledger"]}])[
        "SecurityGroups"
    ][0]["IpPermissions"]
    descriptions = {(one["CidrIp"], one["Description"]) for one in rule["IpRanges"]}
    assert descriptions == {("172.31.0.0/16", "cloudgpu inside"), ("100.65.0.0/16", "cloudgpu inside-2")}


def test_somebody_elses_group_is_used_as_it_is(aws, provider):
    ec2 = client()
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    theirs = ec2.create_security_group(GroupName="theirs", Description="x", VpcId=vpc)["GroupId"]
    setup = replace(USUAL, network=Network(security_group=theirs))
    attempt = attempt_at(provider, setup=setup)
    with calls(aws) as made:
        provider.launch(attempt, deadline=soon())
    assert asked(aws)["NetworkInterfaces"][0]["Groups"] == [theirs]
    assert sorted(action for action, _ in made) == ["DescribeKeyPairs", "ImportKeyPair", "RunInstances"]


# Calls


def test_a_first_launch_makes_six_calls_and_a_second_three(aws, provider):
    first, second = attempt_at(provider), attempt_at(provider, key="second")
    second = replace(second, boot=replace(second.boot, client_public_keys=first.boot.client_public_keys))
    with calls(aws) as made:
        provider.launch(first, deadline=soon())
    assert sorted(action for action, _ in made) == [
        "AuthorizeSecurityGroupIngress",
        "CreateSecurityGroup",
        "DescribeKeyPairs",
        "DescribeSecurityGroups",
        "ImportKeyPair",
        "RunInstances",
    ]
    with calls(aws) as made:
        provider.launch(second, deadline=soon())
    assert sorted(action for action, _ in made) == ["DescribeKeyPairs", "DescribeSecurityGroups", "RunInstances"]


def test_a_new_address_of_the_caller_moves_the_rule(aws, provider):
    provider.launch(attempt_at(provider), deadline=soon())
    moved = replace(USUAL, network=Network(ssh_from=("198.51.100.9/32",)))
    made = provider.launch(attempt_at(provider, setup=moved, key="second"), deadline=soon())
    assert provider.allowed(made.id) == {"caller": "198.51.100.9/32"}


def test_another_owner_and_another_ledger_have_groups_of_their_own(aws, provider):
    first = attempt_at(provider)
    other = attempt_at(provider, ledger="led-other")
    for attempt in (first, other):
        provider.launch(attempt, deadline=soon())
    names = [one["GroupName"] for one in client().describe_security_groups()["SecurityGroups"]]
    assert len([name for name in names if name.startswith("cloudgpu-tester-")]) == 2


def test_two_launches_at_once_share_what_both_of_them_make(aws, provider):
    first = attempt_at(provider)
    twins = [replace(attempt_at(provider, key=f"twin-{number}"), boot=first.boot) for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda one: provider.launch(one, deadline=soon()), twins))
    assert len({one.id for one in made}) == 3
    groups = {sent["NetworkInterfaces"][0]["Groups"][0] for sent in (c.parameters for c in aws.called("RunInstances"))}
    assert len(groups) == 1


@pytest.mark.parametrize("what", ["key pair", "security group"])
def test_what_bears_our_name_and_is_not_ours_is_not_used(aws, provider, what):
    attempt = attempt_at(provider)
    ec2 = client()
    if what == "key pair":
        other = attempt_at(provider, key="other").boot.client_public_keys[0]
        ec2.import_key_pair(KeyName=key_name(attempt.boot.client_public_keys[0]), PublicKeyMaterial=other.encode())
    else:
        ec2.create_security_group(GroupName=group_name(attempt), Description="x", VpcId=attempt.call["vpc"])
    with pytest.raises(InvalidRequest):
        provider.launch(attempt, deadline=soon())
    assert not aws.instances()


# Never two


def test_a_replay_in_another_process_returns_the_same_machine(aws, provider, tmp_path):
    attempt = attempt_at(provider)
    made = provider.launch(attempt, deadline=soon())
    again = quick(account(tmp_path / "other")).launch(saved(attempt), deadline=soon())
    assert again.id == made.id
    first, second = (dict(call.parameters) for call in aws.called("RunInstances"))
    assert first == second


def test_a_replay_does_what_was_saved_and_not_what_the_settings_say_now(aws, provider, tmp_path):
    attempt = attempt_at(provider)
    made = provider.launch(attempt, deadline=soon())
    changed = quick(account(tmp_path / "other", instance_profile="another", ssh_port=2222))
    assert changed.launch(saved(attempt), deadline=soon()).id == made.id


@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_reply_never_launches_twice(aws, tmp_path, times):
    waits = []
    provider = quick(account(tmp_path, pause=waits.append))
    aws.faults.lose_reply("RunInstances", times=times)
    made = provider.launch(attempt_at(provider), deadline=soon())
    assert [one.id for one in machines(aws)] == [own(made.id)]
    assert len(aws.called("RunInstances")) == times + 1
    assert waits == [1.0, 2.0, 4.0][:times]


def test_a_launch_that_is_done_and_never_answered_is_uncertain_and_its_replay_returns_it(aws, tmp_path):
    provider = account(tmp_path)
    attempt = attempt_at(provider)
    provider._aws.timeouts.change_s = 0.5
    fault = aws.faults.hang("RunInstances", done=True)
    with pytest.raises(LaunchUncertain, match="AWS us-east-1 did not answer RunInstances"):
        provider.launch(attempt, deadline=soon())
    assert len(aws.called("RunInstances")) == 2
    aws.faults.remove(fault)
    provider = account(tmp_path)
    assert [one.id for one in machines(aws)] == [own(provider.launch(attempt, deadline=soon()).id)]


@pytest.mark.parametrize("error", ["InternalError", "Unavailable", "RequestLimitExceeded"])
def test_what_may_pass_is_sent_again_with_the_same_token(aws, provider, error):
    aws.faults.add("RunInstances", error=error, times=2)
    attempt = attempt_at(provider)
    provider.launch(attempt, deadline=soon())
    assert len(machines(aws)) == 1
    assert {call.parameters["ClientToken"] for call in aws.called("RunInstances")} == {attempt.token}
    assert len(aws.called("RunInstances")) == 3


def test_a_lost_reply_and_then_a_refusal_return_the_machine_that_was_made(aws, provider):
    aws.faults.lose_reply("RunInstances")
    aws.faults.add("RunInstances", error="VcpuLimitExceeded")
    made = provider.launch(attempt_at(provider), deadline=soon())
    assert [one.id for one in machines(aws)] == [own(made.id)]


def test_a_call_that_never_arrived_and_then_a_refusal_is_that_refusal(aws, provider):
    aws.faults.refuse("RunInstances")
    aws.faults.add("RunInstances", error="InsufficientInstanceCapacity")
    with pytest.raises(NoCapacity):
        provider.launch(attempt_at(provider), deadline=soon())
    assert not aws.instances()


def test_credentials_that_end_after_a_lost_reply_leave_it_uncertain(aws, provider):
    attempt = attempt_at(provider)
    aws.faults.lose_reply("RunInstances")
    aws.faults.add("RunInstances", error="ExpiredToken")
    aws.faults.add("DescribeInstances", error="ExpiredToken")
    with pytest.raises(LaunchUncertain, match="not known whether AWS has made the machine in us-east-1b"):
        provider.launch(attempt, deadline=soon())
    assert len(machines(aws)) == 1
    assert provider.launch(attempt, deadline=soon()).id == f"us-east-1/{machines(aws)[0].id}"


def test_other_parameters_under_the_same_token_return_what_it_made(aws, provider):
    attempt = attempt_at(provider)
    made = provider.launch(attempt, deadline=soon())
    other = replace(attempt, boot=replace(attempt.boot, agent_source="print('another version')\n"))
    assert provider.launch(other, deadline=soon()).id == made.id
    assert len(machines(aws)) == 1


def test_other_parameters_whose_machine_cannot_be_seen_are_uncertain(aws, provider):
    aws.faults.add("RunInstances", error="IdempotentParameterMismatch")
    with pytest.raises(LaunchUncertain):
        provider.launch(attempt_at(provider), deadline=soon())


def test_after_the_deadline_nothing_is_sent_any_more(aws, tmp_path):
    clock = [datetime.now(UTC)]
    provider = quick(
        account(tmp_path, clock=lambda: clock[0], pause=lambda s: clock.append(clock.pop() + timedelta(0, s)))
    )
    attempt = attempt_at(provider)
    aws.faults.lose_reply("RunInstances", times=100)
    with pytest.raises(LaunchUncertain) as caught:
        provider.launch(attempt, deadline=clock[0] + timedelta(seconds=30))
    assert len(aws.called("RunInstances")) == 5  # after 0, 1, 3, 7 and 15 seconds
    assert "same token" in caught.value.next
    aws.faults.clear()
    assert provider.launch(attempt, deadline=clock[0] + timedelta(seconds=30)).id == f"us-east-1/{machines(aws)[0].id}"


def test_throttled_until_the_deadline_is_throttled(aws, tmp_path):
    clock = [datetime.now(UTC)]
    provider = quick(
        account(tmp_path, clock=lambda: clock[0], pause=lambda s: clock.append(clock.pop() + timedelta(0, s)))
    )
    attempt = attempt_at(provider)
    aws.faults.add("RunInstances", error="RequestLimitExceeded", times=100)
    with pytest.raises(RateLimited):
        provider.launch(attempt, deadline=clock[0] + timedelta(seconds=10))
    assert not aws.instances()


@pytest.mark.parametrize("action", ["RunInstances", "AuthorizeSecurityGroupIngress"])
def test_what_was_just_made_may_not_be_known_everywhere_yet(aws, tmp_path, action):
    waits = []
    provider = quick(account(tmp_path, pause=waits.append))
    aws.faults.add(action, error="InvalidGroup.NotFound", times=2)
    provider.launch(attempt_at(provider), deadline=soon())
    assert waits == [1.0, 2.0]
    assert len(machines(aws)) == 1


@pytest.mark.parametrize("action", ["RunInstances", "AuthorizeSecurityGroupIngress"])
def test_what_stays_unknown_is_refused(aws, provider, action):
    aws.faults.add(action, error="InvalidGroup.NotFound", times=100)
    with pytest.raises(InvalidRequest, match=r"InvalidGroup\.NotFound"):
        provider.launch(attempt_at(provider), deadline=soon())
    assert not aws.instances()


# Refusals


@pytest.mark.parametrize("status", [400, 500])
def test_no_capacity_is_said_at_once_whatever_its_status(aws, provider, status):
    aws.faults.add("RunInstances", error="InsufficientInstanceCapacity", status=status, times=100)
    with pytest.raises(NoCapacity):
        provider.launch(attempt_at(provider), deadline=soon())
    assert len(aws.called("RunInstances")) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("VcpuLimitExceeded", QuotaExceeded),
        ("MaxSpotInstanceCountExceeded", QuotaExceeded),
        ("SpotMaxPriceTooLow", NoCapacity),
        ("UnauthorizedOperation", AuthFailed),
        ("ExpiredToken", AuthFailed),
        ("InvalidParameterValue", InvalidRequest),
    ],
)
def test_a_refusal_is_said_at_once_as_what_it_is(aws, provider, code, kind):
    aws.faults.add("RunInstances", error=code, times=100)
    with pytest.raises(kind):
        provider.launch(attempt_at(provider), deadline=soon())
    assert len(aws.called("RunInstances")) == 1
    assert not aws.instances()


def test_boot_data_that_are_too_large_are_refused_before_anything_is_made(aws, provider):
    noise = "".join(f"{number * 7919 % 100_003:x}" for number in range(12_000))
    attempt = attempt_at(provider, parts=(BootPart("on_start", f"# {noise}\n"),))
    with calls(aws) as made, pytest.raises(InvalidRequest, match="bytes of boot data"):
        provider.launch(attempt, deadline=soon())
    assert made == []


def test_a_silent_region_is_no_proof_of_anything(aws, provider):
    attempt = attempt_at(provider)
    aws.faults.add("DescribeKeyPairs", error="Unavailable", times=100)
    with pytest.raises(ProviderUnavailable):
        provider.launch(attempt, deadline=soon())
    assert not aws.instances()
