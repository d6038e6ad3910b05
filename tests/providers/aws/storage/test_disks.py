"""What stays of machines on our model of AWS: listed, imaged once, attached, removed."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest

from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.offers import Market
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import InstanceNotFound, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.aws.compute.request import TAG_BOOT, boot_tag, registration_parameters
from cloudgpu.testing import ManualClock
from tests.clouds.aws.plain import client, look
from tests.providers.aws.accounts import TAGS, account, machine, own

OURS = {key: value for key, value in TAGS.items() if key != "Name"}
NAME = "cloudgpu-cg-1-7"
DATA = {TAG_LEDGER: "led-1", "cloudgpu-owner": "ada"}


@pytest.fixture
def ec2(aws):
    return client()


@pytest.fixture
def cloud(aws, tmp_path):
    clock = ManualClock(datetime.now(UTC))
    provider = account(tmp_path, clock=clock, pause=clock.advance)
    provider.clock = clock
    return provider


def left_disk(cloud, **more):
    """Let a spot machine end so that its disk stays, and return that."""
    id_ = machine(market=Market.SPOT, keep=True, **more)
    cloud.terminate_keeping_disk(id_)
    return next(one for one in cloud.resources("us-east-1").items if one.kind is Kind.DISK)


def images(ec2):
    return ec2.describe_images(Owners=["self"])["Images"]


def snapshots(ec2):
    return ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]


def saved(cloud, source, name=NAME, tags=OURS, rounds=4):
    for _ in range(rounds):
        made = cloud.save_image(source, name, tags)
        if made.ready and made.kind is Kind.IMAGE:
            return made
    raise AssertionError(made)


def test_a_disk_in_use_is_listed_with_its_machine_and_one_that_was_kept_without(cloud, ec2):
    id_ = machine(market=Market.SPOT, keep=True)
    look(ec2, own(id_))
    (disk,) = cloud.resources().items
    assert (disk.kind, disk.size_gb, disk.stored_as, disk.attached_to) == (Kind.DISK, 64, "gp3", id_)
    assert (disk.tags, disk.zone[:-1], disk.name) == (OURS, "us-east-1", "")
    cloud.terminate_keeping_disk(id_)
    (disk,) = cloud.resources("us-east-1").items
    assert (disk.attached_to, disk.ready, disk.id.partition("/")[0]) == (None, True, "us-east-1")


def test_what_is_not_ours_is_not_listed(cloud, ec2):
    ec2.create_volume(AvailabilityZone="us-east-1a", Size=8, VolumeType="gp3")
    machine(tags={"Name": "somebody's"})
    assert cloud.resources().items == ()


def test_a_region_costs_three_calls_and_a_silent_one_is_named(aws, tmp_path):
    provider = account(tmp_path, regions=["us-east-1", "eu-west-1"])
    provider.resources()
    asked = sorted((call.region, call.action) for call in aws.calls)
    wanted = ["DescribeImages", "DescribeSnapshots", "DescribeVolumes"]
    assert asked == [(region, action) for region in ("eu-west-1", "us-east-1") for action in wanted]


def test_a_disk_becomes_an_image_like_that_of_its_machine_and_only_one(aws, cloud, ec2):
    disk = left_disk(cloud)
    first = cloud.save_image(disk.id, NAME, OURS)
    made = saved(cloud, disk.id)
    assert first.kind in (Kind.SNAPSHOT, Kind.IMAGE)
    assert saved(cloud, disk.id).id == made.id
    (image,) = images(ec2)
    assert len(snapshots(ec2)) == 1
    assert (image["Name"], image["Architecture"], image["RootDeviceName"]) == (NAME, "x86_64", "/dev/sda1")
    (call,) = [call for call in aws.calls if call.action == "RegisterImage"]
    assert (call.parameters["EnaSupport"], call.parameters["VirtualizationType"]) == (True, "hvm")
    assert {tag["Key"]: tag["Value"] for tag in image["Tags"]}.items() >= OURS.items()
    (left,) = [one for one in cloud.resources().items if one.kind is not Kind.DISK]
    assert (left.kind, left.id, left.size_gb, left.ready, left.stored_as) == (
        Kind.IMAGE,
        made.id,
        64,
        True,
        "ebs_snapshot",
    )


@pytest.mark.soak
def test_a_snapshot_in_the_making_is_waited_for(aws, cloud, ec2):
    aws.dwell(snapshot=60)
    disk = left_disk(cloud)
    assert not cloud.save_image(disk.id, NAME, OURS).ready
    assert not cloud.save_image(disk.id, NAME, OURS).ready
    assert len(snapshots(ec2)) == 1
    assert images(ec2) == []
    kinds = sorted(one.kind for one in cloud.resources().items)
    assert kinds == [Kind.DISK, Kind.SNAPSHOT]


@pytest.mark.parametrize("action", ["CreateSnapshot", "RegisterImage"])
def test_a_lost_reply_makes_no_second_one(aws, cloud, ec2, action):
    disk = left_disk(cloud)
    aws.faults.lose_reply(action)
    with suppress(ProviderUnavailable):  # a call that is harmless when it is repeated, the SDK itself sends again
        saved(cloud, disk.id)
    saved(cloud, disk.id)
    assert (len(images(ec2)), len(snapshots(ec2))) == (1, 1)


def test_an_image_goes_on_from_its_snapshot_when_the_disk_is_gone(cloud, ec2):
    disk = left_disk(cloud)
    cloud.save_image(disk.id, NAME, OURS)
    cloud.remove(disk)
    assert saved(cloud, disk.id).kind is Kind.IMAGE
    assert len(images(ec2)) == 1


def test_the_tag_of_a_disk_says_how_it_boots_when_its_image_is_gone(cloud, ec2):
    disk = left_disk(cloud, tags={**TAGS, TAG_BOOT: "arm64_xvda_uefi"})
    saved(cloud, disk.id)
    assert (images(ec2)[0]["Architecture"], images(ec2)[0]["RootDeviceName"]) == ("arm64", "/dev/xvda")


def test_the_second_life_of_a_disk_remembers_how_the_first_booted(cloud, ec2):
    """A machine started from a parked image has a disk whose image is removed: its tag alone says how it boots."""
    image = {"RootDeviceName": "/dev/xvda", "Architecture": "x86_64", "BootMode": "uefi-preferred"}
    assert registration_parameters(boot_tag(image)) == {
        "Architecture": "x86_64",
        "RootDeviceName": "/dev/xvda",
        "VirtualizationType": "hvm",
        "EnaSupport": True,
        "BootMode": "uefi-preferred",
    }
    assert registration_parameters("anything else") is None


def test_an_image_of_a_machine_leaves_its_data_volume_out_and_may_do_without_a_restart(aws, cloud, ec2):
    id_ = machine()
    look(ec2, own(id_))
    cloud.attach(id_, Volume("data", 10), DATA)
    tags = {TAG_LEDGER: "led-1", TAG_IMAGE: "mine"}
    made = cloud.save_image(id_, "cloudgpu-led-1-mine", tags, restart=False)
    assert (made.kind, made.name) == (Kind.IMAGE, "mine")
    (call,) = [call for call in aws.calls if call.action == "CreateImage"]
    assert call.parameters["NoReboot"] is True
    assert call.parameters["BlockDeviceMappings"] == [{"DeviceName": "/dev/sdf", "NoDevice": ""}]
    assert saved(cloud, id_, "cloudgpu-led-1-mine", tags).id == made.id
    assert len(images(ec2)) == 1


def test_a_name_of_another_ledgers_image_is_refused(cloud):
    disk = left_disk(cloud)
    saved(cloud, disk.id)
    with pytest.raises(InvalidRequest, match="not of this ledger"):
        cloud.save_image(disk.id, NAME, {TAG_LEDGER: "led-2"})


def test_an_image_of_another_machine_under_the_name_is_not_taken_for_that_of_this_one(cloud, ec2):
    name, tags = "cloudgpu-led-1-mine", {TAG_LEDGER: "led-1", TAG_IMAGE: "mine"}
    saved(cloud, machine(), name, {**tags, TAG_ID: "cg-first"})
    with pytest.raises(InvalidRequest, match="another machine") as refused:
        cloud.save_image(machine(), name, {**tags, TAG_ID: "cg-second"})
    assert "cloudgpu image rm mine" in refused.value.next
    assert len(images(ec2)) == 1


def test_a_snapshot_of_another_machine_under_the_name_becomes_no_image_of_this_one(cloud, ec2):
    disk = left_disk(cloud)
    ec2.create_snapshot(
        VolumeId=disk.id.partition("/")[2],
        TagSpecifications=[
            {
                "ResourceType": "snapshot",
                "Tags": [
                    {"Key": "Name", "Value": NAME},
                    {"Key": TAG_LEDGER, "Value": "led-1"},
                    {"Key": TAG_ID, "Value": "cg-first"},
                    {"Key": TAG_BOOT, "Value": "x86_64_sda1_none"},
                ],
            }
        ],
    )
    with pytest.raises(InvalidRequest, match="another machine"):
        cloud.save_image(disk.id, NAME, OURS)
    assert images(ec2) == []


@pytest.mark.parametrize("source", ["us-east-1/vol-0123456789abcdef0", "us-east-1/i-0123456789abcdef0", "x", "a/b"])
def test_what_is_not_there_cannot_be_imaged(cloud, source):
    with pytest.raises(InstanceNotFound):
        cloud.save_image(source, NAME, OURS)


@pytest.mark.soak
def test_removing_an_image_removes_its_snapshot_and_can_be_repeated(cloud, ec2):
    disk = left_disk(cloud)
    made = saved(cloud, disk.id)
    for thing in (made, made, disk, disk):
        cloud.remove(thing)
    assert (images(ec2), snapshots(ec2), ec2.describe_volumes()["Volumes"]) == ([], [], [])
    assert cloud.resources().items == ()


def test_a_snapshot_that_lost_its_image_is_found_and_removed(cloud, ec2):
    disk = left_disk(cloud)
    made = saved(cloud, disk.id)
    ec2.deregister_image(ImageId=own(made.id))
    (left,) = [one for one in cloud.resources().items if one.kind is Kind.SNAPSHOT]
    assert left.tags.items() >= OURS.items()
    cloud.remove(left)
    assert snapshots(ec2) == []


def test_a_disk_in_use_cannot_be_removed(cloud, ec2):
    id_ = machine()
    look(ec2, own(id_))
    (disk,) = cloud.resources().items
    with pytest.raises(InvalidRequest):
        cloud.remove(disk)


def test_a_volume_is_made_once_encrypted_tagged_and_attached(aws, cloud, ec2):
    id_ = machine()
    look(ec2, own(id_))
    first = cloud.attach(id_, Volume("data", 10), DATA)
    assert cloud.attach(id_, Volume("data"), DATA).id == first.id
    assert (first.kind, first.name, first.attached_to, first.size_gb) == (Kind.VOLUME, "data", id_, 10)
    (found,) = [one for one in ec2.describe_volumes()["Volumes"] if one["VolumeId"] == own(first.id)]
    assert (found["Encrypted"], found["VolumeType"], found["Attachments"][0]["Device"]) == (True, "gp3", "/dev/sdf")
    assert first.tags == {**DATA, TAG_VOLUME: "data"}
    assert sum(call.action == "CreateVolume" for call in aws.calls) == 1


def test_a_volume_outlives_its_machine_and_is_found_by_the_next(cloud, ec2):
    ids = []
    for _ in range(2):
        id_ = machine(Placement={"AvailabilityZone": "us-east-1a"})
        look(ec2, own(id_))
        ids.append(cloud.attach(id_, Volume("data", 10), DATA).id)
        cloud.terminate(id_)
        look(ec2, own(id_))
    assert ids[0] == ids[1]


@pytest.mark.soak
def test_a_volume_that_is_used_or_elsewhere_or_not_there_is_refused(cloud, ec2):
    here, near = (machine(Placement={"AvailabilityZone": "us-east-1a"}) for _ in range(2))
    far = machine(Placement={"AvailabilityZone": "us-east-1b"})
    for one in (here, near, far):
        look(ec2, own(one))
    with pytest.raises(InvalidRequest, match="size"):
        cloud.attach(here, Volume("data"), DATA)
    cloud.attach(here, Volume("data", 10), DATA)
    with pytest.raises(InvalidRequest, match=own(here)):
        cloud.attach(near, Volume("data"), DATA)
    with pytest.raises(InvalidRequest, match="us-east-1a"):
        cloud.attach(far, Volume("data"), DATA)


def test_a_volume_of_another_ledger_is_another_volume(cloud, ec2):
    id_ = machine()
    look(ec2, own(id_))
    ours = cloud.attach(id_, Volume("data", 10), DATA)
    ec2.detach_volume(VolumeId=own(ours.id), InstanceId=own(id_))
    with pytest.raises(InvalidRequest, match="There is no volume"):
        cloud.attach(id_, Volume("data"), {**DATA, TAG_LEDGER: "led-2"})


def test_a_lost_reply_makes_no_second_volume(aws, cloud, ec2):
    id_ = machine()
    look(ec2, own(id_))
    aws.faults.lose_reply("CreateVolume")
    aws.faults.lose_reply("AttachVolume")
    cloud.attach(id_, Volume("data", 10), DATA)
    assert len([one for one in cloud.resources().items if one.kind is Kind.VOLUME]) == 1


def test_a_volume_that_cannot_be_seen_at_once_is_waited_for_and_not_made_again(aws, tmp_path, ec2):
    cloud = account(tmp_path, pause=aws.advance)
    id_ = machine()
    look(ec2, own(id_))
    aws.dwell(unseen=10)
    made = cloud.attach(id_, Volume("data", 10), DATA)
    assert made.attached_to == id_
    assert sum(call.action == "CreateVolume" for call in aws.calls) == 1


def test_a_volume_that_is_shown_as_deleted_is_not_waited_for(aws, tmp_path, ec2):
    pauses = []
    cloud = account(tmp_path, pause=pauses.append)
    aws.dwell(deleting=600)
    id_ = machine()
    look(ec2, own(id_))
    old = cloud.attach(id_, Volume("data", 10), DATA)
    ec2.detach_volume(VolumeId=own(old.id), InstanceId=own(id_))
    cloud.remove(old)
    pauses.clear()
    new = cloud.attach(id_, Volume("data", 10), DATA)
    assert (new.attached_to, new.id == old.id) == (id_, False)
    assert sum(call.action == "CreateVolume" for call in aws.calls) == 3  # the token of the deleted one, and the next
    assert pauses == []


def test_an_attachment_that_cannot_be_seen_at_once_is_not_requested_without_a_pause(aws, tmp_path, ec2):
    cloud = account(tmp_path, pause=aws.advance)
    id_ = machine()
    look(ec2, own(id_))
    aws.dwell(attachment=10)
    assert cloud.attach(id_, Volume("data", 10), DATA).attached_to == id_
    assert 1 < sum(call.action == "AttachVolume" for call in aws.calls) < 15
