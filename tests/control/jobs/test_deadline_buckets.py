"""Jobs with a deadline whose checkpoints and results are in a bucket: what a move, or a loss, leaves for the next."""

from __future__ import annotations

import json
import random

import pytest

from cloudgpu.core.jobs.job import State
from tests.clouds.aws.s3 import s3, server
from tests.control.jobs.test_buckets import TO, in_bucket, until
from tests.control.jobs.test_deadlines import Spot, runs

__all__ = ["s3", "server"]


@pytest.fixture
def world(s3, tmp_path, monkeypatch):
    made = Spot(tmp_path / "0", monkeypatch)
    yield made
    made.session.ledger.close()
    made.machines.end()


def state(s3, job, number):
    return json.loads(in_bucket(s3, job).get(f"state/{number}.json", b'{"checkpoints": []}'))


def held(world, s3, **options):
    """A job on spot that is before its last step, with the checkpoint of the one before in the bucket."""
    world.hold()
    job = world.due(results_to=TO, every="1s", **options)
    world.child(job, until=runs)
    until(lambda: [one["name"] for one in state(s3, job, 1)["checkpoints"]][-1:] == ["19"])
    return job


def is_whole(world, s3, job, attempts):
    """The job succeeded with this many attempts, and its results are in the bucket alone."""
    job = world.now(job)
    assert (job.state, job.is_open, len(job.attempts)) == (State.SUCCEEDED, False, attempts), job.why
    found = in_bucket(s3, job)
    streams = {f"output/{attempts}/{one}" for one in ("out", "err")}
    assert set(found) == {"results.json", "results/answer", *streams}
    assert (found["results/answer"], json.loads(found["results.json"])["attempt"]) == (b"20", attempts)
    assert job.fetched.whole
    assert not list(world.home.glob("jobs/*/checkpoints"))
    assert "twice" not in world.events()
    world.nothing_left()
    return job


def begins(world):
    lines = world.record.read_text().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("begin")]


@pytest.mark.parametrize("seed", [None, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, 1))])
def test_a_move_takes_the_checkpoint_from_the_bucket_whoever_of_its_watchers_is_killed(world, s3, seed):
    job = held(world, s3, spot_policy="greedy", deadline="4h")
    world.clock.advance(3600 * 2)  # it is slower than --work says: spot could be lost too late
    chance = random.Random(seed)
    for _ in range(0 if seed is None else 6):
        world.child(job, chance.randrange(1, 9))
        world.at_most_one()
    world.child(job, until=lambda found: runs(found) and len(found.job.attempts) > 1)
    world.hold(on=False)
    world.child(job)
    job = is_whole(world, s3, job, 2)
    assert [market for market, _ in world.markets()] == ["spot", "on_demand"]
    assert (begins(world), job.attempts[0].moved, job.saved.checkpoint) == ([0, 19], True, "19")


@pytest.mark.soak
def test_a_machine_that_is_taken_while_nobody_watches_leaves_the_work_that_its_bucket_holds(world, s3):
    job = held(world, s3)
    assert world.now(job).saved is None
    world.taken(job)
    world.child(job, until=lambda found: runs(found) and len(found.job.attempts) > 1)
    job = world.now(job)
    assert job.saved.checkpoint == "19"
    assert 0 < job.saved.work_s == job.attempts[1].work_before_s
    assert job.saved.at < job.attempts[0].ended_at
    world.hold(on=False)
    world.child(job)
    is_whole(world, s3, job, 2)
    assert begins(world) == [0, 19]


@pytest.mark.soak
def test_a_watcher_notes_what_was_uploaded_while_the_command_runs(world, s3):
    job = held(world, s3)
    world.carry(job)
    saved = world.now(job).saved
    assert (saved.checkpoint, saved.work_s > 0) == ("19", True)
    world.hold(on=False)
    world.child(job)
    is_whole(world, s3, job, 1)


@pytest.mark.soak
def test_a_last_upload_that_does_not_arrive_is_given_up_in_the_time_that_the_net_keeps(world, s3, server):
    job = held(world, s3, spot_policy="greedy", deadline="4h")
    server.hook = lambda method, key: "cut" if method == "POST" else None
    (world.on_machine(job, "results") / "log").write_text("what no upload brings")
    world.clock.advance(3600 * 2)
    world.child(job, until=lambda found: "being uploaded" in found.why)
    ended = world.on_machine(job, "exit.json")
    said = json.loads(ended.read_text())
    ended.write_text(json.dumps({**said, "ended": said["ended"] - 181}))  # as if the machine's clock were that later
    world.child(job, until=lambda found: len(found.job.attempts) > 1)
    server.hook = None
    world.hold(on=False)
    world.child(job)
    is_whole(world, s3, job, 2)
    assert begins(world) == [0, 19]
