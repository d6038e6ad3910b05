"""What launches leave at Google Cloud, by the command line on our model of it: found, told apart, removed."""

from __future__ import annotations

import pytest

from cloudgpu.cli.common import open_session
from tests.cli.gcp_line import Line
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.clouds.gcp.plain import Plain

__all__ = ["gcp", "gcp_process"]
UP = "up --gpu t4 --yes --no-wait --ssh-from 203.0.113.7 --name otter"
DAY = 86_400


@pytest.fixture
def line(own_home, capsys, gcp, monkeypatch):
    on_time_of(monkeypatch, gcp)
    return Line(own_home, capsys, gcp)


def kinds(line):
    return sorted(one["kind"] for one in line("orphans -o json").json["orphans"])


@pytest.fixture
def bereft(line, gcp):
    """A disk whose machine somebody deleted by hand, a day ago."""
    assert line(UP).code == 0
    (id_,) = gcp.instances()
    for disk in gcp.instance(id_)["disks"]:
        disk["autoDelete"] = False  # as somebody could set it by hand
    Plain(gcp)("Instances", "delete_unary", zone=id_.partition("/")[0], instance=id_.partition("/")[2])
    assert line("ls --refresh").code == 0
    gcp.advance(DAY)


@pytest.mark.soak
def test_a_disk_that_outlived_its_machine_is_told_with_its_price_and_removed_when_asked(line, gcp, bereft):
    disk, rule = sorted(line("orphans -o json").json["orphans"], key=lambda one: one["kind"])
    assert (disk["kind"], rule["kind"], float(disk["usd_per_month"]) > 0) == ("disk", "security_group", True)
    assert "cloudgpu start otter brings it back" in disk["stay_reason"]
    cleaned = line("orphans --clean --yes --older-than 1h")
    assert cleaned.code == 0, cleaned.out + cleaned.err
    assert (gcp.billable(), kinds(line)) == ([], [])
    assert [name for name in gcp.firewalls() if not name.startswith("cloudgpu-shut-")] == []


@pytest.mark.soak
def test_a_machine_that_ended_by_itself_is_brought_back_from_its_disk(line, gcp, bereft):
    said = line("start otter --yes --no-wait")
    assert said.code == 0, said.out + said.err
    (id_,) = gcp.instances(live=True)
    assert gcp.instance(id_)["labels"]["cloudgpu-name"] == "otter"
    gcp.advance(DAY / 2)
    line("ls --refresh")
    assert line("down otter --yes").code == 0
    assert gcp.billable() == []


@pytest.mark.soak
def test_a_rule_that_could_not_be_removed_is_found_and_removed_later(line, gcp):
    assert line(UP).code == 0
    gcp.faults.deny("compute.firewalls.delete", times=9)
    line("down --yes")
    assert gcp.instances() == []
    gcp.faults.clear()
    gcp.advance(DAY)
    assert kinds(line) == ["security_group"]
    assert line("orphans --clean --yes").code == 0
    assert kinds(line) == []


@pytest.mark.soak
def test_what_runs_what_is_stopped_and_what_another_ledger_owns_is_left_alone(line, gcp):
    assert line(UP).code == 0
    assert line("stop --yes").code == 0
    labels = {"cloudgpu-id": "cg-1", "cloudgpu-ledger": "another"}
    disk = {"name": "theirs", "size_gb": 20, "labels": labels}
    Plain(gcp)("Disks", "insert_unary", disk_resource=disk)
    gcp.advance(30 * DAY)
    before = gcp.billable()
    found = line("orphans -o json").json["orphans"]
    assert [one["stay_reason"] for one in found if one["kind"] == "disk"] == ["it belongs to another ledger (another)"]
    assert line("orphans --clean --yes").code == 0
    assert gcp.billable() == before


def test_a_silent_zone_is_named_and_nothing_of_it_is_taken_for_left_over(line, gcp):
    assert line(UP, "--zone us-central1-a").code == 0
    gcp.advance(DAY)
    gcp.faults.offline(zone="us-central1-a")
    said = line("orphans -o json")
    assert (said.code, said.json["orphans"]) == (8, [])
    cleaned = line("orphans --clean --yes")
    assert cleaned.code == 8
    gcp.faults.clear()
    assert len(gcp.instances(live=True)) == 1
    assert open_session().ledger.machines()
