"""The examples run as they are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import psutil
import pytest

from tests.cli.program import until

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTED = {"first-notebook.sh", "spend.sh"}


@pytest.fixture
def environ(tmp_path):
    """A `cloudgpu` on PATH that is this checkout's, and a place of its own for everything an example makes."""
    place = tmp_path / "bin"
    place.mkdir()
    program = place / "cloudgpu"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cloudgpu "$@"\n')
    program.chmod(0o755)
    (tmp_path / "made").mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CLOUDGPU_")}
    return kept | {"PATH": f"{place}:{kept['PATH']}", "TMPDIR": str(tmp_path / "made"), "HOME": str(tmp_path)}


def run(example: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    argv = ["sh", str(EXAMPLES / example)]
    return subprocess.run(argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def processes_in(place: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if place in " ".join([*process.cmdline(), *process.environ().values()]):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_the_first_notebook_is_opened_and_nothing_is_left(environ):
    done = run("first-notebook.sh", environ)
    assert done.returncode == 0, done.stderr
    assert "Jupyter on notebook: http://127.0.0.1:" in done.stdout
    assert "hello.ipynb" in done.stdout
    assert "notebook is gone" in done.stdout
    assert list(Path(environ["TMPDIR"]).iterdir()) == []
    assert until(lambda: not processes_in(environ["TMPDIR"])), "a process of the example lives on"


def test_a_command_that_fails_ends_the_machine_too(environ, tmp_path):
    broken = tmp_path / "broken.sh"
    broken.write_text((EXAMPLES / "first-notebook.sh").read_text().replace("-- ls", "-- sh -c 'exit 7'"))
    done = run(str(broken), environ)
    assert done.returncode == 7, done.stderr
    assert "notebook is gone" in done.stdout
    assert list(Path(environ["TMPDIR"]).iterdir()) == []


def test_spend_is_one_line_of_json(environ, own_home):
    done = run("spend.sh", environ | {"CLOUDGPU_HOME": str(own_home)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert Decimal(json.loads(done.stdout)["total_usd"]) == 0


def test_a_spend_that_fails_says_so(environ, own_home):
    (own_home / "config.toml").write_text("lease = 8")
    done = run("spend.sh", environ | {"CLOUDGPU_HOME": str(own_home)})
    assert (done.returncode, done.stdout) == (2, "")


def test_every_example_is_run_here():
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == TESTED
