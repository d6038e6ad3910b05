"""The machines' current rows and ended uses as they are stored: read without folding anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudgpu.ledger.sql import Connection

Row = dict[str, Any]


def machines(connection: Connection) -> list[Row]:
    """Return every machine's row, oldest first."""
    return _rows(connection, "SELECT row FROM machine WHERE thing = 0 ORDER BY since, id")


def bills(connection: Connection) -> list[Row]:
    """Return the row of everything that costs or has cost: machines, and things that are kept by name."""
    return _rows(connection, "SELECT row FROM machine ORDER BY since, id")


def _rows(connection: Connection, query: str) -> list[Row]:
    found: list[Row] = json.loads(f"[{','.join(text for (text,) in connection.execute(query))}]")
    return found


def uses(connection: Connection, since: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what has ended after `since` (a ledger time), each with its subject."""
    query = "SELECT subject, use FROM used WHERE ended >= ? ORDER BY subject, ended, use"
    for subject, text in connection.execute(query, (since,)):
        yield subject, json.loads(text)


def machine(connection: Connection, subject: str) -> Row | None:
    """Return one machine's row, or None."""
    found = connection.execute("SELECT row FROM machine WHERE id = ? AND thing = 0", (subject,)).fetchone()
    if found is None:
        return None
    row: Row = json.loads(found[0])
    return row
