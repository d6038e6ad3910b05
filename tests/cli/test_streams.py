"""stdin, stdout and stderr that were closed, or that take nothing: one sentence or none, never a defect."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest

from cloudgpu import underway
from cloudgpu.cli.interrupt import report_leftovers
from tests.cli.program import Program


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path / "home")


def shell(program, line, *words):
    """Run a line of the shell in which "$@" is the program with these words."""
    argv = ["sh", "-c", line, "sh", *program.argv(*words)]
    return subprocess.run(argv, env=program.env(), capture_output=True, text=True, timeout=60, check=False)


def test_no_file_takes_the_place_of_a_stream_that_was_closed(program):
    done = shell(program, '"$@" <&- >&- 2>&-', "budget", "set", "lab", "--amount", "5", "--period", "month")
    assert done.returncode == 0
    found = json.loads(shell(program, '"$@"', "budget", "ls", "-o", "json").stdout)
    assert [one["name"] for one in found["budgets"]] == ["lab"]
    assert shell(program, '"$@"', "cost", "--verify").returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_answer_is_shown_escaped_where_the_terminal_lacks_its_characters(tmp_path, encoding):
    program = Program(tmp_path / "home", {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
    program.config('owner = "지수é"\nproject = "x"\n')
    listed = program("ls", "--mine")
    assert (listed.code, listed.out[:26]) == (0, "No machine of \\uc9c0\\uc218")
    document = program("cost", "--owner", "지수é😀", "-o", "json")
    assert (document.code, document.json["owner"]) == (0, "지수é😀")
    plan = program("up", "--provider", "local", "--dry-run", "-o", "json")
    assert (plan.code, plan.json["plan"]["owner"]) == (0, "지수é")


def test_a_report_is_utf_8_in_every_encoding_of_the_terminal(tmp_path):
    program = Program(tmp_path / "home", {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    page = program("report", "--to", "-").out
    assert not page.isascii()
    assert "\\x" not in page
    assert "\\u" not in page


@pytest.mark.soak
def test_an_answer_that_nobody_takes_is_no_defect(program):
    done = shell(program, '"$@" >&-', "cost")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")  # noqa: PTH110
@pytest.mark.parametrize("words", [("ls", "-o", "json"), ("cost",), ("cost", "--by", "nothing", "-o", "json")])
def test_a_full_disk_is_told_on_stderr(program, words):
    done = shell(program, '"$@" > /dev/full', *words)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "refused: No space left on device" in done.stderr or "is not a valid group of costs" in done.stderr


def test_what_an_interruption_leaves_is_told_in_whole_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(underway, "_abort_messages", {})
    own, side = pty.openpty()
    with os.fdopen(side, "w") as terminal, os.fdopen(own, "rb", 0) as reader:
        monkeypatch.setattr("sys.stderr", terminal)
        with pytest.raises(KeyboardInterrupt), underway.on_abort("The launch of fox may be accepted: " + "word " * 20):
            raise KeyboardInterrupt
        report_leftovers()
        terminal.flush()
        lines = reader.read(4096).decode().split("\r\n")
    assert max(map(len, lines)) <= 80
    assert {line.split()[-1] for line in lines if line} == {"word"}
