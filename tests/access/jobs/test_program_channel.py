"""One program answers many requests over a connection, and is started again when it has died."""

from __future__ import annotations

import threading
from io import BytesIO, StringIO

import pytest

from cloudgpu.access.ssh.transport import SshChannel
from cloudgpu.core.jobs.remote_state import Phase
from tests.access.jobs.conftest import ended, kill, output
from tests.access.sshserver import wait_for


def execs(bench, monkeypatch):
    """Return a list that grows with every program that is started over the connection."""
    seen, run = [], SshChannel.exec_command
    monkeypatch.setattr(SshChannel, "exec_command", lambda self, command: (seen.append(command), run(self, command))[1])
    return seen


def test_many_requests_start_one_program_and_two_at_once_a_second_one(bench, monkeypatch):
    started = execs(bench, monkeypatch)
    job = bench.start("until [ -e $HOME/go ]; do sleep 0.02; done; echo done", files={"a": "1", "b": "2"})
    assert [job.state().phase for _ in range(3)] == [Phase.RUNNING] * 3
    assert job.manifest().files == ()
    assert len(started) == 1
    follower = threading.Thread(target=output, args=(job,), kwargs={"follow": True})
    follower.start()
    wait_for(lambda: not bench.connection.idle_channels)
    job.state()
    (bench.home / "go").touch()
    follower.join(10)
    assert (len(started), len(bench.connection.idle_channels)) == (2, 2)


def test_a_program_that_was_killed_meanwhile_is_started_again(bench, monkeypatch):
    job = bench.job()
    job.state()
    started = execs(bench, monkeypatch)
    kill(*bench.processes())
    assert job.state().phase is Phase.ABSENT
    assert len(started) == 1


def test_an_answer_that_is_not_read_to_its_end_ends_the_program(bench):
    class Refuses(BytesIO):
        def write(self, _data):
            raise PermissionError

    job = bench.start("echo something")
    ended(job)
    with pytest.raises(PermissionError):
        job.tail(Refuses(), BytesIO())
    assert bench.connection.idle_channels == []
    assert output(job)[0] == "something\n"


def test_a_file_that_takes_no_bytes_is_the_callers_error_and_no_fault_of_the_machine(bench):
    closed = BytesIO()
    closed.close()
    job = bench.start("echo something")
    ended(job)
    with pytest.raises(TypeError):
        job.tail(StringIO(), BytesIO())
    with pytest.raises(ValueError, match="closed file"):
        job.tail(closed, BytesIO())
