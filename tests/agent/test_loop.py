"""Passes of the loop: real files and real commands, time as an argument."""

from __future__ import annotations

import json
import os
import sys

import pytest

from cloudgpu.agent import sampler
from cloudgpu.agent.agent import HOUR, Agent, write_terminals
from cloudgpu.agent.files import LOG_SIZE
from tests.agent.machine import MONO, NOW, wait_for

SAY = [sys.executable, "-c", "import sys; open('ended', 'a').write(sys.argv[1] + '\\n')"]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Meters that stand still: how they are read is tried elsewhere."""
    monkeypatch.setattr(sampler, "read_meters", lambda _: (None, {"cpu": 0, "net": 0, "disk": 0}, [], True))


@pytest.fixture
def said(machine, monkeypatch):
    """Where the machine's end command writes its reason."""
    monkeypatch.chdir(machine.home)
    return machine.home / "ended"


def _step(made, second):
    made.step(NOW + second, MONO + second)


def _pass_time(made, begin, end):
    """Look every other minute: what nobody looked at is not known, and no lease ends of it."""
    for second in range(int(begin), int(end), 120):
        _step(made, second)


def _beat(machine, made, second):
    _step(made, second)
    return machine.heartbeat()


def test_a_pass_leaves_a_heartbeat(machine):
    machine.tags(NOW + HOUR, NOW + 2 * HOUR, 0)
    beat = _beat(machine, Agent(machine.dir, MONO), 0)
    assert beat["epoch"] == NOW
    assert (beat["activity"], beat["why"]) == ("IDLE", "nothing runs")
    assert (beat["expires"], beat["renew_until"], beat["hold_until"]) == (NOW + HOUR, NOW + 2 * HOUR, None)


def test_the_end_of_an_idle_lease_runs_the_end_command_with_its_reason(machine, said):
    machine.settings(end=SAY).tags(NOW + HOUR, NOW + 2 * HOUR)
    made = Agent(machine.dir, MONO)
    _pass_time(made, 0, HOUR)
    assert made.children == []
    _step(made, HOUR)
    wait_for(lambda: said.exists() and said.read_text() == "lease\n")


def test_an_end_that_did_not_work_is_tried_again_a_minute_later(machine, said):
    machine.settings(end=SAY).tags(NOW + HOUR, NOW + HOUR)
    made = Agent(machine.dir, MONO)
    for second in (0, HOUR, HOUR + 5, HOUR + 59, HOUR + 60):
        _step(made, second)
    wait_for(lambda: said.exists() and said.read_text() == "renew-until\n" * 2)
    wait_for(lambda: all(child.poll() is not None for child in made.children))
    _step(made, HOUR + 61)
    assert made.children == []


def test_a_terminal_in_use_renews_by_the_hour_and_writes_it_down(machine):
    machine.tags(NOW + HOUR, NOW + 5 * HOUR)
    made = Agent(machine.dir, MONO)
    _step(made, 0)
    typed = machine.dir / "terminal-input"
    typed.touch()
    os.utime(typed, (NOW + HOUR - 60, NOW + HOUR - 60))
    beat = _beat(machine, made, HOUR)
    assert (beat["activity"], beat["verdict"]) == ("ACTIVE", "renew")
    assert (machine.dir / "expires").read_text().strip() == str(int(NOW + 2 * HOUR))
    assert beat["expires"] == NOW + 2 * HOUR


@pytest.mark.parametrize(
    "text", [None, "", "[]", "{", '{"cloudgpu-expires": "soon"}', '{"cloudgpu-expires": "²"}', "\0"]
)
def test_a_down_channel_that_says_nothing_good_changes_nothing(machine, said, text):
    machine.settings(end=SAY).tags(NOW + HOUR, NOW + 2 * HOUR)
    made = Agent(machine.dir, MONO)
    _step(made, 0)
    machine.tags_file.unlink() if text is None else machine.tags_file.write_text(text)
    assert _beat(machine, made, 60)["expires"] == NOW + HOUR
    _step(Agent(machine.dir, MONO + HOUR), HOUR)
    wait_for(lambda: said.exists() and said.read_text() == "lease\n")


def test_a_new_process_of_the_agent_keeps_the_moment_that_was_fixed(machine):
    """A clock that was set back while the agent was dead prolongs nothing."""
    machine.tags(NOW + HOUR, NOW + 9 * HOUR)
    real = Agent(machine.dir, MONO)
    _step(real, 0)
    late = Agent(machine.dir, MONO + HOUR)
    late.step(NOW - 50 * HOUR, MONO + HOUR)
    assert machine.heartbeat()["verdict"] == "end"


def test_a_damaged_state_is_replaced_by_one_that_the_next_process_keeps(machine):
    machine.tags(NOW + HOUR, NOW + 9 * HOUR)
    made = Agent(machine.dir, MONO)
    made.state["marks"] = {"expires": 3}
    with pytest.raises(TypeError):
        _step(made, 0)
    _step(made, 1)
    late = Agent(machine.dir, MONO + HOUR + 1)
    late.step(NOW - 50 * HOUR, MONO + HOUR + 1)
    assert machine.heartbeat()["verdict"] == "end"


@pytest.mark.parametrize(
    ("changed", "mono"),
    [
        ({"boot": "another"}, MONO + 100),
        ({}, 3.0),  # where the system names no boot, the clock that began anew tells
        ({"mono": "damaged"}, MONO + 100),
    ],
)
def test_another_boot_fixes_it_anew(machine, changed, mono):
    machine.tags(NOW + HOUR, NOW + 9 * HOUR)
    _step(Agent(machine.dir, MONO), 0)
    state = json.loads((machine.dir / "state.json").read_text())
    (machine.dir / "state.json").write_text(json.dumps({**state, **changed}))
    made = Agent(machine.dir, mono)
    made.step(NOW + 600, mono)
    assert machine.heartbeat()["verdict"] == "keep"
    for second in range(0, int(HOUR) - 599, 120):
        made.step(NOW + 600, mono + second)
    assert machine.heartbeat()["verdict"] == "end"


def test_last_active_is_written_only_while_active_and_seldom(machine):
    made = Agent(machine.dir, MONO)
    _step(made, 0)
    report, typed = machine.dir / "last-active", machine.dir / "terminal-input"
    assert not report.exists()
    typed.touch()
    written = []
    for second in range(0, 1800, 60):
        if second < 900:
            os.utime(typed, (NOW + second, NOW + second))
        _step(made, second)
        if report.exists() and report.read_text() not in written:
            written.append(report.read_text())
    assert [int(text) - NOW for text in written] == [0, 600, 840]
    assert machine.heartbeat()["last_active"] == NOW + 840
    assert machine.heartbeat()["activity"] == "IDLE"


def test_files_that_cannot_be_written_keep_no_lease_from_ending(machine, said):
    machine.settings(end=SAY).tags(NOW + HOUR, NOW + HOUR)
    made = Agent(machine.dir, MONO)
    for name in ("heartbeat.json", "state.json", "agent.log", "last-active", "expires"):
        (machine.dir / name).mkdir()
    _step(made, 0)
    _step(made, HOUR)
    wait_for(lambda: said.exists() and said.read_text() == "renew-until\n")


def test_a_spot_notice_is_passed_on_and_the_hook_runs_once(machine):
    hook, out = machine.dir / "on-interrupt", machine.home / "hooked"
    hook.write_text(f'#!/bin/sh\necho "$@" >> "{out}"\n')
    hook.chmod(0o700)
    made = Agent(machine.dir, MONO)
    assert _beat(machine, made, 0)["notice"] is None
    notice = {"action": "terminate", "time": "2027-01-15T08:02:00Z"}
    (machine.home / "spot.json").write_text(json.dumps(notice))
    assert _beat(machine, made, 5)["notice"] == notice
    assert json.loads((machine.dir / "notice").read_text()) == notice
    _step(made, 10)
    _step(Agent(machine.dir, MONO + 15), 15)
    wait_for(out.exists)
    wait_for(lambda: all(child.poll() is not None for child in made.children))
    assert out.read_text() == "terminate 2027-01-15T08:02:00Z\n"
    (machine.home / "spot.json").unlink()  # the machine was started again
    _step(Agent(machine.dir, MONO + 20), 20)
    assert not (machine.dir / "notice").exists()


def test_a_notice_without_a_hook_is_still_passed_on(machine):
    notice = {"action": "stop", "time": "2027-01-15T08:02:00Z"}
    (machine.home / "spot.json").write_text(json.dumps(notice))
    assert _beat(machine, Agent(machine.dir, MONO), 0)["notice"] == notice


def test_the_log_is_bounded(machine):
    made = Agent(machine.dir, MONO)
    for _ in range(3 * LOG_SIZE // 10_000):
        made.log("x" * 10_000)
    sizes = [path.stat().st_size for path in machine.dir.glob("agent.[lo]*")]
    assert len(sizes) == 2
    assert max(sizes) <= LOG_SIZE + 11_000


def test_a_terminal_is_told_and_one_that_is_gone_is_no_fault():
    leader, follower = os.openpty()
    try:
        write_terminals("This machine ends in 10 min.", ["/dev/pts/none-such", os.ttyname(follower)])
        assert os.read(leader, 200).strip() == b"[cloudgpu] This machine ends in 10 min."
    finally:
        os.close(leader)
        os.close(follower)


def test_people_are_warned_an_hour_and_ten_minutes_before_and_only_once(machine, monkeypatch):
    machine.settings(warn=True).tags(NOW + 2 * HOUR, NOW + 9 * HOUR)
    told = []
    monkeypatch.setattr(
        "cloudgpu.agent.agent.write_terminals", lambda text, paths: told.extend(text for _ in paths) or {}
    )  # else into real terminals
    monkeypatch.setattr(
        "cloudgpu.agent.sampler.read_meters",
        lambda _: (None, dict.fromkeys(("cpu", "net", "disk"), 0), ["/dev/pts/none-such"], True),
    )
    made = Agent(machine.dir, MONO)
    _pass_time(made, 0, 2 * HOUR)
    assert told == [f"This machine ends in {left} min unless extended" for left in (60, 10)]


def test_who_logs_in_after_a_warning_is_warned_too_and_the_others_not_again(machine, monkeypatch):
    machine.settings(warn=True).tags(NOW + HOUR, NOW + 9 * HOUR)
    told, terminals = [], []
    monkeypatch.setattr(
        "cloudgpu.agent.agent.write_terminals",
        lambda text, paths: told.extend((text.split()[4], one) for one in paths) or {},
    )
    monkeypatch.setattr(
        "cloudgpu.agent.sampler.read_meters",
        lambda _: (None, dict.fromkeys(("cpu", "net", "disk"), 0), list(terminals), True),
    )
    made = Agent(machine.dir, MONO)
    for second, seen in ((60, []), (120, ["one"]), (180, ["one", "two"]), (240, ["one", "two"])):
        terminals[:] = seen
        _step(made, second)
    assert told == [("58", "one"), ("57", "two")]


def test_where_terminals_may_be_somebody_elses_nobody_is_warned(machine, monkeypatch):
    machine.tags(NOW + HOUR, NOW + 9 * HOUR)
    told = []
    monkeypatch.setattr("cloudgpu.agent.agent.write_terminals", lambda text, _: told.append(text) or {})
    _step(Agent(machine.dir, MONO), 60)
    assert told == []


def test_settings_that_are_being_written_leave_the_last_good_ones(machine, said):
    machine.settings(end=SAY).tags(NOW + HOUR, NOW + HOUR)
    made = Agent(machine.dir, MONO)
    _step(made, 0)
    (machine.dir / "agent.json").write_text('{"id": ')
    _step(made, HOUR)
    wait_for(said.exists)
