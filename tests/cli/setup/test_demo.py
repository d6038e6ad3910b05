"""The demo ends its machine whatever becomes of its terminal, or of itself: real signals, a real terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudgpu.cli.setup.demo import NOTEBOOK_CELL

ROOT = Path(__file__).parents[3]
PATIENCE_S = 100


@pytest.fixture
def place(tmp_path):
    """A directory as `make demo` wants it, with the `cloudgpu` of this checkout."""
    program = tmp_path / ".venv" / "bin" / "cloudgpu"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cloudgpu "$@"\n')
    program.chmod(0o755)
    (tmp_path / ".venv" / ".made-in").write_text(f"{tmp_path}\n")
    return tmp_path


COMMANDS = {
    "cloudgpu": [".venv/bin/cloudgpu", "demo"],
    "make": ["make", "--file", str(ROOT / "Makefile"), "--old-file", ".venv/.demo-installed", "demo"],
}


OWN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"


def begin(argv, place):
    """Start a command on a terminal of its own, as a window would; return it with the window's end of that."""
    ours, theirs = pty.openpty()
    environ = os.environ | {"TMPDIR": str(place)}
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(
        [sys.executable, "-c", OWN, *argv], cwd=place, env=environ, start_new_session=True, **streams
    )
    os.close(theirs)
    return process, ours


def read_until(ours, text):
    """Read what it prints until `text` is there."""
    said, end = "", time.monotonic() + PATIENCE_S
    while text not in said:
        assert time.monotonic() < end, said
        said += os.read(ours, 4096).decode(errors="replace")
    return said


def running_in(place):
    """The processes that were started below this directory and live."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(place).encode() in (process / "environ").read_bytes() and int(process.name) != os.getpid():
                found.append((process / "cmdline").read_bytes())
    return found


def left(place):
    return [one.name for one in place.iterdir() if one.name != ".venv"]


LOSES = """
import os, signal
from cloudgpu.cli.setup import demo

class Lost:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):  # the handler runs in here, and what it raises is ignored
            pass

signal.signal(signal.SIGTERM, demo._on_end_signal)
story = demo._Narrator(demo.Format.TEXT)
story.step("before")
Lost()
print("the signal was lost", flush=True)
story.step("after")
"""


def test_a_signal_whose_interrupt_is_lost_in_a_finalizer_ends_it_at_the_next_step():
    done = subprocess.run([sys.executable, "-c", LOSES], capture_output=True, text=True, check=False, timeout=60)
    assert "the signal was lost" in done.stdout
    assert "after" not in done.stdout
    assert done.returncode != 0
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")


FAILS = """
from cloudgpu import underway
from cloudgpu.cli.setup import demo
from cloudgpu.errors import StopUnproved

def run(session, narrator):
    raise StopUnproved("The demo left something behind.", field="demo")

demo._run_demo = run
try:
    demo.command()
except StopUnproved as error:
    print(error.next)
    print(underway.abort_message())
"""


def test_what_a_demo_has_left_stays_to_be_reported(tmp_path):
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FAILS], env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    (home,) = tmp_path.iterdir()
    assert done.stdout.splitlines() == [
        f"Please report this, with what is in {home}.",
        f"Interrupted. The demo's machine is ended, and its files are in {home}.",
    ]


def test_a_demo_that_cannot_begin_leaves_no_directory(tmp_path):
    environ = os.environ | {"TMPDIR": str(tmp_path), "CLOUDGPU_DEADMAN": "nonsense"}
    begin = [sys.executable, "-m", "cloudgpu", "demo"]
    done = subprocess.run(begin, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="what was left is looked for in /proc")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("end", ["its terminal is closed", "it is told to end"])
def test_a_demo_that_is_cut_short_ends_its_machine(place, command, end):
    process, ours = begin(COMMANDS[command], place)
    try:
        read_until(ours, "runs at 127.0.0.1")
        if end == "it is told to end":
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(OSError):  # the terminal ends with its last process
                while os.read(ours, 4096):
                    pass
    finally:
        os.close(ours)  # the kernel hangs up on whoever still has it
    assert process.wait(PATIENCE_S) != 0
    assert left(place) == []
    assert running_in(place) == []


def test_the_cell_that_it_shows_fits_a_terminal():
    assert max(len(f"          {line}") for line in NOTEBOOK_CELL.splitlines()) <= 80
