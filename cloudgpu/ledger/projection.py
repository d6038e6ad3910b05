"""The machines' current rows and ended uses, folded from their lines in the transaction that writes those lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cloudgpu.ledger.lines import lines_of

if TYPE_CHECKING:
    from cloudgpu.core.events import Event
    from cloudgpu.core.fold import Folded
    from cloudgpu.ledger.sql import Connection

Row = dict[str, Any]

# Lines of no machine: their subjects grow without end, and folding them would say nothing.
_OF_NO_MACHINE = frozenset(
    "ledger_opened ledger_doubted ledger_settled scope_looked alert_raised alert_sent alert_cleared "
    "budget_set budget_removed budget_overridden".split()
)

# Not `INSERT OR REPLACE`: an update in place touches one page, a replacement the index too.
_STORE = """
INSERT INTO machine (id, since, thing, row, state) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET since = excluded.since, row = excluded.row, state = excluded.state"""
_STORE_USE = "INSERT INTO used (subject, ended, use) VALUES (?, ?, ?)"


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


def refresh(connection: Connection, written: Iterable[Event]) -> None:
    """Fold these lines, already written, into what they are about."""
    lines: dict[str, list[Event]] = {}
    for line in written:
        if line.kind not in _OF_NO_MACHINE:
            lines.setdefault(line.subject, []).append(line)
    for subject, news in lines.items():
        _follow(connection, subject, news)


def rebuild(connection: Connection) -> None:
    """Empty the projections and fold them again from the lines."""
    connection.execute("DELETE FROM machine")
    connection.execute("DELETE FROM used")
    for subject in _subjects(connection):
        _store_anew(connection, subject)


def differences(connection: Connection) -> list[str]:
    """Return a sentence per machine whose row or uses are not what its lines fold to."""
    stored: dict[str, tuple[str, str]] = {
        subject: (row, state) for subject, row, state in connection.execute("SELECT id, row, state FROM machine")
    }
    used: dict[str, list[str]] = {}
    for subject, text in connection.execute("SELECT subject, use FROM used ORDER BY subject, use"):
        used.setdefault(subject, []).append(text)
    wanted = {subject: found for subject in _subjects(connection) if (found := _folded(connection, subject))}
    return [
        f"The current state of {subject} is not what its lines say."
        for subject in sorted(stored.keys() | wanted.keys() | used.keys())
        if subject not in wanted or (stored.get(subject), used.get(subject, [])) != _texts(wanted[subject])
    ]


def _texts(found: Folded) -> tuple[tuple[str, str], list[str]]:
    """Return what a fold is stored as: row and state, and its ended uses in the order of their texts."""
    from cloudgpu.ledger.chain import canonical

    rest = {name: value for name, value in found.state.items() if name != "row"}
    return (canonical(found.state["row"]), canonical(rest)), sorted(canonical(use) for use in found.closed)


def _follow(connection: Connection, subject: str, news: list[Event]) -> None:
    """Fold new lines into the stored state; one that comes before others in time has everything folded anew."""
    from cloudgpu.core.fold import followed

    stored = connection.execute("SELECT row, state FROM machine WHERE id = ?", (subject,)).fetchone()
    if stored is None:
        _store_anew(connection, subject)
        return
    state = json.loads(stored[1]) | {"row": json.loads(stored[0])}
    for line in news:
        found = followed(state, line)
        if found is None:
            _store_anew(connection, subject)
            return
        _store(connection, subject, found)


def _store_anew(connection: Connection, subject: str) -> None:
    found = _folded(connection, subject)
    connection.execute("DELETE FROM used WHERE subject = ?", (subject,))
    if found is not None:
        _store(connection, subject, found)


def _store(connection: Connection, subject: str, found: Folded) -> None:
    (row, state), used = _texts(found)
    facts = found.state["row"]
    connection.execute(_STORE, (subject, facts["intended_at"], int(facts["thing"]), row, state))
    for use, text in zip(sorted(found.closed, key=_text), used, strict=True):
        connection.execute(_STORE_USE, (subject, _until(use), text))


def _text(use: dict[str, Any]) -> str:
    from cloudgpu.ledger.chain import canonical

    return canonical(use)


def _until(use: dict[str, Any]) -> str:
    """Return until when a use may be billed: its minimum, or a started hour, goes on behind its end."""
    from cloudgpu.core.billing import billed_until

    return billed_until(use)


def _subjects(connection: Connection) -> list[str]:
    marks = ", ".join("?" * len(_OF_NO_MACHINE))
    query = f"SELECT DISTINCT subject FROM line WHERE kind NOT IN ({marks}) ORDER BY subject"  # noqa: S608
    return [subject for (subject,) in connection.execute(query, tuple(_OF_NO_MACHINE))]


def _folded(connection: Connection, subject: str) -> Folded | None:
    from cloudgpu.core.fold import folded

    return folded(lines_of(connection, subject))
