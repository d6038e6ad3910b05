"""Where the catalogue and refreshed price lists lie; of the latter, whoever knows the home tells it once.

Imports nothing of the catalogue: telling the place must cost `ls` nothing, and completion reads names alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

_told: list[Path] = []  # the last one counts: one process works in one home


def use(directory: Path) -> None:
    """Let refreshed prices be those of this directory; it need not exist."""
    _told[:] = [directory]


def directory() -> Path | None:
    """Return where refreshed prices lie; None where nobody has said: the embedded ones count alone."""
    return _told[-1] if _told else None


@cache
def catalogue() -> dict[str, Any]:
    """Return the whole catalogue as plain values, for whoever reads it without prices of this home."""
    import json

    found: dict[str, Any] = json.loads((Path(__file__).parent / "catalog.json").read_text(encoding="utf-8"))
    return found
