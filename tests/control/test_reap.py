"""Passes over a cloud that remembers: what is over ends, who is in use goes on, what is silent is left alone."""

from __future__ import annotations

import pytest

from cloudgpu.control.reap import ReapWish, reap
from cloudgpu.core.decisions import Do, Rule
from tests.control.agents import Agents
from tests.control.conftest import Lab


def a_pass(lab, **wish):
    return reap(lab.session, ReapWish(**wish))


@pytest.fixture
def agents(tmp_path):
    made = Agents(tmp_path / "agents", tmp_path / "home" / "keys")
    yield made
    made.end()


@pytest.fixture
def lab(tmp_path, monkeypatch, agents):
    """A lab whose machines are reached over SSH, and have no timer of the cloud's own."""
    return Lab(tmp_path, monkeypatch, f'{agents.options}timer = "moves"\n')


def names(found):
    return [one.name for one in found]


def test_nothing_is_done_and_nothing_said_where_nothing_happens(lab, agents):
    lab.up(name="fox")
    lab.later(minutes=5)
    found = a_pass(lab)
    assert found.is_quiet
    assert found.exit_code == 0
    assert [(one.name, one.do) for one in found.decisions] == [("fox", Do.KEEP)]
    assert agents.asked == 0, "one that runs for five minutes cannot be idle"


def test_an_idle_machine_is_warned_and_after_the_grace_stopped_and_proved(lab, agents):
    lab.up(name="fox")
    lab.later(hours=2)
    agents.says(lab.clock())
    first = a_pass(lab)
    assert [(one.name, one.rule) for one in first.warned] == [("fox", Rule.IDLE)]
    assert len(lab.machines()) == 1
    lab.later(minutes=10)
    agents.says(lab.clock())
    second = a_pass(lab)
    assert [(one.name, one.do, one.rule, one.now) for one in second.ended] == [("fox", Do.STOP, Rule.IDLE, "stopped")]
    assert lab.machines() == []
    (row,) = lab.rows()
    assert (row["state"], row["billed"]) == ("stopped", False)
    kinds = [line.kind for line in lab.session.ledger.events(row["id"])]
    assert kinds.index("warning_given") < kinds.index("stop_asked")

