"""The machines' current rows, folded from their lines and kept in the transaction that writes those lines."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cloudgpu.ledger.lines import lines_of

if TYPE_CHECKING:
    from cloudgpu.core.events import Event

Row = dict[str, Any]

# Lines of no machine: their subjects grow without end, and folding them would say nothing.
_OF_NO_MACHINE = frozenset({"ledger_opened", "ledger_doubted", "ledger_settled", "scope_looked"})

# Not `INSERT OR REPLACE`: an update in place touches one page, a replacement the index too.
_STORE = """
INSERT INTO machine (id, name, since, ended, row) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET name = excluded.name, since = excluded.since, ended = excluded.ended, row = excluded.row"""


def machines(connection: sqlite3.Connection) -> list[Row]:
    """Return every machine's row, oldest first."""
    rows = connection.execute("SELECT row FROM machine ORDER BY since, id")
    found: list[Row] = json.loads(f"[{','.join(text for (text,) in rows)}]")
    return found


def machine(connection: sqlite3.Connection, subject: str) -> Row | None:
    """Return one machine's row, or None."""
    found = connection.execute("SELECT row FROM machine WHERE id = ?", (subject,)).fetchone()
    if found is None:
        return None
    row: Row = json.loads(found[0])
    return row


def refresh(connection: sqlite3.Connection, written: Iterable[Event]) -> None:
    """Fold anew every machine that these lines, already written, are about."""
    for subject in {line.subject for line in written if line.kind not in _OF_NO_MACHINE}:
        _store(connection, subject)


def rebuild(connection: sqlite3.Connection) -> None:
    """Empty the projection and fold it again from the lines."""
    connection.execute("DELETE FROM machine")
    for subject in _subjects(connection):
        _store(connection, subject)


def differences(connection: sqlite3.Connection) -> list[str]:
    """Return a sentence per machine whose row is not what its lines fold to."""
    from cloudgpu.ledger.chain import canonical

    stored = dict(connection.execute("SELECT id, row FROM machine").fetchall())
    folded = {subject: _folded(connection, subject) for subject in _subjects(connection)}
    wanted = {subject: canonical(row) for subject, row in folded.items() if row is not None}
    return [
        f"The current state of {subject} is not what its lines say."
        for subject in sorted(stored.keys() | wanted.keys())
        if stored.get(subject) != wanted.get(subject)
    ]


def _store(connection: sqlite3.Connection, subject: str) -> None:
    from cloudgpu.ledger.chain import canonical

    row = _folded(connection, subject)
    if row is not None:
        values = (subject, row["name"], row["intended_at"], row["ended"], canonical(row))
        connection.execute(_STORE, values)


def _subjects(connection: sqlite3.Connection) -> list[str]:
    marks = ", ".join("?" * len(_OF_NO_MACHINE))
    query = f"SELECT DISTINCT subject FROM line WHERE kind NOT IN ({marks}) ORDER BY subject"  # noqa: S608
    return [subject for (subject,) in connection.execute(query, tuple(_OF_NO_MACHINE))]


def _folded(connection: sqlite3.Connection, subject: str) -> Row | None:
    from cloudgpu.core.fold import machine_row

    return machine_row(lines_of(connection, subject))
