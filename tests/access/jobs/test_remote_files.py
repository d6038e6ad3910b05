"""What travels: uploads by content, results that are compared, checkpoints that are whole or not taken, full disks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path

import pytest

from cloudgpu.access.jobs import checkpoints, program, remote_job
from cloudgpu.access.jobs.remote import RemoteJob
from cloudgpu.access.jobs.remote_attempt import Attempt
from cloudgpu.core.jobs.remote_state import Phase
from cloudgpu.errors import InvalidRequest, Unreachable
from tests.access.jobs.conftest import JOB, ended, output, put_out_of_reach
from tests.access.sshserver import wait_for

SECRETS = {"API_TOKEN": "planted-value-8f2c", "OTHER": "planted-other-77aa"}


# -- upload


@pytest.mark.soak
def test_only_what_the_machine_lacks_is_sent(bench):
    first = bench.snapshot({"a": "alpha", "b/c": "gamma"})
    assert bench.job().upload(first, bench.store) == 10
    assert bench.job().upload(first, bench.store) == 0
    assert bench.job().upload(bench.snapshot({"a": "alpha", "d": "delta", "e": "delta"}), bench.store) == 5


def test_progress_of_an_upload_ends_at_its_whole(bench):
    told = []
    snapshot = bench.snapshot({f"f{number}": os.urandom(200_000) for number in range(4)} | {"empty": b""})
    bench.job().upload(snapshot, bench.store, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (800_000, 800_000)
    assert bench.job().upload(snapshot, bench.store) == 0  # the machine has all of it


def test_results_that_are_written_to_while_they_are_fetched_are_not_called_whole(bench, tmp_path):
    class Written(RemoteJob):
        """On a machine whose command writes whenever something was copied."""

        def copy(self, *given):
            copied = super().copy(*given)
            (results / "now").write_text(str(time.monotonic_ns()))
            return copied

    results = bench.file("work/results")
    results.mkdir(parents=True)
    (results / "now").write_text("begun")
    found = Written(bench.connection, JOB, 1).fetch_results(tmp_path / "here")
    assert (found.is_complete, "changed while" in found.why) == (False, True)
    assert bench.job().fetch_results(tmp_path / "here").is_complete


@pytest.mark.soak
def test_a_damaged_store_is_refused_and_nothing_of_it_is_named_on_the_machine(bench):
    snapshot = bench.snapshot({"a": "alpha", "b": "bravo"})
    damaged = bench.store / snapshot.files[1].sha256
    damaged.write_bytes(b"other")
    with pytest.raises(InvalidRequest, match="1 file of the job's snapshot had another content"):
        bench.job().upload(snapshot, bench.store)
    assert not damaged.exists()
    (bench.store / snapshot.files[1].sha256).write_bytes(b"br")
    with pytest.raises(InvalidRequest, match="shorter than it was"):
        bench.job().upload(snapshot, bench.store)
    assert [one.name for one in blobs(bench)] == [snapshot.files[0].sha256]
    damaged.unlink()
    assert bench.job().upload(bench.snapshot({"a": "alpha", "b": "bravo"}), bench.store) == 5


def test_a_path_out_of_the_tree_is_not_written(bench):
    bench.run(("true",), files={"../../../../escaped": "x"})
    seen = ended(bench.job())
    assert (seen.exit.reason, seen.exit.status) == ("start", None)
    assert "not a path below" in seen.exit.why
    assert list(bench.home.rglob("escaped")) == []


def test_a_command_that_changes_its_files_changes_no_other_jobs(bench):
    files = {"data": "as it was"}
    ended(bench.start("echo changed > data", files=files))
    job = bench.start("cat data", files=files, job=bench.job(2))
    assert output(job, follow=True)[0] == "as it was"


@pytest.mark.soak
def test_clean_removes_a_job_and_what_no_other_job_needs(bench):
    ended(bench.start("true", files={"shared": "one", "own": "two"}))
    other = bench.job(1, "job-00000000ff")
    ended(bench.start("true", files={"shared": "one"}, job=other))
    assert bench.job().clean() == 3
    assert bench.job().state().phase is Phase.ABSENT
    assert [one.read_text() for one in blobs(bench)] == ["one"]
    assert other.clean() == 3
    assert blobs(bench) == []
    assert other.clean() == 0


def blobs(bench):
    return [one for one in (bench.home / ".cloudgpu" / "blobs").iterdir() if not one.name.startswith(".")]


# -- results


def test_results_that_a_killed_delivery_brought_to_their_place_do_not_travel_again(bench, tmp_path):
    bench.file("work/results/run").mkdir(parents=True)
    for name, text in (("run/one", "12345"), ("two", "1234")):
        bench.file(f"work/results/{name}").write_text(text)
    own, place, job = tmp_path / "own", tmp_path / "results" / "fox", RemoteJob(bench.connection, JOB, 1)
    job.fetch_results(own)
    place.mkdir(parents=True)
    (own / "run").rename(place / "run")
    assert job.fetch_results(own, place).sent == 0
    (place / "run" / "one").write_text("67890")  # as long, and another content
    found = job.fetch_results(own, place)
    assert (found.is_complete, found.sent, (own / "run" / "one").read_text()) == (True, 5, "12345")


@pytest.mark.soak
def test_results_come_back_whole_and_travel_once(bench, tmp_path):
    script = (
        "cd results; mkdir -p a/empty; echo one > a/one; : > none; ln -s a/one link; printf '#!' > run; chmod 755 run"
    )
    script += "; echo x > $(printf 'odd\\377')"
    job = bench.start(script)
    ended(job)
    found = job.fetch_results(tmp_path / "here")
    assert (found.is_complete, found.why, found.sent, found.bytes) == (True, "", 8, 8)
    assert sorted(one.path for one in found.files) == ["a/one", "none", "odd\udcff", "run"]
    here = tmp_path / "here"
    assert ((here / "link").read_text(), (here / "link").readlink()) == ("one\n", Path("a/one"))
    assert (here / "a" / "empty").is_dir()
    assert os.access(here / "run", os.X_OK)
    (here / "a" / "one").write_text("xxx\n")  # as long, and another content
    again = job.fetch_results(here)
    assert (again.is_complete, again.sent, (here / "a" / "one").read_text()) == (True, 4, "one\n")
    assert list(here.rglob(".cloudgpu-*")) == []


def test_a_directory_in_place_of_an_earlier_link_comes_back_as_one(bench, tmp_path):
    results, here, job = bench.file("work/results"), tmp_path / "here", RemoteJob(bench.connection, JOB, 1)
    (results / "run").mkdir(parents=True)
    (results / "run" / "x").write_text("of the run")
    (results / "latest").symlink_to("run")
    job.fetch_results(here)
    (results / "latest").unlink()
    (results / "latest" / "deep").mkdir(parents=True)
    (results / "latest" / "x").write_text("of latest")
    (results / "latest" / "deep" / "y").write_text("deep")
    assert job.fetch_results(here).is_complete
    assert not (here / "latest").is_symlink()
    found = [(here / name).read_text() for name in ("run/x", "latest/x", "latest/deep/y")]
    assert (found, (here / "run" / "deep").exists()) == (["of the run", "of latest", "deep"], False)


def test_what_was_something_else_at_an_earlier_fetch_comes_back_as_what_it_is_now(bench, tmp_path):
    results, here, job = bench.file("work/results"), tmp_path / "here", RemoteJob(bench.connection, JOB, 1)
    (results / "latest").mkdir(parents=True)
    (results / "last").mkdir()
    for name in ("latest/x", "last/x", "best", "all"):
        (results / name).write_text("old")
    job.fetch_results(here)
    (results / "latest").rename(results / "run")
    (results / "latest").symlink_to("run")
    (results / "best").unlink()
    (results / "best").symlink_to("run/x")
    (results / "last" / "x").unlink()
    (results / "last").rmdir()
    (results / "last").write_text("new")
    (results / "all").unlink()
    (results / "all").mkdir()
    (results / "all" / "x").write_text("new")
    fetched = job.fetch_results(here)
    assert (fetched.is_complete, fetched.links) == (True, ("best", "latest"))
    assert [str((here / name).readlink()) for name in fetched.links] == ["run/x", "run"]
    assert [(here / name).read_text() for name in ("run/x", "last", "all/x")] == ["old", "new", "new"]


def test_results_that_lead_out_of_their_directory_are_named_and_not_sent(bench, tmp_path):
    (bench.home / "private").write_text("nobody's business")
    job = bench.start("cd results; ln -s $HOME/private out; ln -s $HOME all; mkfifo pipe; echo kept > kept")
    ended(job)
    found = job.fetch_results(tmp_path / "here")
    assert [one.path for one in found.files] == ["kept"]
    assert {path for path, _ in found.skipped} == {"out", "all", "pipe"}
    assert sorted(one.name for one in (tmp_path / "here").iterdir()) == ["kept"]
    from cloudgpu.access.jobs.copies import CopiedFile

    asked = CopiedFile("all/private", 17, 0o600, "0" * 64)
    assert job.copy("results", [asked], tmp_path / "other") == (17, ("all/private",))
    assert list((tmp_path / "other").iterdir()) == []


def test_a_result_that_cannot_be_read_makes_the_others_not_complete(bench, tmp_path):
    job = bench.start("echo 1 > results/r; mkdir $CLOUDGPU_CHECKPOINT/step-1; echo 1 > $CLOUDGPU_CHECKPOINT/step-1/r")
    ended(job)
    put_out_of_reach(bench.file("work/results"))
    put_out_of_reach(bench.file("checkpoint/step-1"))
    found = job.fetch_results(tmp_path / "here")
    assert ([one.path for one in found.files], found.is_complete) == (["r"], False)
    assert found.why.endswith("cannot be read there (file name too long)")
    assert job.sync_checkpoints(tmp_path / "checkpoints") == ()


@pytest.mark.soak
def test_results_that_change_while_they_are_fetched_are_not_called_whole(bench, tmp_path):
    writer = "while :; do n=$((n + 1)); echo $n > results/now$one; done"
    job = bench.start(f"for one in 1 2 3 4; do ({writer}) & done; head -c 2000000 /dev/urandom > results/big; wait")
    wait_for(lambda: bench.file("work/results/now4").exists())
    tries = (job.fetch_results(tmp_path / "here") for _ in range(20))  # a busy computer may let no writer run meanwhile
    found = next(one for one in tries if not one.is_complete)
    assert "changed while" in found.why
    job.cancel("cancelled")
    ended(job)
    assert job.fetch_results(tmp_path / "here").is_complete


def test_no_results_are_whole_results(bench, tmp_path):
    job = bench.start("true")
    ended(job)
    found = job.fetch_results(tmp_path / "here")
    assert (found.is_complete, found.files) == (True, ())


@contextlib.contextmanager
def small_disk(path, size="2m"):
    """Mount a small disk of its own there; skip where that is not allowed."""
    path.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("Mounting a small disk takes root.")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_here_is_said_and_nothing_is_lost(bench, tmp_path):
    job = bench.start("cd results; echo small > a; dd if=/dev/zero of=large bs=1M count=4 2>&-")
    ended(job)
    with small_disk(tmp_path / "small") as disk:
        with pytest.raises(InvalidRequest, match="disk is full") as fault:
            job.fetch_results(disk / "here")
        assert (disk / "here" / "a").read_text() == "small\n"
        assert list(disk.rglob(".cloudgpu-*")) == []
    assert fault.value.field == "results"
    assert job.fetch_results(tmp_path / "here").is_complete


def test_the_exit_status_is_written_on_a_full_disk(bench):
    with small_disk(bench.home / ".cloudgpu"):
        job = bench.start("dd if=/dev/zero of=fill bs=4k 2>/dev/null; echo lost >> results/x; exit 3")
        seen = ended(job)
        assert (seen.exit.status, seen.exit.reason) == (3, "exited")
        assert seen.free_disk_bytes < 4096


def test_a_job_can_be_cancelled_on_a_full_disk(bench):
    with small_disk(bench.home / ".cloudgpu"):
        job = bench.start("dd if=/dev/zero of=fill bs=4k 2>/dev/null; exec sleep 1000")
        wait_for(lambda: job.state().free_disk_bytes < 4096)
        job.cancel("over_cost")
        assert ended(job).exit.reason == "over_cost"


@pytest.mark.soak
def test_a_disk_that_is_full_before_the_command_begins_is_why_it_did_not(bench):
    with small_disk(bench.home / ".cloudgpu"):
        bench.run(("touch", "ran"), files={"large": os.urandom(1_200_000)})  # it fits once
        seen = ended(bench.job())
        assert (seen.exit.status, seen.exit.reason, seen.started_at) == (None, "start", None)
        assert "No space left" in seen.exit.why


def test_an_upload_to_a_full_disk_is_said_with_a_way_out(bench):
    snapshot = bench.snapshot({"large": os.urandom(4 << 20)})
    with small_disk(bench.home / ".cloudgpu") as disk:
        with pytest.raises(InvalidRequest, match="The disk of box is full") as fault:
            bench.job().upload(snapshot, bench.store)
        assert fault.value.field == "--disk"
        assert [one for one in disk.rglob("*") if one.is_file()] == []


# -- checkpoints


@pytest.mark.soak
def test_the_newest_finished_checkpoints_are_copied_and_older_ones_pruned(bench, tmp_path):
    script = """cd $CLOUDGPU_CHECKPOINT
    for n in 1 2 3; do mkdir new.tmp; echo $n > new.tmp/step; echo same > new.tmp/weights; mv new.tmp step-$n; done
    mkdir step-4.tmp; echo part > step-5.part; echo hidden > .step-6
    touch -d @100 step-1; touch -d @200 step-2; touch -d @300 step-3"""
    job = bench.start(script)
    assert ended(job).checkpoints == ("step-3", "step-2", "step-1")
    found = job.sync_checkpoints(tmp_path)
    assert [one.name for one in found] == ["step-2", "step-3"]
    assert [(one.path / one.name / "step").read_text() for one in found] == ["2\n", "3\n"]
    assert job.sync_checkpoints(tmp_path) == found
    assert [one.name for one in job.sync_checkpoints(tmp_path, retain=1)] == ["step-3"]


@pytest.mark.soak
def test_a_checkpoint_of_one_name_that_is_replaced_is_copied_anew(bench, tmp_path):
    write = "echo $n > new.part; mv new.part $CLOUDGPU_CHECKPOINT/last"
    job = bench.start(f"for n in 1 2; do {write}; until [ -e $HOME/$n ]; do sleep 0.02; done; done")
    wait_for(lambda: job.state().checkpoints)
    job.sync_checkpoints(tmp_path)
    (bench.home / "1").touch()
    wait_for(lambda: bench.file("checkpoint/last").read_text() == "2\n")
    found = job.sync_checkpoints(tmp_path)
    assert [(one.number, (one.path / "last").read_text()) for one in found] == [(1, "1\n"), (2, "2\n")]
    (bench.home / "2").touch()
    ended(job)


@pytest.mark.soak
def test_a_link_that_alone_changed_is_followed_and_put_back_for_the_next_attempt(bench, tmp_path):
    script = """cd $CLOUDGPU_CHECKPOINT
    for n in 1 2 3; do mkdir step-$n; echo $n > step-$n/a; ln -s a step-$n/best; touch -d @${n}00 step-$n; done
    ln -s step-2 last; ln -s step-1/a first"""
    job = bench.start(script)
    assert ended(job).checkpoints == ("step-3", "step-2", "step-1")
    found = job.sync_checkpoints(tmp_path)
    links = lambda: [one.path / "last" for one in found if (one.path / "last").is_symlink()]  # noqa: E731
    assert [str(one.readlink()) for one in links()] == ["step-2"]
    there = bench.file("checkpoint")
    (there / "last").unlink()
    (there / "last").symlink_to("step-3")
    (there / "step-3" / "b").symlink_to("a")
    (there / "step-3" / "best").unlink()
    os.utime(there / "step-3", (300, 300))
    assert job.sync_checkpoints(tmp_path) == found  # the copies that were there, with other links
    assert [str(one.readlink()) for one in links()] == ["step-3"]
    job.clean()
    second = bench.job(2)
    restored = second.restore(None, tmp_path)
    script = "cd $CLOUDGPU_CHECKPOINT; readlink last; cat last/b; ls; ls step-3"
    bench.start(script, job=second, restored=restored)
    assert output(second, follow=True)[0].split() == ["step-3", "3", "last", "step-2", "step-3", "a", "b"]


class Torn:
    """A machine that writes into a checkpoint after its files were copied."""

    def __init__(self, job, change):
        self.job, self.change = job, change

    def manifest(self, which, names):
        return self.job.manifest(which, names)

    def copy(self, which, files, into):
        sent = self.job.copy(which, files, into)
        self.change()
        return sent


@pytest.mark.soak
@pytest.mark.parametrize("change", ["more", "other", "gone"])
def test_a_torn_checkpoint_is_never_taken_and_the_older_one_stays(bench, tmp_path, change):
    job = bench.start("cd $CLOUDGPU_CHECKPOINT; mkdir one two; echo 1 > one/step; echo 2 > two/step")
    ended(job)
    assert checkpoints.copy_checkpoint(job, "one", tmp_path)
    there = bench.file("checkpoint/two")
    changes = {
        "more": lambda: (there / "more").write_text("x"),
        "other": lambda: (there / "step").write_text("3\n"),
        "gone": lambda: shutil.rmtree(there),
    }
    assert not checkpoints.copy_checkpoint(Torn(job, changes[change]), "two", tmp_path)
    assert [one.name for one in checkpoints.stored_checkpoints(tmp_path)] == ["one"]
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith(".") or one.name.isdigit()) == ["1"]


@pytest.mark.soak
def test_a_copy_that_was_cut_short_is_no_checkpoint(bench, tmp_path):
    job = bench.start("echo 1 > $CLOUDGPU_CHECKPOINT/one")
    ended(job)
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / f".cloudgpu-{dead.pid}-1.new" / "data").mkdir(parents=True)
    (tmp_path / "7").mkdir()  # not ours: it does not say what it holds
    assert [(one.number, one.name) for one in job.sync_checkpoints(tmp_path)] == [(8, "one")]
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith(".") or one.name.isdigit()) == [
        "7",
        "8",
    ]


@pytest.mark.soak
def test_a_copy_gets_a_number_above_that_of_a_damaged_one(bench, tmp_path):
    ended(bench.start("echo 1 > $CLOUDGPU_CHECKPOINT/one"))
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "checkpoint.json").write_text("{")
    (tmp_path / "2").touch()
    assert [(one.number, one.name) for one in bench.job().sync_checkpoints(tmp_path)] == [(3, "one")]
    assert (tmp_path / "1" / "checkpoint.json").read_text() == "{"


@pytest.mark.soak
def test_results_and_checkpoints_are_put_back_for_the_next_attempt(bench, tmp_path):
    script = "echo 5 > results/done; ln -s done results/last"
    first = bench.start(f"{script}; mkdir $CLOUDGPU_CHECKPOINT/c; echo 5 > $CLOUDGPU_CHECKPOINT/c/step")
    ended(first)
    first.fetch_results(tmp_path / "results")
    first.sync_checkpoints(tmp_path / "checkpoints")
    first.clean()  # another machine, which has nothing of it
    second = bench.job(2)
    restored = second.restore(tmp_path / "results", tmp_path / "checkpoints")
    script = "cat results/last $CLOUDGPU_CHECKPOINT/c/step; echo $CLOUDGPU_RESTART_COUNT"
    bench.start(script, job=second, restored=restored)
    assert output(second, follow=True)[0] == "5\n5\n1\n"
    assert second.fetch_results(tmp_path / "again").is_complete


def test_nothing_to_put_back_is_nothing(bench, tmp_path):
    restored = bench.job().restore(None, tmp_path / "never")
    assert (restored.results, restored.checkpoint) == ((), ())


def test_what_earlier_attempts_left_here_is_sent_and_named_for_the_next_one(bench, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "done").write_text("5")
    for number, step in ((1, "4"), (2, "5")):
        data = tmp_path / "checkpoints" / str(number) / "data" / "c"
        data.mkdir(parents=True)
        (data / "step").write_text(step)
        said = {"name": "c", "files": [{"path": "c/step", "size": 1}], "links": []}
        (data.parents[1] / "checkpoint.json").write_text(json.dumps(said))
    restored = bench.job().restore(tmp_path / "results", tmp_path / "checkpoints")
    assert [one.path for one in restored.results] == ["done"]
    assert [one.path for one in restored.checkpoint] == ["c/step"]
    assert [one.read_text() for one in blobs(bench)] == ["5"]  # the newer copy of that name, and the same content


# -- secrets


def test_secrets_reach_the_command_and_no_file_and_no_process_list(bench):
    bench.secrets = SECRETS
    job = bench.start(
        'echo ${#API_TOKEN}; until [ -e $HOME/go ]; do sleep 0.02; done; [ "$OTHER" = planted-other-77aa ]'.replace(
            "planted-other-77aa", "$(printf planted-other-)$(printf 77aa)"
        ),
        setup="[ -n $API_TOKEN ] && echo set up",
        timeout_s=60,
    )
    bench.begun()
    assert planted_in_process_lists() == []
    (bench.home / "go").touch()
    assert ended(job).exit.status == 0
    assert output(job)[0] == f"{len(SECRETS['API_TOKEN'])}\n"
    job.fetch_results(bench.store / "fetched")
    assert planted_in(bench.home) == []
    assert planted_in(bench.store) == []


def planted_in(root):
    return [
        path
        for path in root.rglob("*")
        if path.is_file() and any(value.encode() in path.read_bytes() for value in SECRETS.values())
    ]


def planted_in_process_lists():
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path for value in SECRETS.values() if value.encode() in path.read_bytes()]
    return found


# -- the program itself


def test_an_answer_behind_a_greeting_of_the_shell_is_understood(bench):
    (bench.home / ".bashrc").write_text("echo Welcome; echo here\n")
    assert bench.job().state().phase is Phase.ABSENT


def agent(bench, text):
    path = bench.home / ".cloudgpu" / "agent"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)


def test_a_machine_that_does_not_answer_is_given_up(bench):
    agent(bench, "exec sleep 1000")
    with pytest.raises(Unreachable, match="not done after"):
        bench.job().state(timeout_s=0.3)


ODD = ["exit 3", "echo no Python >&2; exit 1", "head -c 200000 /dev/zero", "printf '\\036cloudgpu [1]\\n'"]


@pytest.mark.parametrize("text", ODD)
def test_a_machine_that_answers_something_else_is_unreachable_and_says_what(bench, text):
    agent(bench, text)
    with pytest.raises(Unreachable, match="does not run on box"):
        bench.job().state()


@pytest.mark.soak
def test_a_file_in_the_home_stands_in_for_no_module(bench):
    for name in ("json", "select", "struct", "cloudgpu"):
        (bench.home / f"{name}.py").write_text("raise SystemExit(9)")
    assert bench.job().state().phase is Phase.ABSENT


def test_the_program_is_python_3_8_and_needs_the_standard_library_only():
    import ast

    for name in program.MODULES:
        text = Path(program.__file__).with_name(f"{name}.py").read_text()
        tree = ast.parse(text, feature_version=(3, 8))
        named = [one.module for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)]
        named += [alias.name for one in ast.walk(tree) if isinstance(one, ast.Import) for alias in one.names]
        ours = {f"cloudgpu.access.jobs.{part}" for part in program.MODULES[: program.MODULES.index(name)]}
        assert {one for one in named if one.split(".")[0] not in sys.stdlib_module_names} <= ours


def test_a_log_is_sent_in_pieces_each_stream_in_its_turn(tmp_path):
    log, stream, at = tmp_path / "out", BytesIO(), [0, 0, 0]
    log.write_bytes(b"x" * (remote_job.CHUNK_BYTES * (remote_job.MAX_CHUNKS + 1)))
    assert remote_job.send_output(log, at, 1, stream) == remote_job.CHUNK_BYTES * remote_job.MAX_CHUNKS
    number, size = struct.unpack(">BI", stream.getvalue()[:5])
    assert (number, size) == (1, remote_job.CHUNK_BYTES)
    assert remote_job.send_output(log, at, 1, stream) == remote_job.CHUNK_BYTES
    assert at[1] == log.stat().st_size


class GrowingLogs:
    """Standard output, of which each piece makes the command write more: it writes faster than anybody reads."""

    def __init__(self, attempt):
        self.attempt, self.buffer, self.sent, self.rounds = attempt, self, b"", 0

    def write(self, data):
        self.sent += data
        if self.rounds < 100:  # so that the test ends in any case
            self.rounds += 1
            for log in (self.attempt.out, self.attempt.err):
                with log.open("ab") as file:
                    file.write(b"more\n")

    def flush(self):
        pass


def test_output_up_to_now_ends_though_the_command_writes_faster_than_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    attempt = Attempt(JOB, 1)
    attempt.dir.mkdir(parents=True)
    attempt.out.write_bytes(b"out")
    attempt.err.write_bytes(b"error")
    monkeypatch.setattr("sys.stdout", GrowingLogs(attempt))
    remote_job.tail(attempt, {"out": 0, "err": 2, "follow": False})
    _, frames = sys.stdout.sent.split(b"\n", 1)
    pieces = struct.pack(">BI", 1, 3) + b"out" + struct.pack(">BI", 2, 3) + b"ror"
    assert frames.startswith(pieces)
    assert json.loads(frames[len(pieces) + 5 :]) == {"phase": "absent", "out": 3, "err": 5}


@pytest.mark.soak
def test_a_large_log_comes_in_bounded_pieces(bench):
    job = bench.start("dd if=/dev/zero bs=1M count=32 2>/dev/null")
    ended(job)

    class Counting(BytesIO):
        longest = total = 0

        def write(self, data):
            self.longest, self.total = max(self.longest, len(data)), self.total + len(data)
            return len(data)

    out = Counting()
    job.tail(out, BytesIO())
    assert out.total == 32 << 20
    assert out.longest <= 1 << 20
