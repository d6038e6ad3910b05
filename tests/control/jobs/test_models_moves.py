"""Moves of jobs with a deadline on our models of the clouds, whose watchers are killed at every call that changes."""

from __future__ import annotations

import pytest

from cloudgpu.core.jobs.job import State
from tests.control.jobs.models import both
from tests.control.jobs.test_deadlines import STEPS
from tests.control.jobs.test_models_life import (
    CLOUDS,
    aws,
    aws_process,
    azure_arm,
    azure_process,
    gcp,
    gcp_process,
    runs,
)

__all__ = ["aws", "aws_process", "azure_arm", "azure_process", "gcp", "gcp_process"]
HELD = STEPS.replace("done >= steps - 1:", 'done >= steps - 1 and os.environ["CLOUDGPU_RESTART_COUNT"] == "0":')
MOVES = {
    "aws": both("TerminateInstances", "RunInstances"),
    "gcp": both("compute.instances.delete", "compute.instances.insert"),
    "azure": both("ResourceGroups.Delete", "VirtualMachines.CreateOrUpdate"),
}
LAST = 20


@pytest.fixture
def make(request, tmp_path):
    made = []

    def world(name):
        fixture, kind = CLOUDS[name]
        made.append(kind(tmp_path / "user", request.getfixturevalue(fixture)))
        return made[-1]

    yield world
    for one in made:
        one.end()


def due(world):
    """A job on spot before its last step, which has to move to on demand now: it is slower than --work says.

    Its first attempt never does the last step. Nothing was copied from its machine but what the move will copy.
    """
    (world.work / "train.py").write_text(HELD)
    world.record.with_name("record.hold").touch()
    options = {"deadline": "75m", "work": "1m", "spot_policy": "greedy", "every": "10m"}
    job = world.asked(pause=0.01, status=LAST, **options)
    world.child(job, until=lambda found: runs(found) and found.remote is not None and done(found) == LAST - 1)
    assert [one.market for one in world.now(job).attempts] == ["spot"]
    world.server.advance(50 * 60)
    return job


def done(found):
    return found.remote.progress[0] if found.remote.progress else 0


def is_moved(world, job):
    """The command went on where its checkpoint was, on one machine on demand, and nothing is left of either."""
    job = world.now(job)
    assert (job.state, job.is_open) == (State.SUCCEEDED, False), job.why
    assert [(one.market, one.moved) for one in job.attempts] == [("spot", True), ("on_demand", False)]
    said = world.record.read_text().splitlines()
    assert said == ["begin 0", f"begin {LAST - 1}", f"end {LAST}"]
    assert (world.work / "results" / job.name / "answer").read_text() == str(LAST)
    assert len(world.session.ledger.machines()) == len(job.machines) == 2
    world.nothing_left()


class All(set):
    """All moments but one, at which a watcher is killed."""

    def __init__(self, one):
        super().__init__()
        self.one = one

    def __contains__(self, moment):
        return moment != self.one or super().__contains__(moment)


@pytest.mark.soak
def test_watchers_that_are_killed_between_the_end_of_one_machine_and_the_launch_of_the_next_make_one_move(make):
    world = make("aws")
    job = due(world)
    for moment in (("after", "TerminateInstances", 1), ("after", "RunInstances", 1)):
        assert world.child(job, All(moment)) == moment
        world.at_most_one()
    world.child(job)
    is_moved(world, job)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CLOUDS)
def test_a_move_whose_watchers_are_killed_at_every_change_is_one_move(make, name):
    world = make(name)
    job = due(world)
    died = world.killed_at_every_step(job)
    is_moved(world, job)
    assert not MOVES[name] - died, died
