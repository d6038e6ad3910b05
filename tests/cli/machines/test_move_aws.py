"""`start --move` on our model of AWS by the command line: it moves no machine out of the zone of its subnet."""

from __future__ import annotations

import pytest

from tests.cli.aws_line import Line
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client

__all__ = ["aws", "aws_process"]
ZONE = "us-east-1b"


@pytest.fixture
def line(own_home, capsys, aws):
    return Line(own_home, capsys, aws)


def stopped(line, instance_type):
    """Launch a machine into a subnet of `ZONE`, stop it, and return the subnet."""
    subnets = client(region=ZONE[:-1]).describe_subnets(Filters=[{"Name": "availability-zone", "Values": [ZONE]}])
    subnet = subnets["Subnets"][0]["SubnetId"]
    up = line(
        f"up --name fox --instance-type {instance_type} --subnet {subnet} --yes --no-wait "
        "--ssh-from 203.0.113.7 -o json"
    )
    assert up.code == 0, up.out + up.err
    assert line("stop fox --yes").code == 0
    return subnet


def test_a_machine_whose_subnet_keeps_it_in_a_zone_without_another_type_is_not_ended_for_a_move(line):
    subnet = stopped(line, "g4dn.12xlarge")  # no other type has four T4
    line.aws.faults.add("StartInstances", error="InsufficientInstanceCapacity", status=400)
    said = line("start fox --yes --no-wait -o json")
    assert (said.code, "--move" in said.json["error"]["next"]) == (4, False)
    said = line("start fox --move --yes --no-wait -o json")
    assert (said.code, said.json["error"]["message"]) == (
        4,
        f"Nothing else in {ZONE} has what fox has, and it cannot leave that zone: the subnet {subnet} is in {ZONE}.",
    )
    (instance,) = line.aws.instances(live=True)
    assert instance.state == "stopped"
    assert not line.aws.called("CreateImage")
    assert not line.aws.called("RegisterImage")


def test_a_move_of_a_machine_in_a_subnet_is_suggested_and_made_to_another_type_of_its_zone(line):
    stopped(line, "g5.xlarge")
    line.aws.faults.add("StartInstances", error="InsufficientInstanceCapacity", status=400)
    said = line("start fox --yes --no-wait -o json")
    assert said.code == 4
    assert f" to g5.2xlarge in {ZONE} at $" in said.json["error"]["next"]
    full = line.aws.faults.add(
        "RunInstances", error="InsufficientInstanceCapacity", status=400, times=9, zone=ZONE, type="g5.xlarge"
    )
    said = line("start fox --move --yes --no-wait -o json")
    assert said.code == 0, said.out + said.err
    line.aws.faults.remove(full)
    (instance,) = line.aws.instances(live=True)
    assert (instance.instance_type, instance.placement.zone) == ("g5.2xlarge", ZONE)
