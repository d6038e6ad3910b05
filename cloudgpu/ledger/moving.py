"""Moves a ledger from one place to another: at every moment at most one of the two can be written.

In this order, each step one transaction: the lines go to the new place, behind them one that keeps it closed; the old
place is closed by a line that says where the ledger stands; the new one is opened. Writers wait from before the last
lines are copied until the old place is closed. Whoever is killed in between runs the same again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudgpu.core.events import Draft
from cloudgpu.errors import InvalidRequest, LedgerUnavailable
from cloudgpu.ledger import lines, marks
from cloudgpu.ledger.backup import INSERT, pour
from cloudgpu.ledger.folding import rebuild, refresh
from cloudgpu.ledger.verify import walk

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.ledger.book import Book
    from cloudgpu.ledger.lines import End
    from cloudgpu.ledger.marks import Mark
    from cloudgpu.ledger.sql import Connection

_HASH = "SELECT hash FROM line WHERE seq = ?"
_AFTER = f"SELECT {lines.COLUMNS}, hash FROM line WHERE seq > ? ORDER BY seq"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Places:
    """Where a ledger moves from and to, and how the new place is named in the old one: without a password."""

    source: Book
    target: Book
    to: str


def move(places: Places, check: Callable[[], None], now: datetime) -> None:
    """Move the ledger. `check` is called when nobody can write any more, and raises where the move has to wait.

    Raises InvalidRequest for a place that holds another ledger, or lines that this one lacks; LedgerUnavailable for a
    ledger that is not whole. Nothing has changed then.
    """
    source, target = places.source, places.target
    with ExitStack() as alone:
        closing: list[Callable[[dict[str, Any]], None]] = []

        def poured(there: Connection, unmark: Callable[[], None]) -> Draft:
            with source.looked_at() as here:
                _check_same(here, there, target.place)
                if marks.end_and_mark(there)[1] is not None:
                    unmark()
                _poured(here, there, source.place)
            here, leave = alone.enter_context(source.leaving())
            closing.append(leave)
            check()
            _rest(here, there)
            body = {"from": source.place, "to": places.to}
            return Draft(marks.MOVING, "ledger", body, now, f"{marks.MOVING}:{lines.end_of(here)[0] + 1}")

        target.fill(poured)
        for leave in closing:
            leave({"to": places.to})
    follow(places)


def follow(places: Places) -> None:
    """Take the new place into use where a move closed the old one, and have this client's head records know both.

    Raises InvalidRequest where the ledger does not stand there, LedgerMoved where it has moved on from there.
    """
    source, target = places.source, places.target
    with source.looked_at() as here:
        ledger = lines.id_of(here)
        end, mark = marks.end_and_mark(here)
        last = end if mark is None else marks.end_before(here, end)

    def check(there: Connection, its_end: End, found: Mark | None) -> str:
        if lines.id_of(there) != ledger or there.execute(_HASH, last[:1]).fetchone() != (last[1],):
            raise _not_there(source.place, target.place)
        # Another move into the new place may have begun: only the one that closed the old place is ended here.
        ours = mark is not None and found is not None and found.came_from and marks.end_before(there, its_end) == last
        if found is not None and not ours:
            raise marks.refusal(found, target.place)
        return source.place

    if target.head()[0] == 0:  # nothing is made there by looking
        raise _not_there(source.place, target.place)
    target.arrive(check)
    source.retire(places.to)


def _check_same(here: Connection, there: Connection, place: str) -> None:
    """Raise InvalidRequest unless what stands there is nothing, or a part of this ledger and a mark of a move."""
    end, mark = marks.end_and_mark(there)
    if not end[0]:
        return
    if lines.id_of(there) != lines.id_of(here):
        raise _refused(f"{place} holds another ledger.", place, "Name a place that holds none.")
    last = end if mark is None else marks.end_before(there, end)
    if last[0] and here.execute(_HASH, last[:1]).fetchone() != (last[1],):
        raise _refused(
            f"{place} holds this ledger with lines that the present one lacks.",
            place,
            "Name a place that holds none; to compare the two, name each by CLOUDGPU_LEDGER.",
        )


def _poured(here: Connection, there: Connection, place: str) -> None:
    """Write what is missing there, and check every line of it by its hash as it stands there."""
    pour(here, there, after=lines.end_of(there)[0])
    rebuild(there)
    _, last, faults = walk(lines.stored_lines(there))
    if not faults and last != lines.end_of(here)[1]:
        faults = ["the copy ends otherwise."]
    if faults:
        raise LedgerUnavailable(
            f"The ledger was not moved: {place} is not whole ({faults[0].rstrip('.')}).",
            field="ledger",
            value=place,
            next="Run: cloudgpu cost --verify",
        )


def _rest(here: Connection, there: Connection) -> None:
    """Write what was appended while the rest was copied; the guards there check that it follows."""
    end = lines.end_of(there)
    found = here.execute(_AFTER, end[:1]).fetchall()
    if found:
        there.executemany(INSERT, found)
        refresh(there, lines.events_of([row[:-1] for row in found]), {})


def _not_there(source: str, target: str) -> InvalidRequest:
    return _refused(
        f"The ledger that moved away from {source} does not stand at {target}.",
        target,
        "Ask whoever moved it where it stands, then run: cloudgpu ledger move URL",
    )


def _refused(message: str, place: str, way: str) -> InvalidRequest:
    return InvalidRequest(message, field="URL", value=place, next=way)
