"""A job that launches machines of its own as one, with the real Slurm: it runs on all, and all end."""

from __future__ import annotations

import pytest

from cloudgpu.control.cost.job_cost import all_jobs, job_spent
from cloudgpu.core.billing.totals import spent
from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.shares import assigned
from tests.control.clusters.gang import needs_slurm
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


def test_a_lost_node_ends_the_gang_and_another_one_goes_on_from_the_checkpoint(bench, monkeypatch):
    job = bench.begun("sh", "-c", AGAIN, nodes=2, name="train", checkpoint="checkpoint", template="bare")
    with monkeypatch.context() as patched:
        patched.setattr("cloudgpu.control.jobs.carry.known", dies)
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
    shares = assigned(all_jobs(bench.session).values())
    assert {one.id for one in rows} == set(shares)
    assert {part.key for there in shares.values() for part in there} == {job.id}
    now = bench.session.clock()
    assert job_spent(bench.session, job) == sum((spent(one, now) for one in rows[1:]), spent(rows[0], now))
