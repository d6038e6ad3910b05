"""Jobs in Slurm, with the real one: two machines of this computer as a cluster of ours, one queue.

All jobs of the module are asked for at once, so that they queue, and are carried to their end side by side.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import psutil
import pytest

from cloudgpu.access.ssh.execute import run
from cloudgpu.cli.jobs.jobs import table_text
from cloudgpu.cli.jobs.planned import plan_text
from cloudgpu.cli.jobs.text import job_text, state_text
from cloudgpu.control.access.reach import open_connection
from cloudgpu.control.clusters.engine import set_up_engine
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.jobs.cancel import cancel
from cloudgpu.control.jobs.follow import reconcile_until_begun
from cloudgpu.control.jobs.listing import job_document
from cloudgpu.control.jobs.plan import plan_run
from cloudgpu.control.jobs.watch import reconcile_to_end
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.session.session import all_jobs
from cloudgpu.core.clusters.layout import cluster_id, engine_paths
from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.shares import IDLE, machine_assignments
from cloudgpu.core.model.machine import node_of
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.jobs import exit_code
from tests.control.clusters.gang import needs_slurm
from tests.control.jobs.bench import Bench

RANKS = """
echo "rank $CLOUDGPU_NODE_RANK of $CLOUDGPU_NUM_NODES on $(echo $CLOUDGPU_NODE_IPS) at $MASTER_ADDR"
test "$MASTER_PORT" -gt 0 && test "$(wc -l < "$CLOUDGPU_HOSTFILE")" = 2 && test "$SLURM_JOB_NUM_NODES" = 2
test "$CLOUDGPU_NODE_RANK" = 0 && cp train.py "$CLOUDGPU_RESULTS/copy.py"
until test -e "$CLOUDGPU_RESULTS/copy.py"; do sleep 0.1; done
test "$CLOUDGPU_NODE_RANK" = 0 || { sleep 1; exit 7; }  # Slurm counts whole seconds
sleep 60
"""


class Train(Bench):
    """A home with a cluster called train, whose Slurm runs."""

    def __init__(self, root):
        super().__init__(root)
        launch(
            self.session, prepare(self.session, parse_request(provider="local", name="train", nodes=2, template="bare"))
        )
        self.nodes = sorted(self.left(), key=node_of)
        set_up_engine(self.session, self.nodes)
        connection, out = open_connection(self.session, self.nodes[0]), BytesIO()
        run(connection, ("pwd",), stdin=None, stdout=out, stderr=BytesIO())
        connection.close()
        self.there = Path(out.getvalue().decode().strip())
        conf = self.there / engine_paths(cluster_id(self.nodes[0])).conf
        self.slurm_environ = {**os.environ, "SLURM_CONF": str(conf)}

    def slurm(self, *words):
        """What a command of Slurm says."""
        return subprocess.run(
            words, env=self.slurm_environ, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    def slurm_place(self):
        """Where Slurm writes down what it has: its jobs, its steps, its logs."""
        said = self.slurm("scontrol", "show", "config")
        return Path(next(line.split("=")[1].strip() for line in said.splitlines() if line.startswith("StateSave")))

    def asked(self, text, **options):
        return self.begun("sh", "-c", text, on="train", **{"timeout": "5m", **options})

    def out(self, job):
        return (self.home / "jobs" / job.id / "out-1").read_text()

    def err(self, job):
        return (self.home / "jobs" / job.id / "err-1").read_text()


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    needs_slurm()
    made = Train(tmp_path_factory.mktemp("train"))
    yield made
    made.end()


@pytest.fixture(scope="module")
def done(train):
    """Jobs that are over, by name."""
    jobs = {
        "ranks": train.asked(RANKS, nodes=2, name="ranks"),
        "sweep": train.asked("echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT", array="0-1%2", name="sweep"),
        "first": train.asked("echo one; exit 0", name="first"),
    }
    bench = train
    train.slurm("sbatch", "--job-name=own", "--output=/dev/null", "--wrap=sleep 1")
    train.carried(jobs["first"], lambda found: found.job.slurm_id is not None)
    jobs["second"] = train.asked("echo two > $CLOUDGPU_RESULTS/two", after="first", name="second")
    reconcile_to_end(
        bench.session, list(jobs.values()), bench.environ, until=bench.session.clock() + timedelta(minutes=2)
    )
    return {name: bench.now(job) for name, job in jobs.items()}


@pytest.mark.soak
def test_the_status_is_that_of_the_rank_that_failed_first(train, done):
    job = done["ranks"]
    assert (job.state, exit_code(job)) == (State.FAILED, 7), (job.why, train.err(job))
    assert "task 1: Exited with exit code 7" in train.err(job)


def test_each_rank_finds_who_it_is_and_results_come_back(train, done):
    assert f"rank 0 of 2 on {' '.join(one.address[0] for one in train.nodes)} at" in train.out(done["ranks"])
    assert "rank 1 of 2" in train.out(done["ranks"])
    assert done["ranks"].fetched.whole
    copy = train.work / "results" / "ranks" / "copy.py"
    assert copy.read_text() == (train.work / "train.py").read_text()


def test_an_array_runs_once_for_each_index(train, done):
    assert done["sweep"].state is State.SUCCEEDED, train.err(done["sweep"])
    assert sorted(train.out(done["sweep"]).splitlines()) == ["[0] 0 of 2", "[1] 1 of 2"]
    assert len(done["sweep"].runs) == 2


def test_a_job_after_another_begins_when_that_has_succeeded(train, done):
    first, second = done["first"], done["second"]
    assert (first.state, second.state) == (State.SUCCEEDED, State.SUCCEEDED)
    assert second.slurm_record["after"] == first.slurm_id
    assert second.runs[0].begin >= first.runs[0].end
    assert (train.work / "results" / "second" / "two").read_text() == "two\n"


def test_jobs_show_slurms_ids_and_have_a_time_limit(train, done):
    value = job_document(train.session, done["ranks"])
    assert value["slurm"]["id"] == done["ranks"].slurm_id
    assert value["slurm"]["states"] == ["FAILED"]
    limits = train.slurm("squeue", "-h", "-t", "all", "-o", "%F %l")
    assert f"{done['ranks'].slurm_id} 5:00" in limits


def test_costs_go_by_slurms_own_records_and_the_rest_is_idle(train, done):
    jobs = all_jobs(train.session)
    own = next(job for job in jobs.values() if job.name.startswith("own-"))
    assert own.spec["owner"] == "root"
    shares = machine_assignments(jobs.values())
    assert set(shares) >= {one.id for one in train.nodes}
    on_second = [one.key for one in shares[train.nodes[1].id]]
    assert done["ranks"].id in on_second
    assert on_second[0] == on_second[-1] == IDLE


@pytest.mark.soak
def test_a_cancelled_job_leaves_the_queue(train, done):
    job = train.running(train.asked("sleep 100", name="long")).job
    queued = train.asked("true", name="late", nodes=2)
    found = train.carried(queued, lambda found: found.why.startswith("Slurm job"))
    assert "waits in Slurm's queue" in found.why
    assert reconcile_until_begun(train.session, queued, train.environ).slurm_id  # --detach does not wait for its turn
    value = job_document(train.session, train.now(queued))
    assert (value["state"], state_text(value)) == ("queued", "queued")
    assert value["slurm"]["reason"] in ("Resources", "Priority")
    assert value["why"].startswith(f"waits in Slurm's queue: {value['slurm']['reason']} (")
    table = table_text({"jobs": [value]}, train.session.clock(), ended=False)
    assert f"late {value['why']}" in " ".join(table.split())
    assert "queued: waits in Slurm's queue" in " ".join(job_text(value, train.session.clock()).split())
    assert cancel(train.session, "late", train.environ)["job"]["state"] == "cancelled"
    assert cancel(train.session, "long", train.environ)["job"]["state"] == "cancelled"
    assert train.slurm("squeue", "-h").split() == []
    assert exit_code(train.now(queued)) == 130
    assert exit_code(train.now(job)) == 143


def test_a_submission_whose_answer_was_lost_is_not_made_again(train, done):
    """Who submitted is killed before anybody knows what Slurm calls the job; the next attempt finds it by its name."""
    job = train.asked("echo begun; sleep 2; echo over; echo x > $CLOUDGPU_RESULTS/x", name="lost")
    train.running(job)
    place = train.there / ".cloudgpu" / "jobs" / job.id / "1"
    os.kill(json.loads((place / "begun").read_text())["pid"], signal.SIGKILL)
    (place / "engine.json").unlink()
    job, _, err = train.followed(train.now(job))
    assert job.state is State.SUCCEEDED, (job.why, err)
    assert len(job.attempts) == 2
    names = train.slurm("squeue", "-h", "-t", "all", "-o", "%j").split()
    assert [name for name in names if job.id.removeprefix("job-") in name] == [f"lost-{job.id[4:]}-1"]
    assert (train.work / "results" / "lost" / "x").read_text() == "x\n"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"nodes": 3}, "--nodes"),
        ({"max_cost": "0.000001"}, "--max-cost"),
        ({"data": ["s3://lab/x:data"]}, "--data"),
        ({"results_to": "s3://lab/x"}, "--results-to"),
        ({"port": [8888]}, "--port"),
        ({"timeout": "400d"}, "--timeout"),
        ({"after": "nobody"}, "--after"),
    ],
)
def test_what_slurm_cannot_do_is_refused_before_anything_is_sent(train, options, field):
    with pytest.raises(InvalidRequest) as refused:
        train.asked("true", name="refused", **options)
    assert refused.value.field == field
    assert refused.value.next


def test_max_cost_becomes_slurms_time_limit_rounded_down(train, done):
    hour = sum(one.price.nanos_per_hour for one in train.nodes)
    limit = Decimal(hour * 5) / Decimal(60 * 10**9)  # pays five minutes of both
    asked = {"on": "train", "nodes": 2, "max_cost": str(limit), "timeout": "1h"}
    planned = plan_run(train.session, train.request("true", **asked), train.environ)
    slurm = planned.spec["slurm"]
    assert (slurm["per_hour"], slurm["minutes"]) == (hour, 5 if limit * 10**9 * 60 // hour == 5 else 4)
    assert f"Slurm ends it after {slurm['minutes']}m" in " ".join(
        plan_text(planned, None, train.session.clock(), verbose=False).split()
    )
    shorter = train.request("true", **{**asked, "timeout": "2m"})
    assert plan_run(train.session, shorter, train.environ).spec["slurm"]["minutes"] == 2
    array = train.request("true", **{**asked, "array": "0-1"})
    assert plan_run(train.session, array, train.environ).spec["slurm"]["minutes"] == slurm["minutes"] // 2


SECRET, IN_FILE = "xyzzy-4711-of-nobody", "plugh-4712-of-nobody"
KEEPS = """
echo "$CLOUDGPU_NODE_RANK $(printf %s "$PIN $TOKEN" | sha256sum)" >> "$CLOUDGPU_RESULTS/seen"
until test -e "$CLOUDGPU_RESULTS/go"; do sleep 0.1; done
"""


@pytest.mark.soak
def test_secrets_reach_every_rank_and_stand_in_no_file_and_no_command_line(train, done):
    (train.work.parent / "job.env").write_text(f"TOKEN={IN_FILE}\n")
    train.environ = {**train.environ, "PIN": SECRET}
    asked = {"secret": ["PIN"], "env_file": str(train.work.parent / "job.env"), "nodes": 2, "name": "secret"}
    job = train.asked(KEEPS, **asked)
    results = train.there / ".cloudgpu" / "jobs" / job.id / "1" / "work" / "results"
    ranks = lambda: len((results / "seen").read_text().splitlines()) if (results / "seen").exists() else 0  # noqa: E731
    train.carried(job, lambda _: ranks() == 2)
    said = train.slurm("scontrol", "show", "job", train.now(job).slurm_id)
    assert "secret-" in said
    assert [
        path for path in files_below(train.slurm_place()) if holds(path, "CLOUDGPU_SLURM=")
    ]  # what sbatch was given
    assert not [path for path in files_below(train.home, train.slurm_place()) if holds(path, SECRET, IN_FILE)]
    lines = [" ".join(words) for words in command_lines()]
    assert not [one for one in lines if SECRET in one or IN_FILE in one]
    (results / "go").touch()
    job, out, err = train.followed(train.now(job))
    assert job.state is State.SUCCEEDED, (job.why, err)
    digest = hashlib.sha256(f"{SECRET} {IN_FILE}".encode()).hexdigest()
    seen = sorted((train.work / "results" / "secret" / "seen").read_text().split())
    assert seen == sorted(["0", "1", digest, digest, "-", "-"])
    assert SECRET.encode() not in out + err
    assert not [one for one in train.session.ledger.events("jobs") if SECRET in json.dumps(one.body)]


def files_below(*places):
    """Every file there, as far as it is there still."""
    return [path for place in places for path in place.rglob("*") if path.is_file() and not path.is_symlink()]


def holds(path, *words):
    with suppress(OSError):
        data = path.read_bytes()
        return any(word.encode() in data for word in words)
    return False


def command_lines():
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            yield process.cmdline()
