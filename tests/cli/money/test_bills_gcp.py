"""What machines on Google Cloud cost, by the command line on our model of it: what ends, what goes on being billed."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.core.values.times import from_iso
from tests.cli.gcp_line import Line
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.clouds.gcp.plain import Plain

__all__ = ["gcp", "gcp_process"]
UP = "up --yes --no-wait --ssh-from 203.0.113.7 --name otter"
T4 = f"{UP} --instance-type n1-standard-4+t4:1 --region us-central1 --disk 100"
HOUR, DAY = 3600, 24 * 3600
MONTH_H = 730  # hours of a month, by which a disk's price is counted


@pytest.fixture
def line(own_home, capsys, gcp, monkeypatch):
    on_time_of(monkeypatch, gcp)
    return Line(own_home, capsys, gcp)


def launched(line, *more):
    said = line(*more, "-o json")
    assert said.code == 0, said.out + said.err
    return said.json["machine"], *line.gcp.instances()


def shown(line):
    """Look at the one machine now, and return what is shown of it."""
    assert line("ls --refresh").code == 0
    (machine,) = line("ls --all -o json").json["machines"]
    return machine


def disk_usd(machine, seconds):
    """Return what its system disk costs in that time."""
    monthly = next(Decimal(one["usd_per_month"]) for one in machine["attached_costs"] if "system disk" in one["what"])
    return monthly * Decimal(seconds) / MONTH_H / HOUR


def near(found, wanted):
    """Say whether sums are the same but for cents: of the address, and of months of other lengths."""
    return abs(Decimal(found) - wanted) < Decimal("0.05") + wanted / 25


@pytest.mark.soak
def test_a_machine_that_shut_itself_down_costs_its_disk_and_nothing_else(line, gcp):
    made, id_ = launched(line, T4)
    gcp.advance(2 * HOUR)
    line("ls --refresh")
    gcp.shut_down(id_)
    machine = shown(line)
    assert (machine["state"], machine["billed"], machine["reason"]) == ("stopped", False, "shut down from inside")
    price = Decimal(made["price"]["usd_per_hour"])
    assert near(machine["spent_usd"], 2 * price + disk_usd(machine, 2 * HOUR))
    assert gcp.billable() == [path for path in gcp.billable() if "/disks/" in path]
    before = Decimal(machine["spent_usd"])
    gcp.advance(10 * DAY)
    after = shown(line)
    assert near(Decimal(after["spent_usd"]) - before, disk_usd(machine, 10 * DAY))
    assert "free" not in line("ls").out


@pytest.mark.soak
@pytest.mark.parametrize(("seconds", "free"), [(15, True), (90, False)])
def test_a_spot_machine_that_is_taken_in_its_first_minute_is_free(line, gcp, seconds, free):
    made, id_ = launched(line, T4, "--spot")
    gcp.advance(seconds)
    gcp.interrupt(id_)
    machine = shown(line)
    assert (machine["state"], machine["reason"]) == ("stopped", "interrupted")
    interrupted = line("cost -o json").json["interrupted"]
    assert (interrupted["number"], Decimal(interrupted["usd"]) == 0) == (1, free)
    if not free:
        assert Decimal(interrupted["usd"]) >= Decimal(made["price"]["usd_per_hour"]) * seconds / HOUR / 2


@pytest.mark.soak
def test_a_spot_machine_that_was_taken_is_started_again_on_its_disk(line, gcp):
    _, id_ = launched(line, T4, "--spot")
    gcp.advance(HOUR)
    gcp.interrupt(id_)
    shown(line)
    said = line("start otter --yes --no-wait")
    assert said.code == 0, said.err
    assert gcp.status(id_) == "RUNNING"
    assert [one["reason"] for one in (shown(line),)] == [None]


@pytest.mark.soak
def test_with_agent_and_reaper_dead_a_machine_is_not_billed_past_its_run_duration(line, gcp):
    made, id_ = launched(line, T4, "--lease 2h --renew-until 5h")
    until = from_iso(made["renew_until"])
    gcp.advance((until - gcp.clock.now()).total_seconds() - 30)
    assert gcp.status(id_) == "RUNNING"
    gcp.advance(DAY)
    machine = shown(line)
    assert (machine["state"], machine["billed"]) == ("stopped", False)
    assert "timer" in machine["reason"]
    price = Decimal(made["price"]["usd_per_hour"])
    assert near(machine["spent_usd"], 5 * price + disk_usd(machine, 5 * HOUR + DAY))


@pytest.mark.soak
def test_a_start_begins_a_new_run_that_ends_at_the_new_renew_until(line, gcp):
    _, id_ = launched(line, T4, "--lease 2h --renew-until 5h")
    gcp.advance(HOUR)
    assert line("stop otter --yes").code == 0
    gcp.advance(30 * HOUR)
    assert line("start otter --yes --no-wait --lease 3h --renew-until 8h").code == 0
    gcp.advance(7 * HOUR)
    assert gcp.status(id_) == "RUNNING"
    gcp.advance(HOUR + 120)
    assert gcp.status(id_) == "TERMINATED"


@pytest.mark.soak
def test_a_lease_is_not_extended_past_the_run_duration_that_google_fixed(line, gcp):
    launched(line, T4, "--lease 2h --renew-until 5h")
    said = line("extend otter 10h --yes -o json")
    error = said.json["error"]
    assert (said.code, error["field"]) == (2, "renew_until"), error
    assert "fixed" in error["message"]
    assert "cloudgpu stop otter" in error["next"]
    assert line("extend otter 2h --yes").code == 0


def test_a_machine_with_local_ssd_is_stopped_with_its_data_said_lost_and_not_billed(line, gcp):
    kind = f"{UP} --instance-type a2-ultragpu-1g --region us-central1"
    launched(line, kind)
    stopped = line("stop otter --yes")
    assert stopped.code == 0, stopped.err
    assert re.search(r"What was on its 40\S+ GB of scratch disks \(local SSD\) is lost\.", stopped.out), stopped.out
    assert [path for path in gcp.billable() if "/disks/" not in path] == []
    line("ls --refresh")
    before = Decimal(shown(line)["spent_usd"])
    gcp.advance(10 * DAY)
    machine = shown(line)
    assert near(Decimal(machine["spent_usd"]) - before, disk_usd(machine, 10 * DAY))


@pytest.mark.soak
def test_a_machine_that_nobody_looked_at_is_billed_to_its_end_by_googles_own_word(line, gcp):
    made, id_ = launched(line, T4)
    began = gcp.clock.now()
    gcp.advance(3 * HOUR)
    gcp.shut_down(id_)
    gcp.advance(2 * DAY)
    machine = shown(line)
    price = Decimal(made["price"]["usd_per_hour"])
    assert near(machine["spent_usd"], 3 * price + disk_usd(machine, 3 * HOUR + 2 * DAY))
    assert gcp.clock.now() - began > timedelta(days=2)


@pytest.mark.soak
def test_a_machine_that_was_made_smaller_at_google_is_billed_as_what_it_is(line, gcp):
    made, id_ = launched(line, f"{UP} --instance-type g2-standard-8 --region us-central1 --disk 100")
    gcp.advance(HOUR)
    assert line("stop otter --yes").code == 0
    zone, name = id_.split("/")
    smaller = {"machine_type": f"zones/{zone}/machineTypes/g2-standard-4"}
    asked = {"zone": zone, "instance": name, "instances_set_machine_type_request_resource": smaller}
    Plain(gcp)("Instances", "set_machine_type_unary", **asked)
    assert shown(line)["instance_type"] == "g2-standard-4"
    assert line("start otter --yes --no-wait").code == 0
    gcp.advance(HOUR)
    machine = shown(line)
    assert machine["instance_type"] == "g2-standard-4"
    dear, cheap = (Decimal(one["price"]["usd_per_hour"]) for one in (made, machine))
    assert cheap < dear
    assert near(machine["spent_usd"], dear + cheap + disk_usd(machine, 2 * HOUR))
