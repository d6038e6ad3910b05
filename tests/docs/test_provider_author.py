"""docs/provider-author.md is enough: what stands there is taken from there, tested and used."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cloudgpu.providers import base
from cloudgpu.testing import write_plugin

PAGE = (Path(__file__).parents[2] / "docs" / "provider-author.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def place(tmp_path):
    """A directory with the files of the page, found by Python as an installed package is."""
    for name in ("cloudgpu_toy.py", "test_toy.py"):
        (tmp_path / name).write_text(FILES[name])
    written = tomllib.loads(FILES["pyproject.toml"])["project"]
    return write_plugin(tmp_path, written["entry-points"]["cloudgpu.providers"], name=written["name"])


@pytest.fixture
def shell(place, own_home):
    """Run a line of the page's shell there, with `cloudgpu` and `pytest` of this checkout on PATH."""
    programs = place / "bin"
    programs.mkdir()
    for name, module in (("cloudgpu", "cloudgpu"), ("pytest", "pytest -q -p no:cacheprovider")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    (own_home / "config.toml").write_text(FILES["config.toml"])
    search = os.pathsep.join([*sys.path, str(place)])
    environ = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": search}

    def run(line):
        argv = ["sh", "-ec", line]
        return subprocess.run(argv, cwd=place, env=environ, capture_output=True, text=True, timeout=100, check=False)

    return run


def test_the_pages_provider_keeps_the_contract_and_lives_through_the_command_line(shell):
    said = {}
    (block,) = COMMANDS
    for line in block.splitlines():
        done = shell(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said[line.split()[1]] = done.stdout
    assert re.search(r"\d\d passed", said["test_toy.py"])
    assert "bear" in said["ls"]
    assert "toy" in said["ls"]
    assert "bear is gone" in said["down"]


def test_the_pages_provider_refuses_as_the_page_says(shell):
    up = "cloudgpu up --provider toy --new --no-wait --yes"
    assert [shell(up).returncode for _ in range(4)] == [0, 0, 0, 4]
    assert "End a machine first." in shell(up).stderr
    assert shell("cloudgpu down --all --yes").returncode == 0


def test_a_setting_that_the_pages_provider_does_not_know_is_refused(shell, own_home):
    (own_home / "config.toml").write_text(FILES["config.toml"].replace("most", "mots"))
    done = shell("cloudgpu up --provider toy --dry-run")
    assert done.returncode == 2
    assert "accounts.shelf.mots is no setting of toy" in done.stderr


def test_a_broken_provider_is_noticed_by_the_contract(shell, place):
    """A token that is looked up wrongly makes two machines: the suite has to bite."""
    source = place / "cloudgpu_toy.py"
    wrong = source.read_text().replace('machine["token"] == attempt.token', 'machine["token"] == attempt.ledger')
    assert wrong != source.read_text()
    source.write_text(wrong)
    done = shell("pytest test_toy.py -k same_token")
    assert done.returncode == 1
    assert "1 failed" in done.stdout


def test_the_page_names_every_ability():
    protocols = {
        name for name, value in inspect.getmembers(base, inspect.isclass) if getattr(value, "_is_protocol", False)
    }
    table = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
    assert set(table) == protocols - {"Provider", "Protocol"}
    for name, methods in table.items():
        wanted = {method for method in vars(getattr(base, name)) if not method.startswith("_")}
        assert set(re.findall(r"`(\w+)`", methods)) == wanted
