"""`--help` and `ls` start fast because of what they do not import and do not read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cli_start import fill
from cloudgpu.cli.app import run

HEAVY = """
boto3 botocore google azure msal paramiko asyncssh cryptography pydantic apscheduler jinja2 yaml rich plotext psutil
jupyter_client websocket asyncio importlib.metadata tomllib tomlkit hashlib concurrent.futures
""".split()

MOST_MODULES, MOST_PACKAGES = 56, 24  # of ours that `ls` loads
ROOT = Path(__file__).parents[2]

CHILD = """
import json, sqlite3, sys
statements, connect = [], sqlite3.connect

def traced(*args, **more):
    connection = connect(*args, **more)
    connection.set_trace_callback(statements.append)
    return connection

sqlite3.connect = traced
before = set(sys.modules)
from cloudgpu.cli.app import run
try:
    code = run(sys.argv[1:])
except SystemExit as end:
    code = end.code or 0
json.dump({"code": code, "modules": sorted(set(sys.modules) - before), "statements": statements}, sys.stderr)
"""


def seen(home, *args):
    """What a command imported and asked SQLite, in a process of its own."""
    environ = os.environ | {"CLOUDGPU_HOME": str(home)}
    argv = [sys.executable, "-c", CHILD, *args]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=True)
    told = json.loads(done.stderr)
    assert told["code"] == 0, done.stdout
    return done.stdout, told


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("filled")
    fill(home, machines=12, lines=240)
    return home


@pytest.mark.parametrize("args", [["--help"], ["ls"], ["ls", "-o", "json"]], ids=" ".join)
def test_no_heavy_library_is_imported(args, home):
    _, told = seen(home, *args)
    assert "cloudgpu.cli.app" in told["modules"]
    assert not set(HEAVY) & set(told["modules"])
    roots = {name.partition(".")[0] for name in told["modules"]}
    assert not set(HEAVY) & roots


def test_help_imports_no_verb_and_no_room_of_ours(home):
    _, told = seen(home, "--help")
    ours = {name for name in told["modules"] if name.startswith("cloudgpu")}
    assert ours == {
        "cloudgpu",
        "cloudgpu.cli",
        "cloudgpu.cli.app",
        "cloudgpu.cli.help",
        "cloudgpu.cli.interrupt",
        "cloudgpu.cli.parser",
        "cloudgpu.cli.terminal",
        "cloudgpu.cli.verbs",
        "cloudgpu.errors",
    }


@pytest.mark.parametrize("args", [["ls"], ["ls", "-a", "-o", "json"], ["ls", "--mine", "-v"]], ids=" ".join)
def test_ls_imports_only_its_own_answer_and_no_parser(args, home):
    _, told = seen(home, *args)
    assert "typer" not in told["modules"]
    if "-v" in args:
        return
    imported = {name.removeprefix("cloudgpu.cli.") for name in told["modules"] if name.startswith("cloudgpu.cli.")}
    assert imported == {
        "app",
        "interrupt",
        "machines",
        "machines.listing",
        "output",
        "render",
        "terminal",
    }


@pytest.mark.parametrize(
    "options",
    ["", "-a", "--all", "--mine", "-v", "--verbose --all --mine", "-a -a", "-o json", "-v -a --output json"],
)
def test_ls_says_the_same_with_and_without_the_parser(options, home, monkeypatch, capsys):
    monkeypatch.setenv("CLOUDGPU_HOME", str(home))
    answers = []
    for words in (["ls", *options.split()], ["list", *options.split()]):  # the other word takes the parser
        assert run(words) == 0
        answers.append(re.sub(r"\d+(\.\d+)?", "?", capsys.readouterr().out).split())  # time goes on meanwhile
    assert answers[0] == answers[1]


@pytest.mark.parametrize("args", [["ls"], ["ls", "-o", "json"]], ids=" ".join)
def test_ls_loads_at_most_56_modules_of_ours(args, home):
    _, told = seen(home, *args)
    ours = [name for name in told["modules"] if name.partition(".")[0] == "cloudgpu"]
    package = [name for name in ours if (ROOT / name.replace(".", "/") / "__init__.py").exists()]
    modules = sorted(set(ours) - set(package))
    assert "cloudgpu" in package
    assert len(modules) <= MOST_MODULES, modules
    assert len(package) <= MOST_PACKAGES, package  # a package is a line of text; each is a file to read all the same


def without_numbers(statement):
    return re.sub(r"seq = \d+|'[0-9-]+T[0-9:.]+Z'", "?", statement)


def test_ls_reads_the_projection_however_long_the_history_is(home, tmp_path):
    fill(tmp_path, machines=12, lines=13)
    (long, told), (short, told_of_short) = seen(home, "ls"), seen(tmp_path, "ls")
    # Only the head record's line and the present differ.
    assert [without_numbers(one) for one in told["statements"]] == [
        without_numbers(one) for one in told_of_short["statements"]
    ]
    assert "machine-11" in long
    assert "machine-11" in short
    of_lines = [asked for asked in told["statements"] if re.search(r"\bline\b", asked)]
    # When the accounts were last looked at, wholly and in part, when a pass last succeeded, whether the ledger is in
    # doubt, whether it has moved, where it ends (rows that were read at that end are read once): a row each, found by
    # an index.
    assert len(of_lines) <= 9, of_lines
    assert all(re.search(r"LIMIT 1$|seq = \d+$|^SELECT max", asked.strip()) for asked in of_lines), of_lines


def test_cost_by_project_reads_rows_and_no_history(home):
    out, told = seen(home, "cost", "--by", "project")
    assert "total" in out
    read = [asked for asked in told["statements"] if re.search(r"\bFROM ended_usage\b", asked)]
    assert read == []
    of_lines = [asked for asked in told["statements"] if re.search(r"\bFROM line\b", asked)]
    assert all(re.search(r"LIMIT 1$|seq = \d+$|^SELECT max|subject = 'budgets'", one.strip()) for one in of_lines), (
        of_lines
    )
    roots = {name.partition(".")[0] for name in told["modules"]}
    assert not {"boto3", "botocore", "google", "azure", "paramiko", "jinja2", "rich", "psycopg"} & roots


def test_a_run_of_the_reaper_loads_what_carries_jobs_on_only_where_there_is_one(tmp_path):
    """Else that is an eighth of the CPU time of a small run."""
    (tmp_path / "config.toml").write_text('provider = "local"\n')
    _, told = seen(tmp_path, "reap")
    assert "cloudgpu.control.jobs.watch" in told["modules"]
    assert not {"cloudgpu.control.jobs.reconcile", "cloudgpu.control.inputs.launch_request"} & set(told["modules"])
