"""Jobs on machines of a cloud, whose watchers are killed: one machine, one run of the command, whole results."""

from __future__ import annotations

import random

import pytest

from cloudgpu.control.jobs.cancel import request_cancel
from cloudgpu.core.jobs.job import State
from tests.control.jobs.clouds import Rented


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


def runs(found):
    attempt = found.job.attempt
    return attempt is not None and attempt.began_at is not None


def killed(world, job, chance, times):
    """Kill so many watchers in a row, each after some steps of its own, and look at the cloud after each."""
    for _ in range(times):
        world.child(job, chance.randrange(1, 9))
        world.at_most_one()


@pytest.mark.parametrize("seed", range(2))
def test_watchers_that_are_killed_one_after_another_run_the_command_once(world, seed):
    job = world.asked(status=7 * seed)
    killed(world, job, random.Random(seed), 6)
    world.ends(job, state=State.FAILED if seed else State.SUCCEEDED, status=7 * seed)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_watchers_that_are_killed_at_every_step_do_nothing_twice(world):
    job = world.asked()
    died = world.killed_at_every_step(job)
    world.is_over(job)
    assert {"launch", "terminate", "decide", "session", "replace"} <= set(died)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_restart_whose_watchers_are_killed_at_every_step_is_one_restart(world):
    job = world.asked(pause=1)
    world.child(job, until=runs)
    world.takes(job)
    died = world.killed_at_every_step(job)
    world.is_over(job, begun=2)
    assert {"launch", "terminate", "decide", "session", "replace"} <= set(died)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("at", [1, 3, 5, 7, 9, 12, 15])
def test_a_job_that_is_cancelled_after_any_step_leaves_nothing(world, at):
    job = world.asked(pause=20)
    world.child(job, at, until=runs)
    request_cancel(world.session, job)
    world.killed_at_every_step(job)
    job = world.now(job)
    assert (job.is_living, job.state) == (False, State.CANCELLED)
    assert world.events()["begin"] <= 1
    world.nothing_left()
