"""What goes on costing money at AWS stays in sight: after a half removal, under other settings, in another account."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial

import pytest

from cloudgpu.control.outage import opening as sessions
from tests.cli.aws_line import CONFIG, REGIONS, Line
from tests.clouds.aws.ec2 import backend
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client
from tests.providers.aws.accounts import impatient

__all__ = ["aws", "aws_process"]
UP = "up --yes --no-wait --ssh-from 203.0.113.7 --name otter --gpu v100"


@pytest.fixture
def line(own_home, capsys, aws, monkeypatch):
    impatient(monkeypatch)
    return Line(own_home, capsys, aws)


def snapshots():
    return [
        one for region in REGIONS for one in client(region=region).describe_snapshots(OwnerIds=["self"])["Snapshots"]
    ]


@pytest.mark.soak
def test_the_snapshot_of_a_removed_image_is_not_left_when_its_removal_is_not_answered(line, aws):
    assert line(UP).code == 0
    assert line("ls --refresh").code == 0
    saved = line("image save otter --name ready --yes")
    assert saved.code == 0, saved.err
    fault = aws.faults.add("DeleteSnapshot", error="InternalError", times=5)
    removed = line("image rm ready --yes")
    assert (removed.code, fault.hits) == (0, 5), removed.err
    assert snapshots() == []


def test_a_snapshot_that_a_killed_removal_left_is_listed_as_its_image_and_removed(line):
    assert line(UP).code == 0
    assert line("ls --refresh").code == 0
    assert line("image save otter --name ready --yes").code == 0
    for region in REGIONS:
        for one in client(region=region).describe_images(Owners=["self"])["Images"]:
            client(region=region).deregister_image(ImageId=one["ImageId"])
    (left,) = line("image ls -o json").json["images"]
    assert (left["name"], left["kind"]) == ("ready", "snapshot")
    assert line("image rm ready --yes").code == 0
    assert snapshots() == []


@pytest.mark.soak
def test_a_parked_machine_outside_the_regions_of_the_settings_is_not_taken_for_gone(line):
    assert line(UP, "--spot").code == 0
    assert line("stop otter --yes").code == 0
    (before,) = line("ls -o json").json["machines"]
    other = next(one for one in REGIONS if one != before["region"])
    line.config(CONFIG.replace(json.dumps(REGIONS), json.dumps([other])))
    line("ls --refresh")
    (after,) = line("ls -o json").json["machines"]
    assert (after["parked"], after["retained_usd_per_month"]) == (True, before["retained_usd_per_month"])
    assert line("down otter --yes").code == 0
    assert snapshots() == []


@pytest.mark.soak
def test_a_persistent_request_whose_machine_others_ended_is_cancelled_by_the_next_look(line, aws):
    assert line(UP, "--spot --persistent").code == 0
    (machine,) = aws.instances(live=True)
    ec2 = client(region=machine.region_name)
    (request,) = backend(machine.region_name).spot_instance_requests.values()
    request.relaunch = None  # there is no capacity for the next machine yet
    ec2.terminate_instances(InstanceIds=[machine.id])
    assert [one["State"] for one in ec2.describe_spot_instance_requests()["SpotInstanceRequests"]] == ["open"]
    assert line("ls --refresh").code == 0
    assert [one["State"] for one in ec2.describe_spot_instance_requests()["SpotInstanceRequests"]] == ["cancelled"]


def test_a_disk_left_for_14_days_becomes_an_image_and_nothing_is_counted_twice_on_the_way(line, aws, monkeypatch):
    assert line(UP, "--spot").code == 0
    aws.interrupt(aws.instances(live=True)[0].id)
    assert line("ls --refresh").code == 0
    later = partial(sessions.open_session, clock=lambda: sessions.utc_now() + timedelta(days=15))
    monkeypatch.setattr(sessions, "open_session", later)
    aws.advance(15 * 24 * 3600)
    kept = [line("ls --refresh -o json").json["machines"][0]["retained"] for _ in range(3)]
    assert [[one["kind"] for one in look] for look in kept] == [["disk", "snapshot"], ["disk", "image"], ["image"]]
    assert line("down otter --yes").code == 0
    assert snapshots() == []


@pytest.mark.soak
@pytest.mark.parametrize("parked", [False, True])
def test_credentials_of_another_account_prove_no_end(line, aws, monkeypatch, parked):
    assert line(UP, "--spot").code == 0
    if parked:
        assert line("stop otter --yes").code == 0
    (before,) = line("ls -o json").json["machines"]
    facts = ("state", "billed", "retained_usd_per_month")
    with monkeypatch.context() as elsewhere:
        role = client("sts").assume_role(RoleArn="arn:aws:iam::222222222222:role/x", RoleSessionName="other")
        for name, key in (("ACCESS_KEY_ID", "AccessKeyId"), ("SECRET_ACCESS_KEY", "SecretAccessKey")):
            elsewhere.setenv(f"AWS_{name}", role["Credentials"][key])
        elsewhere.setenv("AWS_SESSION_TOKEN", role["Credentials"]["SessionToken"])
        ended = line("down otter --yes")
        assert (ended.code, "`lab` here is AWS account 222222222222" in ended.err) == (8, True), ended.err
        line("ls --refresh")
        (meanwhile,) = line("ls -o json").json["machines"]
        assert [meanwhile[fact] for fact in facts] == [before[fact] for fact in facts]
    assert line("down otter --yes").code == 0
    assert (aws.instances(live=True), snapshots()) == ([], [])


@pytest.mark.soak
def test_a_volume_that_another_machine_uses_is_refused_before_anything_is_launched(line, aws):
    made = line(UP, "--spot --volume data:10")
    assert made.code == 0, made.err
    (machine,) = aws.instances(live=True)
    second = line(UP.replace("otter", "heron"), "--spot --volume data")
    assert (second.code, machine.id in second.err) == (2, True), second.err
    assert len(aws.instances(live=True)) == 1
    assert len(aws.called("RunInstances")) == 1
