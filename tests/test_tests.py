"""Holds the tests to two rules: none ends before it has asserted anything, or leaves bytecode that is cut off."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
RETURNS = re.compile(r"^ +return$", re.MULTILINE)  # to parse few files: all of them take seconds
ASSERTS = ("assert", "check", "expect", "fail", "prove", "raises", "refused", "skip", "wait_until")  # begin such calls


def hollow(function: ast.FunctionDef) -> list[int]:
    """Return the lines of a test at which it returns with nothing asserted before."""
    lines = sorted(node.lineno for node in ast.walk(function) if _asserts(node))
    returns = (node.lineno for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is None)
    return [line for line in returns if not lines or lines[0] > line]


def returning(text: str) -> Iterator[ast.FunctionDef]:
    """Yield the tests of a file in which something returns nothing."""
    for node in ast.walk(ast.parse(text if RETURNS.search(text) else "")):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def _asserts(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Assert)
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return name.lstrip("_").startswith(ASSERTS)


def test_a_test_that_returns_before_it_asserts_is_found() -> None:
    (found,) = ast.parse("def test_it(x):\n    if x:\n        return\n    assert x is None").body
    (right,) = ast.parse("def test_it(x):\n    assert x or x is None\n    if x:\n        return\n    check(x)").body
    assert (hollow(found), hollow(right)) == ([3], [])


@pytest.mark.parametrize("room", ["tests", "cloudgpu/testing"])
def test_no_test_returns_before_it_has_asserted_something(room: str) -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}:{line} {function.name}"
        for path in sorted((CHECKOUT / room).rglob("*.py"))
        for function in returning(path.read_text(encoding="utf-8"))
        for line in hollow(function)
    ]
    assert found == []


def test_no_test_that_limits_the_size_of_files_writes_bytecode() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((CHECKOUT / "tests").rglob("*.py"))}
    limiting = [path for path, text in texts.items() if "RLIMIT_FSIZE" in text]
    writing = [path for path in limiting if not re.search("no_bytecode|PYTHONDONTWRITEBYTECODE", texts[path])]
    assert [str(path.relative_to(CHECKOUT)) for path in writing] == []
