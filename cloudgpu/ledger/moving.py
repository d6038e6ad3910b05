"""Moves a ledger from one place to another: at every moment at most one of the two can be written.

In this order, each step one transaction: the lines are copied to the new place, with a last one that keeps it closed;
the old place is closed by a line that says where the ledger is; the new one is opened. Writers wait from before the
last lines are copied until the old place is closed. If the command is killed in between, it is run again.

The line that closes the old place holds the hash of the one that follows at the new place. A client that knows it
does not need the old place any more: the chain at the new one proves that this ledger continues there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudgpu.core.events.general_events import ledger_moving
from cloudgpu.errors import InvalidRequest, LedgerUnavailable
from cloudgpu.ledger.log import head, lines
from cloudgpu.ledger.log.head import HeadRecord
from cloudgpu.ledger.log.projections import rebuild, refresh
from cloudgpu.ledger.sqlite.backup import INSERT, copy_lines_after

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.core.events.log import Draft
    from cloudgpu.ledger.book import Book
    from cloudgpu.ledger.log.head import MoveMark
    from cloudgpu.ledger.log.lines import LastLine
    from cloudgpu.ledger.log.sql import Connection

_SELECT_HASH = "SELECT hash FROM line WHERE seq = ?"
_FIRST_MOVE = "SELECT seq, hash, recorded_at FROM line WHERE kind = 'ledger_moving' AND seq > ? ORDER BY seq LIMIT 1"
_LAST_MOVE = "SELECT body FROM line WHERE kind = 'ledger_moving' ORDER BY seq DESC LIMIT 1"
_LINES_AFTER = f"SELECT {lines.COLUMNS}, hash FROM line WHERE seq > ? ORDER BY seq"  # noqa: S608


@dataclass(frozen=True, slots=True)
class MovePlaces:
    """Where a ledger moves from and to; the URLs are without passwords."""

    source: Book
    target: Book
    target_url: str
    source_url: str = ""

    @property
    def is_same_place(self) -> bool:
        """Whether source and target are the same place: a ledger that has moved back is taken into use again."""
        return self.source.is_at(self.target)


def move(places: MovePlaces, check_may_move: Callable[[], None], now: datetime) -> None:
    """Move the ledger. `check_may_move` is called when nobody can write any more, and raises if the move has to wait.

    Raises InvalidRequest for a place that holds another ledger, or lines that this one lacks; LedgerUnavailable for a
    ledger that is not complete. Nothing has changed then.
    """
    source, target = places.source, places.target
    with ExitStack() as stack:
        source_closers: list[Callable[[str, str], None]] = []  # take the new place, and the hash of the next line there

        def copy_lines(target_lines: Connection, delete_mark: Callable[[], None]) -> Draft:
            with source.read_connection() as source_lines:
                _check_no_other_lines(source_lines, target_lines, target.location)
                if head.last_line_and_mark(target_lines)[1] is not None:
                    delete_mark()
                _copy_and_verify(source_lines, target_lines, source.location)
            source_lines, close_source = stack.enter_context(source.writers_blocked())
            source_closers.append(close_source)
            check_may_move()
            _copy_rest(source_lines, target_lines)
            return ledger_moving(source.location, places.target_url, now, lines.last_line(source_lines)[0])

        next_hash = target.fill(copy_lines)
        for close_source in source_closers:
            close_source(places.target_url, next_hash)
    follow(places)


def follow(places: MovePlaces) -> None:
    """Take the new place into use, and record in this client's head records that the ledger has left the old one.

    The old place is read only if this client does not know of the move, and may be gone: the chain at the new place
    proves it, too. Raises InvalidRequest if the ledger is not there, LedgerMoved if it has moved on.
    """
    source, target = places.source, places.target
    record = _known_head(source)
    if record is None:
        raise _unknown_source_error(source.location, target.location)
    if target.head()[0] == 0:  # reading creates nothing there
        raise _not_there_error(source.location, target.location)
    with target.read_connection() as target_lines:
        mark = _verify_move(target_lines, record, places)
    if not places.is_same_place:
        source.record_new_place(record.ledger_id, mark)

    def check(target_lines: Connection, _end: LastLine, _mark: MoveMark | None) -> str:
        _verify_move(target_lines, record, places)
        return source.location

    target.open_here(check)


def _known_head(source: Book) -> HeadRecord | None:
    """Return this client's head record, with the mark of a move if the old place can be read."""
    record = source.remembered_head()
    if not getattr(record, "moved", ""):
        with suppress(LedgerUnavailable):
            source.remember_move(despite_problem=True)
        record = source.remembered_head()
    return record if isinstance(record, HeadRecord) else None


def _verify_move(target_lines: Connection, record: HeadRecord, places: MovePlaces) -> MoveMark:
    """Return the move by which the ledger of the head record continued there, proved by the hashes of its lines.

    A ledger is opened at a new place only when the old one is closed. So a line of a move after the last line that is
    known of the old place proves that nothing is written there any more. A new place that is not open yet may be opened
    by a client that knows that the old one is closed, and the hash of the next line: then no other place was opened.
    """
    last_known, next_hash = (record.seq, record.hash, ""), record.next_hash
    move_line = target_lines.execute(_FIRST_MOVE, last_known[:1]).fetchone()
    known_hash = target_lines.execute(_SELECT_HASH, last_known[:1]).fetchone()
    is_same = lines.id_of(target_lines) == record.ledger_id and known_hash == (last_known[1],)
    if not is_same or move_line is None or (next_hash and move_line[1] != next_hash):
        raise _not_there_error(places.source.location, places.target.location)
    last_line, mark = head.last_line_and_mark(target_lines)
    if mark is not None and not (next_hash and last_line[:2] == tuple(move_line[:2])):
        raise head.ledger_moved_error(mark, places.target.location)
    _check_is_no_copy(target_lines, places)
    hash_before = target_lines.execute(_SELECT_HASH, (move_line[0] - 1,)).fetchone()
    return head.MoveMark(
        places.target_url, since=move_line[2], last=(move_line[0] - 1, hash_before[0], ""), next_hash=move_line[1]
    )


def _check_is_no_copy(target_lines: Connection, places: MovePlaces) -> None:
    """Raise InvalidRequest for a copy of a ledger that has moved to the old place, or from a file into a database."""
    (body,) = target_lines.execute(_LAST_MOVE).fetchone()
    last_target = str(json.loads(body).get("to", ""))
    is_other_kind = last_target.startswith("sqlite:") != places.target_url.startswith("sqlite:")
    if (last_target == places.source_url or is_other_kind) and not places.is_same_place:
        raise _url_error(
            f"{places.target.location} holds a copy: its entries say that the ledger is at {last_target}.",
            places.target.location,
            "Name the place where it is.",
        )


def _check_no_other_lines(source_lines: Connection, target_lines: Connection, location: str) -> None:
    """Raise InvalidRequest unless the target is empty, or has a part of this ledger and perhaps a mark of a move."""
    last_line, mark = head.last_line_and_mark(target_lines)
    if not last_line[0]:
        return
    if lines.id_of(target_lines) != lines.id_of(source_lines):
        raise _url_error(f"{location} holds another ledger.", location, "Name a place that holds none.")
    last_common = last_line if mark is None else mark.last
    if last_common[0] and source_lines.execute(_SELECT_HASH, last_common[:1]).fetchone() != (last_common[1],):
        raise _url_error(
            f"{location} holds this ledger with lines that the present one lacks.",
            location,
            "Name a place that holds none; to compare the two, name each by CLOUDGPU_LEDGER.",
        )


def _copy_and_verify(source_lines: Connection, target_lines: Connection, location: str) -> None:
    """Write the missing lines to the new place, and check the hash of every line there."""
    copy_lines_after(source_lines, target_lines, after=lines.last_line(target_lines)[0])
    rebuild(target_lines)
    _, last_hash, faults = lines.check_chain(lines.stored_lines(target_lines))
    if not faults and last_hash != lines.last_line(source_lines)[1]:
        faults = ["the copy ends with another line."]
    if faults:
        raise LedgerUnavailable(
            f"The ledger was not moved: {location} is not whole ({faults[0].rstrip('.')}).",
            field="ledger",
            value=location,
            next="Run: cloudgpu cost --verify",
        )


def _copy_rest(source_lines: Connection, target_lines: Connection) -> None:
    """Copy the lines that were appended meanwhile; the triggers at the new place check the chain."""
    last_line = lines.last_line(target_lines)
    rows = source_lines.execute(_LINES_AFTER, last_line[:1]).fetchall()
    if rows:
        target_lines.executemany(INSERT, rows)
        refresh(target_lines, lines.events_of([row[:-1] for row in rows]), {})


def _not_there_error(source: str, target: str) -> InvalidRequest:
    return _url_error(
        f"The ledger that was moved from {source} is not at {target}.",
        target,
        "Ask whoever moved it where it is, then run: cloudgpu ledger move URL --follow",
    )


def _unknown_source_error(source: str, target: str) -> InvalidRequest:
    return _url_error(
        f"This home does not know the ledger at {source}, so it cannot tell whether {target} holds the same one.",
        target,
        "Ask whoever moved it. If it does, name it in config.toml: ledger = ...",
    )


def _url_error(message: str, location: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(message, field="URL", value=location, next=remedy)
