"""`orphans --clean` on our model of AWS, killed at every change and every fifth look; it never was AWS."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.control.outage.opening import open_session
from tests.clouds.aws.ec2 import backend
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client
from tests.soak.crash import check_each
from tests.soak.crash_aws import READS, REGION, AwsLife, moments

__all__ = ["aws", "aws_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]
CLEAN = ("orphans", "--clean", "--yes")


@pytest.fixture
def life(aws, tmp_path):
    """Make a home whose ledger left things behind two hours ago, and another ledger's address, which has to stay."""
    number = iter(range(1000))

    def make():
        one = AwsLife(aws, tmp_path / str(next(number)) / "home")
        one.done("ls", "--refresh")  # a ledger has an id from its first line on
        ledger = open_session({"CLOUDGPU_HOME": str(one.home)}).ledger.id
        leave(ledger)
        client(region=REGION).allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip", "another"))
        for thing in (*backend(REGION).volumes.values(), *backend(REGION).key_pairs.values()):
            thing.create_time = (datetime.now(UTC) - timedelta(hours=2)).replace(tzinfo=None)
        return one

    return make


def tagged(kind, ledger):
    return [{"ResourceType": kind, "Tags": [{"Key": "cloudgpu-ledger", "Value": ledger}]}]


def leave(ledger):
    ec2 = client(region=REGION)
    for size in (8, 16):
        ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=size, TagSpecifications=tagged("volume", ledger))
    ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip", ledger))
    ec2.create_key_pair(KeyName="cloudgpu-left", TagSpecifications=tagged("key-pair", ledger))
    subnet = ec2.describe_subnets()["Subnets"][0]
    group = ec2.create_security_group(
        GroupName="cloudgpu-left", Description="left", VpcId=subnet["VpcId"],
        TagSpecifications=tagged("security-group", ledger),
    )["GroupId"]  # fmt: skip
    ec2.create_network_interface(
        SubnetId=subnet["SubnetId"], Groups=[group], TagSpecifications=tagged("network-interface", ledger)
    )


def left():
    """What there is of all of it, whoever it belongs to."""
    ec2 = client(region=REGION)
    groups = [one for one in ec2.describe_security_groups()["SecurityGroups"] if one["GroupName"] == "cloudgpu-left"]
    return {
        "disks": len(ec2.describe_volumes()["Volumes"]),
        "addresses": len(ec2.describe_addresses()["Addresses"]),
        "keys": len(ec2.describe_key_pairs()["KeyPairs"]),
        "interfaces": len(ec2.describe_network_interfaces()["NetworkInterfaces"]),
        "groups": len(groups),
    }


CLEANED = {"disks": 0, "addresses": 1, "keys": 0, "interfaces": 0, "groups": 0}


def clean_twice(one):
    """The group goes at the second run: at the first an interface hung on it when the account was asked."""
    for _ in range(2):
        one.done(*CLEAN)


def test_a_cleaning_killed_anywhere_is_finished_by_the_next(life):
    one = life()
    every = moments(one.counted(*CLEAN))
    looks = [point for point in every if point.action.startswith(READS)]
    points = [point for point in every if point not in looks] + looks[::5]
    one.done(*CLEAN)
    assert left() == CLEANED

    def case(point):
        one = life()
        died = one.killed(*CLEAN, at=point)
        clean_twice(one)
        assert left() == CLEANED
        assert one.done("orphans")["orphans"][0]["stay_reason"] == "it belongs to another ledger (another)"
        assert one.done("cost", "--verify")["errors"] == []
        return died

    assert check_each(points, case) >= 0.8 * len(points)
