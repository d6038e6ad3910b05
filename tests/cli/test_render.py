"""Prose on a terminal: as wide as it is, at most 100 columns, and no word that is there to be copied is broken."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cloudgpu.cli import render
from cloudgpu.cli.access.tunnel import _show
from cloudgpu.cli.common import Format

KEY = "SHA256:" + "k" * 43
LONG = f"/home/ada/{'very-long-directory/' * 6}file"
SAID = f"Compare it with {KEY} on that machine, look at {LONG} there, then run: cloudgpu init --rename OLD NEW"


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_no_word_is_broken_however_narrow_the_terminal_is(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    for shown in (
        render.labelled_lines([("next", SAID), ("a label", "x")]),
        render.paragraph(SAID),
        render.wrapped(SAID, "- "),
    ):
        assert set(SAID.split()) <= set(shown.split())
        wide = [line for line in shown.splitlines() if len(line) > min(columns, 100)]
        assert all(len(line.split()) <= 2 for line in wide), "only what is longer than a line stands in a longer one"


@pytest.mark.parametrize(
    ("negotiated", "source"), [(True, "the contract"), (False, "config.toml discounts, as it is called")]
)
def test_a_price_was_agreed_if_its_document_says_so_whatever_its_source_is_called(negotiated, source):
    price = {
        "usd_per_hour": "2",
        "source": source,
        "as_of": "2026-11-20T12:00:00Z",
        "basis": "setting",
        "negotiated": negotiated,
    }
    assert ("as agreed" in render.price_text(price), "not measured" in render.price_text(price)) == (
        negotiated,
        not negotiated,
    )
    assert ("as agreed" in render.price_briefly(price)) == negotiated


def test_prose_is_wrapped_in_one_place():
    room = Path(render.__file__).parent
    wrapping = {path.name for path in room.rglob("*.py") if "textwrap" in imports(path)}
    assert wrapping == {"terminal.py"}


def imports(path):
    found = ast.walk(ast.parse(path.read_text()))
    return {node.module for node in found if isinstance(node, ast.ImportFrom)}


def test_the_address_of_jupyter_is_a_line_of_its_own(capsys):
    url = f"http://127.0.0.1:65535/lab?token={'x' * 26}"  # the longest that access/jupyter makes
    _show({"name": "first", "url": url}, Format.TEXT)
    assert capsys.readouterr().out == f"Jupyter on first:\n{url}\n"
    assert len(url) < 60


def test_next_steps_are_what_the_machine_can_do():
    assert render.next_steps("first", jupyter=True).splitlines() == [
        "  cloudgpu tunnel first         Jupyter",
        "  cloudgpu ssh first            a shell",
        "  cloudgpu down first           end it",
    ]
    name = "a" * 40
    first, shell, end = render.next_steps(name, jupyter=False).splitlines()
    assert first == f"  cloudgpu exec {name} -- CMD  run a command"
    assert {shell.index("a shell"), end.index("end it")} == {first.index("run a command")}
