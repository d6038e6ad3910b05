"""What `cloudgpu reap` prints and ends with: nothing when nothing happened, else a line each and a summary."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.cli.app import run
from cloudgpu.ledger.log import files
from tests.control.agents import Agents, patient
from tests.control.conftest import Fleet


@pytest.fixture
def agents(tmp_path, monkeypatch):
    patient(monkeypatch)
    monkeypatch.setattr(
        "cloudgpu.control.reaper.observe.RETRY_AFTER_S", 0.0
    )  # the pause before a silent region's second try
    made = Agents(tmp_path / "agents", tmp_path / "home" / "keys")
    yield made
    made.end()


@pytest.fixture
def fleet(tmp_path, monkeypatch, agents):
    """A machine that was launched three hours ago, by the clock of this computer, as the command line reads it."""
    made = Fleet(tmp_path, monkeypatch, f'{agents.options}timer = "moves"\n', agents)
    monkeypatch.setenv("CLOUDGPU_HOME", str(made.home))
    made.clock.now = datetime.now(UTC) - timedelta(hours=3)
    made.up(name="fox")
    return made


@pytest.fixture
def reap(capsys, fleet):
    """Run the verb now; return how it ended, what it said, and what it said was wrong."""

    def reaped(*words):
        fleet.agents.says(datetime.now(UTC))
        capsys.readouterr()
        code = run(["reap", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return reaped


def warned(fleet):
    """Let a pass have warned a quarter of an hour ago."""
    fleet.clock.now = datetime.now(UTC) - timedelta(minutes=15)
    fleet.agents.says(fleet.clock())
    assert fleet.pass_().warned


def test_it_is_silent_where_nothing_happened_and_says_so_when_asked_to(fleet, reap):
    fleet.agents.runs("exit 1")
    fleet.cloud.report_activity(fleet.machine().provider_id, datetime.now(UTC))
    assert reap() == (0, "", "")
    code, out, err = reap("-v")
    assert (code, err) == (0, "")
    assert out.startswith("1 machine (")


def test_a_warning_and_a_stop_are_a_line_each_and_a_summary(fleet, reap):
    code, out, err = reap()
    assert (code, err) == (0, "")
    assert out.startswith("fox: warned (idle): idle for ")
    assert "\n1 machine; 1 warned (" in out
    fleet.cloud.terminate(fleet.machine().provider_id)


@pytest.mark.soak
def test_a_stop_is_said_with_its_reason_and_proved(fleet, reap):
    warned(fleet)
    code, out, err = reap()
    assert (code, err) == (0, "")
    assert out.startswith("fox: stopped (idle): idle for ")
    assert "\n1 machine; 1 ended (" in out
    assert fleet.machines() == []


@pytest.mark.soak
def test_json_is_one_document_that_holds_the_whole_pass(fleet, reap):
    warned(fleet)
    code, out, err = reap("-o", "json", "--explain")
    found = json.loads(out)
    assert (code, err, found["exit_code"], found["busy"]) == (0, "", 0, None)
    assert [(one["name"], one["do"], one["rule"], one["state"]) for one in found["ended"]] == [
        ("fox", "stop", "idle", "stopped")
    ]
    assert found["decided"] == {"stop": 1}
    assert {one["what"] for one in found["explained"][0]["signals"]} >= {"GPU", "CPU", "network", "disk"}


@pytest.mark.soak
def test_a_dry_run_says_what_would_be_done_and_why_signal_by_signal(fleet, reap):
    warned(fleet)
    head = fleet.session.ledger.head()
    code, out, err = reap("--dry-run", "--explain")
    assert (code, err) == (0, "")
    assert "fox: idle (" in out
    assert "SIGNAL" in out
    assert "fox: would be stopped (idle): IDLE, idle for " in " ".join(out.split())
    assert "nothing was changed" in out
    assert fleet.session.ledger.head() == head
    assert len(fleet.machines()) == 1


@pytest.mark.soak
def test_a_region_that_does_not_answer_is_named_on_stderr_and_is_exit_code_8(fleet, reap):
    fleet.cloud.hide("south")
    code, out, err = reap()
    assert code == 8
    assert err == "south did not answer: it was hidden by the test\n"
    assert "1 warned" in out


@pytest.mark.soak
def test_a_stop_that_is_refused_is_exit_code_9_and_named(fleet, reap):
    warned(fleet)
    fleet.cloud.deny("stop_many")
    fleet.cloud.hide("south")
    code, _, err = reap()
    assert code == 9
    assert err.startswith("fox may still be billed: this credential may not call fake:stop_many")


def test_another_pass_at_work_is_left_to_it_without_a_word(fleet, reap):
    with files.lock(fleet.session.home.locks, "reaper", wait=False):
        assert reap() == (0, "", "")
        assert "at work on 'reaper'" in reap("-v")[1]
        code, out, _ = reap("-o", "json")
    assert code == 0
    assert "at work on 'reaper'" in json.loads(out)["busy"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("words", "field"),
    [(("--policy", "nosuch"), "policy"), (("--max-stops", "-1"), "--max-stops"), (("--max-stops", "x"), "--max-stops")],
)
def test_what_cannot_be_is_exit_code_2_and_nothing_is_done(fleet, reap, words, field):
    warned(fleet)
    code, out, _ = reap(*words, "-o", "json")
    assert (code, json.loads(out)["error"]["field"]) == (2, field)
    assert len(fleet.machines()) == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lease: 8h\nrenew_until: 72h\nidle:\n  aftr: 1h\n", "default.yaml:4"),
        ("lease: 8h\nrenew_until: 72h\nschedule:\n  - off: '25:00'\n    tz: UTC\n", "default.yaml:4"),
        ("lease: 8h\nrenew_until: 72h\nidle:\n  after: 10m\n  uptime: -3m\n", "default.yaml:5"),
        ("", "default.yaml"),
    ],
)
def test_a_policy_with_a_fault_is_exit_code_2_with_its_line_and_nothing_is_stopped(fleet, reap, text, line):
    warned(fleet)
    fleet.policy("default", text)
    code, out, err = reap()
    assert (code, out) == (2, "")
    assert line in err
    assert len(fleet.machines()) == 1


@pytest.mark.soak
def test_the_nights_sweep_from_cron_is_made_once_and_summed_up(fleet, reap):
    fleet.cloud.report_activity(fleet.machine().provider_id, datetime.now(UTC))
    code, out, _ = reap("--cron")
    assert code == 0
    assert out.startswith("1 machine (")
    assert reap("--cron") == (0, "", "")
    assert reap("--cron", "--nightly") == (0, "", "")
    code, out, _ = reap("--cron", "--nightly", "-o", "json")
    assert (code, json.loads(out)["decisions"]) == (0, [])
    assert json.loads(out)["busy"].startswith("No full run is due")
    (first, *rest) = fleet.session.ledger.events("reaper")
    assert (first.body["sweep"], first.body["cron"]) == (True, True)
    assert [line.body["sweep"] for line in rest] == [False]


def test_cron_does_not_say_that_all_is_well_where_the_home_is_gone(tmp_path, monkeypatch, capsys):
    """A disk that is not mounted while its user is logged out."""
    gone = tmp_path / "gone"
    monkeypatch.setenv("CLOUDGPU_HOME", str(gone))
    for _ in range(2):
        assert run(["reap", "--cron"]) == 8
        assert "is not there, and the ledger with it: no machine was checked" in capsys.readouterr().err
    assert not gone.exists(), "no new ledger is made there"
