"""What a credential may do, asked of our model of AWS: it evaluates no policy, so refusals are ordered by the tests."""

from __future__ import annotations

import boto3
import pytest

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.errors import AuthFailed, InvalidRequest
from cloudgpu.providers.aws.account.permissions import CHANGE_PROBES, READ_PROBES, UNTESTED_PROBES
from tests.clouds.aws.plain import role_of_timers
from tests.providers.aws.accounts import TAGS, account, machine

ALL = {probe.action for probe in (*READ_PROBES, *CHANGE_PROBES, *UNTESTED_PROBES)}
CALLED = {probe.action.partition(":")[2] for probe in CHANGE_PROBES}


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    """One account for all: its clients are the dear part."""
    return account(tmp_path_factory.mktemp("aws"), regions=["us-east-1", "eu-west-1"])


def asked(provider, region=None):
    return {one.action: one for one in provider.permissions(region)}


def denied(found):
    return {one.action for one in found.values() if one.allowed is False}


def changed(aws):
    """The calls of changes that were not sent as dry runs."""
    return [call.action for call in aws.calls if call.action in CALLED and not call.parameters.get("DryRun")]


@pytest.mark.soak
def test_every_action_is_asked_and_nothing_is_changed(aws, provider):
    found = asked(provider)
    assert set(found) == ALL
    assert (changed(aws), aws.instances(), denied(found)) == ([], [], set())
    assert found["ec2:RunInstances"].allowed is True
    assert {call.region for call in aws.calls} == {"us-east-1"}


@pytest.mark.soak
def test_what_is_allowed_for_own_things_alone_is_not_asked_of_others(aws, provider):
    """AWS would refuse it for want of the tag, and the answer would be taken for a missing permission."""
    machine("eu-west-1", tags={"Name": "somebody's"})
    found = asked(provider, "eu-west-1")
    assert found["ec2:TerminateInstances"].allowed is None
    assert "not here" in found["ec2:TerminateInstances"].unknown_reason
    assert aws.called("TerminateInstances") + aws.called("DeleteVolume") == []
    assert {call.region for call in aws.calls if call.service == "ec2"} == {"eu-west-1"}


@pytest.mark.soak
def test_with_a_machine_of_our_own_it_is_asked_of_that_one(aws, provider):
    own = machine().partition("/")[2]
    found = asked(provider)
    dry = {"ec2:TerminateInstances", "ec2:StopInstances", "ec2:CreateTags", "ec2:CreateSnapshot", "ec2:CreateImage"}
    assert {found[action].allowed for action in dry} == {True}
    assert {tuple(call.parameters["InstanceIds"]) for call in aws.called("TerminateInstances")} == {(own,)}
    assert changed(aws) == ["RunInstances"]  # the test's own
    assert aws.instance(own).state == "running"


@pytest.mark.soak
def test_what_is_kept_on_purpose_counts_as_our_own(aws, provider):
    ec2 = boto3.client("ec2", region_name="us-east-1")
    tags = [{"ResourceType": "volume", "Tags": [{"Key": TAG_LEDGER, "Value": TAGS[TAG_LEDGER]}]}]
    ec2.create_volume(AvailabilityZone="us-east-1a", Size=1, TagSpecifications=tags)
    assert asked(provider)["ec2:DeleteVolume"].allowed is True
    assert len(ec2.describe_volumes()["Volumes"]) == 1


def test_denied_actions_are_named_and_no_others(aws, provider):
    machine()
    for action in ("DescribeSpotPriceHistory", "ImportKeyPair", "StopInstances"):
        aws.faults.deny(action)
    aws.faults.deny("GetParameters", service="ssm")
    aws.faults.add("CreateVolume", error="InvalidParameterValue")  # no refusal: nothing is known
    found = asked(provider)
    assert denied(found) == {
        "ec2:DescribeSpotPriceHistory",
        "ec2:ImportKeyPair",
        "ec2:StopInstances",
        "ssm:GetParameters",
    }
    assert {found[one].needed for one in ("ec2:ImportKeyPair", "ec2:StopInstances")} == {True}
    assert not found["ssm:GetParameters"].needed
    volume = found["ec2:CreateVolume"]
    assert (volume.allowed, volume.unknown_reason) == (None, "AWS answered InvalidParameterValue")


def test_a_role_that_is_not_there_could_be_read(aws, provider):
    assert asked(provider)["iam:GetRole"].allowed is True
    aws.faults.deny("GetRole", service="iam")
    assert asked(provider)["iam:GetRole"].allowed is False


def test_credentials_that_do_not_work_are_one_sentence(aws, provider):
    aws.faults.add(error="ExpiredToken", times=1_000)
    with pytest.raises(AuthFailed, match=r"AWS credentials of account lab .* have expired"):
        provider.permissions()


@pytest.mark.soak
def test_the_role_is_asked_for_where_the_settings_name_one(aws, tmp_path):
    own = account(tmp_path, instance_profile="cloudgpu-machine")
    own.make_machine_role((data_dir("policies") / "permissions" / "aws-machine.json").read_text())
    assert asked(own)["iam:PassRole"].allowed is True
    roles = [call.parameters.get("IamInstanceProfile") for call in aws.called("RunInstances")]
    assert {"Name": "cloudgpu-machine"} in roles


def test_a_profile_that_holds_another_role_is_refused(aws, tmp_path):
    """Machines would get the rights of that role, and the answer would say that ours is in place."""
    iam = boto3.client("iam", "us-east-1", endpoint_url=aws.url)
    own, document = account(tmp_path), (data_dir("policies") / "permissions" / "aws-machine.json").read_text()
    own.make_machine_role(document)
    names = {"InstanceProfileName": "cloudgpu-machine"}
    iam.remove_role_from_instance_profile(**names, RoleName="cloudgpu-machine")
    iam.create_role(RoleName="another", AssumeRolePolicyDocument="{}")
    iam.add_role_to_instance_profile(**names, RoleName="another")
    with pytest.raises(InvalidRequest, match="already holds another") as caught:
        own.make_machine_role(document)
    assert (caught.value.field, caught.value.value) == ("instance_profile", "cloudgpu-machine")
    iam.remove_role_from_instance_profile(**names, RoleName="another")
    own.make_machine_role(document)
    own.make_machine_role(document)
    (role,) = iam.get_instance_profile(**names)["InstanceProfile"]["Roles"]
    assert role["RoleName"] == "cloudgpu-machine"


def test_a_region_that_the_account_does_not_use_is_refused(aws, provider):
    for ask in (provider.permissions, provider.findings):
        with pytest.raises(InvalidRequest, match="does not use us-west-2"):
            ask("us-west-2")
    assert aws.calls == []


def test_a_price_list_that_takes_no_credentials_of_this_partition_leaves_all_else_known(aws, tmp_path):
    """GovCloud's are refused by us-east-1 as invalid, which is not so."""
    region = "us-gov-west-1"
    aws.faults.add("GetProducts", service="pricing", error="UnrecognizedClientException", times=99)
    found = asked(account(tmp_path, home_region=region, regions=[region]))
    assert found["pricing:GetProducts"].allowed is None
    assert "accounts of that partition alone" in found["pricing:GetProducts"].unknown_reason
    assert found["ec2:DescribeRegions"].allowed is True


def test_a_service_that_does_not_answer_leaves_all_else_known(aws, tmp_path):
    aws.faults.refuse("ListSchedules", service="scheduler", times=99)
    found = asked(account(tmp_path))
    assert found["scheduler:ListSchedules"].allowed is None
    assert "did not answer scheduler:ListSchedules" in found["scheduler:ListSchedules"].unknown_reason
    assert found["ec2:DescribeRegions"].allowed is True


def test_whether_the_role_of_timers_may_be_examined_is_asked_where_the_settings_name_it(aws, tmp_path):
    own = account(tmp_path, timer_role=role_of_timers())
    assert asked(own)["iam:SimulatePrincipalPolicy"].allowed is True
    aws.faults.deny("SimulatePrincipalPolicy", service="iam")
    assert denied(asked(own)) == {"iam:SimulatePrincipalPolicy"}
