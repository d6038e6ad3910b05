"""How long an append to the ledger takes, as a ratio to a bare insert that is synced to the disk just the same.

Both write the same text into SQLite with a write-ahead log and `synchronous = full`, in turns, so that a busy disk
slows both. The append does more: lock, chain, guards, indexes, the machine's current row, the head record.
"""

from __future__ import annotations

import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from cloudgpu.core.events.log import Draft
from cloudgpu.ledger.open import open_ledger

START = datetime(2026, 11, 20, tzinfo=UTC)
MACHINES = 50
PRICE = {
    "nanos_per_hour": 526_000_000,
    "source": "a price list",
    "as_of": "2026-11-20T00:00:00.000000Z",
    "basis": "listed",
}


AIM = 1.5  # times the bare insert
WRITERS, EACH = 8, 100
GROWING = 120  # appends, of seven pages each, that a log of 1,000 pages takes before it is written over
LOG = 700  # bare inserts, and more, that it takes


def measure(n: int = 500) -> dict[str, Any]:
    """Return the rows of the table: appends beside bare inserts, and what eight writers at once lose.

    First while both write-ahead logs grow, as they do in a command that has just opened its ledger; then `n` of each
    while both are written over from the start, where a sync is cheaper since the file's length stays.
    """
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        bare, ledger = _bare_insert(Path(directory)), _append(Path(directory))
        drafts = _drafts(GROWING + LOG + n)
        growing = _in_turns(bare, ledger, islice(drafts, GROWING))
        for draft in islice(drafts, LOG):
            bare(draft)
            ledger(draft)
        reused = _in_turns(bare, ledger, drafts)
    lost = _lost()
    return {
        "rows": [
            _row("append to the ledger, its log growing", *growing),
            _row("append to the ledger, its log reused", *reused),
            {
                "what": f"lines that {WRITERS} writers at once lost",
                "ours": lost,
                "aim": "0",
                "met": lost == 0,
                "n": WRITERS * EACH,
            },
        ]
    }


def _in_turns(
    bare: Callable[[Draft], object], ledger: Callable[[Draft], object], drafts: Iterable[Draft]
) -> tuple[list[float], list[float]]:
    appended, inserted = [], []
    for draft in drafts:
        inserted.append(_timed(bare, draft))
        appended.append(_timed(ledger, draft))
    return appended, inserted


def _row(what: str, appended: list[float], inserted: list[float]) -> dict[str, Any]:
    append, insert = statistics.median(appended), statistics.median(inserted)
    ratio, unit = append / insert, 1e6
    found = {"what": what, "unit": "us", "ours": append * unit, "against": insert * unit, "ratio": ratio}
    return found | {"aim": f"<= {AIM:g}", "met": ratio <= AIM, "n": len(appended)}


def _lost() -> int:
    """Let several processes append at once; return how many lines are missing, or written otherwise than told."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        command = [sys.executable, __file__, "writer", directory]
        writers = [subprocess.Popen([*command, str(number)]) for number in range(WRITERS)]
        assert [writer.wait() for writer in writers] == [0] * WRITERS
        ledger = open_ledger(None, Path(directory) / "ledger", actor="somebody", clock=lambda: datetime.now(UTC))
        found = ledger.verify()
        assert found.faults == ()
        ledger.close()
    return 1 + WRITERS * EACH - found.lines


def _write(directory: str, number: str) -> None:
    append = _append(Path(directory))
    for turn, draft in enumerate(_drafts(EACH)):
        append(replace(draft, subject=f"cg-{number}-{turn % 5}", dedupe=f"{number}:{draft.dedupe}"))


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
    if sys.argv[1:2] == ["writer"]:
        _write(*sys.argv[2:])
    else:
        for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 500)["rows"]:
            print(row)
