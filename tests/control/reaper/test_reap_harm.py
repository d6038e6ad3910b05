"""What would stop a machine under somebody's hands, lose data, or keep all machines on: tried against passes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.control.lifecycle.lease import set_hold
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.reaper import execute
from cloudgpu.core.reaper.result import lock_of
from cloudgpu.errors import AuthFailed, InstanceNotFound, ProviderUnavailable


def before_the_lock(fleet, monkeypatch, do):
    """Let `do` be what another process does just before a pass takes the machine's lock; return each taking of it."""
    session, lock, taken = fleet.session, lock_of(fleet.machine()), []
    held = session.lock

    @contextmanager
    def hold(name, *, wait):
        if name == lock and not taken:
            do(fleet.opened())
        taken.extend([name] * (name == lock))
        with held(name, wait=wait):
            yield

    monkeypatch.setattr(session, "lock", hold, raising=False)
    return taken


def test_a_machine_that_is_started_before_its_end_is_asked_is_not_terminated(fleet, monkeypatch):
    fleet.policy("default", "lease: 8h\nrenew_until: 72h\nstopped:\n  after: 7d\n  do: terminate\n")
    fleet.up(name="fox")
    stop(fleet.session, fleet.machine(), why="a test")
    fleet.idle(days=7)
    fleet.later(days=1)
    taken = before_the_lock(
        fleet, monkeypatch, lambda own: start(own, fleet.machine(), new_lease(own, fleet.machine(), None))
    )
    found = fleet.pass_()
    assert (found.ended, [one.name for one in found.skipped], found.exit_code) == ((), ["fox"], 0)
    assert [one.name for one in fleet.rows() if one.state == "running"] == ["fox"]
    assert len(taken) == 1, "who waits for the lock comes before the judgement or after the end, never between"


@pytest.mark.soak
def test_a_hold_that_is_set_before_a_machine_is_parked_counts(fleet, monkeypatch):
    fleet.up(name="fox", spot=True)
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    fleet.agents.says(fleet.clock())
    until = fleet.clock.now + timedelta(hours=3)
    taken = before_the_lock(fleet, monkeypatch, lambda own: set_hold(own, fleet.machine(), until))
    found = fleet.pass_()
    assert (found.ended, [one.name for one in found.skipped]) == ((), ["fox"])
    assert (len(fleet.machines()), len(taken)) == (1, 1)


def test_a_hold_that_comes_behind_the_end_of_its_machine_says_so(fleet, monkeypatch):
    fleet.up(name="fox")
    row = fleet.machine()
    taken = before_the_lock(fleet, monkeypatch, lambda own: terminate_one(own, row, why="a test"))
    with pytest.raises(InstanceNotFound, match="fox ended at"):
        set_hold(fleet.session, row, fleet.clock.now + timedelta(hours=3))
    assert len(taken) == 1


def test_a_machine_whose_turn_comes_late_is_looked_at_once_more(fleet, agents, monkeypatch):
    """To park one takes a quarter of an hour; at the other, whose turn is after it, somebody works by then."""
    monkeypatch.setattr(execute, "MAX_PARALLEL", 1)
    fleet.up(name="fox", key="a", spot=True)
    fleet.up(name="owl", key="b", spot=True)
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    agents.says(fleet.clock())

    def hang():
        fleet.later(minutes=16)
        agents.says(fleet.clock(), gpu=90)
        raise ProviderUnavailable("the cloud is down")

    fleet.cloud.fail_next("terminate_keeping_disk", hang)
    found = fleet.pass_()
    (late,), (first,) = found.skipped, found.unconfirmed
    assert {late.name, first.name} == {"fox", "owl"}
    assert {one.name: one.activity for one in found.decisions}[late.name] == "ACTIVE"


@pytest.mark.soak
def test_a_second_look_that_took_minutes_is_made_once_more_of_what_use_takes_back(fleet, agents):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    agents.says(fleet.clock())
    fleet.cloud.fail_next("get_many", lambda: fleet.later(minutes=2))
    fleet.cloud.fail_next("get_many", lambda: agents.says(fleet.clock(), gpu=90))
    found = fleet.pass_()
    assert (found.ended, [one.name for one in found.skipped]) == ((), ["fox"])
    assert len(fleet.machines()) == 1


@pytest.mark.soak
def test_a_machine_whose_tags_somebody_has_taken_away_is_stopped_and_keeps_no_other_on(fleet):
    for name in ("fox", "owl"):
        fleet.up(name=name, key=name)
    with fleet.cloud._call("tag") as cloud:
        cloud.machines[fleet.machine("fox").provider_id].tags.clear()
    fleet.idle(hours=2)
    found = fleet.idle(minutes=10)
    assert sorted(one.name for one in found.ended) == ["fox", "owl"]
    assert fleet.machine("fox").state == "stopped"


@pytest.mark.soak
def test_an_answer_of_a_wrong_clock_or_a_hostile_agent_keeps_no_other_machine_on(fleet, agents):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    quiet = [{"t": 1e11 - 60 * n, "s": 60, "gpu": 0} for n in range(100)]
    agents.answers({"now": 1e11, "up_since": 0, "samples": quiet})
    fleet.later(minutes=10)
    assert [one.name for one in fleet.pass_().ended] == ["fox"]


def raises(error):
    def do():
        raise error

    return do


@pytest.mark.soak
def test_a_provider_with_a_defect_is_named_and_keeps_no_other_account_on(fleet):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.cloud.fail_next("list", raises(KeyError("Placement")), times=2)
    found = fleet.idle(minutes=10)
    assert [(one.scope, one.why) for one in found.unanswered] == [
        ("lab", "it could not be read (KeyError: 'Placement')")
    ]
    assert (found.ended, found.exit_code) == ((), 8)
    assert [one.name for one in fleet.idle(minutes=10).ended] == ["fox"]


@pytest.mark.soak
def test_a_stop_that_is_refused_as_a_whole_is_not_proved_and_ends_no_pass(fleet):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.cloud.fail_next("stop_many", raises(AuthFailed("the session has expired")))
    found = fleet.idle(minutes=10)
    assert [(one.name, one.why) for one in found.unconfirmed] == [("fox", "the session has expired")]


@pytest.mark.soak
def test_a_pass_that_a_defect_ends_is_no_success_in_the_ledger(fleet):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.cloud.fail_next("get_many", raises(ProviderUnavailable("try again", field="provider")))
    fleet.session.pause = lambda _: 1 / 0  # before it is tried again
    with pytest.raises(ZeroDivisionError):
        fleet.idle(minutes=10)
    (*_, line) = fleet.session.ledger.events("reaper")
    assert (line.body["ok"], line.body["why"]) == (False, "a defect: ZeroDivisionError: division by zero")


def test_a_second_living_machine_of_one_id_is_no_success(fleet):
    """It is billed, and no row of the ledger is of it: nothing of ours would end it."""
    fleet.up(name="fox")
    (one,) = fleet.machines()
    with fleet.cloud._call("tag") as cloud:
        cloud.machines = {"fake-twin": replace(cloud.machines[one.id], id="fake-twin"), **cloud.machines}
    found = fleet.idle(minutes=5)
    assert found.exit_code == 8
    (gap,) = found.unanswered
    assert (gap.scope, "cloudgpu manages only the first" in gap.why) == (fleet.machine().id, True)
    assert (fleet.machine().provider_id, f"{one.id} and fake-twin" in gap.why) == (one.id, True)
