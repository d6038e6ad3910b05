"""What people at a machine's terminals are told, over real SSH, at a real terminal."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cloudgpu.access.ssh.execute import write_to_terminals
from tests.agent.machine import Machine

LONG_AGO = 1_700_000_000_123_456_000


@pytest.fixture
def terminal(server):
    """A terminal at which somebody of this machine sits: (our side, its path)."""
    Machine(server.home).build()
    ours, theirs = os.openpty()
    sits = subprocess.Popen(["sleep", "60"], stdin=theirs, stdout=theirs, env={"HOME": str(server.home)})
    yield ours, os.ttyname(theirs)
    sits.kill()
    sits.wait()
    os.close(ours)
    os.close(theirs)


def test_what_we_say_at_a_terminal_is_no_sign_of_life(server, terminal):
    ours, path = terminal
    os.utime(path, ns=(LONG_AGO + 1, LONG_AGO))
    assert write_to_terminals(server.target, "the end is near", timeout=20) == 1
    assert b"[cloudgpu] the end is near" in os.read(ours, 1000)
    found = Path(path).stat()
    assert (found.st_atime_ns, found.st_mtime_ns) == (LONG_AGO + 1, LONG_AGO)


def test_a_terminal_of_another_machine_is_left_alone(server, terminal):
    ours, _ = terminal
    other = server.home / "other"
    other.mkdir()
    Machine(other).build()
    run = (server.home / ".cloudgpu" / "agent").read_text().replace("exec", f'HOME="{other}" exec')
    (server.home / ".cloudgpu" / "agent").write_text(run.replace("$HOME/", f"{server.home}/"))
    assert write_to_terminals(server.target, "the end is near", timeout=20) == 0
    os.set_blocking(ours, False)
    with pytest.raises(BlockingIOError):
        os.read(ours, 1000)
