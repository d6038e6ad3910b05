"""NAME may be left out where exactly one machine fits."""

from __future__ import annotations

import json

import pytest

import cloudgpu
from cloudgpu.cli.app import run
from cloudgpu.cli.common import NO_NAME, with_no_name
from cloudgpu.testing import FAKE, write_plugin


@pytest.fixture
def line(tmp_path, monkeypatch, capsys):
    """A home with a fake cloud, on which `up` and `stop` can be asked for; runs command lines there."""
    monkeypatch.syspath_prepend(str(write_plugin(tmp_path / "plugin", {"fake": FAKE})))
    (tmp_path / "config.toml").write_text(
        f'provider = "fake"\n[accounts.lab]\nprovider = "fake"\nstate_file = "{tmp_path}/lab.json"\n'
    )
    monkeypatch.setenv("CLOUDGPU_HOME", str(tmp_path))

    def typed(words):
        capsys.readouterr()
        code = run(words.split())
        return code, *capsys.readouterr()

    typed.home = tmp_path
    return typed


def launch(line, *names):
    with cloudgpu.connect(home=line.home) as gpu:
        for name in names:
            gpu.machines.up(wait=False, account="lab", gpu="v100", name=name, new=True)


@pytest.mark.parametrize(
    "words", ["extend 2h --yes -o json", "show -o json", "hold 2h --yes -o json", "hold --release --yes -o json"]
)
def test_the_only_machine_is_meant(line, words):
    launch(line, "fox")
    code, out, err = line(words)
    assert (code, json.loads(out)["name"]) == (0, "fox"), err


@pytest.mark.parametrize(
    "words", ["exec -- true", "ssh", "ssh -- true", "extend 2h --yes", "hold 2h", "tunnel", "show", "stop"]
)
def test_with_two_the_machine_has_to_be_named(line, words):
    launch(line, "fox", "owl")
    code, out, err = line(words)
    assert (code, out) == (255 if words.startswith("exec") else 2, "")
    assert "There are 2 machines; name the one you mean." in err
    assert "fox, owl" in err


@pytest.mark.parametrize("words", ["exec -- true", "ssh"])
def test_a_command_goes_to_the_one_that_runs(line, words):
    launch(line, "fox", "owl")
    assert line("stop owl --yes")[0] == 0
    code, _, err = line(words)
    assert code, "the fake cloud has no SSH server"
    assert "fox" in err
    assert "name the one you mean" not in err


@pytest.mark.parametrize("words", [["exec", "", "--", "true"], ["exec", "", "true"], ["ssh", ""]])
def test_an_empty_name_is_not_that_of_the_only_machine(line, capsys, words):
    """It is one of an unset variable: its command is not for whatever machine there is."""
    launch(line, "fox")
    assert run(words) == (255 if words[0] == "exec" else 7)
    assert "No machine is called ''" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["-y", "-o", "json"], ["-yo", "json"], ["-yojson"]])
def test_an_error_is_json_however_the_short_options_are_joined(capsys, line, options):
    assert run(["down", "nobody", *options]) == 7
    assert json.loads(capsys.readouterr().out)["error"]["field"] == "name"


@pytest.mark.parametrize("word", ["stop", "down"])
def test_what_ends_the_only_machine_names_it_and_asks(line, word):
    launch(line, "fox")
    code, _, err = line(word)
    assert code == 2
    assert "there is no terminal to ask on" in err
    assert line("show fox -o json")[0] == 0


def test_extend_says_what_is_missing(line):
    launch(line, "fox")
    code, _, err = line("extend fox")
    assert code == 2
    assert "BY is missing" in err
    assert "cloudgpu extend fox 4h" in err


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("-- ls -l", [NO_NAME, "--", "ls", "-l"]),
        ("--tty -- ls", ["--tty", NO_NAME, "--", "ls"]),
        ("fox -- ls", ["fox", "--", "ls"]),
        ("fox ls -- x", ["fox", "ls", "--", "x"]),
        ("--help", ["--help"]),
        ("", []),
    ],
)
def test_a_command_after_two_dashes_is_no_name(typed, read):
    assert with_no_name(typed.split()) == read
