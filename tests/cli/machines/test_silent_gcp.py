"""What Google does not tell is not taken for gone, by the command line on our model of it."""

from __future__ import annotations

import pytest

from tests.cli.gcp_line import CONFIG, Line
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process

__all__ = ["gcp", "gcp_process"]
ZONE = "us-central1-a"
UP = f"up --yes --no-wait --ssh-from 203.0.113.7 --gpu t4 --zone {ZONE} --name otter"
INSERT = "compute.instances.insert"


@pytest.fixture
def line(own_home, capsys, gcp, monkeypatch):
    on_time_of(monkeypatch, gcp)
    return Line(own_home, capsys, gcp)


def total(line):
    return float(line("cost -o json").json["total"]["usd"])


@pytest.mark.soak
def test_a_volume_in_a_silent_zone_goes_on_costing(line, gcp):
    assert line(UP, "--volume data:500").code == 0
    assert line("down otter --yes").code == 0
    fault = gcp.faults.offline(zone=ZONE)
    assert line("ls --refresh").code == 8
    before = total(line)
    gcp.advance(86_400)
    assert total(line) > before + 1
    gcp.faults.remove(fault)
    gcp.advance(86_400)
    assert line("ls --refresh").code == 0
    assert total(line) > before + 2


@pytest.fixture
def elsewhere(line):
    """Let the account be of another project."""
    return lambda: line.config(f'{CONFIG}project = "another-lab"\n')


@pytest.mark.soak
def test_what_is_kept_in_a_project_that_the_account_left_goes_on_costing(line, gcp, elsewhere):
    assert line(UP, "--volume data:500").code == 0
    assert line("down otter --yes").code == 0
    elsewhere()
    said = line("ls --refresh")
    assert (said.code, "launched in the project cloudgpu-test" in said.err) == (8, True)
    before = total(line)
    gcp.advance(86_400)
    assert total(line) > before + 1
    line.config(CONFIG)
    assert line("volume rm data --yes").code == 0
    assert line("ls --refresh").code == 0
    elsewhere()
    assert line("ls --refresh").code == 0, "nothing is left there"


def test_an_interrupted_launch_in_a_project_that_the_account_left_is_not_settled(line, gcp, elsewhere):
    fault = gcp.faults.lose_reply(INSERT, times=99)
    assert line(UP).code == 8
    gcp.faults.remove(fault)
    elsewhere()
    gcp.advance(3600)
    assert line("ls --refresh").code == 8
    assert line("down otter --yes").code == 8
    line.config(CONFIG)
    assert line("down otter --yes").code == 0
    assert gcp.billable() == []


@pytest.mark.soak
@pytest.mark.parametrize(("verb", "action"), [("stop", "compute.instances.stop"), ("down", "compute.instances.delete")])
def test_what_google_accepts_and_does_not_do_is_asked_for_again(line, gcp, verb, action):
    assert line(UP).code == 0
    gcp.faults.add(action, status=200, body={"name": "op", "status": "PENDING"})
    said = line(f"{verb} otter --yes")
    assert said.code == 0, said.err
    assert gcp.instances(live=True) == []


GET = "compute.instances.get"


@pytest.mark.soak
def test_an_end_is_asked_though_the_first_reads_do_not_find_the_machine(line, gcp):
    assert line(UP).code == 0
    gcp.faults.add(GET, error="notFound", times=2)
    begun = gcp.clock.now()
    said, called = line.calls("down otter --yes")
    assert (said.code, gcp.instances(live=True)) == (0, []), said.err
    deleted, shut = called.index("compute.instances.delete"), called.index("compute.firewalls.delete")
    assert (deleted < shut, (gcp.clock.now() - begun).total_seconds() < 30) == (True, True)


@pytest.mark.parametrize("words", ["show otter --refresh", "stop otter --yes", "extend otter 1h --yes"])
def test_one_read_that_does_not_find_a_machine_is_no_proof_of_its_end(line, gcp, words):
    assert line(UP).code == 0
    gcp.faults.add(GET, error="notFound")
    said = line(words)
    assert said.code == 0, said.err
    assert [row["terminated_at"] for row in line("ls -o json").json["machines"]] == [None]


def test_what_somebody_has_deleted_is_gone_after_several_looks(line, gcp):
    assert line(UP).code == 0
    gcp.faults.add(GET, error="notFound", times=99)
    said, called = line.calls("stop otter --yes")
    assert (said.code, called.count(GET)) == (7, 3)


@pytest.fixture
def due(line, gcp):
    """Have a stop due: what a machine has cost is more than its budget."""
    assert line(UP).code == 0
    gcp.advance(3600)
    assert line("budget set small --amount 0.01 --period month --action stop --yes").code == 0


@pytest.mark.soak
@pytest.mark.usefixtures("due")
def test_a_pass_stops_a_machine_that_one_read_does_not_find(line, gcp):
    gcp.faults.add(GET, error="notFound")
    said = line("reap")
    assert (said.code, gcp.instances(live=True)) == (0, []), said.err
    assert [row["state"] for row in line("ls -o json").json["machines"]] == ["stopped"]


@pytest.mark.soak
@pytest.mark.usefixtures("due")
def test_a_pass_that_gets_no_answer_after_not_found_takes_no_machine_for_gone(line, gcp):
    gcp.faults.add(GET, error="notFound")
    gcp.faults.refuse(GET, times=99)
    said = line("reap")
    assert (said.code, "its timer" in said.out) == (8, False), said.out
    assert [row["terminated_at"] for row in line("ls -o json").json["machines"]] == [None]


@pytest.mark.soak
@pytest.mark.usefixtures("due")
def test_a_pass_believes_that_a_machine_is_gone_when_three_reads_say_so(line, gcp):
    gcp.faults.add(GET, error="notFound", times=99)
    said, called = line.calls("reap")
    assert (said.code, called.count(GET)) == (0, 3), said.err
    assert line("ls -o json").json["machines"] == []
