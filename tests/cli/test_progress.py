"""What is shown on a terminal while something goes on: in a real one, and by a clock that the test holds."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from cloudgpu.cli import progress
from cloudgpu.cli.app import run
from cloudgpu.cli.common import tell
from cloudgpu.cli.progress import SILENT_S, TURN_S, Spinner, Transfer
from cloudgpu.parallel import Pool
from tests.cli.people import seen_on_terminal

ROOT = Path(__file__).parents[2]
SLOW = """
import sys, time
from cloudgpu.cli import progress
from cloudgpu.cli.common import tell
with progress.show_spinner("up"):
    tell("waiting for SSH")
    time.sleep({slept})
    sys.stdout.write("ready\\n")
"""


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    clock, stream = Clock(), io.StringIO()
    return Spinner(stream, "up", now=clock), clock, stream


def after(clock, spinner, seconds):
    clock.now += seconds
    spinner.draw()


def test_nothing_is_shown_within_half_a_second_of_output_and_something_within_one(made):
    spinner, clock, stream = made
    after(clock, spinner, 0.45)
    assert stream.getvalue() == ""
    after(clock, spinner, 0.2)
    assert "0 s  up" in stream.getvalue()
    assert SILENT_S + 2 * TURN_S < 0.8, "the rest of the second is for the start of the program"


def test_it_counts_what_is_asked_side_by_side_from_each_step_on(made):
    spinner, clock, stream = made
    spinner.begin("ls, looking at your machines")
    with Pool(2, "regions") as pool, Pool(1) as uncounted:
        uncounted.submit(int)
        first, gate = pool.submit(int), Event()
        rest = [pool.submit(gate.wait) for _ in range(2)]
        first.result()
        after(clock, spinner, 2)
        assert stream.getvalue().endswith(" 2 s  ls, looking at your machines: 1 of 3 regions")
        spinner.begin("asking again")
        gate.set()
        assert all(one.result() for one in rest)
    after(clock, spinner, 2)
    assert stream.getvalue().endswith(" 2 s  asking again"), "what has ended is of the step before"


def test_the_line_is_cleared_before_what_is_said(made):
    spinner, clock, stream = made
    after(clock, spinner, 3)
    spinner.write(stream, "done\n")
    assert stream.getvalue().endswith("\r\x1b[Kdone\n")


def test_a_question_is_left_alone(made):
    spinner, clock, stream = made
    spinner.write(stream, "Launch it? [y/N] ")
    after(clock, spinner, 30)
    assert stream.getvalue() == "Launch it? [y/N] "
    spinner.begin("")  # it was answered
    after(clock, spinner, 2)
    assert stream.getvalue().endswith(" 2 s  up")


def test_seconds_are_those_of_the_step_and_a_long_one_ends_at_a_word(made):
    spinner, clock, stream = made
    clock.now = 40
    spinner.begin("waiting until the machine shows the host key that was made for it at its launch")
    after(clock, spinner, 2)
    line = stream.getvalue().removeprefix("\r\x1b[K")
    assert line[1:].startswith(" 2 s  waiting until the machine shows")
    assert line.endswith(" ..")
    assert len(line) < 60


def test_a_copy_shows_its_rate_and_the_time_left_and_a_small_one_nothing(made):
    spinner, clock, stream = made
    transfer = Transfer(now=clock, show_detail=spinner.show_detail)
    spinner.begin("copying")
    transfer.show(1_000, 999_999)
    after(clock, spinner, 0.1)
    assert stream.getvalue() == ""
    transfer.show(0, 2_500_000_000)
    after(clock, spinner, 0.1)
    assert stream.getvalue().endswith("copying: 0.0 of 2.5 GB"), "no rate is known yet"
    clock.now += 9.9
    transfer.show(500_000_000, 2_500_000_000)
    after(clock, spinner, 0.1)
    assert stream.getvalue().endswith("copying: 0.5 of 2.5 GB, 50.0 MB/s, 40s left")
    clock.now += 5
    transfer.show(2_500_000_000, 2_500_000_000)
    spinner.draw()
    assert stream.getvalue().endswith("2.5 of 2.5 GB, 392.2 MB/s"), "by the last seconds, which were faster"
    spinner.begin("")
    after(clock, spinner, 0.1)
    assert stream.getvalue().endswith("MB/s"), "the next step says nothing at once"


def test_nothing_is_drawn_after_the_end(made):
    spinner, clock, stream = made
    spinner.stop()
    after(clock, spinner, 30)
    assert "up" not in stream.getvalue()


def said(slept, **environ):
    """What a terminal gets from a command that takes so long."""
    argv = [sys.executable, "-c", SLOW.format(slept=slept)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"} | environ
    return seen_on_terminal(argv, env)


def test_a_real_terminal_sees_it_and_is_left_clean():
    text = said(1.6)
    assert " 1 s  waiting for SSH" in text
    assert text.endswith("\x1b[Kready\r\n")


def test_the_line_is_cleared_before_a_pipe_is_written_whose_reader_shows_it_on_the_terminal(monkeypatch):
    order, terminal = [], io.StringIO()
    terminal.isatty, pipe = lambda: True, io.StringIO()
    for name, stream in (("err", terminal), ("out", pipe)):
        stream.write = lambda text, name=name: order.append((name, text))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", pipe)
    with progress.show_spinner("doctor"):
        progress._active_spinners[-1]._drawn = True
        sys.stdout.write("{}")
    assert order[:2] == [("err", "\r\x1b[K"), ("out", "{}")]


def test_a_dumb_terminal_sees_only_what_is_said():
    assert said(1.6, TERM="dumb") == "  waiting for SSH\r\nready\r\n"


def test_a_pipe_sees_only_what_is_said():
    done = subprocess.run(
        [sys.executable, "-c", SLOW.format(slept=1.6)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"},
        capture_output=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"ready\n", b"  waiting for SSH\n")


def test_on_a_terminal_sentences_break_between_words(monkeypatch, capsys):
    said = "waiting for the machine to run, as it was launched under another name than the one that is shown here"
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    tell(said)
    assert capsys.readouterr().err == f"  {said}\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    tell(said)
    assert run(["config"]) == 2
    shown = capsys.readouterr().err
    assert max(len(line) for line in shown.splitlines() if len(line.split()) > 1) <= 60
    assert shown.split()[: len(said.split())] == said.split()
