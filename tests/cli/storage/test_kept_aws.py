"""What stays of machines, by the command line on our model of AWS: parked, started, saved, removed."""

from __future__ import annotations

import pytest

from tests.cli.aws_line import Line
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client

__all__ = ["aws", "aws_process"]

UP = "up --gpu v100 --spot --ssh-from 203.0.113.7 --no-wait --yes --name otter"


@pytest.fixture
def line(own_home, capsys, aws):
    return Line(own_home, capsys, aws)


def left(aws):
    """Everything that costs money, in every region: the kinds, sorted."""
    found = []
    for region in ("us-east-1", "us-west-2"):
        ec2 = client(region=region)
        found += ["machine" for one in aws.instances(live=True) if one.region_name == region]
        found += ["disk" for _ in ec2.describe_volumes()["Volumes"]]
        found += ["image" for _ in ec2.describe_images(Owners=["self"])["Images"]]
        found += ["snapshot" for _ in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]]
    return sorted(found)


def launched(line):
    assert line(UP).code == 0
    line("ls --refresh")


@pytest.mark.soak
def test_a_spot_machine_is_parked_shown_started_and_ended(line, aws):
    launched(line)
    assert line("stop").code == 2  # nobody said yes
    stopped = line("stop --yes")
    assert (stopped.code, left(aws)) == (0, ["image", "snapshot"]), stopped.err
    assert "parked" in stopped.out
    assert "a month" in stopped.out
    listed = line("ls")
    assert "parked" in listed.out
    assert "/mo" in listed.out
    assert "start or down" in listed.out
    assert "otter" in line("cost").out
    assert max(map(len, listed.out.splitlines())) <= 80
    (machine,) = line("ls -o json").json["machines"]
    assert (machine["parked"], machine["billed"], machine["retained_usd_per_month"]) == (True, False, "3.2")
    again = line(UP)
    assert "cloudgpu start otter" in again.out
    assert left(aws) == ["image", "snapshot"]
    started = line("start otter --yes --no-wait")
    assert started.code == 0, started.err
    assert left(aws) == ["disk", "image", "machine", "snapshot"]
    (machine,) = line("ls --refresh -o json").json["machines"]  # the life before is still shown by AWS, as terminated
    assert (machine["state"], machine["launch_uncertain"], machine["parked"]) == ("running", False, False)
    ended = line("down otter --yes")
    assert (ended.code, left(aws)) == (0, []), ended.err


@pytest.mark.soak
def test_a_stopped_machine_is_not_called_free_while_its_disk_is_billed(line, aws):
    up = "up --gpu t4 --name otter --volume data:50 --ssh-from 203.0.113.7 --yes --no-wait"
    assert line(up).code == 0
    line("ls --refresh")
    assert "system disk of 64 GB, $5.12 a month; public IPv4" in line("show").out
    stopped = line("stop --yes")
    assert "system disk of 64 GB, volume data of 50 GB: $9.12 a month" in stopped.out, stopped.out
    listed, shown = line("ls").out, line("show").out
    assert "$9.12/mo" in listed
    assert "free" not in listed
    assert "IPv4" not in shown
    (machine,) = line("ls -o json").json["machines"]
    assert machine["stopped_usd_per_month"] == "9.12"
    assert "stopped machines $0.0" in line("cost").out  # $9.12 a month, by the hour


@pytest.mark.soak
def test_machines_of_another_ledger_are_named_while_they_live_and_no_longer(line, aws):
    launched(line)
    (machine,) = aws.instances(live=True)
    where = client(region=machine.region_name)
    where.create_tags(Resources=[machine.id], Tags=[{"Key": "cloudgpu-ledger", "Value": "another"}])
    assert "Not ours (ledger another): otter" in line("ls --refresh").out
    where.terminate_instances(InstanceIds=[machine.id])
    assert "Not ours" not in line("ls --refresh").out


def test_what_an_interruption_leaves_is_shown_with_its_price_and_taken_away(line, aws):
    launched(line)
    (machine,) = aws.instances(live=True)
    aws.interrupt(machine.id)
    listed = line("ls --refresh")
    assert "interrupted" in listed.out
    (shown,) = line("ls -o json").json["machines"]
    assert [one["kind"] for one in shown["retained"]] == ["disk"]
    assert shown["retained_usd_per_month"] == "5.12"
    assert line("down --all --yes").code == 0
    assert left(aws) == []


@pytest.mark.soak
def test_an_image_is_saved_listed_launched_from_and_removed(line, aws):
    launched(line)
    saved = line("image save otter --name keras --no-restart --yes -o json")
    assert (saved.code, saved.json["name"], saved.json["usd_per_month"]) == (0, "keras", "3.2"), saved.err
    assert line("image save otter --name keras --yes").code == 2
    down = line("down otter --yes -o json")
    assert [(one["kind"], one["name"]) for one in down.json["retained"]] == [("image", "keras")]
    assert left(aws) == ["image", "snapshot"]
    assert line("image ls").out.startswith("1 image: at most $3.20 a month, until it is removed.\n\nNAME ")
    assert "keras" in line("image ls").out
    planned = line("up --image keras --gpu v100 --spot --ssh-from 203.0.113.7 --dry-run -o json")
    assert planned.code == 0, planned.err
    missing = line("image rm keras2 --yes")
    assert missing.code == 7
    assert "did you mean 'keras'" in missing.err
    assert line("image rm keras").code == 2
    assert (line("image rm keras --yes").code, left(aws)) == (0, [])


@pytest.mark.soak
def test_a_volume_is_named_by_down_and_removed_by_its_own_verb(line, aws):
    assert line(f"{UP} --volume data:20").code == 0
    assert "used by the machine otter" in line("volume rm data --yes").err
    down = line("down otter --yes")
    assert "Not removed: volume data, $1.60 a month." in down.out
    assert left(aws) == ["disk"]
    assert line("volume ls").out.startswith("1 volume: $1.60 a month, until it is removed.\n\nNAME ")
    assert "20 GB" in line("volume ls").out
    assert line("volume ls -o json").json["volumes"][0]["attached_to"] is None
    assert (line("volume rm data --yes").code, left(aws)) == (0, [])
    assert "There is no volume." in line("volume ls").out


def test_a_silent_region_is_named_and_exits_with_8(line, aws):
    aws.faults.offline("us-west-2", status=503)
    listed = line("volume ls")
    assert listed.code == 8
    assert "us-west-2" in listed.err


@pytest.mark.soak
def test_without_capacity_a_start_says_so_and_what_is_kept_stays(line, aws):
    launched(line)
    line("stop --yes")
    aws.faults.add(action="RunInstances", error="InsufficientInstanceCapacity", status=400, times=50)
    start = line("start otter --yes --no-wait")
    assert start.code == 4, start.err
    assert "remain." in start.err
    assert left(aws) == ["image", "snapshot"]


@pytest.mark.soak
def test_an_image_is_found_after_its_machine_where_no_account_is_configured(line, aws):
    alone = 'owner = "ada"\naddress_services = []\n'
    line.config(f'{alone}[accounts.aws]\nprovider = "aws"\nregions = ["us-east-1"]\n')
    assert line(f"{UP} --provider aws").code == 0
    assert line("image save otter --name base --yes").code == 0
    assert line("down otter --yes").code == 0
    line.config(alone)
    (image,) = line("image ls -o json").json["images"]
    assert (image["name"], image["account"]) == ("base", "aws")
