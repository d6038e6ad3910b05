"""Google's own timer, by the command line on our model of it: it is fixed while a machine runs."""

from __future__ import annotations

import pytest

from tests.cli.gcp_line import Line
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process

__all__ = ["gcp", "gcp_process"]
UP = "up --yes --no-wait --ssh-from 203.0.113.7 --gpu t4 --zone us-central1-a --name otter"
INSERT = "compute.instances.insert"


@pytest.fixture
def line(own_home, capsys, gcp, monkeypatch):
    on_time_of(monkeypatch, gcp)
    return Line(own_home, capsys, gcp)


def test_what_an_interrupted_launch_made_keeps_the_last_end_for_which_google_fixed_its_timer(line, gcp):
    fault = gcp.faults.lose_reply(INSERT, times=99)
    assert line(UP).code == 8
    gcp.faults.remove(fault)
    gcp.advance(600)
    said = line(UP, "-o json")
    assert said.code == 0, said.err
    (id_,) = gcp.instances()
    assert "its timer was fixed at its launch" in said.err
    renews = said.json["machine"]["renew_until"]
    assert line("ls --refresh -o json").json["machines"][0]["renew_until"] == renews
    assert line("extend otter 300h --yes").code == 2
    held = line("hold otter 300h --yes").err
    assert ("gcp has fixed that until it is stopped" in held, "extend moves that" in held) == (True, False)
    assert gcp.status(id_) == "RUNNING"


def test_a_timer_that_is_as_late_as_google_takes_any_is_no_fault_of_every_pass(line, gcp):
    assert "Google stops it after 120 days" in line(UP, "--lease 130d --renew-until 200d").err
    said = line("reap")
    assert said.code == 0, said.out + said.err
