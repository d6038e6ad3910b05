"""A copy of a job's ledger events next to its output, from which a ledger restored from a backup is completed.

Each line is a JSON text with its ledger's id. A line that a full disk or a kill cut short is ignored.
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


def append_to_journal(path: Path, ledger_id: str, drafts: Iterable[Draft]) -> None:
    """Append events to a journal (mode 0600); it is only a copy, so write errors are ignored."""
    text = "".join(f"{json.dumps(_record(ledger_id, draft))}\n" for draft in drafts)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{_line_start(path)}{text}".encode())
        finally:
            os.close(descriptor)


def read_journal(path: Path, ledger_id: str) -> list[Draft]:
    """Return the events of this ledger in a journal, in order; none if it cannot be read."""
    drafts = []
    with suppress(OSError):
        for text in path.read_bytes().splitlines():
            with suppress(ValueError, KeyError, TypeError):
                record = json.loads(text)
                if record["ledger"] == ledger_id:
                    drafts.append(_draft(record))
    return drafts


def snapshot_in_use(path: Path) -> str | None:
    """Return the snapshot of a job, of whatever ledger, by its journal; None if it is closed or has no journal.

    Raises the OSError with which reading a journal failed.
    """
    snapshot = None
    with suppress(FileNotFoundError, NotADirectoryError):
        for text in path.read_bytes().splitlines():
            with suppress(ValueError, KeyError, TypeError):
                record = json.loads(text)
                if record["kind"] == "job_closed":
                    return None
                if record["kind"] == "job_requested":
                    snapshot = str(record["body"]["spec"]["snapshot"])
    return snapshot


def _line_start(path: Path) -> str:
    """Return a newline if the last line was cut short, else nothing."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return ""
        file.seek(size - 1)
        return "" if file.read(1) == b"\n" else "\n"


def _record(ledger_id: str, draft: Draft) -> dict[str, Any]:
    return {
        "ledger": ledger_id,
        "kind": draft.kind,
        "subject": draft.subject,
        "body": dict(draft.body),
        "occurred_at": iso(draft.occurred_at),
        "dedupe": draft.dedupe,
        "clock": draft.clock,
    }


def _draft(record: dict[str, Any]) -> Draft:
    occurred_at = from_iso(record["occurred_at"])
    return Draft(record["kind"], record["subject"], record["body"], occurred_at, record["dedupe"], record["clock"])
