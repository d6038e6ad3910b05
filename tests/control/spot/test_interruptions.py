"""Interruptions of spot machines: each is one line, with how it was known and what it cost."""

from __future__ import annotations

import pytest

from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.lifecycle.lifecycle import terminate_with_resources
from cloudgpu.control.spot.history import FREE_TEXT, _free_reason, history, record_interruptions
from cloudgpu.views.history import _TEXTS as SENTENCES
from tests.control.conftest import Lab


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


def lines(lab, machine):
    return [one for one in lab.session.ledger.events(machine.id) if one.kind == "spot_interrupted"]


def the_machine(lab, **more):
    lab.up(name="fox", spot=True, **more)
    (machine,) = lab.rows()
    return machine


def test_a_machine_that_is_taken_is_written_down_once_with_what_it_cost(lab):
    machine = the_machine(lab)
    lab.later(hours=2)
    lab.cloud.interrupt(machine.provider_id)
    lab.later(minutes=5)
    refresh(lab.session, machine)
    assert record_interruptions(lab.session) == 1
    assert record_interruptions(lab.session) == 0
    (line,) = lines(lab, machine)
    assert (line.body["how"], line.body["free"]) == ("provider", "")
    assert line.body["ran_s"] == pytest.approx(2 * 3600 + 120, abs=60)
    assert line.body["nanos"] > 0
    assert [one.kind for one in history(lab.session.ledger)] == ["made", "taken"]
    assert "taken by its provider" in SENTENCES["spot_interrupted"](line.body)


def test_a_machine_that_its_user_ends_is_no_interruption(lab):
    machine = the_machine(lab)
    lab.later(hours=1)
    terminate_with_resources(lab.session, machine, why="down by ada")
    assert (record_interruptions(lab.session), lines(lab, machine)) == (0, [])
    assert [one.kind for one in history(lab.session.ledger)] == ["made", "ended"]


def test_a_machine_on_demand_is_no_spot_history(lab):
    lab.up(name="owl")
    assert (record_interruptions(lab.session), history(lab.session.ledger)) == (0, ())


def test_the_first_hour_of_what_ec2_takes_and_the_first_minute_of_what_google_takes_are_free(lab):
    machine = the_machine(lab)._replace(state_reason="interrupted")
    assert _free_reason(machine._replace(provider="aws"), 3599) == FREE_TEXT.format("1h")
    assert _free_reason(machine._replace(provider="aws"), 3600) == ""
    assert _free_reason(machine._replace(provider="gcp"), 59) == FREE_TEXT.format("1m")
    assert _free_reason(machine._replace(provider="azure"), 10) == ""
    assert _free_reason(machine._replace(provider="aws", state_reason=None), 10) == ""
