"""What stays of machines on our model of Google Cloud: listed, imaged once, attached, removed; rules that are left."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.gcp.network import firewall as access
from cloudgpu.providers.gcp.provider import GcpProvider
from cloudgpu.providers.gcp.storage import create_image as imaging, disks
from cloudgpu.providers.gcp.storage.resources import resource_id
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.clouds.gcp.model import Key
from tests.clouds.gcp.plain import PROJECT, ZONE, Plain
from tests.providers.gcp.accounts import TAGS, account, calls, machine

__all__ = ["gcp", "gcp_process"]
NAME = "cloudgpu-cg-1-7"
DATA = {TAG_LEDGER: "led-1", "cloudgpu-owner": "ada"}
OTHER_ZONE = "us-central1-b"
HERE = "us-central1"


@pytest.fixture
def cloud(gcp, tmp_path):
    return account(gcp, tmp_path, ledger="led-1")


def left_disk(gcp, cloud, name="cg-1"):
    """Let a machine end so that its disk stays, and return that."""
    id_ = machine(gcp, name)
    cloud.terminate_keeping_disk(id_)
    gcp.advance(60)
    return next(one for one in cloud.resources().items if one.id == resource_id(ZONE, "disks", name))


# What there is


def test_a_machines_disk_is_told_with_its_user_its_labels_and_its_price_word(gcp, cloud):
    id_ = machine(gcp)
    with calls(gcp) as made:
        (disk,) = cloud.resources().items
    assert (disk.kind, disk.zone, disk.region, disk.size_gb) == (Kind.DISK, ZONE, HERE, 50)
    assert (disk.attached_to, disk.stored_as, disk.tags, disk.name) == (id_, "pd-standard", TAGS, "")
    assert sorted(made) == [
        "compute.disks.aggregatedList",
        "compute.images.list",
        "compute.machineImages.list",
        "compute.snapshots.list",
    ]


def test_what_is_nobodys_of_ours_is_not_told(gcp, cloud):
    machine(gcp, tags={"team": "physics"})
    Plain(gcp)("Disks", "insert_unary", disk_resource={"name": "own", "size_gb": 10, "labels": {"cloudgpu-id": "x"}})
    assert cloud.resources().items == ()


def test_snapshots_and_images_of_somebodys_that_bear_our_labels_are_told(gcp, cloud):
    machine(gcp, "cg-1")
    plain = Plain(gcp)
    body = {"name": "shot", "source_disk": f"projects/{PROJECT}/zones/{ZONE}/disks/cg-1", "labels": TAGS}
    plain("Snapshots", "insert_unary", at="", snapshot_resource=body)
    found = {one.kind: one for one in cloud.resources(HERE).items}
    assert (found[Kind.SNAPSHOT].id, found[Kind.SNAPSHOT].stored_as) == ("global/snapshots/shot", "snapshot(standard)")
    assert found[Kind.SNAPSHOT].size_gb == 25  # what it stores in the model, half of the disk
    cloud.remove(found[Kind.SNAPSHOT])
    assert [one.kind for one in cloud.resources(HERE).items] == [Kind.DISK]


def test_a_silent_zone_is_named_and_another_regions_is_not(gcp, cloud):
    gcp.faults.offline(zone=OTHER_ZONE)
    machine(gcp)
    found = cloud.resources()
    assert ([gap.scope for gap in found.unanswered], len(found.items)) == ([OTHER_ZONE], 1)
    assert cloud.resources("europe-west4").unanswered == ()


def test_a_silent_zone_that_the_settings_leave_out_is_no_gap(gcp, tmp_path):
    cloud = account(gcp, tmp_path, exclude_regions=["europe-west4"])
    gcp.faults.offline(zone="europe-west4-a")
    id_ = machine(gcp)
    assert cloud.resources().unanswered == cloud.orphans().unanswered == ()
    assert cloud.attach(id_, Volume("data", 12), DATA).attached_to == id_


def test_a_list_that_does_not_answer_is_a_gap_and_two_are_an_error(gcp, cloud):
    machine(gcp)
    gcp.faults.deny("compute.images.list")
    found = cloud.resources()
    assert ([gap.scope for gap in found.unanswered], len(found.items)) == (["lab"], 1)
    gcp.faults.deny("compute.disks.aggregatedList")
    with pytest.raises(CloudgpuError):
        cloud.resources()


def test_a_list_of_images_that_lacks_something_is_a_gap(gcp, cloud):
    gcp.faults.add("compute.images.list", status=200, body={"warning": {"code": "PARTIAL_SUCCESS", "message": "some"}})
    assert [(gap.scope, gap.why) for gap in cloud.resources().unanswered] == [("lab", "some")]


def test_a_list_that_lacks_something_is_a_gap_whatever_the_account_is_called(gcp, tmp_path):
    settings = {"regions": [HERE]}
    named = GcpProvider(ProviderSettings("uni-lab1", settings, tmp_path, gcp.clock.now, gcp.advance, "led-1"))
    warning = {"warning": {"code": "PARTIAL_SUCCESS", "message": "some"}}
    gcp.faults.add("compute.disks.aggregatedList", status=200, body={"items": {}, **warning})
    assert [gap.why for gap in named.resources().unanswered] == ["some"]


def test_what_cloudgpu_never_makes_hinders_no_proof_where_it_cannot_be_listed(gcp, cloud):
    gcp.faults.deny("compute.snapshots.list")
    gcp.faults.deny("compute.machineImages.list")
    assert cloud.resources().unanswered == ()


def test_a_disk_in_use_is_refused_and_one_that_is_free_goes_once(gcp, cloud):
    machine(gcp, "cg-2")
    (used,) = cloud.resources().items
    with pytest.raises(InvalidRequest):
        cloud.remove(used)
    disk = left_disk(gcp, cloud)
    for _ in range(2):
        cloud.remove(disk)
    assert [one.id for one in cloud.resources().items] == [used.id]


@pytest.mark.parametrize("zone", [ZONE, "us-central1-ai1a"])
def test_a_disk_goes_in_whatever_zone_it_lies(gcp, cloud, zone):
    disk = replace(left_disk(gcp, cloud), zone=zone, id=resource_id(zone, "disks", "cg-1"))
    with calls(gcp) as made:
        cloud.remove(disk)
    assert made[0] == "compute.disks.delete"
    assert gcp.calls[-len(made)].where["zone"] == zone


@pytest.mark.parametrize("id_", ["us-central1-a/cg-1", "global/disks", "disks/x", "us-central1-a/images/x", "../x/y"])
def test_an_id_that_is_none_of_its_kind_removes_nothing(gcp, cloud, id_):
    disk = left_disk(gcp, cloud)
    with pytest.raises(InvalidRequest), calls(gcp) as made:
        cloud.remove(replace(disk, id=id_))
    assert made == []


# Images


def test_the_image_of_a_running_machine_is_made_once_and_holds_its_system_disk_alone(gcp, cloud):
    id_ = machine(gcp, "cg-1")
    cloud.attach(id_, Volume("data", 12), DATA)
    gcp.dwell(image=30)
    begun = cloud.save_image(id_, NAME, TAGS)
    assert (begun.kind, begun.ready, begun.region) == (Kind.IMAGE, False, HERE)
    gcp.advance(31)
    done = cloud.save_image(id_, NAME, TAGS)
    assert (done.id, done.ready, done.tags) == (f"global/images/{NAME}", True, TAGS)
    assert done.size_gb == 13  # a quarter of the disk's 50 GB, as the model archives it
    assert gcp.status(id_) == "RUNNING"
    assert [call.action for call in gcp.calls].count("compute.images.insert") == 1


def test_a_lost_reply_makes_no_second_image(gcp, cloud):
    id_ = machine(gcp)
    gcp.faults.lose_reply("compute.images.insert")
    cloud.save_image(id_, NAME, TAGS)
    assert [one.name for one in cloud.resources().items if one.kind is Kind.IMAGE] == [""]
    assert len(gcp.model.of("images")) == 1


def test_an_image_outlives_its_disk_and_is_found_again_by_its_name(gcp, cloud):
    disk = left_disk(gcp, cloud)
    tags = {**TAGS, TAG_IMAGE: "trained"}
    cloud.save_image(disk.id, NAME, tags)
    cloud.remove(disk)
    found = cloud.save_image(disk.id, NAME, tags)
    assert (found.name, found.region, found.ready) == ("trained", HERE, True)
    cloud.remove(found)
    assert cloud.resources().items == ()


def test_a_name_that_something_else_bears_is_refused(gcp, cloud):
    id_ = machine(gcp)
    cloud.save_image(id_, NAME, TAGS)
    with pytest.raises(InvalidRequest, match="not of this ledger"):
        cloud.save_image(id_, NAME, {**TAGS, TAG_LEDGER: "led-2"})


def test_an_image_of_another_machine_under_the_name_is_not_taken_for_that_of_this_one(gcp, cloud):
    cloud.save_image(machine(gcp), NAME, {**TAGS, TAG_IMAGE: "trained"})
    with pytest.raises(InvalidRequest, match="another machine") as refused:
        cloud.save_image(machine(gcp, "cg-2"), NAME, {**TAGS, TAG_IMAGE: "trained", TAG_ID: "cg-2"})
    assert "cloudgpu image rm trained" in refused.value.next


def test_an_image_that_failed_is_removed_and_said(gcp, cloud):
    id_ = machine(gcp)
    cloud.save_image(id_, NAME, TAGS)
    next(iter(gcp.model.of("images").values()))["status"] = "FAILED"
    with pytest.raises(InvalidRequest, match="failed at Google"):
        cloud.save_image(id_, NAME, TAGS)
    assert gcp.model.of("images") == {}
    assert cloud.save_image(id_, NAME, TAGS).kind is Kind.IMAGE


@pytest.mark.parametrize("source", ["us-central1-a/cg-none", "us-central1-a/disks/cg-none", "nonsense"])
def test_no_image_is_made_of_what_is_not_there(gcp, cloud, source):
    with pytest.raises(InstanceNotFound):
        cloud.save_image(source, NAME, TAGS)
    assert gcp.model.of("images") == {}


def test_a_data_volume_is_no_system_to_start_from(gcp, cloud):
    volume = cloud.attach(machine(gcp), Volume("data", 12), DATA)
    with pytest.raises(InvalidRequest, match="data volume"):
        cloud.save_image(volume.id, NAME, TAGS)


def test_a_name_that_google_does_not_take_is_followed_by_one_that_it_does():
    long = "cloudgpu-" + "led-0123456789abcdef" + "-" + "a" * 40
    found = imaging.google_name(long)
    assert len(found) <= imaging.MAX_NAME_LENGTH
    assert found == imaging.google_name(long) != imaging.google_name(long + "b")
    assert imaging.google_name(NAME) == NAME


def test_the_disk_is_told_to_stay_before_the_machine_is_told_to_go(gcp, cloud):
    id_ = machine(gcp, "cg-1")
    gcp.faults.refuse("compute.instances.delete", times=9)
    with suppress(CloudgpuError):
        cloud.terminate_keeping_disk(id_)
    assert not gcp.instance(id_)["disks"][0]["autoDelete"]
    gcp.faults.clear()
    cloud.terminate_keeping_disk(id_)
    gcp.advance(60)
    assert [one.attached_to for one in cloud.resources().items] == [None]
    cloud.terminate_keeping_disk(id_)  # it is gone, and that is no error


# Volumes


def test_a_volume_is_made_attached_under_its_own_device_name_and_stays(gcp, cloud):
    id_ = machine(gcp, "cg-1")
    made = cloud.attach(id_, Volume("data", 12), DATA)
    assert (made.kind, made.name, made.size_gb, made.attached_to) == (Kind.VOLUME, "data", 12, id_)
    assert made.tags == {**DATA, TAG_VOLUME: "data"}
    attached = gcp.instance(id_)["disks"][-1]
    assert (attached["deviceName"], attached["autoDelete"]) == (disks.DEVICE_NAME, False)
    with calls(gcp) as again:
        assert cloud.attach(id_, Volume("data", 12), DATA) == made
    assert not [one for one in again if one.endswith(("insert", "attachDisk"))]


@pytest.mark.parametrize("action", ["compute.disks.insert", "compute.instances.attachDisk"])
def test_a_lost_reply_makes_no_second_volume(gcp, cloud, action):
    id_ = machine(gcp, "cg-1")
    gcp.faults.lose_reply(action)
    made = cloud.attach(id_, Volume("data", 12), DATA)
    assert made.attached_to == id_
    assert [one.kind for one in cloud.resources().items].count(Kind.VOLUME) == 1


def test_a_volume_that_another_uses_or_that_lies_elsewhere_is_refused(gcp, cloud):
    first, second = machine(gcp, "cg-1"), machine(gcp, "cg-2")
    away = machine(gcp, "cg-3", zone=OTHER_ZONE)
    cloud.attach(first, Volume("data", 12), DATA)
    with pytest.raises(InvalidRequest, match="is used by the machine us-central1-a/cg-1"):
        cloud.attach(second, Volume("data"), DATA)
    with pytest.raises(InvalidRequest, match="is in us-central1-a"):
        cloud.attach(away, Volume("data", 12), DATA)
    with pytest.raises(InvalidRequest, match="to create it, give its size"):
        cloud.attach(second, Volume("dada"), DATA)


def test_a_zone_that_is_silent_may_have_the_volume(gcp, cloud):
    id_ = machine(gcp, "cg-1")
    gcp.faults.offline(zone=OTHER_ZONE)
    with pytest.raises(ProviderUnavailable, match=OTHER_ZONE):
        cloud.attach(id_, Volume("data", 12), DATA)
    with pytest.raises(ProviderUnavailable, match=OTHER_ZONE):
        cloud.placement_constraint(Setup(volume=Volume("data", 12)), Requirements())


# Where a setup ties a launch to


def test_a_volume_ties_to_its_zone_and_a_subnet_to_its_region(gcp, cloud):
    volume = Setup(volume=Volume("data"))
    cloud.attach(machine(gcp, "cg-1"), Volume("data", 12), DATA)
    assert (
        cloud.placement_constraint(volume, Requirements()).region,
        cloud.placement_constraint(volume, Requirements()).zone,
    ) == (HERE, ZONE)
    subnet = "projects/host-1/regions/us-west1/subnetworks/lab"
    assert cloud.placement_constraint(Setup(network=Network(subnet=subnet)), Requirements()).region == "us-west1"
    with pytest.raises(InvalidRequest, match="is in us-west1"):
        cloud.placement_constraint(Setup(volume=Volume("data"), network=Network(subnet=subnet)), Requirements())
    with pytest.raises(InvalidRequest) as refused:
        cloud.placement_constraint(volume, Requirements(zone=OTHER_ZONE))
    assert (refused.value.field, refused.value.next) == ("--zone", f"Launch there: --zone {ZONE}")


def test_a_setup_of_nothing_asks_nothing(gcp, cloud):
    assert cloud.placement_constraint(Setup(), Requirements()).region is None
    assert gcp.calls == []


@pytest.mark.parametrize("word", ["trained", NAME, f"global/images/{NAME}", f"projects/{PROJECT}/global/images/{NAME}"])
def test_an_image_is_found_by_the_name_that_it_was_saved_under_and_ties_to_no_place(gcp, cloud, word):
    id_ = machine(gcp)
    cloud.save_image(id_, NAME, {**TAGS, TAG_IMAGE: "trained"})
    assert cloud.placement_constraint(Setup(image=word), Requirements()).region is None


def test_an_image_of_another_ledgers_name_is_not_meant(gcp, cloud):
    cloud.save_image(machine(gcp), NAME, {**TAGS, TAG_LEDGER: "led-2", TAG_IMAGE: "trained"})
    with pytest.raises(InvalidRequest, match="no image and no family 'trained'"):
        cloud.placement_constraint(Setup(image="trained"), Requirements())


@pytest.mark.parametrize(
    ("setup", "field"),
    [
        (Setup(volume=Volume("dada")), "--volume"),
        (Setup(volume=Volume("new", 9)), "--volume"),
        (Setup(volume=Volume("new", 70_000)), "--volume"),
        (Setup(volume=Volume("data", 13)), "--volume"),
        (Setup(network=Network(subnet="nowhere")), "--subnet"),
    ],
)
def test_what_cannot_be_is_refused_before_the_launch(gcp, cloud, setup, field):
    cloud.attach(machine(gcp, "cg-1"), Volume("data", 12), DATA)
    with pytest.raises(InvalidRequest) as refused:
        cloud.placement_constraint(setup, Requirements())
    assert refused.value.field == field
    assert refused.value.next


# What launches leave beside


def rule_for(cloud, id_, label="caller"):
    network = f"projects/{PROJECT}/global/networks/default"
    access.admit(cloud._gcp, network, id_, {label: "203.0.113.7/32"}, {**TAGS})


def test_a_rule_is_used_while_its_machine_is_there_and_left_when_that_is_gone(gcp, cloud):
    id_ = machine(gcp, "cg-1")
    rule_for(cloud, id_)
    (found,) = cloud.orphans().items
    assert (found.kind, found.attached_to, found.region) == (Kind.SECURITY_GROUP, id_, HERE)
    assert found.tags == {"cloudgpu-id": "cg-1", TAG_LEDGER: "led-1"}
    with pytest.raises(InvalidRequest, match="which is there"):
        cloud.remove_orphan(found)
    Plain(gcp)("Instances", "delete_unary", instance="cg-1")
    (found,) = cloud.orphans(HERE).items
    assert found.attached_to is None
    assert cloud.orphans("europe-west4").items == ()
    for _ in range(2):
        cloud.remove_orphan(found)
    assert gcp.firewalls() == []


@pytest.mark.parametrize("unread", ["compute.instances.aggregatedList", "compute.firewalls.list"])
def test_a_rule_stays_where_it_cannot_be_read_whether_its_machine_is_there(gcp, cloud, unread):
    rule_for(cloud, machine(gcp, "cg-1"))
    (found,) = cloud.orphans().items
    gcp.faults.add(unread, error="forbidden", status=403, times=9)
    with pytest.raises(CloudgpuError):
        cloud.remove_orphan(found)
    assert len(gcp.firewalls()) == 1


@pytest.mark.parametrize(
    "gap",
    [
        {"warning": {"code": "PARTIAL_SUCCESS", "message": "some"}},  # of the whole list
        {"unreachables": [f"projects/{PROJECT}/regions/{HERE}"]},  # that it can be a region is our belief
    ],
)
def test_a_rule_stays_where_a_list_of_machines_says_that_it_lacks_some(gcp, cloud, gap):
    rule_for(cloud, machine(gcp, "cg-1"))
    (found,) = cloud.orphans().items
    gcp.faults.add("compute.instances.aggregatedList", status=200, body={"items": {}, **gap}, times=2)
    assert [one.attached_to for one in cloud.orphans().items] == [found.attached_to]
    with pytest.raises(InvalidRequest, match="which is there"):
        cloud.remove_orphan(found)
    assert len(gcp.firewalls()) == 1


def test_a_rule_of_a_launch_that_died_before_its_machine_is_left(gcp, cloud):
    rule_for(cloud, f"{ZONE}/cg-never")
    assert [one.attached_to for one in cloud.orphans().items] == [None]


def test_a_rule_whose_machine_may_be_in_a_silent_zone_counts_as_used(gcp, cloud):
    rule_for(cloud, f"{OTHER_ZONE}/cg-1")
    gcp.faults.offline(zone=OTHER_ZONE)
    found = cloud.orphans()
    assert [one.attached_to for one in found.items] == [f"{OTHER_ZONE}/cg-1"]
    assert OTHER_ZONE in [gap.scope for gap in found.unanswered]


def test_the_rule_that_lets_nobody_in_and_rules_of_others_are_told_nowhere(gcp, cloud):
    access.ensure_deny_rule(cloud._gcp, f"projects/{PROJECT}/global/networks/default")
    assert cloud.orphans().items == ()


def test_an_address_with_our_label_is_told_with_its_price_word_and_goes(gcp, cloud):
    key = Key("addresses", PROJECT, f"regions/{HERE}", "kept")
    gcp.model.add(key, {"address": "198.51.100.9", "status": "RESERVED", "labels": TAGS, "users": []})
    (found,) = cloud.orphans().items
    assert (found.id, found.kind, found.stored_as) == (f"{HERE}/addresses/kept", Kind.ADDRESS, "static_ip_unused")
    cloud.remove_orphan(found)
    assert cloud.orphans().items == ()
