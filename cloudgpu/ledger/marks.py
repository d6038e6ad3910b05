"""The last line of a ledger that is not in use at its place: it has moved away, or is still being moved in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudgpu.core.events import LEDGER_ARRIVED, LEDGER_MOVED, LEDGER_MOVING
from cloudgpu.errors import LedgerMoved

if TYPE_CHECKING:
    from cloudgpu.ledger.head import Record
    from cloudgpu.ledger.lines import End
    from cloudgpu.ledger.sql import Connection

MOVED, MOVING, ARRIVED = LEDGER_MOVED, LEDGER_MOVING, LEDGER_ARRIVED
_LAST = "SELECT seq, hash, recorded_at, kind, body FROM line ORDER BY seq DESC LIMIT 1"
_BEFORE = "SELECT seq, hash, recorded_at FROM line WHERE seq < ? ORDER BY seq DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class Mark:
    """Why a ledger is not in use at its place.

    `to` is where it stands, or will stand, without a password; `came_from` is where a ledger that is being moved in
    comes from, empty for one that has moved away. `since` is when, empty where only the head record knows: then what
    stands here is an old copy.
    """

    to: str
    came_from: str = ""
    since: str = ""


def end_and_mark(connection: Connection) -> tuple[End, Mark | None]:
    """Return the last line's seq, hash and time, and what it says of a move."""
    found = connection.execute(_LAST).fetchone()
    if found is None:
        return (0, "", ""), None
    *end, kind, body = found
    mark = None
    if kind in (MOVED, MOVING):
        said = json.loads(body)
        mark = Mark(str(said.get("to", "")), str(said.get("from", "")), str(end[2]))
    return (end[0], end[1], end[2]), mark


def end_before(connection: Connection, mark: End) -> End:
    """Return the line before a mark."""
    end: End = connection.execute(_BEFORE, (mark[0],)).fetchone() or (0, "", "")
    return end


def mark_of(record: Record) -> Mark | None:
    """Return what this client's head record says of a move; None for nothing."""
    to = getattr(record, "moved", "")
    return Mark(to) if to else None


def refusal(mark: Mark, place: str) -> LedgerMoved:
    """Return the error for whoever would write into a ledger that is not in use."""
    if mark.came_from:
        return LedgerMoved(
            f"{place} is not the ledger yet: a move from {mark.came_from} has begun and not ended.",
            field="ledger",
            value=place,
            next=f"Finish it where it was begun: cloudgpu ledger move '{mark.to}'",
        )
    return LedgerMoved(
        f"{moved_text(mark, place)} Nothing is written here any more.",
        field="ledger",
        value=place,
        next="To work there: cloudgpu ledger move --follow",
    )


def moved_text(mark: Mark, place: str) -> str:
    """Return that a ledger has moved, where to, and since when."""
    when = f" on {mark.since[:10]} at {mark.since[11:16]} UTC" if mark.since else ", and this is an old copy of it"
    return f"The ledger at {place} moved to {mark.to}{when}."
