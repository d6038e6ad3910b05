"""Jobs on machines of a cloud, whose watchers are killed: one machine, one run of the command, whole results."""

from __future__ import annotations

import json
import os
import random
import time
from datetime import timedelta

import pytest

from cloudgpu.control.jobs.cancel import request_cancel
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.lifecycle.lifecycle import terminate_with_resources
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session import guarding
from cloudgpu.control.setup.ledger_admin import verify_document
from cloudgpu.core.jobs.job import State
from cloudgpu.core.model.identity import QueriedAccount
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.ledger.sqlite.backup import restore, write_backup
from tests.control.jobs import clouds
from tests.control.jobs.clouds import ZONES, Rented
from tests.forked import fork


@pytest.fixture
def worlds(tmp_path, monkeypatch):
    """Make worlds, each for one job."""
    made = []

    def make(options=""):
        made.append(Rented(tmp_path / str(len(made)), monkeypatch, options))
        return made[-1]

    yield make
    for one in made:
        one.session.ledger.close()
        one.machines.end()


@pytest.fixture
def world(worlds):
    return worlds()


BUDGET = "amount: 0.001\nperiod: month\n"


def runs(found):
    attempt = found.job.attempt
    return attempt is not None and attempt.began_at is not None


def killed(world, job, chance, times):
    """Kill so many watchers in a row, each after some steps of its own, and look at the cloud after each."""
    for _ in range(times):
        world.child(job, chance.randrange(1, 9))
        world.at_most_one()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_watchers_that_are_killed_one_after_another_run_the_command_once(world, seed):
    job = world.asked(status=7 * seed)
    killed(world, job, random.Random(seed), 6)
    world.ends(job, state=State.FAILED if seed else State.SUCCEEDED, status=7 * seed)


def again(world, job, times=1):
    """Carry the job on so often in this process; return how far it came."""
    with JobReconciler(world.session, job.id, world.environ) as carrier:
        for _ in range(times):
            found = carrier.reconcile()
    return found


@pytest.mark.soak
def test_a_restart_waits_for_capacity_and_then_goes_on(world):
    job = world.asked(pause=1)
    world.child(job, until=runs)
    world.takes(job)
    for zone in ZONES:
        world.cloud.exhaust(zone)
    for _ in range(6):
        found = again(world, job)
        assert (found.job.is_open, found.job.outcome, world.billed()) == (True, None, []), found.why
        world.clock.advance(600)
    for zone in ZONES:
        world.cloud.refill(zone)
    world.ends(job, begun=2)
    assert len(world.now(job).attempts) == 2


@pytest.mark.soak
def test_a_budget_that_refuses_the_restart_ends_the_job_with_its_words(world):
    job = world.asked(pause=1)
    world.child(job, until=runs)
    world.takes(job)
    place = world.home / "policies" / "budgets"
    place.mkdir(parents=True)
    (place / "lab.yaml").write_text(BUDGET)
    world.session = world.opened()
    found = again(world, job, 2)
    assert (found.job.is_open, found.job.state) == (False, State.LOST), found
    assert "Budget lab does not allow train-2" in found.job.why
    assert world.events() == {"begin": 1}
    world.nothing_left()


@pytest.mark.soak
def test_a_job_lives_until_the_end_of_its_machine_is_proved(world):
    job = world.asked()
    world.cloud.deny("terminate")
    world.child(job, until=lambda found: found.job.fetched is not None)
    assert (world.now(job).is_open, len(world.billed())) == (True, 1)
    world.cloud.permit("terminate")
    world.cloud.fail_next("terminate", ProviderUnavailable("the fake cloud is away"))
    world.ends(job)


def test_a_launch_whose_answer_is_lost_makes_one_machine(world):
    job = world.asked()
    world.cloud.lose_reply("launch", times=2)
    world.ends(job)
    assert len(json.loads(world.machines.state.read_text())["machines"]) == 1


@pytest.mark.soak
def test_a_cloud_that_is_away_is_asked_again_for_the_first_machine(world):
    job = world.asked()
    world.cloud.fail_next("launch", ProviderUnavailable("the fake cloud is away"), times=3)
    world.ends(job)
    assert len(world.now(job).attempts) == 1


def test_two_watchers_at_once_do_nothing_twice(world):
    job = world.asked()
    number = fork()
    if number == 0:
        clouds._child(world, job, None, None, world.root / "others", 20)
    world.child(job)
    os.waitpid(number, 0)
    world.is_over(job)


@pytest.mark.soak
def test_a_watcher_that_wakes_long_after_the_end_fetches_what_is_there(world):
    job = world.asked(pause=0.2)
    world.child(job, until=runs)
    until = time.monotonic() + 10
    while not world.events()["end"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    world.clock.advance(3600 * 2.5)
    world.child(job)
    job = world.now(job)
    assert (job.is_open, job.state, job.fetched and job.fetched.whole) == (False, State.SUCCEEDED, True), job.why
    world.nothing_left()


@pytest.mark.soak
def test_a_machine_that_does_not_answer_after_the_end_of_its_job_is_stopped_with_its_results(world):
    job = world.asked()
    for at in range(1, 100):
        world.child(job, at)
        if world.now(job).outcome is not None:
            break
    assert world.now(job).fetched is None
    world.machines.off()
    found = again(world, job)
    assert (found.error is not None, len(world.billed())) == (True, 1)
    world.clock.advance(3600 * 2)
    found = again(world, job)
    assert (found.job.state, found.job.is_open, world.billed()) == (State.SUCCEEDED, True, []), found
    assert world.machine_of(job).state == "stopped"


@pytest.mark.soak
def test_a_start_for_its_results_that_no_run_guards_is_tried_until_one_does(worlds, tmp_path, monkeypatch):
    (tmp_path / "power").mkdir()
    monkeypatch.setattr(guarding, "POWER_SUPPLY", tmp_path / "power")
    world = worlds('agent = "tells"\nlacks = ["HasTimer"]\n')
    reap(world.session, ReapOptions(cron=True, interval=timedelta(hours=2)))
    job = world.asked()
    world.child(job, until=runs)
    watched_to_the_end(world, job)
    world.cloud.stop(world.machine_of(job).provider_id)
    world.clock.advance(3600 * 5)  # who made those runs has left
    again(world, job)  # sees that it was stopped
    for _ in range(4):
        found = again(world, job)
        assert (found.error.field, world.now(job).resumes, world.billed()) == ("--no-guard", 0, []), found
    asked = [QueriedAccount("lab", "fake")]
    world.session.current_run = guarding.completed_run(world.session, timedelta(minutes=10), asked, ())
    found = again(world, job, 20)
    assert (found.job.state, found.job.fetched.whole, found.job.resumes) == (State.SUCCEEDED, True, 1), found


def test_a_notice_brings_a_copy_at_once_although_the_next_one_is_due_in_an_hour(world):
    job = world.asked(pause=20, every="1h")
    world.child(job, until=runs)
    copied = world.home / "jobs" / job.id / "results" / "early"
    world.clock.advance(60)
    again(world, job)
    assert not copied.exists()
    machine = world.machine_of(job)
    (world.machines.home(machine.provider_id) / ".cloudgpu" / "notice").write_text("{}")
    again(world, job)
    assert copied.read_text() == "early"
    request_cancel(world.session, job)
    world.child(job)
    world.nothing_left()


NEITHER = 'lacks = ["Pausable", "Imageable"]\n'


@pytest.mark.soak
@pytest.mark.parametrize("silent", [False, True])
def test_a_machine_that_can_neither_stop_nor_park_is_ended_when_its_results_were_waited_for_long_enough(worlds, silent):
    world = worlds(NEITHER)
    job = world.asked(results_wait="1h")
    world.child(job, until=runs)
    if silent:
        watched_to_the_end(world, job)
        world.machines.off()
    else:  # this computer has no place for them
        (world.work / "results").write_text("a file in the way")
    world.child(job, until=lambda found: found.job.outcome is not None and found.error is not None)
    assert (world.now(job).state, world.now(job).is_open, len(world.billed())) == (State.SUCCEEDED, True, 1)
    world.clock.advance(3500)
    found = again(world, job)
    assert (found.error is not None, found.job.is_open, len(world.billed())) == (True, True, 1)
    world.clock.advance(200)
    again(world, job)
    (world.work / "results").unlink(missing_ok=True)
    world.child(job)
    found = world.now(job)
    assert (found.state, found.is_open, found.fetched.whole) == (State.SUCCEEDED, False, False)
    assert [one.action_reason for one in world.session.ledger.machines()] == ["the job train is over"]
    world.machines.end()
    world.nothing_left()


def watched_to_the_end(world, job):
    """Wait until the command has said that it is over; its end is not written down."""
    until = time.monotonic() + 20
    while not world.events()["end"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    for at in range(1, 100):
        world.child(job, at)
        if world.now(job).outcome is not None:
            return


@pytest.mark.soak
def test_a_machine_that_its_user_ends_is_not_replaced(world):
    job = world.asked(pause=20)
    world.child(job, until=runs)
    terminate_with_resources(world.session, world.machine_of(job), why="down by ada")
    world.child(job)
    job = world.now(job)
    assert (job.is_open, job.state, len(job.attempts)) == (False, State.LOST, 1)
    world.nothing_left()


@pytest.mark.parametrize("runs_before", [False, True])
def test_a_ledger_from_a_backup_goes_on_and_never_runs_the_command_twice_at_once(world, runs_before):
    job = world.asked(pause=1)
    if runs_before:
        world.child(job, until=runs)
    copy = world.root / "copy.sqlite"
    write_backup(world.session.ledger, copy)
    world.child(job, until=None if runs_before else runs)
    restore(world.session.ledger, copy, even_if_older=True)
    world.session.ledger.close()
    world.session = world.opened()
    verify_document(world.session, agree=world.session.report)
    if runs_before:  # the machine is gone; what this computer wrote down of the job's end is put back
        world.child(job)
        found = world.now(job)
        assert (found.is_open, found.state, found.shell_status) == (False, State.SUCCEEDED, 0), found
        assert world.events() == {"begin": 1, "end": 1}
        world.whole(found)
        assert world.billed() == []
    else:
        world.ends(job)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_watchers_that_are_killed_at_every_step_do_nothing_twice(world):
    job = world.asked()
    died = world.killed_at_every_step(job)
    world.is_over(job)
    assert {"terminate", "decide", "request", "replace"} <= set(died), died


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_restart_whose_watchers_are_killed_at_every_step_is_one_restart(world):
    job = world.asked(pause=1)
    world.child(job, until=runs)
    world.takes(job)
    died = world.killed_at_every_step(job)
    world.is_over(job, begun=2)
    assert {"terminate", "decide", "request", "replace"} <= set(died), died


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("at", [1, 3, 5, 7, 9, 12, 15])
def test_a_job_that_is_cancelled_after_any_step_leaves_nothing(world, at):
    job = world.asked(pause=20)
    world.child(job, at, until=runs)
    request_cancel(world.session, job)
    world.killed_at_every_step(job)
    job = world.now(job)
    assert (job.is_open, job.state) == (False, State.CANCELLED)
    assert world.events()["begin"] <= 1
    world.nothing_left()
