"""Jobs whose results and checkpoints are on a volume, which outlives their machines."""

from __future__ import annotations

import sys
import time

import pytest

from cloudgpu.core.jobs.job import State
from cloudgpu.errors import InvalidRequest
from tests.control.jobs.bench import EACH, STEPS, TRAIN, Bench, answer
from tests.control.jobs.clouds import Rented


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = Rented(tmp_path / "0", monkeypatch)
    yield made
    made.session.ledger.close()
    made.machines.end()


def runs(found):
    return found.job.attempt is not None and found.job.attempt.began_at is not None


def place(world, job):
    return world.root / "volumes" / "keep" / "cloudgpu" / f"{job.name}-{job.id.removeprefix('job-')}"


@pytest.mark.soak
def test_results_stay_on_their_volume_and_the_machine_ends(world):
    job = world.asked(results_to="volume:keep", volume="keep:1")
    world.child(job)
    job = world.now(job)
    assert (job.state, job.is_open) == (State.SUCCEEDED, False), job.why
    there = place(world, job) / "results"
    assert (there / "answer").read_bytes() == b"42\n" * 10_000
    assert (job.fetched.whole, job.fetched.files, job.fetched.host) == (True, 2, "")
    assert job.fetched.directory == f"volume:keep/cloudgpu/{there.parent.name}/results"
    assert not (world.work / "results").exists()
    assert (world.home / "jobs" / job.id / "out-1").read_text() == "line one\nline two\n"
    assert world.billed() == []


@pytest.mark.soak
def test_the_next_machine_finds_the_checkpoint_on_the_volume(world):
    (world.work / "train.py").write_text(TRAIN)
    options = {"provider": "fake", "gpu": "v100", "name": "train", "policy": "default", "env": {"PAUSE": "0.1"}}
    job = world.begun(sys.executable, "train.py", results_to="volume:keep", volume="keep:1", **options)
    world.child(job, until=runs)
    end = time.monotonic() + 20
    while not list(place(world, job).glob("checkpoints/step-????")) and time.monotonic() < end:
        time.sleep(0.02)
    Bench.takes(world, job)
    world.child(job, most_s=60)
    job = world.now(job)
    assert (job.state, len(job.attempts), job.fetched.whole) == (State.SUCCEEDED, 2, True), job.why
    begins = int((world.home / "jobs" / job.id / "out-2").read_text().split()[2].rstrip(","))
    assert 0 < begins < STEPS
    assert begins % EACH == 0
    assert (place(world, job) / "results" / "answer.txt").read_text() == answer()


@pytest.mark.soak
def test_data_of_a_volume_is_found_at_its_place_and_its_volume_is_attached_unasked(world):
    made = world.asked(results_to="volume:keep", volume="keep:1")
    world.child(made)
    (place(world, made).parent.parent / "rows.csv").write_text("1,2\n")
    options = {"provider": "fake", "gpu": "v100", "name": "reads", "policy": "default"}
    job = world.begun("cat", "in/rows.csv", data=["volume:keep:in"], **options)
    world.child(job)
    job = world.now(job)
    assert (job.state, job.spec["launch"]["volume"]) == (State.SUCCEEDED, "keep"), job.why
    assert (world.home / "jobs" / job.id / "out-1").read_text() == "1,2\n"


def test_a_machine_without_the_volume_is_refused(tmp_path):
    from cloudgpu.control.inputs.launch_request import parse_request
    from cloudgpu.control.launch.launch import launch
    from cloudgpu.control.launch.plan import prepare

    desk = Bench(tmp_path)
    launch(desk.session, prepare(desk.session, parse_request(provider="local", name="desk", template="bare")))
    try:
        with pytest.raises(InvalidRequest, match="desk does not have the volume keep") as refused:
            desk.begun("true", on="desk", results_to="volume:keep")
        assert refused.value.field == "--results-to"
    finally:
        desk.end()
