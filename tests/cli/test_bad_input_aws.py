"""Bad input about AWS, on our model of it: exit code, field, value, the way out; nothing launched, nothing recorded."""

from __future__ import annotations

import pytest

from cloudgpu.control.outage.opening import open_session
from tests.cli import bad_input
from tests.cli.aws_line import Line
from tests.cli.bad_input import BARE, COMMON, Case
from tests.clouds.aws import images
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client

__all__ = ["aws", "aws_process"]
UP = "up --yes --ssh-from 203.0.113.7 --gpu v100 --region us-east-1"
MADE = {"RunInstances", "CreateVolume", "CreateSecurityGroup", "ImportKeyPair", "CreateTags", "CreateImage"}


@pytest.fixture
def line(own_home, capsys, aws):
    return Line(own_home, capsys, aws)


PLACES = [
    Case(f"{BARE} --gpu v100 --region us-esat-1", "--region", "did you mean 'us-east-1'?", "Use us-east-1."),
    Case(f"{BARE} --gpu v100 --region westeurope", "--region", "has no region 'westeurope'", "Use one of: "),
    Case(f"{BARE} --gpu v100 --region eu-west-1", "--region", "does not use eu-west-1", "config.toml"),
    Case(f"{UP} --zone us-west-2a", "--zone", "is in us-west-2, not in us-east-1", "Leave --region out"),
    Case(f"{BARE} --gpu v100 --zone us-east-1z", "--zone", "has no zone 'us-east-1z'", "Use one of: us-east-1a"),
    Case(f"{BARE} --gpu v100 --zone moon", "--zone", "'moon' is not an availability zone", "us-east-1a"),
    Case(f"{BARE} --gpu v100 --zone us-east-1a", "--zone", "it does in us-east-1b", "--zone us-east-1b", 4),
]
TYPES = [
    Case(f"{BARE} --instance-type p3.2xlrage", "--instance-type", "did you mean 'p3.2xlarge'?", "Use p3.2xlarge"),
    Case(f"{BARE} --instance-type m9x.huge", "--instance-type", "no instance type 'm9x.huge'", "cloudgpu gpus"),
    Case(f"{BARE} --instance-type t3.small --gpu v100", "--gpu", "t3.small has no GPU", "--instance-type out"),
    Case(f"{BARE} --instance-type g5.xlarge --gpu v100", "--gpu", "g5.xlarge has 1x A10G", "--instance-type out"),
    Case(f"{BARE} --gpu v100:3", "--gpu", "1, 4 or 8", "--gpu v100:4", 4),
    Case(f"{BARE} --gpu k80", "--gpu", "launches it in no region", "Nearest by memory and speed", 4),
    Case(f"{UP} --max-price 0.5", "--max-price", "the cheapest offer costs $3.0600", "--max-price 3.06", 4),
]
DISKS = [
    Case(f"{UP} --disk 5", "--disk", "disk of 5 GB cannot be", "Ask for "),
    Case(f"{UP} --disk 20000", "--disk", "disk of 20,000 GB cannot be", "to 16384 GB"),
    Case(f"{UP} --volume data:20000", "--volume", "volume of 20,000 GB cannot be", "data:16384"),
]
IMAGES = [
    Case(f"{UP} --image trained", "--image", "trained", "cloudgpu image ls"),
    Case(f"{UP} --image ami-00000000000000000", "--image", "ami-00000000000000000", "image"),
    Case(f"{UP} --image ami-xyz", "--image", "ami-xyz", "image"),
]
NETWORK = [
    Case(f"{UP} --subnet subnet-0", "--subnet", "subnet-0", "describe-subnets --region us-east-1"),
    Case(f"{UP} --subnet subnet-00000000000000000", "--subnet", "subnet-00000000000000000", "describe-subnets"),
    Case("up --yes --gpu v100 --security-group sg-0", "--security-group", "sg-0", "describe-security-groups"),
    Case(f"{UP} --security-group sg-0a1b2c3d", "--ssh-from", "contradicts --security-group", "Leave --ssh-from out"),
]
MARKETS = [
    Case(f"{UP} --persistent", "--persistent", "for spot machines", "Add --spot"),
    Case("up --yes --provider local --image x", "--image", "local provider has no images", "another --provider"),
    Case("up --yes --provider gpc --gpu v100", "provider", "gpc", "gcp"),
    Case("up --yes --provider any --account lab --gpu v100", "--account", "every cloud account", "Leave one"),
    Case(UP.replace("--yes ", ""), "--yes", "no terminal to ask on", "Add --yes"),
]
CASES = [*(case.on(UP) for case in COMMON), *PLACES, *TYPES, *DISKS, *IMAGES, *NETWORK, *MARKETS]


@pytest.mark.parametrize("case", CASES, ids=bad_input.named)
def test_bad_input_is_named_and_nothing_is_launched(case, line):
    check(case, line)


def check(case, line):
    bad_input.check(case, line, MADE)


def volume(zone="us-east-1a", name="data", size=20):
    """Make a data volume of ours with plain boto3."""
    tags = {"cloudgpu-volume": name, "cloudgpu-ledger": "", "cloudgpu-owner": "ada"}
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    kind = [{"ResourceType": "volume", "Tags": pairs}]
    return client().create_volume(AvailabilityZone=zone, Size=size, VolumeType="gp3", TagSpecifications=kind)[
        "VolumeId"
    ]


@pytest.fixture
def data(line):
    """A data volume of this ledger, in a zone without V100."""
    line("ls")  # makes the ledger
    made = volume()
    ledger = open_session({"CLOUDGPU_HOME": str(line.home)}).ledger.id
    client().create_tags(Resources=[made], Tags=[{"Key": "cloudgpu-ledger", "Value": ledger}])
    return made


def test_a_volume_in_another_region_or_zone_is_said_to_be_there(line, data):
    words = "up --yes --ssh-from 203.0.113.7 --gpu v100 --volume data"
    check(Case(f"{words} --region us-west-2", "--zone", "volume data is in us-east-1a", "us-east-1a"), line)
    check(Case(f"{words} --zone us-east-1b", "--zone", "volume data is in us-east-1a", "--zone us-east-1a"), line)


def test_a_volume_binds_the_launch_to_a_zone_that_may_not_sell_what_is_wanted(line, data):
    words = "up --yes --ssh-from 203.0.113.7 --gpu v100 --volume data"
    says = "does not launch 1x v100 in us-east-1a: it does in us-east-1b"
    check(Case(words, "--zone", says, "The place is that of --volume data: name another, or leave it out.", 4), line)


def test_a_volume_keeps_its_size(line, data):
    words = "up --yes --ssh-from 203.0.113.7 --gpu t4 --volume"
    check(Case(f"{words} data:30", "--volume", "has 20 GB, not 30", "--volume data"), line)
    check(Case(f"{words} dada", "--volume", "did you mean 'data'?", "Use data"), line)


def test_an_account_without_a_default_vpc_is_told_the_way_out(line):
    ec2 = client()
    for subnet in ec2.describe_subnets()["Subnets"]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    check(Case(UP, "--subnet", "no default VPC with a subnet in us-east-1b", "aws ec2 create-default"), line)


def test_a_subnet_of_another_zone_names_its_own(line):
    found = client().describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1a"]}])["Subnets"]
    subnet = f"--subnet {found[0]['SubnetId']}"
    lies = Case(f"{UP} --zone us-east-1b {subnet}", "--subnet", "is in us-east-1a", "--zone us-east-1a")
    check(lies, line)
    check(Case(f"{UP} {subnet}", "--zone", "it does in us-east-1b", f"The place is that of {subnet}", 4), line)


@pytest.mark.soak
def test_a_subnet_is_the_only_place_that_is_tried(line):
    line.aws.faults.add("RunInstances", error="InsufficientInstanceCapacity", status=400, times=99)
    found = client().describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1a"]}])["Subnets"]
    said = line(f"{UP.replace('v100', 't4').replace(' --region us-east-1', '')} --subnet {found[0]['SubnetId']}")
    assert said.code == 4, said.err
    sent = {call.parameters["NetworkInterfaces"][0]["SubnetId"] for call in line.aws.called("RunInstances")}
    assert sent == {found[0]["SubnetId"]}
    assert line.aws.instances(live=True) == []


def test_an_image_for_another_architecture_is_refused(line):
    arm = next(one for one in images.PUBLIC if one.architecture == "arm64").id_in("us-east-1")
    check(Case(f"{UP} --image {arm}", "--image", "arm64", "x86_64"), line)


def test_a_quota_of_nothing_is_named_with_the_request_that_raises_it(line):
    line.aws.model.quotas["", "L-417A185B"] = 0.0
    raises = "cloudgpu quota --provider aws --region us-east-1 --request L-417A185B=8"
    check(Case(UP, "quota", "allows 0 vCPUs, and p3.2xlarge needs 8", raises, 5), line)


def test_without_a_public_address_and_a_jump_host_the_plan_says_who_can_reach_it(line):
    said = line(f"{UP.replace(' --ssh-from 203.0.113.7', '')} --no-public-ip --dry-run -o json")
    assert said.code == 0, said.out
    assert any("only from inside its network" in remark for remark in said.json["plan"]["notes"])


@pytest.mark.parametrize("text", ["", "ssh-rsa AAAA nonsense"])
def test_a_damaged_public_key_is_named(line, text):
    line("ls")
    keys = line.home / "keys"
    keys.mkdir(mode=0o700, exist_ok=True)
    for name in ("id_ed25519", "id_ed25519.pub"):
        (keys / name).write_text(text)
        (keys / name).chmod(0o600)
    check(Case(UP, "keys", "key", ""), line)
