"""What the agent does by itself for a policy: warn, wait, end; by real files, with time as an argument."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, time, timedelta

import pytest

from cloudgpu.agent import agent as loop, meters, sampler
from cloudgpu.agent.agent import HOUR, Agent, write_terminals
from cloudgpu.agent.lease import decide, update_marks
from cloudgpu.core.activity.idle import ACTIVE, IDLE, UNKNOWN, Thresholds
from cloudgpu.core.policies.policy import Idle, Policy, Unknown, agent_policy
from cloudgpu.core.policies.schedule import Schedule
from tests.agent.machine import MONO, NOW, wait_for

SAY = [sys.executable, "-c", "import sys; open('ended', 'a').write(sys.argv[1] + '\\n')"]
POLICY = {**Thresholds()._asdict(), "grace": 600.0, "stop": True, "off": [], "ends": "IDLE", "scratch": "warn"}
TYPED = "terminal-input"
GONE = "/dev/pts/none-such"
PASS = 120  # seconds between two looks here: as far apart as they may be and leave nothing unknown


@pytest.fixture(autouse=True)
def quiet(machine, monkeypatch):
    """Meters that stand still (how they are read is tried elsewhere), and a place for what the end command writes."""
    monkeypatch.chdir(machine.home)
    monkeypatch.setattr(sampler, "read_meters", lambda _: (None, {"cpu": 0, "net": 0, "disk": 0}, [GONE], True))


@pytest.fixture
def told(monkeypatch):
    """What is written to terminals, in place of real ones."""
    found = []
    monkeypatch.setattr(loop, "write_terminals", lambda text, paths: found.extend(text for _ in paths) or {})
    return found


def _machine(machine, lease=9 * HOUR, hold=None, **policy):
    machine.settings(end=SAY, warn=True, policy={**POLICY, **policy})
    machine.tags(NOW + lease, NOW + 40 * HOUR, hold and NOW + hold)
    return Agent(machine.dir, MONO)


def _first_end(machine, made, until, *, begin=0, drift=lambda _: 0, typed=()):
    """Return (seconds, reason) of the first pass that ends the machine; `drift` is the wall clock's error."""
    path = machine.dir / TYPED
    for second in range(int(begin), int(until), PASS):
        if second in typed:
            path.touch()
            os.utime(path, (NOW + second, NOW + second))
        made.step(NOW + second + drift(second), MONO + second)
        if made.heartbeat["verdict"] == "end":
            return second, made.heartbeat["reason"]
    return None


def test_an_idle_machine_is_ended_after_its_time_and_a_warning(machine, told):
    assert _first_end(machine, _machine(machine), 3 * HOUR) == (4200, "idle")
    assert told == ["This machine ends in 10 min unless it is used"]


def test_the_end_is_told_before_it_comes_and_the_reason_reaches_the_end_command(machine, told):
    made = _machine(machine)
    assert _first_end(machine, made, 3602) is None
    assert (made.heartbeat["activity"], made.heartbeat["ends_at"]) == (IDLE, NOW + 4200)
    assert made.heartbeat["warned"]["idle" + GONE][0] == NOW + 4200
    _first_end(machine, made, 2 * HOUR, begin=3720)
    wait_for(lambda: (machine.home / "ended").exists() and (machine.home / "ended").read_text() == "idle\n")


def test_any_activity_in_the_grace_takes_the_end_back_and_it_is_warned_anew(machine, told):
    made = _machine(machine)
    assert _first_end(machine, made, 3 * HOUR, typed=[4080]) == (4080 + 4200, "idle")
    assert len(told) == 2


def test_a_start_counts_as_use(machine, told):
    made = _machine(machine)
    made.step(NOW, MONO)
    assert (made.heartbeat["activity"], made.heartbeat["why"]) == (ACTIVE, "start, 0 s ago")


def test_after_a_restart_of_the_agent_idle_time_goes_on(machine, told):
    _first_end(machine, _machine(machine), 3960)
    following = Agent(machine.dir, MONO + 3960)
    following.up_since, following.samples = (
        MONO,
        following.load_samples(NOW + 3960, MONO + 3960),
    )  # the machine was not started again
    assert _first_end(machine, following, 2 * HOUR, begin=3960) == (4200, "idle")
    assert len(told) == 1


@pytest.mark.parametrize("jump", [3600, -3600, 40 * 86400, -40 * 86400])
@pytest.mark.parametrize("at", [1800, 3900])
def test_a_jump_of_the_clock_moves_no_end_for_idle_time(machine, told, jump, at):
    made = _machine(machine, lease=30 * 86400)
    made.settings = {}
    machine.tags(NOW + 90 * 86400, NOW + 91 * 86400)
    assert _first_end(machine, made, 3 * HOUR, drift=lambda second: jump if second >= at else 0) == (4200, "idle")


def test_a_hold_keeps_an_idle_machine_and_after_it_comes_the_whole_warning(machine, told):
    made = _machine(machine, hold=2 * HOUR)
    assert _first_end(machine, made, 4 * HOUR) == (2 * HOUR + 600, "idle")
    assert len(told) == 1


def test_what_only_warns_does_not_end(machine, told):
    assert _first_end(machine, _machine(machine, stop=False), 3 * HOUR) is None
    assert told == []


def test_an_unknown_machine_is_never_ended_for_idle_time(machine, told, monkeypatch):
    made = _machine(machine)
    monkeypatch.setattr("cloudgpu.agent.sampler.kernels", lambda _: 1 / 0)
    assert _first_end(machine, made, 3 * HOUR) is None
    assert (made.heartbeat["activity"], made.heartbeat["why"][:11]) == (UNKNOWN, "JupyterLab:")


def test_a_look_that_fails_whole_is_unknown_and_the_lease_still_ends(machine, told):
    made = _machine(machine, lease=HOUR, ends="IDLE UNKNOWN")
    (machine.dir / "agent.json").write_text(
        (machine.dir / "agent.json").read_text().replace('"own": ["HOME', '"own": ["\\u0000')
    )
    made.look = lambda now, mono: 1 / 0
    assert _first_end(machine, made, 3 * HOUR) == (HOUR, "lease")


def test_at_the_leases_end_an_unknown_machine_is_renewed_unless_the_policy_says_otherwise():
    marks = update_marks({}, {"expires": NOW + 60, "renew_until": NOW + 9 * HOUR}, NOW, MONO, 0)
    assert decide(marks, UNKNOWN, MONO + 60, 60) == ("renew", UNKNOWN)
    assert decide(marks, UNKNOWN, MONO + 60, 60, "IDLE UNKNOWN") == ("end", "lease")
    assert decide(marks, ACTIVE, MONO + 60, 60, "IDLE UNKNOWN") == ("renew", ACTIVE)


def test_what_could_only_be_terminated_is_renewed_though_nobody_uses_it():
    policy, begin = Policy("own", timedelta(hours=1), timedelta(hours=9)), datetime(2026, 11, 22, tzinfo=UTC)
    told = agent_policy(policy, begin, begin + timedelta(hours=9), keeps_disk=True)
    assert (told["ends"], told["stop"], told["off"]) == ("", False, [])
    marks = update_marks({}, {"expires": NOW + 60, "renew_until": NOW + 9 * HOUR}, NOW, MONO, 0)
    assert decide(marks, IDLE, MONO + 60, 60, told["ends"]) == ("renew", IDLE)
    over = update_marks({}, {"expires": NOW + 60, "renew_until": NOW + 60}, NOW, MONO, 0)
    assert decide(over, IDLE, MONO + 120, 60, told["ends"]) == ("end", "renew-until")


def test_a_node_of_a_cluster_ends_by_itself_at_its_renew_until_alone_and_leaves_its_lease_to_the_passes():
    begin = datetime(2026, 11, 22, tzinfo=UTC)
    off = Schedule("UTC", time(19))
    policy = Policy("own", timedelta(hours=1), timedelta(hours=9), unknown=Unknown.END, schedules=(off,))
    told = agent_policy(policy, begin, begin + timedelta(hours=9), is_node=True)
    assert (told["ends"], told["stop"], told["off"]) == ("-", False, [])
    for activity in (IDLE, ACTIVE, UNKNOWN):
        marks = update_marks({}, {"expires": NOW + 60, "renew_until": NOW + 9 * HOUR}, NOW, MONO, 0)
        assert decide(marks, activity, MONO + 120, 60, told["ends"]) == ("keep", activity)
        assert decide(marks, activity, MONO + 9 * HOUR, 60, told["ends"]) == ("end", "renew-until")


def test_the_agent_of_a_node_lives_on_idle_and_over_its_lease_and_ends_at_its_renew_until(machine):
    begin = datetime(2026, 11, 22, tzinfo=UTC)
    policy = Policy("own", timedelta(hours=1), timedelta(hours=9))
    told = agent_policy(policy, begin, begin + timedelta(hours=9), is_node=True)
    made = _machine(machine, **told)
    machine.tags(NOW + HOUR, NOW + 3 * HOUR)
    assert _first_end(machine, made, 4 * HOUR) == (3 * HOUR, "renew-until")
    assert not (machine.dir / "expires").exists()


# -- scratch disks


@pytest.fixture
def scratch(machine, monkeypatch):
    disk = machine.home / "scratch"
    disk.mkdir()
    monkeypatch.setattr(loop, "scratch_disks", lambda: [[str(disk), 7]] if any(disk.iterdir()) else [])
    return disk


def test_a_scratch_disk_that_is_not_empty_makes_an_idle_end_a_warning(machine, told, scratch):
    (scratch / "weights").write_text("of three days")
    made = _machine(machine)
    assert _first_end(machine, made, 3 * HOUR) is None
    assert made.heartbeat["reason"] == f"a stop would erase {scratch}"
    (scratch / "weights").unlink()
    assert _first_end(machine, made, 4 * HOUR, begin=3 * HOUR) == (3 * HOUR + 600, "idle")


def test_a_policy_may_say_that_a_scratch_disk_is_erased(machine, told, scratch):
    (scratch / "cache").write_text("")
    assert _first_end(machine, _machine(machine, scratch="stop"), 3 * HOUR) == (4200, "idle")


# -- schedule


def test_a_schedule_ends_a_machine_in_use_and_under_a_hold(machine, told):
    made = _machine(machine, hold=9 * HOUR, off=[NOW + 1000, NOW + 90_000])
    typed = range(0, 2000, PASS)
    assert _first_end(machine, made, 3 * HOUR, typed=typed) == (1080, "schedule")
    assert told == [f"This machine ends in {left} min by its schedule" for left in (16, 8)]


def test_offs_before_the_start_end_nothing(machine, told):
    assert _first_end(machine, _machine(machine, off=[NOW - 86_400, NOW - 1]), HOUR) is None


@pytest.mark.parametrize("jump", [3600, -3600])
def test_a_clock_that_jumps_by_an_hour_ends_nothing_early(machine, told, jump):
    made = _machine(machine, off=[NOW + 7200])
    typed = range(0, 5 * 3600, PASS)
    second, reason = _first_end(machine, made, 5 * HOUR, drift=lambda at: jump if at >= 600 else 0, typed=typed)
    assert (second, reason) == (7200 if jump > 0 else 10_800, "schedule")


def test_an_off_that_the_agent_missed_is_caught_up(machine, told):
    made = _machine(machine, off=[NOW + 1000])
    _first_end(machine, made, 600)
    following = Agent(machine.dir, MONO + 5000)
    following.up_since, following.samples = MONO, []
    following.step(NOW + 5000, MONO + 5000)
    assert (following.heartbeat["verdict"], following.heartbeat["reason"]) == ("end", "schedule")


def test_a_manual_start_survives_until_the_next_off(machine, told):
    made = _machine(machine, off=[NOW + 1000, NOW + 9000])
    _first_end(machine, made, 600)
    following = Agent(machine.dir, MONO + 2040)  # without processes of its own it is up since now
    assert _first_end(machine, following, 4 * HOUR, begin=2040, typed=range(2040, 14_000, PASS)) == (9000, "schedule")


# -- what is told to it


def test_it_takes_what_cloudgpu_makes_of_a_policy(machine, told):
    from datetime import UTC, datetime, timedelta

    begin = datetime.fromtimestamp(NOW, UTC)
    policy = Policy("p", timedelta(hours=9), timedelta(hours=40), idle=Idle(after=timedelta(minutes=30)))
    made = _machine(machine, **agent_policy(policy, begin, begin + timedelta(hours=40)))
    assert _first_end(machine, made, 3 * HOUR) == (2400, "idle")


@pytest.mark.parametrize(
    "policy", [5, "default", {}, {**POLICY, "after": "soon"}, {**POLICY, "off": [None]}, {"off": []}]
)
def test_a_policy_that_makes_no_sense_leaves_the_lease_alone_to_hold(machine, told, policy):
    machine.settings(end=SAY, policy=policy).tags(NOW + 2 * HOUR, NOW + 9 * HOUR)
    assert _first_end(machine, Agent(machine.dir, MONO), 3 * HOUR) == (2 * HOUR, "lease")


def test_scheduled_events_of_the_cloud_are_passed_on(machine):
    path = machine.home / "events.json"
    made = Agent(machine.settings(events={"kind": "file", "path": str(path)}).dir, MONO)
    made.step(NOW, MONO)
    assert made.heartbeat["events"] is None
    path.write_text('{"events": [{"Code": "instance-retirement", "NotBefore": "21 Jan 2027 09:00:43 GMT"}]}')
    made.step(NOW + 30, MONO + 30)
    assert machine.status()["events"][0]["Code"] == "instance-retirement"


def test_nothing_is_told_where_nothing_may_be(machine, told):
    made = _machine(machine)
    machine.settings(end=SAY, policy=POLICY)
    assert _first_end(machine, made, 3 * HOUR) == (4200, "idle")
    assert told == []


def test_a_terminal_that_is_told_is_remembered_with_when_that_was():
    leader, follower = os.openpty()
    try:
        path = os.ttyname(follower)
        assert write_terminals("x", [path]) == {path: os.stat(path).st_mtime}  # noqa: PTH116
    finally:
        os.close(leader)
        os.close(follower)


def test_this_computer_has_no_disk_that_a_stop_erases():
    assert meters.scratch_disks() == []
