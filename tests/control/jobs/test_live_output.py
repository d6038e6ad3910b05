"""What a command writes is shown while it runs: soon, and each byte once, whatever becomes of the connection."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from io import BytesIO

import psutil
import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.control.jobs import follow as following, reconcile
from cloudgpu.control.jobs.cancel import request_cancel
from cloudgpu.control.jobs.follow import follow
from cloudgpu.control.jobs.logs import logs
from cloudgpu.core.jobs.job import State
from cloudgpu.errors import InvalidRequest, Unreachable, WrongHostKey
from tests.access.sshserver import wait_for
from tests.control.jobs.bench import Bench
from tests.control.jobs.test_local_life import desk  # noqa: F401  (a fixture)

SAYS_WHEN = "import time\nfor _ in range(20):\n    print(time.time(), flush=True)\n    time.sleep(0.06)"
COUNTS = """
import itertools, os, sys, time
for one in itertools.count():
    print(one, file=sys.stdout, flush=True)
    print(one, file=sys.stderr, flush=True)
    if one % 100 == 0:
        time.sleep(0.01)
        if os.path.exists(sys.argv[1]):
            break
"""


class Timed(BytesIO):
    """Notes when each line came."""

    def __init__(self):
        super().__init__()
        self.late = []

    def write(self, data):
        now = time.time()
        self.late += [now - float(line) for line in bytes(data).split()]
        return super().write(data)


def python(desk, text, *words):  # noqa: F811
    return desk.begun(sys.executable, "-c", text, *words, on="desk")


def test_what_only_its_user_can_mend_is_said_with_the_way_out(desk, monkeypatch):  # noqa: F811
    """A full disk, say: the job begins as soon as that is mended."""
    begin, faults = (
        reconcile.start_command,
        [InvalidRequest("The disk of desk is full.", field="--disk", next="Free space.")],
    )

    def start(*args):
        if faults:
            raise faults.pop()
        return begin(*args)

    monkeypatch.setattr(reconcile, "start_command", start)
    monkeypatch.setattr(following, "MAX_PAUSE_S", 0.01)
    job = follow(desk.session, python(desk, "print()"), desk.environ, stdout=BytesIO(), stderr=BytesIO())
    assert job.state is State.SUCCEEDED
    assert f"{job.name}: The disk of desk is full. Free space." in desk.said


def test_a_line_is_shown_within_a_tenth_of_a_second(desk):  # noqa: F811
    seen = Timed()
    job = follow(desk.session, python(desk, SAYS_WHEN), desk.environ, stdout=seen, stderr=BytesIO())
    assert job.state is State.SUCCEEDED
    assert len(seen.late) == 20
    late = sorted(seen.late[2:])  # the first may have been written before anything followed it
    assert late[len(late) // 2] < 0.1, late


class Cuts(BytesIO):
    """Closes the connections to this computer's machines after so many bytes, a few times; makes a file after that."""

    def __init__(self, every, most, done):
        super().__init__()
        self._every, self._left, self._since, self._done = every, most, 0, done

    def write(self, data):
        self._since += len(data)
        if self._left and self._since > self._every:
            self._since, self._left = 0, self._left - 1
            cut()
        if not self._left:
            self._done.touch()
        return super().write(data)


def cut():
    """Shut the sockets over which this process talks SSH."""
    for thread in threading.enumerate():
        sock = getattr(thread, "sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(2)


def test_a_connection_that_is_cut_loses_no_byte_and_doubles_none(desk, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setattr(following, "RETRY_S", 0.01)
    done = tmp_path / "done"
    out, err = Cuts(20_000, 4, done), BytesIO()
    job = follow(desk.session, python(desk, COUNTS, str(done)), desk.environ, stdout=out, stderr=err)
    assert (job.state, done.exists()) == (State.SUCCEEDED, True)
    lines = out.getvalue().split()
    assert lines == [b"%d" % one for one in range(len(lines))]
    assert err.getvalue() == out.getvalue()
    path = desk.home / "jobs" / job.id / "out-1"
    assert path.read_bytes() == out.getvalue()


def copy_of(bench, job, text):
    """Write what this home has of a job's output."""
    path = bench.home / "jobs" / job.id / "out-1"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def test_what_follows_a_cut_is_read_from_the_copy_and_nothing_is_shown_twice(desk, tmp_path):  # noqa: F811
    job = python(desk, "import time\nprint(*range(1_000_000), sep='\\n', flush=True)\ntime.sleep(60)")
    desk.running(job)
    text = b"".join(b"%d\n" % one for one in range(1_000_000))
    (written,) = desk.home.rglob(f"jobs/{job.id}/1/out")
    wait_for(lambda: written.stat().st_size == len(text))
    copy_of(desk, job, text)
    out = Cuts(20_000, 1, tmp_path / "done")
    logs(desk.session, desk.now(job), out, BytesIO())
    assert out.getvalue() == text
    assert desk.said[-1].endswith("This is the copy that was last fetched.")
    (desk.home / "jobs" / job.id / "out-1").unlink()
    with pytest.raises(Unreachable, match="was lost"):
        logs(desk.session, desk.now(job), Cuts(20_000, 1, tmp_path / "done"), BytesIO())
    request_cancel(desk.session, desk.now(job))
    assert desk.followed(job)[0].state is State.CANCELLED


def test_a_machine_whose_key_is_not_the_pinned_one_is_an_error_and_no_copy_is_shown(desk):  # noqa: F811
    job = python(desk, "import time\nprint('one', flush=True)\ntime.sleep(60)")
    desk.running(job)
    copy_of(desk, job, b"one\n")
    hosts, machine, out = desk.session.home.known_hosts, desk.machine_of(job), BytesIO()
    key = client_files.pinned(hosts, machine.id)
    client_files.unpin(hosts, machine.id)
    with pytest.raises(WrongHostKey):
        logs(desk.session, desk.now(job), out, BytesIO())
    assert out.getvalue() == b""
    client_files.pin(hosts, machine.id, key)
    request_cancel(desk.session, desk.now(job))
    assert desk.followed(job)[0].state is State.CANCELLED


@pytest.mark.soak
def test_of_a_machine_that_is_gone_without_our_doing_the_copy_is_shown(tmp_path):
    bench = Bench(tmp_path)
    try:
        job = bench.begun("sh", "-c", "echo one; sleep 60")
        bench.running(job)
        bench.takes(job)
        copy_of(bench, job, b"one\n")
        out = BytesIO()
        logs(bench.session, bench.now(job), out, BytesIO())
        assert out.getvalue() == b"one\n"
    finally:
        bench.end()


def test_while_nobody_reads_ctrl_c_ends_the_following_and_the_rest_is_shown_once_by_the_next(desk):  # noqa: F811
    from cloudgpu.cli.jobs.run import WriteOnce

    read, write = os.pipe()
    stream, job = WriteOnce(write), python(desk, "print('x' * 300_000 + 'end')")
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        follow(desk.session, job, desk.environ, stdout=stream.rewound(), stderr=BytesIO())
    got = bytearray()
    reader = threading.Thread(target=lambda: [got.extend(part) for part in iter(lambda: os.read(read, 65536), b"")])
    reader.start()
    job = follow(desk.session, job, desk.environ, stdout=stream.rewound(), stderr=BytesIO())
    os.close(write)
    reader.join(10)
    os.close(read)
    assert (job.state, bytes(got)) == (State.SUCCEEDED, b"x" * 300_000 + b"end\n")


def test_a_reader_that_went_away_is_an_error_of_the_following_and_none_of_the_job(desk):  # noqa: F811
    read, write = os.pipe()
    os.close(read)
    job = python(desk, "import time\nprint('one', flush=True)\ntime.sleep(60)")
    with os.fdopen(write, "wb", 0) as gone, pytest.raises(BrokenPipeError):
        follow(desk.session, job, desk.environ, stdout=gone, stderr=BytesIO())
    assert desk.now(job).state is State.RUNNING
    request_cancel(desk.session, desk.now(job))
    assert desk.followed(job)[0].state is State.CANCELLED


def test_nothing_is_left_of_the_programs_that_answered(desk):  # noqa: F811
    desk.run("true", on="desk")
    assert here(desk)  # the machine's own agent, at least
    wait_for(lambda: not [one for one in here(desk) if "take(int" in one])


def here(bench):
    """Return the command lines of the processes whose home is in that of this test: others run the same programs."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.environ().get("HOME", "").startswith(str(bench.home)):
                found.append(" ".join(one.cmdline()))
    return found
