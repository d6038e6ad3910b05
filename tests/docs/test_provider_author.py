"""docs/provider-author.md is enough: what stands there is taken from there, tested and used."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import socket
import subprocess
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from cloudgpu.providers import abilities, account_abilities, base, cluster_abilities
from cloudgpu.testing import write_plugin

PAGE = (Path(__file__).parents[2] / "docs" / "provider-author.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SHED = dict(re.findall(r"^`shed/([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def place(tmp_path):
    """A directory with the files of the page."""
    place = tmp_path / "package"
    place.mkdir()
    for name, text in FILES.items():
        (place / name).write_text(text)
    return place


@pytest.fixture
def run(place, own_home, tmp_path):
    """Run text of a shell there, in a virtual environment that has cloudgpu, pytest and pip of this one.

    What a build asks for (hatchling) is taken from this environment, not from an index: no test reaches for one.
    """
    environment = _environment(tmp_path / "environment")
    (own_home / "config.toml").write_text(FILES["config.toml"])
    search = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # pip reads the second as the value of its option `build_isolation`: 0 turns isolation off.
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environ = os.environ | offline | {"PATH": search}

    def run(text):
        argv = ["sh", "-ec", text]
        return subprocess.run(argv, cwd=place, env=environ, capture_output=True, text=True, timeout=100, check=False)

    return run


def _environment(directory):
    """Make an environment that finds the packages of this one, after its own."""
    venv.create(directory, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    here = sysconfig.get_path("purelib")
    (packages / "these.pth").write_text(f"import site; site.addsitedir({here!r})\n")  # with the .pth files there
    for name in ("cloudgpu", "pip", "pytest"):
        program = directory / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{directory}/bin/python" -m {name} "$@"\n')
        program.chmod(0o755)
    return directory


@pytest.fixture
def shell(place, run):
    """The same, and the provider is found, without the installation, as an installed one is."""
    written = tomllib.loads(FILES["pyproject.toml"])["project"]
    write_plugin(place, written["entry-points"]["cloudgpu.providers"], name=written["name"])
    return lambda text: run(f'PYTHONPATH="$PWD:$PYTHONPATH"; export PYTHONPATH; {text}')


def test_the_commands_of_the_page_install_test_and_use_its_provider_as_printed(run):
    block, _ = COMMANDS
    assert "pip install" in block
    done = run(block)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert "Successfully installed cloudgpu-toy-1" in done.stdout
    assert re.search(r"\d\d passed", done.stdout)
    assert re.search(r"^bear .* toy", done.stdout, re.MULTILINE)
    assert "bear is gone" in done.stdout


def test_the_commands_of_the_poor_cloud_install_test_and_use_its_provider_as_printed(run, place):
    _, block = COMMANDS
    port = str(_free_port())
    for old in FILES:
        (place / old).unlink()
    for name, text in SHED.items():
        (place / name).write_text(text.replace("8137", port))
    done = run(f"trap 'kill $cloud 2> /dev/null || :' EXIT\n{block.replace('8137', port)}")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert "Successfully installed cloudgpu-shed-1" in done.stdout
    assert re.search(r"\d\d passed", done.stdout)
    assert "its owner can read everything on it" in " ".join(done.stderr.split())
    assert "$0.0100 for each GB it receives, $0.0200 for each it sends" in " ".join(done.stderr.split())
    assert re.search(r"^hen .* shed", done.stdout, re.MULTILINE)
    assert "hen is gone" in done.stdout


def test_the_poor_cloud_is_no_strangers_unless_that_is_typed(run, place):
    """Nothing has to be installed, or to answer: the refusal comes before any look."""
    assert SHED.keys() == {"cloudgpu_shed.py", "pyproject.toml", "shed_cloud.py", "test_shed.py", "config.toml"}
    with_secret = "cloudgpu run --provider shed --trust community --env-file config.toml --yes -- true"
    done = run(with_secret)
    assert done.returncode == 2
    assert "--expose" in done.stderr


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_the_pages_provider_refuses_as_the_page_says(shell):
    up = "cloudgpu up --provider toy --new --no-guard --no-wait --yes"
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
        name: value
        for module in (base, abilities, account_abilities, cluster_abilities)
        for name, value in inspect.getmembers(module, inspect.isclass)
        if getattr(value, "_is_protocol", False)
    }
    table = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
    assert set(table) == protocols.keys() - {"Provider", "Protocol"}
    for name, methods in table.items():
        wanted = {method for method in vars(protocols[name]) if not method.startswith("_")}
        assert set(re.findall(r"`(\w+)`", methods)) == wanted


def test_the_page_names_every_part_of_a_token_rule():
    for part in dataclasses.fields(base.TokenRule):
        assert f"  - `{part.name}`: " in PAGE
