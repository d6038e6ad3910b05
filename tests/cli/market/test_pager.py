"""A list that is longer than the terminal is shown in the user's pager: in a real terminal of that height."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.people import seen_on_terminal

ROOT = Path(__file__).parents[3]
GPUS = [sys.executable, "-m", "cloudgpu", "gpus", "--gpu", "t4"]


def environ(home, **more):
    return os.environ | {"PYTHONPATH": str(ROOT), "CLOUDGPU_HOME": str(home), "TERM": "xterm"} | more


def seen(home, rows, **more):
    """Return what a terminal of so many rows gets of `cloudgpu gpus`; its pager marks each line."""
    return seen_on_terminal(GPUS, environ(home, PAGER="sed s/^/paged:/") | more, rows=rows)


@pytest.mark.soak
def test_a_list_longer_than_the_terminal_is_paged(tmp_path):
    lines = seen(tmp_path, rows=10).rpartition("\x1b[K")[2].splitlines()  # behind what went on before it
    assert len(lines) > 10
    assert all(line.startswith("paged:") for line in lines)


@pytest.mark.parametrize(("rows", "more"), [(500, {}), (10, {"TERM": "dumb"})])
def test_one_that_fits_and_one_on_a_dumb_terminal_are_not(tmp_path, rows, more):
    text = seen(tmp_path, rows, **more)
    assert "T4" in text
    assert "paged:" not in text


def test_a_pipe_gets_the_list_alone(tmp_path):
    done = subprocess.run(GPUS, env=environ(tmp_path, PAGER="false"), capture_output=True, check=True)
    assert b"T4" in done.stdout
    assert done.stderr == b""
