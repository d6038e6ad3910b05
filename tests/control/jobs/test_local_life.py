"""Jobs on machines of this computer, with real processes: results, exits, and what dies on the way."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from cloudgpu.cli.jobs.text import ended_text
from cloudgpu.control.jobs.cancel import cancel
from cloudgpu.control.jobs.listing import job_document
from cloudgpu.control.jobs.store import read_measured
from cloudgpu.control.jobs.watch import reconcile_all, sentences
from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.notice import MeasuredCopies
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.jobs import exit_code
from tests.control.jobs.bench import EACH, Bench, answer


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A machine that is there, for the jobs that leave it."""
    from cloudgpu.control.inputs.launch_request import parse_request
    from cloudgpu.control.launch.launch import launch
    from cloudgpu.control.launch.plan import prepare

    made = Bench(tmp_path_factory.mktemp("desk"))
    launch(made.session, prepare(made.session, parse_request(provider="local", name="desk", template="bare")))
    yield made
    made.end()


def is_right(bench, job):
    """The answer is that of the uninterrupted run, and nothing is left."""
    job = bench.now(job)
    assert (job.state, job.shell_status) == (State.SUCCEEDED, 0), job.why
    assert job.fetched.whole
    place = bench.work / "results" / job.name
    assert place.joinpath("answer.txt").read_text() == answer()
    assert bench.left() == []


def test_a_job_runs_to_its_end_its_results_come_back_and_its_machine_ends(bench):
    job, out, err = bench.run()
    is_right(bench, job)
    assert out.decode().splitlines()[0] == "begins at 0, restart 0"
    assert err == b"done\n"
    assert job.progress[:2] == (40.0, 40.0)
    (machine,) = bench.session.ledger.machines()
    assert (machine.key, machine.state) == (f"{job.id}-1", "terminated")


@pytest.mark.soak
def test_two_jobs_typed_alike_are_two_jobs(desk):
    one, two = desk.begun(on="desk"), None
    with pytest.raises(InvalidRequest) as refused:
        desk.begun(on="desk")
    assert refused.value.field == "--on"
    assert one.name in refused.value.message
    assert desk.followed(one)[0].state is State.SUCCEEDED
    two, _, _ = desk.run(on="desk")
    assert (two.state, two.id != one.id) == (State.SUCCEEDED, True)
    assert [row.state for row in desk.left()] == ["running"]


def test_a_failing_command_and_a_signal_are_its_own_exit_status(desk):
    job, _, _ = desk.run("sh", "-c", "exit 7", on="desk")
    assert (job.state, job.shell_status) == (State.FAILED, 7)
    job, _, _ = desk.run("sh", "-c", "kill -SEGV $$", on="desk")
    assert (job.state, job.shell_status) == (State.FAILED, 139)
    job, _, _ = desk.run("no-such-command", on="desk", retries=2)
    assert (job.state, job.shell_status, exit_code(job), len(job.attempts)) == (State.FAILED, 127, 127, 1)
    assert job.why.startswith("no-such-command: command not found on the machine")
    assert job.why.endswith("; install it with --setup")


def test_a_failing_command_is_tried_again_as_often_as_that_was_asked(desk):
    says = "echo try $CLOUDGPU_RESTART_COUNT; test $CLOUDGPU_RESTART_COUNT = 2"
    job, out, _ = desk.run("sh", "-c", says, on="desk", retries=2)
    assert (job.state, out) == (State.SUCCEEDED, b"try 0\ntry 1\ntry 2\n")


@pytest.mark.soak
def test_how_fast_a_job_was_copied_and_how_large_its_checkpoint_was_is_remembered(desk):
    says = (
        "mkdir -p $CLOUDGPU_CHECKPOINT $CLOUDGPU_RESULTS; head -c 3000000 /dev/urandom > $CLOUDGPU_CHECKPOINT/one; "
        "head -c 500 /dev/zero > $CLOUDGPU_RESULTS/r"
    )
    job, _, _ = desk.run("sh", "-c", says, on="desk")
    seen = read_measured(desk.home / "jobs" / job.id)
    assert (seen.checkpoint_bytes, seen.results_bytes) == (3_000_000, 500)
    assert seen.bytes_per_s > 100_000
    job, _, _ = desk.run("sh", "-c", "mkdir -p $CLOUDGPU_RESULTS; echo 1 > $CLOUDGPU_RESULTS/r", on="desk")
    assert read_measured(desk.home / "jobs" / job.id) == MeasuredCopies(None, None, 2)  # too little to tell a rate


def test_a_timeout_ends_it_with_a_state_of_its_own_and_its_results_come_back(desk):
    says = "mkdir -p $CLOUDGPU_RESULTS; echo half > $CLOUDGPU_RESULTS/part; sleep 60"
    job, _, _ = desk.run("sh", "-c", says, on="desk", timeout="1s")
    assert (job.state, job.shell_status) == (State.TIMED_OUT, 143)
    assert (desk.work / "results" / job.name / "part").read_text() == "half\n"


def test_a_cancelled_job_ends_and_its_output_is_there(desk):
    job = desk.begun("sh", "-c", "echo begun; sleep 60", on="desk", name="long")
    desk.running(job)
    cancel(desk.session, "long", desk.environ)
    job, _, _ = desk.followed(job)
    assert job.state is State.CANCELLED
    assert (desk.home / "jobs" / job.id / "out-1").read_text() == "begun\n"


def test_values_of_secrets_are_in_no_file_and_no_command_line(desk):
    planted = "x7Kd-planted-value"
    desk.environ["HF_TOKEN"] = planted
    file = desk.work.parent / "vars.env"
    file.write_text(f"# keys\nexport WANDB='{planted}-2'\n")
    says = 'test "$HF_TOKEN $WANDB" = "x7Kd-planted-value x7Kd-planted-value-2" && sleep 2'
    job = desk.begun("sh", "-c", says.replace(planted, "$(printf x7Kd-)planted-value"), on="desk",
                     secret=["HF_TOKEN"], env_file=file)  # fmt: skip
    desk.running(job)
    seen = [place for place in _command_lines() if planted in place]
    job, _, _ = desk.followed(job)
    assert (job.state, seen) == (State.SUCCEEDED, [])
    texts = {path: path.read_bytes() for path in desk.home.rglob("*") if path.is_file()}
    assert len(texts) > 10
    assert [path for path, text in texts.items() if planted.encode() in text] == []


def _command_lines():
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            yield place.read_bytes().decode(errors="replace")


def test_a_secret_that_this_environment_does_not_have_makes_a_watcher_wait_not_fail(desk):
    desk.environ["ONLY_HERE"] = "1"
    job = desk.begun("true", on="desk", secret=["ONLY_HERE"])
    del desk.environ["ONLY_HERE"]
    found = desk.carried(job, lambda found: found.error is not None)
    assert "ONLY_HERE is not set" in found.why
    desk.environ["ONLY_HERE"] = "1"
    assert desk.followed(job)[0].state is State.SUCCEEDED


def test_data_that_is_on_the_machine_is_found_at_its_place(desk):
    data = desk.work.parent / "data"
    data.mkdir()
    (data / "rows.csv").write_text("1,2\n")
    job, out, _ = desk.run("cat", "in/rows.csv", on="desk", data=[f"{data}:in"])
    assert (job.state, out) == (State.SUCCEEDED, b"1,2\n")


def test_the_machine_of_a_failed_job_is_kept_for_a_look_and_held_and_nobody_waits_for_that(bench):
    job, _, _ = bench.run("sh", "-c", "exit 3", keep="2h")
    machine = bench.machine_of(job)
    assert (job.state, job.is_open, machine.state) == (State.FAILED, True, "running")
    assert machine.hold_until[:16] == iso(job.ended_at + timedelta(hours=2))[:16]
    late = bench.opened()
    late.clock = lambda: job.ended_at + timedelta(hours=2, seconds=1)
    try:
        reconcile_all(late, bench.environ)
    finally:
        late.ledger.close()
    assert (bench.now(job).is_open, bench.left()) == (False, [])


def test_setup_runs_once_on_a_machine_and_its_failure_is_a_state_of_its_own(desk):
    setup = "echo x >> $HOME/set-up"
    for _ in range(2):
        assert desk.run("sh", "-c", "cat $HOME/set-up", on="desk", setup=setup)[1] == b"x\n"
    job, out, _ = desk.run("echo", "never", on="desk", setup="echo no room; exit 3")
    assert (job.state, job.status, out) == (State.SETUP_FAILED, 3, b"")


def test_results_that_this_computer_has_no_place_for_stay_where_they_are_until_it_has(desk):
    says = "mkdir -p $CLOUDGPU_RESULTS; echo 1 > $CLOUDGPU_RESULTS/r"
    job = desk.begun("sh", "-c", says, on="desk", name="blocked", results="out")
    (desk.work / "out").write_text("a file in the way")
    found = desk.carried(job, lambda found: found.error is not None)
    assert f"cannot be written to {desk.work / 'out' / 'blocked'}" in found.why
    desk.carried(job, lambda found: found.error is not None)
    said = [line.body["job"] for line in desk.session.ledger.events("jobs") if line.kind == "job_results_fetched"]
    assert said.count(job.id) == 1  # not a line each minute
    (desk.work / "out").unlink()
    job, _, _ = desk.followed(job)
    assert job.fetched.whole
    assert (desk.work / "out" / "blocked" / "r").read_text() == "1\n"


def test_links_among_the_results_come_back_as_links(desk):
    """A training often names its best and its latest result by a link."""
    makes = "mkdir -p run-1; echo 1 > run-1/r; ln -s run-1 latest; ln -s run-1/r best; echo 2 > sum"
    job, _, _ = desk.run("sh", "-c", f"mkdir -p $CLOUDGPU_RESULTS; cd $CLOUDGPU_RESULTS; {makes}", on="desk", name="ln")
    place = desk.work / "results" / "ln"
    assert (job.fetched.whole, job.fetched.files, job.fetched.bytes) == (True, 2, 4)
    assert {one.name: str(one.readlink()) for one in place.iterdir() if one.is_symlink()} == {
        "latest": "run-1",
        "best": "run-1/r",
    }
    assert (place / "latest" / "r").read_text() == "1\n"


def test_what_a_link_out_of_the_results_leads_to_is_said_not_to_come(desk):
    makes = "echo 1 > ../best.pt; ln -s ../best.pt best; ln -s nothing last; echo 2 > sum"
    job, _, _ = desk.run("sh", "-c", f"mkdir -p results; cd results; {makes}", on="desk", name="out")
    assert (job.fetched.whole, job.fetched.files) == (True, 1)
    why = "not copied: best (it is a link out of the directory, to ../best.pt), last (it is a broken link)"
    assert job.fetched.why == why
    said = ended_text(job_document(desk.session, job), desk.session.clock())
    assert f"in {desk.work / 'results' / 'out'}; {why}." in said


@pytest.mark.soak
def test_results_of_another_job_of_that_name_are_left_alone(desk):
    says = "mkdir -p $CLOUDGPU_RESULTS; echo $CLOUDGPU_JOB > $CLOUDGPU_RESULTS/r"
    one, two = (desk.run("sh", "-c", says, on="desk", name="twice")[0] for _ in range(2))
    assert (desk.work / "results" / "twice" / "r").read_text() == f"{one.id}\n"
    assert two.fetched.directory.endswith(f"results/twice-{two.id.removeprefix('job-')}")


# --- what dies on the way -------------------------------------------------------------------------------------------

FAULTS = ["machine", "watcher", "supervisor", "keeper"]


def strike(bench, job, fault):
    """Let something of the job die now."""
    if fault == "machine":
        bench.takes(job)
        return
    if fault == "watcher":
        watcher = bench.watcher(job)
        bench.steps_more(job, 2)
        os.kill(watcher.pid, signal.SIGKILL)
        watcher.join()
        return
    lock = {"supervisor": "supervisor.lock", "keeper": "keeper.lock"}[fault]
    number = len(bench.now(job).attempts)
    for path in bench.home.rglob(f"jobs/{job.id}/{number}/{lock}"):
        holder = _holder(path)
        if holder is not None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(holder, signal.SIGKILL)


def _holder(path):
    """The process that holds a lock on this file."""
    inode = path.stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        parts = line.split()
        if parts[1] == "FLOCK" and parts[5].endswith(f":{inode}"):
            return int(parts[4])
    return None


def interrupted(bench, seed, strikes):
    """A training that is struck at random moments: it ends with the same answer, and loses at most one interval."""
    chance = random.Random(seed)
    job = bench.begun(restarts=20, name="train", env=["PAUSE=0.05"])
    hit = []
    for _ in range(strikes):
        if not bench.running(job).job.is_open:
            break
        bench.steps_more(job, chance.randint(0, 25))
        hit.append(chance.choice(FAULTS))
        strike(bench, job, hit[-1])
        bench.carried(job, lambda _found: True)
    bench.followed(job)
    is_right(bench, job)
    for before, after in pairwise(bench.steps(job)):
        if before and after:  # done twice: at most what came since the last copy, a second old, and its checkpoint
            assert max(before) - min(after) + 1 <= EACH + 2 / 0.05, (hit, before, after)
    return hit


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["machine", "watcher", "keeper"])
def test_whatever_dies_the_training_ends_with_the_same_answer(bench, fault):
    job = bench.begun(name="train", env=["PAUSE=0.05"])
    bench.running(job)
    bench.steps_more(job, 8)
    strike(bench, job, fault)
    bench.followed(job)
    is_right(bench, job)


@pytest.mark.soak
def test_a_job_with_a_deadline_whose_spot_machine_is_taken_ends_with_the_same_answer(bench):
    job = bench.begun(name="train", env=["PAUSE=0.15"], deadline="3h", work="1m", spot_policy="uniform-progress")
    bench.running(job)
    bench.carried(job, lambda found: found.job.saved is not None)
    first = bench.machine_of(job)
    bench.takes(job)
    bench.followed(job)
    is_right(bench, job)
    job = bench.now(job)
    assert [one.market for one in job.attempts] == ["spot", "spot"]
    assert (first.market, job.attempts[1].work_before_s > 0, job.interruptions) == ("spot", True, 1)
    (line,) = [one for one in bench.session.ledger.events(first.id) if one.kind == "spot_interrupted"]
    assert line.body["ran_s"] > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_thirty_strikes_at_random_moments_change_nothing_of_the_answer(tmp_path):
    struck = 0
    for seed in range(100):
        bench = Bench(tmp_path / str(seed))
        try:
            struck += len(interrupted(bench, seed, 3))
        finally:
            bench.end()
        if struck >= 30:
            break
    assert struck >= 30


def test_a_pass_of_the_reaper_carries_a_detached_job_to_its_end(bench):
    job = bench.begun(sys.executable, "train.py")
    end = time.monotonic() + 60
    said = []
    while bench.now(job).is_open and time.monotonic() < end:
        said += sentences(reconcile_all(bench.session, bench.environ))
        time.sleep(0.1)
    is_right(bench, job)
    assert said[-1].startswith(f"job {job.name}: succeeded; its results are in ")


def test_a_deadline_takes_on_demand_where_spot_costs_as_much(bench):
    assert bench.begun(name="train", deadline="3h", work="1m").deadline["policy"] == "on-demand"
