"""What the ledger has seen of spot becomes a trace, which a backtest and a quotation use."""

from __future__ import annotations

import pytest

from cloudgpu.cli.jobs.spot_backtest import spot_backtest_text
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.lifecycle.lifecycle import terminate_with_resources
from cloudgpu.control.spot.backtest import SpotBacktestOptions, observed_traces, spot_backtest_document
from cloudgpu.errors import InvalidRequest
from tests.control.conftest import Lab

JOB = SpotBacktestOptions(policies=("greedy",), work="2h", deadline="4h", starts=4)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


def taken_after(lab, name, hours):
    """Launch a spot machine that its provider takes after so many hours."""
    lab.up(name=name, spot=True)
    machine = next(one for one in lab.rows() if one.name == name)
    lab.later(hours=hours)
    lab.cloud.interrupt(machine.provider_id)
    lab.later(minutes=5)
    refresh(lab.session, machine)


def test_a_machine_says_that_spot_was_there_and_an_interruption_that_it_is_not(lab):
    taken_after(lab, "fox", 3)
    lab.later(hours=2)
    taken_after(lab, "owl", 4)
    lab.later(hours=1)
    (trace,) = observed_traces(lab.session)
    assert trace.interval_s == 600
    assert trace.data[0] == 1
    assert trace.data.count(b"\1\0") == 2  # it went twice
    assert trace.seconds / 3600 == pytest.approx(10, abs=0.6)
    assert trace.share == pytest.approx(7 / 10, abs=0.08)
    account, zone, kind = trace.name.split()
    assert all((account, zone, kind))


def test_a_place_where_only_one_state_was_seen_says_too_little(lab):
    assert observed_traces(lab.session) == []
    lab.up(name="fox", spot=True)
    lab.later(hours=3)
    assert observed_traces(lab.session) == []
    (machine,) = lab.rows()
    terminate_with_resources(lab.session, machine, why="down by ada")
    assert observed_traces(lab.session) == []


def test_a_backtest_without_traces_uses_what_the_ledger_has_seen(lab):
    with pytest.raises(InvalidRequest, match="has seen no spot machine come and go"):
        spot_backtest_document(JOB, lambda: lab.session)
    taken_after(lab, "fox", 3)
    lab.later(hours=4)
    value = spot_backtest_document(JOB, lambda: lab.session)
    assert (value["from_ledger"], value["runs"], len(value["traces"])) == (True, 4, 1)
    assert value["policies"][0]["missed"] == 0
    assert "in one place that this ledger has seen" in spot_backtest_text(value).replace("\n", " ")


def test_with_traces_no_session_is_opened(tmp_path):
    def opened():
        pytest.fail("a session was opened")

    (tmp_path / "one.json").write_text('{"metadata": {"gap_seconds": 600}, "data": [' + "1, 0, 1, " * 30 + "1]}")
    wanted = SpotBacktestOptions(traces=[str(tmp_path)], policies=("greedy",), work="2h", deadline="4h", starts=1)
    assert not spot_backtest_document(wanted, opened)["from_ledger"]
