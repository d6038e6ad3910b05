"""Puts several modules together as one program."""

from __future__ import annotations

import ast
from pathlib import Path

PARTS = (
    "core/activity/idle",
    "agent/files",
    "agent/jupyter",
    "agent/meters",
    "agent/lease",
    "agent/looking",
    "agent/agent",
)


def assembled(package: Path) -> ast.Module:
    """Return the program of PARTS, in their order: each name of ours stands there before it is used.

    Imports of our own modules fall away, for what they name is in the same file. `from x import y` alone is handled.
    """
    body: list[ast.stmt] = []
    for part in PARTS:
        text = package.joinpath(f"{part}.py").read_text(encoding="utf-8")
        body += [node for node in ast.parse(text).body if not _is_ours(node)]
    program = ast.Module(body, type_ignores=[])
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cloudgpu."):
            node.module = node.module.rpartition(".")[2]  # inside a function: a file of its own, beside this one
    return program


def _is_ours(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("cloudgpu", "__future__")
