"""Colours and widths of answers: what is coloured and when, and that no column is lost on a narrow terminal."""

from __future__ import annotations

import re

import pytest

from benchmarks.cli_start import fill
from cloudgpu.cli import render
from cloudgpu.cli.app import run
from cloudgpu.cli.colours import coloured
from cloudgpu.cli.machines.watching import page
from cloudgpu.cli.terminal import CODES

CODE = re.compile(r"\x1b\[[0-9;]*m")
PALETTES = [  # background, red, green, yellow, blue, magenta, cyan
    pytest.param("ffffff", "cd0000", "00cd00", "cdcd00", "0000ee", "cd00cd", "00cdcd", id="xterm, light"),
    pytest.param("000000", "cd0000", "00cd00", "cdcd00", "0000ee", "cd00cd", "00cdcd", id="xterm, dark"),
    pytest.param("ffffff", "cd3131", "00bc00", "949800", "0451a5", "bc05bc", "0598bc", id="Visual Studio Code, light"),
    pytest.param("1e1e1e", "cd3131", "0dbc79", "e5e510", "2472c8", "bc3fbc", "11a8cd", id="Visual Studio Code, dark"),
    pytest.param("fdf6e3", "dc322f", "859900", "b58900", "268bd2", "d33682", "2aa198", id="Solarized, light"),
    pytest.param("002b36", "dc322f", "859900", "b58900", "268bd2", "d33682", "2aa198", id="Solarized, dark"),
]
ANSWER = """\
NAME   STATE          AT     $/H     SPENT  LEASE
fox    running        aws  $3.8230  $1,022.26  1h 54m left
owl    stopped (free) aws  $0.0000  $9.30   over 5m
imp    stopped  gcp
running  running  local
  FAIL credentials  Google refused: error: none
  ok   python       3.11
error: There is no such thing."""


@pytest.fixture
def line(tmp_path, monkeypatch, capsys):
    fill(tmp_path, machines=3, lines=12)
    monkeypatch.setenv("CLOUDGPU_HOME", str(tmp_path))
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def typed(words, **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        return run(words.split()), *capsys.readouterr()

    return typed


def test_what_means_something_has_a_colour_and_every_word_stays():
    found = coloured(ANSWER)
    assert CODE.sub("", found) == ANSWER
    lines = found.split("\n")
    assert lines[0].startswith("\x1b[2mNAME")
    assert "  \x1b[32mrunning\x1b[0m  " in lines[1]
    assert "\x1b[1m$1,022.26\x1b[0m" in lines[1]
    assert "\x1b[2mstopped\x1b[0m (free)" in lines[2]
    assert "\x1b[1;35mover 5m\x1b[0m" in lines[2]
    assert lines[4].startswith("running  \x1b[32mrunning"), "a machine may be called running"
    assert lines[5].startswith("  \x1b[1;31mFAIL\x1b[0m ")
    assert lines[6].startswith("  \x1b[32mok\x1b[0m ")
    assert lines[7].startswith("\x1b[1;31merror:\x1b[0m ")


def contrast(one, other):
    """The contrast of two colours, by the formula of WCAG 2."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("background", "red", "green", "yellow", "blue", "magenta", "cyan"), PALETTES)
def test_every_colour_can_be_read_on_light_and_dark_terminals(background, red, green, yellow, blue, magenta, cyan):
    shown = {"31": red, "32": green, "33": yellow, "34": blue, "35": magenta, "36": cyan}
    for style, codes in CODES.items():
        colour = shown.get(codes.rpartition(";")[2])
        at_risk = "red" in style or "magenta" in style
        assert colour is None or contrast(colour, background) >= (3 if at_risk else 2.1), style


def test_colours_follow_the_environment_and_json_has_none(line):
    plain = line("ls")[1]
    assert "\x1b" not in plain
    code, out, _ = line("ls", FORCE_COLOR="1")
    assert (code, CODE.sub("", out)) == (0, plain)
    assert "\x1b[" in out
    assert "\x1b" not in line("ls -o json")[1]
    assert line("ls", NO_COLOR="1")[1] == plain
    assert "\x1b[1;31merror:" in line("xyzzy", NO_COLOR="")[2]


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 160])
def test_ls_fits_the_terminal_and_leaves_out_nothing(line, columns):
    whole = line("ls")[1]
    found = line("ls", COLUMNS=str(columns))[1]
    assert [row for row in found.splitlines() if len(row) > columns] == []
    assert found.split() == whole.split()


def test_a_pipe_gets_each_row_on_one_line(line):
    assert len([row for row in line("ls")[1].splitlines() if "machine-" in row]) == 3


def test_columns_that_do_not_fit_stand_below(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    shown = render.table([["fox", "a" * 20, "b" * 20]], ["NAME", "FIRST", "SECOND"])
    assert shown.splitlines() == ["NAME  FIRST", "    SECOND", "fox   " + "a" * 20, "    " + "b" * 20]


def test_watch_needs_a_terminal_and_text(line):
    assert line("ls --watch")[0] == 2
    code, out, _ = line("ls --watch -o json")
    assert code == 2
    assert '"field": "--watch"' in out


def test_a_watched_page_has_as_many_rows_as_the_terminal():
    shown = page("\n".join(map(str, range(50))), 2, rows=24)
    assert shown.count("\n") == 23
    assert "29 more lines; every 2 s" in shown
    assert "more lines" not in page("one", 2, rows=24)
