"""A copy of a job's ledger lines beside its output: what a ledger from a backup lacks is known here.

One JSON text a line, each with the ledger that it is of. A line that a full disk or a kill cut short is left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.times import from_iso, iso


def note(path: Path, ledger: str, drafts: Iterable[Draft]) -> None:
    """Add lines to a journal (0600). It is a copy: where it cannot be written, nothing is raised."""
    text = "".join(f"{json.dumps(_record(ledger, one))}\n" for one in drafts)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(number, f"{_start(path)}{text}".encode())
        finally:
            os.close(number)


def noted(path: Path, ledger: str) -> list[Draft]:
    """Return the lines of a journal that are of this ledger, in order; none where it cannot be read."""
    found = []
    with suppress(OSError):
        for text in path.read_bytes().splitlines():
            with suppress(ValueError, KeyError, TypeError):
                record = json.loads(text)
                if record["ledger"] == ledger:
                    found.append(_draft(record))
    return found


def _start(path: Path) -> str:
    """Return what the next line begins with: a line that was cut short is ended first."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return ""
        file.seek(size - 1)
        return "" if file.read(1) == b"\n" else "\n"


def _record(ledger: str, one: Draft) -> dict[str, Any]:
    return {
        "ledger": ledger,
        "kind": one.kind,
        "subject": one.subject,
        "body": dict(one.body),
        "occurred_at": iso(one.occurred_at),
        "dedupe": one.dedupe,
        "clock": one.clock,
    }


def _draft(record: dict[str, Any]) -> Draft:
    at = from_iso(record["occurred_at"])
    return Draft(record["kind"], record["subject"], record["body"], at, record["dedupe"], record["clock"])
