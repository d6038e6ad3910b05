"""Takes from a program what only its readers need."""

from __future__ import annotations

import ast
import io
import tokenize

_STEP = 4  # spaces per level in, one space out


def bare(text: str) -> str:
    """Return the program without docstrings, comments and blank lines, indented by single spaces.

    What it does stays the same to the last node of its syntax tree. Needs one whole line per docstring
    and no other string over several lines.
    """
    lines = text.splitlines()
    for line, column in _comments(text):
        lines[line - 1] = lines[line - 1][:column].rstrip()
    for first, last in _docstrings(ast.parse(text)):
        lines[first - 1 : last] = [""] * (last - first + 1)
    return "".join(_narrow(line) + "\n" for line in lines if line.strip())


def _comments(text: str) -> list[tuple[int, int]]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.start for token in tokens if token.type == tokenize.COMMENT]


def _docstrings(tree: ast.Module) -> list[tuple[int, int]]:
    """Return first and last line of each docstring; one that is a body alone has to stay."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            doc = node.body[0]
            if len(node.body) > 1:
                found.append((doc.lineno, doc.end_lineno or doc.lineno))
    return found


def _narrow(line: str) -> str:
    text = line.lstrip(" ")
    return " " * ((len(line) - len(text)) // _STEP) + text
