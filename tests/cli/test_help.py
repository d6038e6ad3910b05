"""The pages of help: what is on them, and how wide they are."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from typer.main import get_command

from cloudgpu.cli.app import run
from cloudgpu.cli.parser import app
from cloudgpu.cli.verbs import VERBS

WIDTHS = (60, 80, 120, 160)
GROUPED = [verb for verb, (module, _) in VERBS.items() if hasattr(import_module(f"cloudgpu.cli.{module}"), "GROUPS")]


@pytest.fixture
def page(monkeypatch, capsys):
    """Return a function that prints a page at a width."""

    def printed(*words, width=80, **environ):
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"COLUMNS": str(width), **environ}.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        assert run([*words]) == 0
        return capsys.readouterr().out

    return printed


def words_of(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text).split()


def test_cloudgpu_alone_shows_a_dozen_verbs_in_at_most_30_lines(page):
    lines = page().splitlines()
    shown = [line.split()[0] for line in lines if line.startswith("  ")]
    assert len(lines) <= 30
    assert 12 <= len(shown) <= 16
    assert {*shown} <= {*VERBS}


def test_every_verb_is_on_one_line_at_80_columns(page):
    lines = page("--help").splitlines()
    for verb, (_, says) in VERBS.items():
        assert [line.split(verb, 1)[1].strip() for line in lines if line.startswith(f"  {verb}  ")] == [says]


@pytest.mark.parametrize("words", [(), ("--help",), *((*verb.split(), "--help") for verb in VERBS)], ids=" ".join)
def test_pages_fit_the_terminal_and_break_no_word(page, words):
    pages = {width: page(*words, width=width) for width in WIDTHS}
    assert [line for width, one in pages.items() for line in one.splitlines() if len(line) > width] == []
    assert [words_of(one) for one in pages.values()] == [words_of(pages[160])] * len(WIDTHS)


@pytest.mark.parametrize("verb", GROUPED)
def test_options_are_in_groups_each_once_the_common_ones_first(page, verb):
    groups = import_module(f"cloudgpu.cli.{VERBS[verb][0]}").GROUPS
    named = [option for options in groups.values() for option in options]
    there = {
        option
        for param in get_command(app).get_command(None, verb).params
        if param.param_type_name == "option"
        for option in param.opts
    }
    assert len(named) == len({*named})
    assert {*named} <= there
    titles = [line[:-1] for line in page(verb, "--help").splitlines() if re.fullmatch(r"\w.*:", line)]
    assert [title for title in titles if title != "Arguments"] == [*groups, "Options"]


def test_the_verbs_with_many_options_have_groups():
    assert GROUPED == ["init", "up", "run", "estimate", "compare"]


@pytest.mark.parametrize("words", [(), ("--help",), ("up", "--help")])
def test_colour_is_where_it_is_wanted_and_changes_no_word(page, words):
    plain, coloured = page(*words), page(*words, FORCE_COLOR="1")
    assert "\x1b" not in plain
    assert "\x1b[1m" in coloured
    assert words_of(coloured) == words_of(plain)
    assert page(*words, FORCE_COLOR="1", NO_COLOR="1") == plain
    assert page(*words, FORCE_COLOR="0") == plain
