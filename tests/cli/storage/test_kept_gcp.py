"""Images, volumes and what is left over on our model of Google Cloud, by the command line."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.cli.gcp_line import Line
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.clouds.gcp.model import Key
from tests.clouds.gcp.plain import PROJECT, ZONE, Plain

__all__ = ["gcp", "gcp_process"]
FROM = "--ssh-from 203.0.113.7"
UP = f"up --gpu t4 --yes --no-wait --zone {ZONE} {FROM}"
SURVEY = {
    "compute.instances.aggregatedList": 3,  # for machines, for their timers, for whose rules there are
    "compute.disks.aggregatedList": 1,
    "compute.images.list": 1,
    "compute.snapshots.list": 1,
    "compute.machineImages.list": 1,
    "compute.firewalls.list": 1,
    "compute.addresses.aggregatedList": 1,
}


@pytest.fixture
def line(own_home, capsys, gcp, monkeypatch):
    on_time_of(monkeypatch, gcp)
    return Line(own_home, capsys, gcp)


def later(gcp, **passed):
    """Let time pass, here and at Google."""
    gcp.advance(timedelta(**passed).total_seconds())


def disks(gcp):
    return sorted(key.name for key in gcp.model.of("disks"))


@pytest.mark.soak
def test_an_image_is_saved_listed_launched_from_and_removed(line, gcp):
    assert line(f"{UP} --name otter").code == 0
    saved = line("image save otter --name ready --yes -o json")
    assert saved.code == 0, saved.err
    (listed,) = line("image ls -o json").json["images"]
    assert (listed["name"], listed["region"]) == ("ready", "us-central1")
    assert line("down otter --yes").code == 0
    assert line(f"up --gpu t4 --yes --no-wait --region us-west1 {FROM} --name fox --image ready").code == 0
    (id_,) = gcp.instances(live=True)
    (image,) = gcp.model.of("images")
    source = gcp.model.resources[Key("disks", PROJECT, f"zones/{id_.split('/')[0]}", id_.split("/")[1])]["sourceImage"]
    assert (id_.split("/")[0][:8], source.endswith(image.name)) == ("us-west1", True)
    assert line("image rm ready --yes").code == 0
    assert line("down fox --yes").code == 0
    assert gcp.billable() == []


@pytest.mark.soak
def test_a_volume_outlives_its_machine_and_ties_the_next_one_to_its_zone(line, gcp):
    assert line(f"{UP} --name otter --volume data:20").code == 0
    (name,) = (one for one in disks(gcp) if one.startswith("cg-data-"))
    said = line("down otter --yes")
    assert "volume data" in said.out + said.err
    assert disks(gcp) == [name]
    assert line(f"up --gpu t4 --yes --no-wait {FROM} --name fox --volume data").code == 0
    assert gcp.instances(live=True)[0].startswith(f"{ZONE}/")
    used = line(f"{UP} --name elk --volume data -o json")
    assert (used.code, used.json["error"]["field"]) == (2, "--volume")
    away = line(f"up --gpu t4 --yes --no-wait {FROM} --zone us-west1-a --name elk --volume data -o json")
    assert (away.code, away.json["error"]["field"]) == (2, "--zone")
    assert line("down fox --yes").code == 0
    assert line("volume rm data --yes").code == 0
    assert gcp.billable() == []


@pytest.mark.soak
def test_what_others_left_of_a_machine_is_shown_with_what_it_costs_and_removed(line, gcp):
    assert line(f"{UP} --name otter").code == 0
    (id_,) = gcp.instances()
    gcp.instance(id_)["disks"][0]["autoDelete"] = False  # somebody else ended it and kept its disk
    Plain(gcp)("Instances", "delete_unary", instance=id_.split("/")[1])
    later(gcp, hours=1)
    said, made = line.calls("orphans -o json")
    found = {one["kind"]: one for one in said.json["orphans"]}
    assert set(found) == {"disk", "security_group"}
    assert found["security_group"]["why"] == "its machine is gone"
    assert {action: made.count(action) for action in SURVEY} == SURVEY
    later(gcp, days=2)
    assert line("orphans --clean --older-than 1d --yes").code == 0
    assert gcp.billable() == []
    assert [name for name in gcp.firewalls() if not name.startswith("cloudgpu-shut-")] == []


@pytest.mark.soak
def test_an_image_is_made_of_a_disk_before_it_goes(line, gcp):
    assert line(f"{UP} --name otter").code == 0
    (id_,) = gcp.instances()
    gcp.instance(id_)["disks"][0]["autoDelete"] = False
    Plain(gcp)("Instances", "delete_unary", instance=id_.split("/")[1])
    line("ls --refresh")  # it is seen to be gone
    later(gcp, days=1)
    cleaned = line("orphans --clean --snapshot --yes")
    assert cleaned.code == 0, cleaned.err
    assert disks(gcp) == []
    (kept,) = line("image ls -o json").json["images"]
    assert line(f"{UP} --name fox --image {kept['name']}").code == 0


@pytest.mark.soak
def test_a_silent_zone_is_named_and_nothing_there_is_touched(line, gcp):
    assert line(f"{UP} --name otter").code == 0
    later(gcp, hours=1)
    gcp.faults.offline(zone=ZONE)
    said = line("orphans --clean --yes -o json")
    assert said.code == 8
    assert ZONE in {gap["scope"] for gap in said.json["unanswered"]}
    assert len(gcp.instances(live=True)) == 1


def test_a_preempted_machine_is_shown_as_interrupted_and_its_rule_is_not_left_over(line, gcp):
    assert line(f"{UP} --spot --name otter").code == 0
    gcp.interrupt(gcp.instances()[0])
    later(gcp, hours=1)
    assert line("ls --refresh").code == 0
    (row,) = line("ls -o json").json["machines"]
    assert (row["state"], row["reason"]) == ("stopped", "interrupted")
    assert {one["kind"] for one in line("orphans -o json").json["orphans"]} == {"stopped_machine"}
    assert line("down otter --yes").code == 0
    assert gcp.billable() == []
