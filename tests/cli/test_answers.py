"""The questions of all verbs: who says no is told so in one line, and nothing is an error; silence is one."""

from __future__ import annotations

import ast
import json
import os
import pty
import sys
from pathlib import Path

import pytest

import cloudgpu
from cloudgpu.cli.app import run
from cloudgpu.testing import FAKE, write_plugin

ROOM = Path(cloudgpu.__file__).parent / "cli"
NOTHING = "Nothing was done.\n"
ASKING = [
    "up --account lab --gpu v100 --new --name new",
    "stop fox",
    "start owl",
    "extend fox 2h",
    "hold fox 2h",
    "image save fox --name img",
    "image rm kept",
    "spot rehearse imp",
    "down fox",
    "down --all",
    "down fox --lost gone",
    "doctor --live --account lab",
    "budget rm month",
    "ledger restore {home}/copy",
    "ledger move sqlite:///{home}/elsewhere.db",
    "cron install --crontab",
    "init --forget spare",
    "init --rename spare other",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A home with a running machine, a stopped one, one on the spot market, an image and a budget."""
    home = tmp_path_factory.mktemp("answers")
    config = 'provider = "fake"\nowner = "ada"\n'
    for name in ("lab", "spare"):
        config += f'[accounts.{name}]\nprovider = "fake"\nstate_file = "{home}/{name}.json"\n'
    (home / "config.toml").write_text(config)
    (home / "bin").mkdir()
    (home / "bin" / "crontab").write_text("#!/bin/sh\nexit 0\n")  # nobody's crontab is read or written
    (home / "bin" / "crontab").chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        settle_in(patched, home)
        with cloudgpu.connect(home=home) as gpu:
            for name in ("fox", "owl", "imp"):
                gpu.machines.up(wait=False, account="lab", gpu="v100", name=name, new=True, spot=name == "imp" or None)
            gpu.machines.stop("owl")
        for words in ("image save fox --name kept", "budget set month --amount 900 --period month"):
            assert run([*words.split(), "--yes"]) == 0
        assert run(["ledger", "backup", f"{home}/copy"]) == 0
    return home


@pytest.fixture
def home(made, monkeypatch):
    settle_in(monkeypatch, made)
    return made


def settle_in(patched, home):
    patched.syspath_prepend(str(write_plugin(home / "plugin", {"fake": FAKE})))
    patched.setenv("NO_COLOR", "1")
    for key, value in {"CLOUDGPU_HOME": home, "HOME": home, "PATH": f"{home}/bin:{os.environ['PATH']}"}.items():
        patched.setenv(key, str(value))


@pytest.fixture
def typed(home, capsys, monkeypatch):
    """Return a function that runs a command on a terminal on which this is typed: its code, output and errors."""
    ours, theirs = pty.openpty()
    monkeypatch.setattr(sys, "stdin", os.fdopen(theirs))

    def run_it(command, keys):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        capsys.readouterr()
        os.write(ours, keys)
        before = there(home)
        code = run(command.format(home=home).split())
        assert there(home) == before
        return code, *capsys.readouterr()

    yield run_it
    os.close(ours)


def there(home):
    """What the cloud has: nothing of it may change."""
    cloud = json.loads((home / "lab.json").read_text())
    return {key: value for key, value in cloud.items() if key in ("machines", "resources")}


@pytest.mark.parametrize("command", ASKING)
def test_a_no_is_told_in_one_line_and_is_no_error(typed, command):
    code, out, err = typed(command, b"n\n")
    assert (code, out, err.count("[y/N]")) == (0, "", 1)
    assert err.endswith(f"[y/N] {NOTHING}")
    assert "error" not in err


def test_a_no_is_one_document_with_json(typed):
    code, out, _ = typed("down fox -o json", b"n\n")
    assert (code, json.loads(out)) == (0, {"declined": "Nothing was done."})


def test_a_machine_that_runs_is_started_without_a_question(typed):
    code, out, err = typed("start fox --no-wait", b"n\n")
    assert (code, "[y/N]" in err) == (0, False)
    assert "already; extend makes its lease longer" in err
    assert out.startswith("fox is ")


def test_the_end_of_input_is_no_answer(typed):
    code, out, err = typed("down fox", b"\x04")
    assert (code, out) == (2, "")
    assert err.endswith("error: The question was not answered, because the input ended.\n"
                        "  Answer on a terminal, or add --yes to skip the question.\n")  # fmt: skip


@pytest.mark.parametrize("closed", [False, True])
def test_without_a_terminal_yes_is_needed(home, capsys, monkeypatch, closed):
    with open(os.devnull) as nothing:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", None if closed else nothing)  # None: as Python says `<&-`
        assert run(["down", "fox"]) == 2
    assert "there is no terminal to ask on" in capsys.readouterr().err


def test_no_verb_asks_in_a_way_of_its_own():
    """Whatever reads an answer or looks for a terminal to ask on is in one file."""
    asking = {
        path.name
        for path in ROOM.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and (node.attr == "readline" or ast.unparse(node) == "sys.stdin.isatty"))
        or (isinstance(node, ast.Name) and node.id == "input")
    }
    assert asking == {"common.py"}
