"""Disks, snapshots and images of ours at Azure: told with what they cost, removed, kept, made into images."""

from __future__ import annotations

import pytest

from cloudgpu.catalog.disktypes import billed_tier
from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import InstanceNotFound, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.azure import groups
from cloudgpu.providers.azure.compute import power, resolve
from cloudgpu.providers.azure.storage import create_image as imaging, disks, disks as storage, images
from tests.providers.azure.launched import GROUP, ID, OTHER, launch, tags

IMAGE = {TAG_LEDGER: "led-1", TAG_IMAGE: "tuned"}


def told(azure, kind=None, region=None):
    return [one for one in storage.resources(azure, region).items if kind in (None, one.kind)]


def gone_machine(azure, server, sdk):
    """Leave the disk of a machine that is gone, in a group that says so beside all that it said before."""
    launch(sdk)
    power.terminate_keeping_disk(azure, ID)
    server.advance(600)
    assert tags().items() < groups.tags_of(azure, GROUP).items()
    return told(azure)[0]


def saved(azure, server, source=ID, name="tuned-1", tags=IMAGE):
    """Go on saving until the image is ready; return it."""
    for _ in range(20):
        found = imaging.save_image(azure, source, name, tags)
        if found.ready and found.kind is Kind.IMAGE:
            return found
        server.advance(60)
    raise AssertionError(found)


@pytest.mark.parametrize(
    ("sku", "size", "said"),
    [
        ("Premium_LRS", 128, "P10 128 GiB"),
        ("StandardSSD_LRS", 129, "E15 256 GiB"),
        ("Standard_LRS", 4, "S4 32 GiB"),
        ("StandardSSD_ZRS", 4, "E1 4 GiB"),
        ("PremiumV2_LRS", 100, "PremiumV2_LRS"),
        ("Premium_LRS", 40_000, "Premium_LRS"),
    ],
)
def test_a_disk_is_billed_by_the_next_larger_tier(sku, size, said):
    assert billed_tier(sku, size) == said


def test_a_system_disk_has_the_tags_of_its_launch_and_says_who_uses_it(account, sdk):
    launch(sdk)
    (disk,) = told(account())
    assert (disk.kind, disk.attached_to, disk.region) == (Kind.DISK, ID, "eastus")
    assert (disk.tags[TAG_ID], disk.tags[TAG_LEDGER]) == ("cg-1", "led-1")
    assert disk.stored_as.startswith(("P", "E", "S"))
    assert disk.made_at is not None


def test_what_is_not_ours_is_not_told(account, sdk):
    sdk.group("theirs")
    body = {"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}}
    sdk.compute.disks.begin_create_or_update("theirs", "data", body).result()
    assert told(account()) == []


def test_a_part_that_did_not_answer_is_never_silent(account, azure_arm, sdk):
    launch(sdk)
    azure_arm.faults.add("Snapshots.List", error="InternalServerError", times=99)
    with pytest.raises(ProviderUnavailable):
        storage.resources(account(), None)


def test_a_disk_that_is_used_stays_and_one_of_a_machine_that_is_gone_goes_with_its_group(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    with pytest.raises(InvalidRequest, match="in use by"):
        storage.remove(azure, told(azure)[0])
    power.terminate_keeping_disk(azure, ID)
    azure_arm.advance(600)
    assert azure_arm.instances() == []
    (disk,) = told(azure)
    assert disk.attached_to is None
    for _ in range(2):
        storage.remove(azure, disk)
        azure_arm.advance(600)
    assert azure_arm.resources() == []


def test_a_group_in_which_something_of_somebodys_lies_stays(account, azure_arm, sdk):
    azure = account()
    disk = gone_machine(azure, azure_arm, sdk)
    body = {"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}}
    sdk.compute.disks.begin_create_or_update(GROUP, "mine", body).result()
    storage.remove(azure, disk)
    azure_arm.advance(600)
    assert azure_arm.billable() == [("disk", "mine")]


def test_to_end_a_machine_and_keep_its_disk_twice_is_fine(account, azure_arm, sdk):
    azure = account()
    gone_machine(azure, azure_arm, sdk)
    power.terminate_keeping_disk(azure, ID)
    power.terminate_keeping_disk(azure, f"eastus/{OTHER}")
    assert [kind for kind, _ in azure_arm.billable()] == ["disk"]


# Images


def test_an_image_of_a_running_machine_is_made_by_a_snapshot_and_the_machine_goes_on(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    first = imaging.save_image(azure, ID, "tuned-1", IMAGE)
    assert first.kind in (Kind.SNAPSHOT, Kind.IMAGE)
    image = saved(azure, azure_arm)
    assert (image.name, image.region, image.tags) == ("tuned", "eastus", IMAGE)
    assert image.size_gb > 0
    assert image.made_at is not None
    assert azure_arm.instance(ID).state == "running"
    azure_arm.advance(60)
    assert [kind for kind, _ in azure_arm.billable() if kind in ("snapshot", "image")] == ["image"]
    assert told(azure, Kind.SNAPSHOT) == []
    assert not azure_arm.called("VirtualMachines.Generalize")


def test_a_machine_can_be_launched_of_the_image_with_data_of_its_own(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    saved(azure, azure_arm)
    (image,) = azure_arm.resources("Microsoft.Compute/images")
    assert azure_arm.model.get(image).facts["storageProfile"]["osDisk"]["osState"] == "Generalized"


def test_an_image_of_a_free_disk_is_made_and_saving_twice_makes_no_second_one(account, azure_arm, sdk):
    azure = account()
    disk = gone_machine(azure, azure_arm, sdk)
    image = saved(azure, azure_arm, disk.id)
    storage.remove(azure, disk)
    azure_arm.advance(600)
    assert saved(azure, azure_arm, disk.id) == image
    assert [one.id for one in told(azure)] == [image.id]


def test_a_name_that_another_ledger_bears_is_refused(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    saved(azure, azure_arm)
    with pytest.raises(InvalidRequest, match="not of this ledger"):
        imaging.save_image(azure, ID, "tuned-1", {**IMAGE, TAG_LEDGER: "led-2"})


def begun(azure, server, tags=IMAGE):
    """Return the snapshot with which an image begins, whose copy of the disk is not complete yet."""
    server.dwell(disk=30)
    assert imaging.save_image(azure, ID, "tuned-1", tags).kind is Kind.SNAPSHOT
    server.advance(60)
    (snapshot,) = server.resources("Microsoft.Compute/snapshots")
    facts = server.model.get(snapshot).facts
    facts["completionPercent"] = 0.0  # that Azure shows 0 as the copy begins is a belief
    return facts


def test_a_snapshot_of_which_nothing_is_copied_yet_makes_no_image(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    snapshot = begun(azure, azure_arm)
    step = imaging.save_image(azure, ID, "tuned-1", IMAGE)
    assert (step.kind, step.ready) == (Kind.SNAPSHOT, False)  # whoever saves goes on until it is ready
    assert not azure_arm.called("Images.CreateOrUpdate")
    snapshot["completionPercent"] = 100.0
    assert saved(azure, azure_arm).name == "tuned"


def test_an_image_that_cannot_be_seen_at_once_is_not_ready(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    begun(azure, azure_arm)["completionPercent"] = 100.0
    azure_arm.faults.add("Images.Get", error="ResourceNotFound", status=404, times=2)  # before and after it is made
    step = imaging.save_image(azure, ID, "tuned-1", IMAGE)
    assert (step.kind, step.ready, len(azure_arm.called("Images.CreateOrUpdate"))) == (Kind.IMAGE, False, 1)
    assert saved(azure, azure_arm).id == step.id


def test_a_snapshot_of_another_machine_under_the_name_makes_no_image_of_this_one(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    snapshot = begun(azure, azure_arm, {**IMAGE, TAG_ID: "cg-earlier"})
    snapshot["completionPercent"] = 100.0
    with pytest.raises(InvalidRequest, match="another machine") as refused:
        imaging.save_image(azure, ID, "tuned-1", {**IMAGE, TAG_ID: "cg-now"})
    assert "cloudgpu image rm tuned" in refused.value.next
    assert not azure_arm.called("Images.CreateOrUpdate")
    assert saved(azure, azure_arm, tags={**IMAGE, TAG_ID: "cg-earlier"}).name == "tuned"


@pytest.mark.parametrize("source", [f"eastus/{OTHER}", f"eastus/{OTHER}/disks/none", "eastus/what", "nowhere"])
def test_what_is_not_there_makes_no_image(account, azure_arm, source):
    with pytest.raises((InstanceNotFound, InvalidRequest)):
        imaging.save_image(account(), source, "tuned-1", IMAGE)
    assert azure_arm.billable() == []


def trusted(server):
    """Let the system disk be one of a machine with Trusted Launch."""
    (disk,) = server.resources("Microsoft.Compute/disks")
    server.model.get(disk).facts["securityProfile"] = {"securityType": "TrustedLaunch"}


@pytest.mark.soak
def test_a_disk_of_trusted_launch_makes_an_image_of_a_gallery(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    trusted(azure_arm)
    image = saved(azure, azure_arm)
    assert (image.name, image.region, image.tags) == ("tuned", "eastus", IMAGE)
    assert "/galleryImages/" in image.id
    assert saved(azure, azure_arm) == image
    assert [one.id for one in told(azure, Kind.IMAGE)] == [image.id]
    azure_arm.advance(60)
    assert azure_arm.resources("Microsoft.Compute/snapshots") == []
    assert azure_arm.resources("Microsoft.Compute/images") == []
    for word in ("tuned", "tuned-1", image.id):
        assert images.own_image(azure, word)["properties"]["trusted"] is True
        assert resolve.constraint(azure, Setup(image=word), Requirements()).region == "eastus"
    for _ in range(2):
        storage.remove(azure, image)
        azure_arm.advance(60)
    assert told(azure, Kind.IMAGE) == []
    assert [kind for kind, _ in azure_arm.billable()] == ["address", "disk", "machine"]


def test_an_image_goes_with_what_it_was_made_of(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    image = saved(azure, azure_arm)
    for _ in range(2):
        storage.remove(azure, image)
        azure_arm.advance(60)
    assert told(azure, Kind.IMAGE) == []


# Volumes


def attached(azure, server, name="data", size=64, id_=ID, ledger="led-1"):
    return disks.attach(azure, id_, Volume(name, size), {TAG_LEDGER: ledger})


def test_a_volume_is_made_where_the_machine_is_and_outlives_its_group(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    made = attached(azure, azure_arm)
    assert (made.kind, made.name, made.size_gb, made.attached_to) == (Kind.VOLUME, "data", 64, ID)
    assert (made.region, made.zone, made.tags[TAG_VOLUME]) == ("eastus", "eastus", "data")
    assert attached(azure, azure_arm, size=None).id == made.id
    sdk.resources.resource_groups.begin_delete(GROUP).result()
    (left,) = told(azure)
    assert (left.id, left.attached_to) == (made.id, None)


def test_a_volume_of_a_zone_hangs_on_machines_of_that_zone_alone(account, azure_arm, sdk):
    azure = account()
    launch(sdk, zones=["3"], size="Standard_NC24ads_A100_v4")
    made = attached(azure, azure_arm)
    assert made.zone == "eastus-3"
    launch(sdk, OTHER)
    with pytest.raises(InvalidRequest, match="is in eastus-3"):
        attached(azure, azure_arm, id_=f"eastus/{OTHER}")


def test_two_machines_never_share_a_volume_and_another_ledgers_is_not_taken(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    launch(sdk, OTHER)
    made = attached(azure, azure_arm)
    with pytest.raises(InvalidRequest, match="used by"):
        attached(azure, azure_arm, id_=f"eastus/{OTHER}")
    other = attached(azure, azure_arm, id_=f"eastus/{OTHER}", ledger="led-2")
    assert other.id != made.id


def test_a_volume_that_is_not_there_needs_a_size(account, azure_arm, sdk):
    launch(sdk)
    with pytest.raises(InvalidRequest, match="to create it, give its size"):
        attached(account(), azure_arm, size=None)
    assert told(account(), Kind.VOLUME) == []


def test_a_lost_reply_makes_no_second_volume(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    azure_arm.faults.lose_reply("Disks.CreateOrUpdate")
    attached(azure, azure_arm)
    assert len(told(azure, Kind.VOLUME)) == 1


def test_a_cloud_that_has_no_call_for_it_lists_the_disk_beside_those_that_are_there(account, azure_arm, sdk):
    azure = account()
    launch(sdk)
    body = {"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}}
    theirs = sdk.compute.disks.begin_create_or_update(GROUP, "theirs", body).result().id
    asked = {"dataDisksToAttach": [{"diskId": theirs, "lun": 5}]}
    sdk.compute.virtual_machines.begin_attach_detach_data_disks(GROUP, GROUP, asked).result()
    azure_arm.faults.add("VirtualMachines.AttachDetachDataDisks", error="NotFound", status=404, times=9)
    assert attached(azure, azure_arm).attached_to == ID
    rows = azure_arm.resource(ID).facts["storageProfile"]["dataDisks"]
    assert [(one["lun"], one["name"].startswith("volume")) for one in rows] == [(5, False), (0, True)]
