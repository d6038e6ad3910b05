"""The timer in the cloud by the command line, on our model of AWS: one call more, and no bill past it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from functools import partial

import pytest

from cloudgpu.cli.common import open_session
from cloudgpu.control.outage import opening as sessions
from cloudgpu.control.setup.guards import guard_checks
from cloudgpu.core.values.times import from_iso
from tests.cli.aws_line import CONFIG, Line
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client, role_of_timers
from tests.providers.aws.accounts import impatient

__all__ = ["aws", "aws_process"]
UP = "up --yes --no-wait --ssh-from 203.0.113.7 --zone us-east-1b --instance-type g4dn.xlarge"
PRICE = Decimal("0.526")  # an hour of it on demand


@pytest.fixture
def bare(own_home, capsys, aws, monkeypatch):
    """A user whose account has no role of timers. Here it is as late as at AWS."""
    impatient(monkeypatch)
    here = partial(sessions.open_session, clock=aws.model.now)
    monkeypatch.setattr(sessions, "open_session", here)
    return Line(own_home, capsys, aws)


@pytest.fixture
def line(bare):
    """A user for whom `init aws` has made the role."""
    bare.config(f'{CONFIG}timer_role = "{role_of_timers()}"\n')
    return bare


def up(line, *more):
    said = line(UP, *more, "-o json")
    assert said.code == 0, said.err
    return said.json["machine"]


def calls_of(line, *words):
    begun = len(line.aws.calls)
    said = line(*words)
    assert said.code == 0, said.err
    return [(call.service, call.action) for call in line.aws.calls[begun:]]


def timers():
    scheduler = client("scheduler")
    try:
        return [one["Name"].partition(".")[2] for one in scheduler.list_schedules(GroupName="cloudgpu")["Schedules"]]
    except scheduler.exceptions.ResourceNotFoundException:
        return []


def guards_of(line):
    return list(guard_checks(open_session(), ["lab"], {"CLOUDGPU_HOME": str(line.home), "PATH": ""}))


def until(line, text):
    """Return how many seconds there are until a time of the ledger."""
    return (from_iso(text) - line.aws.model.now()).total_seconds()


@pytest.mark.soak
def test_a_launch_costs_one_call_more(line):
    up(line, "--name first")  # makes the group, once in a region
    with_timer = calls_of(line, UP, "--name second --new")
    line.config(CONFIG)
    without = calls_of(line, UP, "--name third --new")
    assert sorted(with_timer) == sorted([*without, ("scheduler", "CreateSchedule")])
    assert with_timer.index(("scheduler", "CreateSchedule")) > with_timer.index(("ec2", "RunInstances"))


@pytest.mark.soak
def test_with_agent_and_reaper_dead_a_machine_is_not_billed_past_its_timer(line):
    made = up(line, "--lease 2h --renew-until 5h")
    assert line("ls --refresh").code == 0
    line.aws.advance(until(line, made["renew_until"]) - 5)
    assert [one.state for one in line.aws.instances(live=True)] == ["running"]  # nothing else ends it
    line.aws.advance(7_200)
    (there,) = client().describe_instances()["Reservations"][0]["Instances"]
    assert there["State"]["Name"] == "stopped"
    assert line("ls --refresh").code == 0
    (shown,) = line("ls -o json").json["machines"]
    assert (shown["state"], shown["billed"]) == ("stopped", False)
    assert shown["reason"] == "renew-until: the timer in the cloud"
    spent = Decimal(shown["spent_usd"])  # with its disk and its address, some cents
    assert PRICE * 5 <= spent < PRICE * 5 + Decimal("0.15")
    assert timers() == []  # AWS has deleted it


@pytest.mark.soak
def test_a_spot_machine_is_ended_and_its_disk_stays(line):
    made = up(line, "--spot --lease 2h --renew-until 5h")
    line.aws.advance(until(line, made["renew_until"]) + 120)
    assert line.aws.instances(live=True) == []
    assert line("ls --refresh").code == 0
    (shown,) = line("ls -o json").json["machines"]
    assert shown["terminated_at"]
    assert [one["kind"] for one in shown["retained"]] == ["disk"]
    assert line("down --yes").code == 0


@pytest.mark.soak
def test_extend_moves_it_stop_keeps_it_start_moves_it_and_down_drops_it(line):
    made = up(line, "--lease 2h --renew-until 5h --name fox")
    assert line("extend fox 10h --yes").code == 0
    line.aws.advance(6 * 3_600)
    assert [one.state for one in line.aws.instances(live=True)] == ["running"]
    assert line("stop fox --yes").code == 0
    assert timers() == [made["id"] and line.aws.instances()[0].id]
    assert line("start fox --no-wait --yes --lease 3h").code == 0
    line.aws.advance(4.5 * 3_600)  # past the end of the life before
    assert [one.state for one in line.aws.instances(live=True)] == ["running"]
    assert line("down fox --yes").code == 0
    assert timers() == []


@pytest.mark.soak
def test_a_plan_without_the_role_says_that_the_layer_is_absent_and_how_to_get_it(bare):
    said = bare(f"{UP} --dry-run")
    told = " ".join((said.out + said.err).split())
    assert (
        "no timer in the cloud ends it if its agent and the reaper both fail. cloudgpu init aws makes its role" in told
    )
    assert "EventBridge" not in told
    assert up(bare)["guards"]["timer"] is None
    assert not [call for call in bare.aws.calls if call.service == "scheduler"]


def test_a_plan_with_the_role_names_the_layer(line):
    said = line(f"{UP} --dry-run -v")
    assert "EventBridge Scheduler, stops it at its renew-until" in " ".join((said.out + said.err).split())
    assert timers() == []


@pytest.mark.soak
def test_a_launch_goes_on_where_the_timer_is_refused_and_the_same_up_sets_it_later(line):
    line.aws.faults.deny("CreateSchedule", service="scheduler", times=1)
    said = line(UP, "--name fox")
    assert said.code == 0
    assert "its timer in the cloud is not set" in said.err
    assert "scheduler:CreateSchedule" in said.err
    assert timers() == []
    assert line(UP, "--name fox").code == 0  # found, and its timer is put right
    assert len(timers()) == 1


@pytest.mark.soak
def test_ls_and_show_say_when_each_layer_would_end_it(line):
    made = up(line, "--lease 2h --renew-until 5h --name fox")
    assert line("ls --refresh").code == 0
    assert made["guards"]["timer"] == made["renew_until"]
    guards = line("show fox -o json").json["guards"]
    layers = {"agent": made["expires"], "timer": made["renew_until"], "reaper": None}
    assert guards == layers | {"agent_is": "ends", "timer_is": "cloud", "waived": False}
    for words in ("ls -v", "show fox -v"):
        told = " ".join(line(words).out.split())
        assert "the agent in 2h; the timer in the cloud in 5h; the reaper: nothing decided" in told
    assert "No run of the reaper has succeeded yet." in line("ls -v").out
    assert "Ended by" not in line("ls").out


@pytest.mark.soak
def test_doctor_says_which_layers_guard_each_machine(line):
    made = up(line, "--lease 2h --renew-until 5h --name fox")
    assert line("ls --refresh").code == 0
    checks = {one["name"]: one for one in line("doctor --provider aws -o json").json["checks"]}
    found = checks["guards fox"]
    assert found["verdict"] == "ok"
    assert f"the timer in the cloud at {made['renew_until'][:16].replace('T', ' ')} UTC" in found["message"]
    assert "no run of the reaper has succeeded yet" in found["message"]


def test_doctor_notes_a_machine_that_nothing_but_its_agent_would_end(bare):
    up(bare, "--name fox")
    (found,) = guards_of(bare)
    assert found.verdict == "warn"
    assert "Only its own agent would end it." in found.message
    assert "cloudgpu init aws" in found.next


def test_a_timer_that_was_set_before_the_settings_lost_their_role_is_told_by_doctor(line):
    """It still stops the machine as long as its role lives, and does nothing without: neither can be read from here."""
    made = up(line, "--lease 2h --renew-until 5h --name fox")
    line.config(CONFIG)
    (found,) = guards_of(line)
    assert found.verdict == "warn"
    assert f"a timer in the cloud was set for {made['renew_until'][:16].replace('T', ' ')} UTC" in found.message
    assert "it may end the machine then, or be dead" in found.message
    assert "Only its own agent would surely end it." in found.message
    assert "cloudgpu init aws" in found.next
    line.aws.advance(timedelta(hours=6).total_seconds())
    assert [one.state for one in line.aws.instances()] == ["stopped"]  # its role was still there
    assert "no timer in the cloud ends it" in guards_of(line)[0].message  # the one that was set has fired


@pytest.mark.soak
def test_a_timer_that_somebody_took_away_is_seen_by_doctor(line):
    up(line, "--name fox")
    (name,) = (one["Name"] for one in client("scheduler").list_schedules(GroupName="cloudgpu")["Schedules"])
    client("scheduler").delete_schedule(GroupName="cloudgpu", Name=name)
    (found,) = guards_of(line)
    assert "no timer in the cloud is set" in found.message


@pytest.mark.soak
def test_init_makes_the_role_with_which_the_next_launch_has_its_timer(bare):
    assert bare("init aws --account lab --yes").code == 0
    made = up(bare, "--lease 1h --renew-until 1h")
    assert made["guards"]["timer"] == made["renew_until"]
    bare.aws.advance(timedelta(minutes=62).total_seconds())
    assert [one.state for one in bare.aws.instances()] == ["stopped"]
