"""A command under its keeper and its supervisor: real processes, over a real SSH connection, killed at every place."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import threading
import time
from io import BytesIO
from pathlib import Path

import pytest

from cloudgpu.access.jobs import remote_job
from cloudgpu.access.jobs.remote import RemoteJob, RemoteSpec
from cloudgpu.access.ssh.connection import connect
from cloudgpu.core.jobs.remote_state import Phase
from cloudgpu.errors import InvalidRequest, Unreachable
from tests.access.jobs.conftest import ended, kill, lives, output, parent
from tests.access.sshserver import wait_for

# -- how it ends


@pytest.mark.soak
def test_a_command_runs_in_its_tree_and_its_output_and_status_come_back(bench):
    files = {"a/say.sh": "echo hello $1; echo trouble >&2; exit 3"}
    job = bench.start("sh a/say.sh world", files=files)
    assert output(job, follow=True) == ("hello world\n", "trouble\n")
    seen = job.state()
    assert (seen.phase, seen.exit.status, seen.exit.signal, seen.exit.reason) == (Phase.EXITED, 3, None, "exited")
    assert (seen.out, seen.err) == (12, 8)
    assert seen.started_at <= seen.last_output_at <= seen.exit.ended_at <= seen.now


def test_a_signal_is_128_and_its_number(bench):
    seen = ended(bench.start("kill -USR1 $$"))
    assert (seen.exit.status, seen.exit.signal) == (128 + signal.SIGUSR1, signal.SIGUSR1)


@pytest.mark.parametrize(("argv", "status"), [(["no-such-command"], 127), (["./plain"], 126), (["./gone"], 127)])
def test_a_command_that_cannot_be_run_says_so_as_a_shell_does(bench, argv, status):
    bench.run(argv, files={"plain": "text"})
    seen = ended(bench.job())
    assert (seen.exit.status, seen.exit.reason, seen.started_at) == (status, "no_command", None)
    assert argv[0] in seen.exit.why
    assert argv[0] in output(bench.job())[1]


def test_a_command_that_the_machine_lacks_is_known_before_the_files_travel(bench):
    files = {"data": "x" * 1000}
    seen = bench.run(["no-such-command"], files=files)
    assert (seen.phase, seen.exit.status) == (Phase.EXITED, 127)
    assert seen.exit.why.startswith("no-such-command: command not found on the machine")
    assert seen.exit.why.endswith("machine; install it with --setup")
    assert not any((bench.home / ".cloudgpu" / "jobs").rglob("work"))
    assert bench.job().upload(bench.snapshot(files), bench.store) == 1000


@pytest.mark.soak
def test_a_command_that_a_setup_installs_is_found_and_one_that_it_does_not_is_named_after_it(bench):
    path = {"PATH": f"{bench.home}/tools:/usr/bin:/bin"}
    made = 'mkdir -p ~/tools; printf "#!/bin/sh\necho made" > ~/tools/made-here; chmod +x ~/tools/made-here'
    assert bench.run(["made-here"], env=path).exit.reason == "no_command"
    bench.run(["made-here"], job=bench.job(2), env=path, setup=made)
    assert output(bench.job(2), follow=True)[0] == "made\n"
    bench.run(["never-made"], job=bench.job(3), env=path, setup=made)
    assert ended(bench.job(3)).exit.why.endswith("machine, not even after --setup")


def test_a_file_of_the_tree_is_run_with_its_mode_and_a_link_is_one(bench):
    snapshot = bench.snapshot({"bin/run": "#!/bin/sh\ncat data"}, [("data", "bin/run")], executable=["bin/run"])
    job = bench.job()
    job.start(RemoteSpec(("bin/run",), "fox"), snapshot, bench.store)
    assert output(job, follow=True)[0] == "#!/bin/sh\ncat data"
    assert bench.file("work/data").readlink() == Path("bin/run")


def test_the_command_is_told_where_everything_is(bench):
    names = "JOB JOB_NAME RESTART_COUNT RESULTS CHECKPOINT PROGRESS"
    job = bench.start(
        f"for one in {names}; do printenv CLOUDGPU_$one; done; echo $MINE", job=bench.job(2), env={"MINE": "yes"}
    )
    here = bench.file("", job)
    told = output(job, follow=True)[0].split()
    assert told == [job.job, "fox", "1", f"{here}/work/results", f"{here}/checkpoint", f"{here}/progress.json", "yes"]


def test_it_reads_nothing_and_leads_its_own_session(bench):
    job = bench.start("cat; ps -o sid= -p $$; echo $$")
    first, second = output(job, follow=True)[0].split()
    assert first == second


def test_what_it_left_in_its_group_is_ended(bench):
    job = bench.start("sleep 1000 & echo $!")
    pid = int(output(job, follow=True)[0])
    wait_for(lambda: not lives(pid))


LEAVES = "setsid sh -c 'trap \"\" TERM; echo $$ > {0}; while :; do sleep 0.05; done' & "
LEAVES += "(nohup setsid sh -c 'echo $$ > {1}; sleep 1000' >/dev/null 2>&1 &) ; "
LEAVES += "setsid env -u CLOUDGPU_ATTEMPT sh -c 'echo $$ > {2}; sleep 1000' & "


def left_behind(bench, script, **spec):
    """Start a command that leaves two processes outside its group, and one that is to outlive it; return all three."""
    places = [bench.home / f"left-{number}" for number in range(3)]
    job = bench.start(LEAVES.format(*places) + script, **spec)
    return job, [int(wait_for(lambda one=one: one.exists() and one.read_text().strip())) for one in places]


@pytest.mark.parametrize("script", ["exit 0", "exec sleep 1000"])
def test_what_has_left_its_group_is_ended_with_it_but_for_what_gave_up_the_mark(bench, script):
    all_there = " -a ".join(f"-s {bench.home}/left-{number}" for number in range(3))
    script = f"until [ {all_there} ]; do sleep 0.02; done; {script}"
    job, (stubborn, run_detached, free) = left_behind(bench, script)
    if "sleep 1000" in script.rpartition(";")[2]:
        job.cancel("cancelled", grace_s=0.2)
    ended(job)
    wait_for(lambda: not lives(stubborn) and not lives(run_detached))
    assert lives(free)


def test_a_timeout_ends_what_has_left_its_group(bench):
    job, (stubborn, run_detached, _) = left_behind(bench, "exec sleep 1000", timeout_s=1.0, grace_s=0.2)
    assert ended(job).exit.reason == "timeout"
    wait_for(lambda: not lives(stubborn) and not lives(run_detached))


def test_what_a_killed_supervisor_did_not_end_ends_when_the_job_is_cleaned_up(bench):
    job, (stubborn, run_detached, _) = left_behind(bench, "until [ -e $HOME/go ]; do sleep 0.02; done")
    os.kill(bench.watchers()[1], signal.SIGKILL)
    (bench.home / "go").touch()
    wait_for(lambda: bench.file("exit.json").exists())
    assert lives(stubborn)
    job.clean()
    assert not lives(stubborn)
    assert not lives(run_detached)


# -- time and cancel


def test_a_timeout_sends_sigterm_first(bench):
    job = bench.start("trap 'echo saved; exit 7' TERM; while :; do sleep 0.05; done", timeout_s=0.3)
    seen = ended(job)
    assert (seen.exit.status, seen.exit.reason) == (7, "timeout")
    assert output(job)[0] == "saved\n"


def test_what_does_not_end_by_sigterm_is_killed_after_its_grace(bench):
    job = bench.start("trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.2, grace_s=0.2)
    seen = ended(job)
    assert (seen.exit.status, seen.exit.signal, seen.exit.reason) == (137, 9, "timeout")


@pytest.mark.soak
def test_a_cancel_has_its_own_reason_and_the_first_one_counts(bench):
    job = bench.start("exec sleep 1000")
    bench.begun()
    job.cancel("over_cost")
    job.cancel("cancelled")
    seen = ended(job)
    assert (seen.exit.status, seen.exit.reason) == (143, "over_cost")


@pytest.mark.soak
def test_a_cancel_during_the_setup_ends_it_and_the_command_never_begins(bench):
    job = bench.start("touch ran", setup="echo $$; exec sleep 1000")
    pid = int(wait_for(lambda: bench.file("setup.log").exists() and bench.file("setup.log").read_text().strip()))
    assert job.state().phase is Phase.SETUP
    job.cancel("cancelled")
    seen = ended(job)
    assert (seen.exit.reason, seen.started_at) == ("cancelled", None)
    assert not lives(pid)
    assert not bench.file("work/ran").exists()


def test_an_attempt_that_is_cancelled_before_its_command_began_is_over(bench):
    bench.file("x").parent.mkdir(parents=True)  # a start that has died
    seen = bench.job().cancel("cancelled")
    assert (seen.phase, seen.exit.reason, seen.started_at) == (Phase.EXITED, "cancelled", None)


def test_who_follows_hears_that_nobody_reads_any_more():
    def told():
        """What a process says whose output goes into the pipe."""
        child = os.fork()
        if not child:
            os.dup2(writer, 1)
            os._exit(remote_job.is_reader_gone(0))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    reader, writer = os.pipe()
    assert told() == 0
    os.close(reader)
    assert told() == 1
    os.close(writer)


# -- setup


@pytest.mark.soak
def test_a_setup_runs_once_per_machine_and_says_how_long_it_took(bench):
    for number in (1, 2):
        job = bench.start("true", job=bench.job(number), setup="echo set up >> $HOME/count; sleep 0.1")
        assert ended(job).exit.status == 0
    assert (bench.home / "count").read_text() == "set up\n"
    assert bench.job(1).state().setup_s >= 0.1
    assert bench.job(2).state().setup_s == 0


@pytest.mark.soak
def test_a_setup_runs_again_when_a_file_that_it_depends_on_has_changed(bench):
    named, dirs = "sh tools/set-up.sh", "cd ./lib && echo lib >> $HOME/count"
    tree = {"tools/set-up.sh": "echo named >> $HOME/count", "lib/a.c": "1", "other": "1", "requirements-gpu.txt": "a"}
    turns = [
        (named, {}, "named"),
        (named, {"other": "2", "lib/a.c": "2"}, ""),
        (named, {"tools/set-up.sh": "echo changed >> $HOME/count"}, "changed"),
        (named, {"requirements-gpu.txt": "b"}, "named"),
        (dirs, {}, "lib"),
        (dirs, {"other": "2"}, ""),
        (dirs, {"lib/a.c": "2"}, "lib"),
        (named, {}, ""),
    ]
    count = bench.home / "count"
    for number, (setup, change, wanted) in enumerate(turns, 1):
        count.write_text("")
        job = bench.start("true", job=bench.job(number), setup=setup, files={**tree, **change})
        assert ended(job).exit.status == 0
        assert count.read_text().strip() == wanted, (setup, change)


def test_two_jobs_do_not_run_one_setup_at_once(bench):
    setup = "mkdir $HOME/only || exit 9; sleep 0.3; rmdir $HOME/only"
    jobs = [bench.start("true", job=bench.job(1, f"job-000000000{number}"), setup=setup) for number in range(3)]
    assert [ended(job).exit.status for job in jobs] == [0, 0, 0]


def test_a_setup_that_fails_ends_the_attempt_and_is_tried_again_by_the_next(bench):
    job = bench.start("touch ran", setup="echo no network; exit 4")
    seen = ended(job)
    assert (seen.exit.status, seen.exit.reason, seen.started_at) == (4, "setup", None)
    assert bench.file("setup.log").read_text() == "no network\n"
    again = bench.start("true", job=bench.job(2), setup="echo no network; exit 4")
    assert ended(again).exit.reason == "setup"
    assert bench.file("setup.log", again).read_text() == "no network\n"


# -- whatever dies


@pytest.mark.soak
def test_it_outlives_the_connection_and_another_one_follows_it(bench, server):
    with connect(server.target, timeout=10) as own:
        job = RemoteJob(own, "job-0123456789", 1)
        bench.start("until [ -e $HOME/go ]; do sleep 0.02; done; echo done; exit 5", job=job)
        bench.begun()
    (bench.home / "go").touch()
    assert output(bench.job(), follow=True)[0] == "done\n"
    assert ended(bench.job()).exit.status == 5


@pytest.mark.soak
def test_it_outlives_the_death_of_the_ssh_server(bench, server):
    bench.start("until [ -e $HOME/go ]; do sleep 0.02; done; echo done; exit 5")
    bench.begun()
    server.kill()
    (bench.home / "go").touch()
    server.start()
    with connect(server.target, timeout=10, wait=10) as own:
        assert ended(RemoteJob(own, "job-0123456789", 1)).exit.status == 5


def test_a_killed_supervisor_is_replaced_by_the_next_look_and_the_timeout_holds(bench):
    job = bench.start("exec sleep 1000", timeout_s=1.0)
    _, supervisor = bench.watchers()
    kill(supervisor)
    assert job.state().phase is Phase.RUNNING
    seen = ended(job)
    assert (seen.exit.status, seen.exit.reason) == (143, "timeout")


def test_a_killed_keeper_loses_no_exit_status(bench):
    job = bench.start("until [ -e $HOME/go ]; do sleep 0.02; done; exit 6")
    keeper, _ = bench.watchers()
    kill(keeper)
    assert job.state().phase is Phase.RUNNING
    (bench.home / "go").touch()
    seen = ended(job)
    assert (seen.exit.status, seen.exit.reason) == (6, "exited")


def test_when_both_are_killed_the_command_goes_on_and_is_never_begun_again(bench):
    script = "echo began; until [ -e $HOME/go ]; do sleep 0.02; done; echo ended"
    job = bench.start(script)
    kill(*reversed(bench.watchers()))
    assert job.state().phase is Phase.ORPHANED
    assert bench.start(script).state().phase is Phase.ORPHANED
    (bench.home / "go").touch()
    ended(job)
    wait_for(lambda: job.state().exit is not None)  # its process is gone a moment before that is written
    seen = job.state()
    assert (seen.phase, seen.exit.status, seen.exit.reason) == (Phase.LOST, None, "lost")
    assert bench.start(script).state().phase is Phase.LOST
    assert output(job)[0] == "began\nended\n"


@pytest.mark.soak
def test_an_orphan_can_be_cancelled(bench):
    job = bench.start("exec sleep 1000")
    kill(*reversed(bench.watchers()))
    job.cancel("cancelled")
    ended(job)
    wait_for(lambda: job.state().exit is not None)  # its process is gone a moment before that is written
    assert job.state().exit.reason == "cancelled"


def test_a_machine_that_lost_its_power_has_lost_the_attempt(bench):
    job = bench.start("exec sleep 1000")
    pid = bench.begun()["pid"]
    keeper, supervisor = bench.watchers()
    kill(supervisor, keeper, pid)
    # Another process has that number after a start: the one of this test, as good as any.
    bench.file("begun").write_text(json.dumps({**bench.begun(), "boot": "another", "pid": os.getpgid(0)}))
    assert job.state().phase is Phase.LOST
    assert bench.start("echo again").state().phase is Phase.LOST
    assert output(job)[0] == ""


def test_a_shutdown_that_ends_command_and_keeper_is_no_exit_of_the_command(bench):
    job = bench.start("exec sleep 1000")
    pid = bench.begun()["pid"]
    keeper, supervisor = bench.watchers()
    for one in (pid, keeper, supervisor):  # as a system does that goes down
        os.kill(one, signal.SIGTERM)
    assert ended(job).phase is Phase.LOST


# -- starts


def test_two_starts_at_once_begin_it_once(bench, server):
    script = "echo began >> $HOME/began; sleep 0.2"
    barrier, faults = threading.Barrier(4), []

    def one():
        try:
            with connect(server.target, timeout=10) as own:
                barrier.wait(20)
                bench.start(script, job=RemoteJob(own, "job-0123456789", 1))
        except Exception as error:  # noqa: BLE001  (the test says it)
            faults.append(error)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    ended(bench.job())
    assert (bench.home / "began").read_text() == "began\n"


def killed_at(bench, server, moment, job):
    """Start an attempt and kill every process that the machine has, so many seconds after its first one."""

    def begin():
        with contextlib.suppress(Unreachable), connect(server.target, timeout=10) as own:
            bench.start("echo began >> $HOME/began; sleep 0.2", job=RemoteJob(own, job.job, 1), setup="sleep 0.1")

    thread = threading.Thread(target=begin)
    thread.start()
    wait_for(bench.processes)
    end = time.monotonic() + moment
    wait_for(lambda: time.monotonic() > end)
    for pid in bench.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    thread.join(30)


def killed_and_carried_on(bench, server, moments):
    seen_phases = set()
    for number, moment in enumerate(moments):
        job = bench.job(1, f"job-{number:010x}")
        (bench.home / "began").write_text("")
        killed_at(bench, server, moment, job)
        while (seen := job.state()).phase not in (Phase.EXITED, Phase.LOST):
            bench.start("echo began >> $HOME/began; sleep 0.2", job=job, setup="sleep 0.1")
        count = (bench.home / "began").read_text().count("began")
        assert count <= 1, (moment, seen)
        assert seen.phase is Phase.LOST or (seen.exit.status, seen.exit.reason, count) == (0, "exited", 1), moment
        seen_phases.add(seen.phase)
    return seen_phases


def test_whenever_a_start_is_killed_it_can_be_made_again_and_the_command_begins_once(bench, server):
    killed_and_carried_on(bench, server, [0.05, 0.25, 0.45])


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_at_thirty_moments_a_start_is_killed_and_the_command_begins_once(bench, server):
    phases = killed_and_carried_on(bench, server, [random.uniform(0, 0.8) for _ in range(30)])
    assert phases == {Phase.EXITED, Phase.LOST}  # before it began, and after


def test_a_start_that_died_before_the_command_began_can_be_made_again(bench):
    job = bench.start("echo ran", setup="echo $$; exec sleep 1000")
    pid = int(wait_for(lambda: bench.file("setup.log").exists() and bench.file("setup.log").read_text().strip()))
    keeper = parent(pid)
    kill(keeper)
    wait_for(lambda: not lives(pid))  # the supervisor ends what the keeper cannot
    wait_for(lambda: job.state().phase is Phase.ABSENT)
    bench.start("echo ran")
    assert ended(job).exit.status == 0
    assert output(job)[0] == "ran\n"


@pytest.mark.soak
def test_an_attempt_that_has_ended_is_not_begun_again_and_the_next_number_is(bench):
    job = bench.start("echo one >> $HOME/ran")
    first = ended(job)
    assert bench.start("echo two >> $HOME/ran").state().exit == first.exit
    ended(bench.start("echo three >> $HOME/ran", job=bench.job(2)))
    assert (bench.home / "ran").read_text() == "one\nthree\n"


@pytest.mark.soak
def test_what_a_machine_never_heard_of_is_absent(bench):
    seen = bench.job().state()
    assert (seen.phase, seen.exit, seen.out) == (Phase.ABSENT, None, 0)
    assert seen.free_disk_bytes > 0
    assert bench.job().cancel("cancelled").phase is Phase.ABSENT
    assert output(bench.job(), follow=True) == ("", "")


# -- output


def test_a_follower_sees_each_line_as_it_is_written(bench):
    job = bench.start("echo one; until [ -e $HOME/go ]; do sleep 0.02; done; echo two")
    out = BytesIO()
    thread = threading.Thread(target=job.tail, args=(out, BytesIO()), kwargs={"follow": True})
    thread.start()
    wait_for(lambda: out.getvalue() == b"one\n")
    (bench.home / "go").touch()
    thread.join(20)
    assert out.getvalue() == b"one\ntwo\n"


def test_a_tail_goes_on_where_the_last_one_ended(bench):
    job = bench.start("echo one; until [ -e $HOME/go ]; do sleep 0.02; done; echo two; echo bad >&2")
    out, err = BytesIO(), BytesIO()
    wait_for(lambda: job.state().out == 4)
    left = job.tail(out, err)
    assert (left.out, left.err, left.phase) == (4, 0, Phase.RUNNING)
    (bench.home / "go").touch()
    left = job.tail(out, err, out_from=left.out, err_from=left.err, follow=True)
    assert (out.getvalue(), err.getvalue()) == (b"one\ntwo\n", b"bad\n")
    assert (left.out, left.err, left.phase) == (8, 4, Phase.EXITED)


def test_since_leaves_out_what_was_written_before(bench):
    job = bench.start("echo old; until [ -e $HOME/go ]; do sleep 0.02; done; echo new")
    wait_for(lambda: bench.file("times").exists() and bench.file("times").read_text().endswith("\n"))
    read_journal = float(bench.file("times").read_text().split()[0])
    (bench.home / "go").touch()
    ended(job)
    assert output(job, out_from=job.offsets_at(read_journal + 0.001)[0])[0] == "new\n"
    assert output(job, out_from=job.offsets_at(read_journal - 3600)[0])[0] == "old\nnew\n"


def test_the_index_of_times_comes_piece_by_piece_and_has_all_of_the_output(bench):
    job = bench.start("echo one; until [ -e $HOME/go ]; do sleep 0.02; done; echo two")
    wait_for(lambda: job.state().out == 4)
    first = job.output_times(0)
    assert first.splitlines()[-1].split()[1:] == [b"4", b"0"]
    assert job.offsets_at(time.time()) == (4, 0)
    (bench.home / "go").touch()
    ended(job)
    sizes = [tuple(line.split()[1:]) for line in (first + job.output_times(len(first))).splitlines()]
    # The supervisor notes the same by itself, before or after the first look.
    assert [size for size, _ in itertools.groupby(sizes)] == [(b"4", b"0"), (b"8", b"0")]
    assert bench.job(7).output_times(0) == b""


@pytest.mark.soak
def test_a_follower_that_goes_away_leaves_no_process_behind(bench, server):
    job = bench.start("exec sleep 1000")
    bench.begun()
    before = set(bench.processes())
    with connect(server.target, timeout=10) as own:
        fault = []

        def follow():
            try:
                RemoteJob(own, job.job, 1).tail(BytesIO(), BytesIO(), follow=True)
            except Unreachable as error:
                fault.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        wait_for(lambda: set(bench.processes()) - before)
    thread.join(20)
    assert fault
    wait_for(lambda: not set(bench.processes()) - before)


# -- what it says of itself


PROGRESS = [
    ('{"done": 3, "of": 10}', (3.0, 10.0)),
    ('{"done": 0.5}', (0.5, None)),
    ('{"done": "3", "of": 10}', None),
    ('{"done": true}', None),
    ('{"done": 1e999}', None),
    ('{"done": NaN}', None),
    ("[1, 2]", None),
    ('{"done": 3', None),
    ('{"done": 3, "x": "' + 5000 * "y" + '"}', None),
]


@pytest.mark.soak
def test_progress_is_two_finite_numbers_or_nothing(bench):
    job = bench.start("true")
    ended(job)
    for text, progress in PROGRESS:
        bench.file("progress.json").write_text(text)
        assert job.state().progress == progress, text


def test_a_job_is_removed_only_when_it_has_ended(bench):
    job = bench.start("until [ -e $HOME/go ]; do sleep 0.02; done")
    bench.begun()
    with pytest.raises(InvalidRequest, match="still runs"):
        job.clean()
    (bench.home / "go").touch()
    ended(job)
    job.clean()
