"""Completion of verbs and values: by a real bash, by what zsh and fish are sent, and in how much processor time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cli_start import cpu_seconds, fill
from tests.cli.people import seen_on_terminal

ROOT = Path(__file__).parents[2]
MOST = 2.5  # times the processor time of `import typer`, which is 0.08 s on a quiet computer
TYPER = [sys.executable, "-c", "import typer"]
BASH = """
eval "$SHOWN"
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_cloudgpu_completion cloudgpu
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = """
cloudgpu --show-completion fish | source
for line in $argv
    echo "== $line"
    complete -C $line
end
"""
# Types each line in an interactive zsh, presses Tab, waits for what is expected, and clears the line.
ZSH = """
zmodload zsh/zpty
zpty person zsh -f -i
zpty -w person 'PS1="> "; autoload -Uz compinit; compinit -u -D; eval "$(cloudgpu --show-completion zsh)"; echo re""ady'
zpty -r person out '*ready*'
for line found in "$@"; do
    zpty -w -n person "$line"$'\\t'
    zpty -r person out "*$found*" && print -r -- "$found"
    zpty -w -n person $'\\x15'
done
"""
VALUES = [
    (("cloudgpu", "esti"), ["estimate"]),
    (("cloudgpu", "ver"), ["version"]),
    (("cloudgpu", "up", "--gpu", "a100-80gb-"), ["a100-80gb-pcie"]),
    (("cloudgpu", "up", "--provider", "aws", "--instance-type", "g6.xl"), ["g6.xlarge"]),
    (("cloudgpu", "estimate", "--gpu", "v100", "--instance-type", "p3.2"), ["p3.2xlarge"]),
    (("cloudgpu", "up", "--provider", "gcp", "--region", "europe-west4"), ["europe-west4"]),
    (("cloudgpu", "up", "--provider", "aws", "--region", "europe-west4"), [""]),
    (("cloudgpu", "up", "--template", "jup"), ["jupyter"]),
    (("cloudgpu", "up", "--policy", "night"), ["nightly"]),
    (("cloudgpu", "policy", "show", "clas"), ["classroom"]),
    (("cloudgpu", "spot", "backtest", "--policy", "unif"), ["uniform-progress"]),
    (("cloudgpu", "spot", "serve", "gre"), ["greedy"]),
    (("cloudgpu", "up", "--account", "wo"), ["work"]),
    (("cloudgpu", "up", "--provider", "gcp", "--account", "wo"), [""]),
    (("cloudgpu", "show", "machine-11"), ["machine-11"]),
    (("cloudgpu", "ps", "--al"), ["--all"]),
]
SOME = [VALUES[place] for place in (0, 2, 6, 14)]  # a verb, a GPU, no region, a machine
SHORT = [one if place % 2 == 0 else pytest.param(*one, marks=pytest.mark.soak) for place, one in enumerate(VALUES)]


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    """A home with machines and an account, and `cloudgpu` on PATH."""
    home = tmp_path_factory.mktemp("home")
    fill(home, machines=12, lines=24)
    (home / "config.toml").write_text('[accounts.work]\nprovider = "aws"\n')
    (home / "bin").mkdir()
    script = home / "bin" / "cloudgpu"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cloudgpu "$@"\n')
    script.chmod(0o755)
    return os.environ | {
        "CLOUDGPU_HOME": str(home),
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONPYCACHEPREFIX": str(home / "bytecode"),
    }


@pytest.fixture(scope="module")
def shown(environ):
    """What a bash reads at its start: asked once, as it is the same for every line."""
    argv = ["bash", "--norc", "-c", "cloudgpu --show-completion; exit"]  # it shows what the shell that runs it reads
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="There is no bash here.")
@pytest.mark.parametrize(("words", "found"), SHORT, ids=" ".join)
def test_bash_completes(environ, shown, tmp_path, words, found):
    argv = ["bash", "--norc", "-c", BASH, "bash", *words]
    done = subprocess.run(
        argv, env=environ | {"SHOWN": shown}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == found, done.stderr


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("fish") is None, reason="There is no fish here.")
def test_fish_completes(environ, tmp_path):
    lines = [" ".join(words) for words, _ in SOME]
    done = subprocess.run(
        ["fish", "--no-config", "-c", FISH, *lines],
        env=environ, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    answers = {part.splitlines()[0]: part.splitlines()[1:] for part in done.stdout.split("== ")[1:]}
    said = {line: [one.partition("\t")[0] for one in found] for line, found in answers.items()}
    assert said == {line: [one for one in found if one] for line, (_, found) in zip(lines, SOME, strict=True)}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="There is no zsh here.")
def test_zsh_completes(environ, tmp_path):
    wanted = [(" ".join(words), found) for words, (found,) in SOME if found]
    done = subprocess.run(
        ["zsh", "-f", "-c", ZSH, "zsh", *(part for pair in wanted for part in pair)],
        env=environ, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.splitlines() == [found for _, found in wanted]


@pytest.mark.soak
def test_completion_draws_nothing_over_the_line_that_is_typed(environ):
    asked = {"_CLOUDGPU_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "cloudgpu show machine-11", "TERM": "xterm"}
    hurried = "from cloudgpu.cli import app, progress; progress.SILENT_S = progress.TURN_S = 0.0; app.main()"
    assert (
        seen_on_terminal([sys.executable, "-c", hurried], environ | asked) == "_arguments '*: :((\"machine-11\"))'\r\n"
    )


@pytest.mark.parametrize(
    ("shell", "more", "out"),
    [
        ("zsh", {}, "_arguments '*: :((\"jupyter\"))'\n"),
        ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "jupyter\n"),
    ],
)
def test_what_zsh_and_fish_are_sent(environ, tmp_path, shell, more, out):
    asked = {"_CLOUDGPU_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "cloudgpu up --template jup"}
    done = subprocess.run(
        ["cloudgpu"], env=environ | asked | more, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, out)


@pytest.mark.soak
def test_a_ledger_or_settings_that_cannot_be_read_complete_to_nothing(environ, tmp_path):
    (tmp_path / "config.toml").write_text("this is not a TOML")
    asked = {"CLOUDGPU_HOME": str(tmp_path), "_CLOUDGPU_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    for words in ("cloudgpu up --account x", "cloudgpu show x y"):
        done = subprocess.run(
            ["cloudgpu"], env=environ | asked | {"COMP_WORDS": words}, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


@pytest.fixture(scope="module")
def beside(environ):
    """The processor seconds of four times `import typer`."""
    return [cpu_seconds(TYPER, environ) for _ in range(4)]


@pytest.mark.soak
@pytest.mark.parametrize("words", [words for words, _ in VALUES], ids=" ".join)
def test_an_answer_takes_little_time(environ, beside, words):
    asked = {"_CLOUDGPU_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    answer = [sys.executable, "-m", "cloudgpu"]
    spent = [(cpu_seconds(answer, environ | asked), min(beside))]
    if spent[0][0] >= MOST * spent[0][1]:  # the computer may be busier than it was: then both are measured in turn
        spent = [(cpu_seconds(answer, environ | asked), cpu_seconds(TYPER, environ)) for _ in range(4)]
    assert min(ours for ours, _ in spent) < MOST * min(typer for _, typer in spent), spent
