"""How long an append to the ledger takes, as a ratio to a bare insert that is synced to the disk just the same.

Both write the same text into SQLite with a write-ahead log and `synchronous = full`, in turns, so that a busy disk
slows both. The append does more: lock, chain, guards, indexes, the machine's current row, the head record.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloudgpu.core.events import Draft
from cloudgpu.ledger.open import open_ledger

START = datetime(2026, 11, 20, tzinfo=UTC)
MACHINES = 50
PRICE = {
    "nanos_per_hour": 526_000_000,
    "source": "a price list",
    "as_of": "2026-11-20T00:00:00.000000Z",
    "basis": "listed",
}


def measure(n: int = 1000) -> dict[str, float]:
    """Return the ratio of `n` appends to `n` bare inserts, and the median of each in microseconds."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        bare, ledger = _bare_insert(Path(directory)), _append(Path(directory))
        appended, inserted = [], []
        for draft in _drafts(n):
            inserted.append(_timed(bare, draft))
            appended.append(_timed(ledger, draft))
    append, insert = statistics.median(appended), statistics.median(inserted)
    return {"ratio": append / insert, "append_us": append * 1e6, "insert_us": insert * 1e6, "n": n}


def _timed(write: Callable[[Draft], object], draft: Draft) -> float:
    begun = time.perf_counter()
    write(draft)
    return time.perf_counter() - begun


def _append(directory: Path) -> Callable[[Draft], object]:
    ledger = open_ledger(None, directory / "ledger", actor="somebody", clock=lambda: datetime.now(UTC))
    return lambda draft: ledger.append([draft])


def _bare_insert(directory: Path) -> Callable[[Draft], object]:
    connection = sqlite3.connect(directory / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = full")
    connection.execute("CREATE TABLE line (seq INTEGER PRIMARY KEY, kind, subject, dedupe, body, prev_hash, hash)")
    digest = "0" * 64

    def insert(draft: Draft) -> None:
        connection.execute(
            "INSERT INTO line (kind, subject, dedupe, body, prev_hash, hash) VALUES (?, ?, ?, ?, ?, ?)",
            (draft.kind, draft.subject, draft.dedupe, repr(draft.body), digest, digest),
        )

    return insert


def _drafts(n: int) -> Iterator[Draft]:
    for number in range(n):
        machine, turn = f"cg-{number % MACHINES:016x}", number // MACHINES
        moment = START + timedelta(seconds=number)
        body: dict[str, Any] = {"price": PRICE} if turn % 4 == 3 else _observation(turn)
        kind = "price_observed" if turn % 4 == 3 else "instance_observed"
        yield Draft(kind, machine, body, moment, f"{kind}:{machine}:{turn}")


def _observation(turn: int) -> dict[str, Any]:
    return {
        "provider_id": "i-0123456789abcdef0",
        "state": "running" if turn % 2 else "stopped",
        "billed": bool(turn % 2),
        "since": None,
        "launched_at": "2026-11-20T00:00:00.000000Z",
        "address": {"host": "203.0.113.7", "port": 22, "user": "ubuntu"},
        "reason": None,
        "expires": "2026-11-20T08:00:00.000000Z",
        "renew_until": "2026-11-21T00:00:00.000000Z",
        "hold_until": None,
        "last_active": None,
    }


if __name__ == "__main__":
    found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    print(f"ledger append: {found['ratio']:.2f} times a bare fsynced insert (n={found['n']:.0f})")
