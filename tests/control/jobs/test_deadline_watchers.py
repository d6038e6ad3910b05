"""A job with a deadline that two computers with one ledger watch: only one of them has its files and can move it."""

from __future__ import annotations

import copy
import shutil

import pytest

from cloudgpu.core.events.job_events import job_move_requested
from tests.control.jobs.test_deadlines import Spot, runs


@pytest.fixture
def world(tmp_path, monkeypatch):
    """The computer that asked for the job."""
    monkeypatch.setenv("CLOUDGPU_LEDGER", f"sqlite:///{tmp_path / 'lab.db'}")
    made = Spot(tmp_path / "0", monkeypatch)
    yield made
    made.session.ledger.close()
    made.machines.end()


@pytest.fixture
def other(world):
    """A computer of the same user without the files of the job: another home, the same keys, cloud and ledger."""
    made = copy.copy(world)
    made.home = world.root / "other"
    made.home.mkdir()
    shutil.copy(world.home / "config.toml", made.home)
    made.environ = {**world.environ, "CLOUDGPU_HOME": str(made.home)}
    made.said = []
    made.session = made.opened()
    yield made
    made.session.ledger.close()


def let_in(world, other):
    """Let the second computer log in to the machines of the first one."""
    for name in ("keys", "known_hosts"):
        shutil.rmtree(other.home / name, ignore_errors=True)
    shutil.copytree(world.home / "keys", other.home / "keys")
    shutil.copy(world.home / "known_hosts", other.home)


@pytest.fixture
def job(world):
    return late(world)


def late(world, **options):
    """A job on spot that has to move to on demand now, while its command runs: nothing of it was saved."""
    world.hold()
    job = world.due(spot_policy="greedy", deadline="4h", **options)
    world.child(job, until=runs)
    world.steps_done(job, 5)
    world.clock.advance(3600 * 2.8)
    return job


def is_moved_by(world, job):
    """Let the computer that has the files move the job, and the command end."""
    world.child(job, until=lambda found: found.job.attempts[-1].market == "on_demand", most_s=20)
    world.hold(on=False)
    world.child(job)
    world.is_done(job)
    assert [market for market, _ in world.markets()] == ["spot", "on_demand"]


@pytest.mark.parametrize("may_log_in", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_computer_without_the_files_leaves_a_job_where_it_runs(world, other, job, may_log_in):
    if may_log_in:
        let_in(world, other)
    running = [one.id for one in world.billed()]
    found = other.carry(job, 5)
    assert [one.id for one in world.billed()] == running
    assert found.job.attempt.move is None
    assert (found.remote is not None) is may_log_in
    assert found.job.saved is None  # what it has copied is where no other machine gets it from
    is_moved_by(world, job)


def test_a_computer_without_the_files_does_not_go_on_with_a_move_that_another_one_began(world, other, job):
    let_in(world, other)
    line = job_move_requested(job.id, 1, "on_demand", "it has to be done in time", world.clock())
    world.session.ledger.append([line])  # and then it was killed
    running = [one.id for one in world.billed()]
    found = other.carry(job, 3)
    assert [one.id for one in world.billed()] == running
    assert "are not on this computer" in found.why
    is_moved_by(world, job)


def test_an_environment_without_a_secret_of_the_job_leaves_it_where_it_runs(world):
    world.environ["PIN"] = "1"
    job = late(world, secret=["PIN"])
    del world.environ["PIN"]
    running = [one.id for one in world.billed()]
    found = world.carry(job, 3)
    assert ([one.id for one in world.billed()], found.job.attempt.move) == (running, None)
    world.environ["PIN"] = "1"
    is_moved_by(world, job)


@pytest.mark.soak
def test_a_computer_without_the_files_ends_what_is_left_of_a_machine_that_was_taken(world, other, job):
    world.taken(job)
    found = other.carry(job, 3)
    assert (world.billed(), found.job.attempts[-1].interrupted) == ([], True)
    assert "are not on this computer" in found.why
    is_moved_by(world, job)
