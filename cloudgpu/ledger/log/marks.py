"""The last line of a ledger that is not in use at its place: it has moved away, or is still being moved in."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cloudgpu.core.events.log import LEDGER_ARRIVED, LEDGER_MOVED, LEDGER_MOVING
from cloudgpu.errors import LedgerMoved
from cloudgpu.ledger.log.head import Head, Record
from cloudgpu.ledger.log.lines import End
from cloudgpu.ledger.log.sql import Connection
from cloudgpu.ledger.log.storage_errors import LedgerLeft

MOVED, MOVING, ARRIVED = LEDGER_MOVED, LEDGER_MOVING, LEDGER_ARRIVED
_LAST = "SELECT seq, hash, recorded_at, kind, body FROM line ORDER BY seq DESC LIMIT 1"
FOLLOW = "cloudgpu ledger move --follow"
_BEFORE = "SELECT seq, hash, recorded_at FROM line WHERE seq < ? ORDER BY seq DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class Mark:
    """Why a ledger is not in use at its place.

    `to` is where it stands, or will stand, without a password; `came_from` is where a ledger that is being moved in
    comes from, empty for one that has moved away. `since` is when, empty for an old copy at a place that the ledger has
    left. `last` is the line before the mark, and `goes_on` the hash of the line behind that one at the new place.
    """

    to: str
    came_from: str = ""
    since: str = ""
    last: End = (0, "", "")
    goes_on: str = ""


def end_and_mark(connection: Connection) -> tuple[End, Mark | None]:
    """Return the last line's seq, hash and time, and what it says of a move."""
    found = connection.execute(_LAST).fetchone()
    if found is None:
        return (0, "", ""), None
    *end, kind, body = found
    mark = None
    if kind in (MOVED, MOVING):
        stored = json.loads(body)
        last = connection.execute(_BEFORE, end[:1]).fetchone() or (0, "", "")
        to, came_from, goes_on = (str(stored.get(name, "")) for name in ("to", "from", "goes_on"))
        mark = Mark(to, came_from, str(end[2]), last, goes_on)
    return (end[0], end[1], end[2]), mark


def mark_of(record: Record) -> Mark | None:
    """Return what this client's head record says of a move; None for nothing."""
    if not isinstance(record, Head) or not record.moved:
        return None
    last = (record.seq, record.hash, "")
    return Mark(record.moved, since=record.recorded_at, last=last, goes_on=record.goes_on)


def refusal(mark: Mark, location: str) -> LedgerMoved:
    """Return the error for whoever would write into a ledger that is not in use."""
    if mark.came_from:
        return LedgerMoved(
            f"{location} is not the ledger yet: a move from {mark.came_from} has begun and not ended.",
            field="ledger",
            value=location,
            next=f"Finish it where it was begun: cloudgpu ledger move '{mark.to}'",
        )
    return LedgerMoved(
        f"{moved_text(mark, location)} Nothing is written here any more.",
        field="ledger",
        value=location,
        next=f"To work there: {FOLLOW}",
    )


def left(mark: Mark, location: str) -> LedgerLeft:
    """Return the error for whoever would read a ledger that has moved where nothing can be read any more."""
    return LedgerLeft(
        f"{moved_text(mark, location)} The old place cannot be read.",
        field="ledger",
        value=location,
        next=f"To work there: {FOLLOW}",
    )


def moved_text(mark: Mark, location: str) -> str:
    """Return that a ledger has moved, where to, and since when."""
    when = f" on {mark.since[:10]} at {mark.since[11:16]} UTC" if mark.since else ", and this is an old copy of it"
    return f"The ledger at {location} moved to {mark.to}{when}."
