"""A job that launches machines of its own as one, with the real Slurm: it runs on all, and all end."""

from __future__ import annotations

import pytest

from cloudgpu.control.cost.cost import job_spent
from cloudgpu.control.session.session import all_jobs
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.shares import machine_assignments
from cloudgpu.core.values.times import from_iso
from tests.control.clusters.gang import needs_slurm, until
from tests.control.jobs.bench import Bench

# The first time, it writes a checkpoint and waits; when it starts again, it reads that.
AGAIN = """
test "$CLOUDGPU_NUM_NODES" = 2 && test "$CLOUDGPU_NODE_RANK" != 0 && exec sleep 300
if test -e "$CLOUDGPU_CHECKPOINT/step-1/state"; then
    cat "$CLOUDGPU_CHECKPOINT/step-1/state" > "$CLOUDGPU_RESULTS/answer"; echo "again"; exit 7
fi
mkdir "$CLOUDGPU_CHECKPOINT/step-1.tmp"; echo 42 > "$CLOUDGPU_CHECKPOINT/step-1.tmp/state"
mv "$CLOUDGPU_CHECKPOINT/step-1.tmp" "$CLOUDGPU_CHECKPOINT/step-1"
echo saved; sleep 300
"""


@pytest.fixture
def bench(tmp_path):
    needs_slurm()
    made = Bench(tmp_path)
    yield made
    made.end()


def dies(*_):
    """Die where a watcher has launched and not written it down."""
    raise KeyboardInterrupt


@pytest.mark.soak
def test_a_lost_node_ends_the_gang_and_another_one_goes_on_from_the_checkpoint(bench, monkeypatch):
    job = bench.begun("sh", "-c", AGAIN, nodes=2, name="train", checkpoint="checkpoint", template="bare")
    with monkeypatch.context() as patched:
        patched.setattr("cloudgpu.control.jobs.reconcile.machine_assigned_events", dies)
        with pytest.raises(KeyboardInterrupt):
            bench.carried(job, lambda _: False)
    assert [one.name for one in bench.left()] == ["train-0", "train-1"]
    kept = bench.home / "jobs" / job.id / "checkpoints"
    bench.carried(job, lambda _: any(kept.glob("**/state")))
    (attempt,) = bench.now(job).attempts
    first = [bench.session.ledger.machine(one) for one in attempt.members]
    assert [one.name for one in first] == ["train-0", "train-1"]
    bench.session.provider_of(first[1]).terminate(first[1].provider_id)
    job, _, err = bench.followed(job)
    assert (job.state, job.status) == (State.FAILED, 7), (job.why, err, bench.said)
    assert [one.interrupted for one in job.attempts] == [True, False]
    assert (bench.work / "results" / "train" / "answer").read_text() == "42\n"
    rows = bench.session.ledger.machines()
    assert [one.name for one in rows] == ["train-0", "train-1", "train-r2-0", "train-r2-1"]
    assert all(one.terminated_at is not None for one in rows)
    shares = machine_assignments(all_jobs(bench.session).values())
    assert {one.id for one in rows} == set(shares)
    assert {part.key for there in shares.values() for part in there} == {job.id}
    now = bench.session.clock()
    of_machines = sum(spent_until_now(one, now).nanos for one in rows)  # each is rounded for itself, the job's sum once
    assert abs(job_spent(bench.session, job).nanos - of_machines) <= len(rows) / 2


@pytest.mark.soak
def test_a_gang_with_a_deadline_that_loses_a_node_goes_on_as_one_machine(bench):
    waits = '{ until test -e "$CLOUDGPU_RESULTS/answer"; do sleep 0.1; done; exit 0; }'
    script = AGAIN.replace("exit 7", "exit 0").replace("exec sleep 300", waits)
    words = {"name": "train", "checkpoint": "checkpoint", "template": "bare", "deadline": "8h", "work": "1h"}
    job = bench.begun("sh", "-c", script, nodes=2, **words)
    kept = bench.home / "jobs" / job.id / "checkpoints"
    bench.carried(job, lambda _: any(kept.glob("**/state")))
    (attempt,) = bench.now(job).attempts
    assert (len(attempt.members), attempt.market) == (2, "on_demand")  # spot costs the same here, so it is not used
    lost = bench.session.ledger.machine(attempt.members[1])
    bench.session.provider_of(lost).terminate(lost.provider_id)
    bench.carried(job, lambda found: not found.job.is_open, 120)
    job = bench.now(job)
    assert job.state is State.SUCCEEDED, (job.why, bench.said)
    assert [(one.interrupted, len(one.members)) for one in job.attempts] == [(True, 2), (False, 2)]
    assert (bench.work / "results" / "train" / "answer").read_text() == "42\n"
    assert job.ended_at < from_iso(job.deadline["at"])
    assert bench.left() == []


@pytest.mark.soak
def test_a_gang_that_was_stopped_idle_is_started_again_as_one_for_its_results(bench):
    script = 'until test -e "$CLOUDGPU_RESULTS/go"; do sleep 0.1; done; echo 42 > "$CLOUDGPU_RESULTS/answer"'
    job = bench.begun("sh", "-c", script, nodes=2, name="train", template="bare")
    bench.running(job)
    place = next(bench.home.rglob(f"jobs/{job.id}/1/begun")).parent
    (place / "work" / "results" / "go").touch()
    until((place / "exit.json").exists)
    assert bench.now(job).outcome is None
    nodes = bench.left()
    assert [one.name for one in nodes] == ["train-0", "train-1"]
    for one in nodes:
        bench.session.provider_of(one).stop(one.provider_id)
    job, _, err = bench.followed(bench.now(job))
    assert (job.state, job.resumes) == (State.SUCCEEDED, 1), (job.why, err, bench.said)
    assert (bench.work / "results" / "train" / "answer").read_text() == "42\n"
    assert bench.left() == []
