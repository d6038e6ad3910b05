"""Where the catalogue and the refreshed price lists are stored. A process sets the directory of the latter once.

Imports nothing of the catalogue, so that `ls` can set the directory without loading it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

_directories: list[Path] = []  # at most one: a process works in one home


def use_directory(directory: Path) -> None:
    """Read refreshed prices from this directory from now on; it need not exist."""
    _directories[:] = [directory]


def directory() -> Path | None:
    """Return the directory of refreshed prices; None where none was set, so that only embedded prices are used."""
    return _directories[-1] if _directories else None


@cache
def catalogue() -> dict[str, Any]:
    """Return the whole embedded catalogue as plain values, without refreshed prices."""
    import json

    found: dict[str, Any] = json.loads((Path(__file__).parent / "catalog.json").read_text(encoding="utf-8"))
    return found
