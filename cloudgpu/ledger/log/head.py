"""The head record: a copy of the ledger's last line outside its file, and whether the lines agree with it.

It has a fixed length and is overwritten in place: that is a single write inside one sector, which neither a
killed process nor a power failure leaves half done. It is not synced: it is written after the line's
own sync, so a power failure can only leave an older record, never a wrong one.

A reader takes no lock, as a process that was suspended with the lock would keep every reader waiting. A read
during a write may find parts of two records, so each record ends with its own checksum. Only if that is
wrong does a reader wait for the lock, which tells a write in progress from a damaged file.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cloudgpu.core.events.log import LEDGER_MOVED, LEDGER_MOVING
from cloudgpu.core.values.times import duration_text, iso
from cloudgpu.errors import LedgerMoved
from cloudgpu.ledger.log import files, lines
from cloudgpu.ledger.log.files import PRIVATE_FILE, close_locked, make_private_directory
from cloudgpu.ledger.log.lines import LastLine, Verification
from cloudgpu.ledger.log.sql import Connection
from cloudgpu.ledger.log.storage_errors import LedgerMovedAway, locked_error

_LENGTH = 512  # bytes of the file: one sector of a disk
_CHECKSUM_KEY = ', "check": "'
_PRIME = 2**64 - 59  # the checksum of a record is its bytes, read as one number, modulo this
ANOTHER_PLACE = "another place"  # written instead of an address that is too long for the record


@dataclass(frozen=True, slots=True)
class HeadRecord:
    """The last line of ledger `ledger_id` as this client has seen it written.

    `moved` is where the ledger is now, if this client knows that it has moved away; empty otherwise. The line is
    then the last one before the move, `recorded_at` the time of the move, and `next_hash` the hash of the first line
    after it at the new place.
    """

    ledger_id: str
    seq: int
    hash: str
    recorded_at: str
    moved: str = ""
    next_hash: str = ""


@dataclass(frozen=True, slots=True)
class DamagedHead:
    """The head record's file exists, and holds no valid record."""

    path: Path


HeadContent = HeadRecord | DamagedHead | None  # None: nothing was written yet


def read_head(path: Path, lock_timeout_s: float) -> HeadContent:
    """Return the head file's record without its lock. Raises OSError.

    Raises LedgerUnavailable if it is invalid and stays locked for `lock_timeout_s` seconds.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        record = _parse_head(path, handle)
        if not isinstance(record, DamagedHead):
            return record
        _lock(handle, fcntl.LOCK_SH, path, lock_timeout_s)
        return _parse_head(path, handle)
    finally:
        close_locked(handle)


def lock_head(path: Path, lock_timeout_s: float) -> LockedHead:
    """Return the head record, locked until `close`; creates a missing file.

    Waits `lock_timeout_s` seconds at most, then raises LedgerUnavailable. Raises OSError.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        make_private_directory(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    return LockedHead(path, handle, lock_timeout_s)


class LockedHead:
    """The locked head record: only this process may write it."""

    def __init__(self, path: Path, handle: int, lock_timeout_s: float) -> None:
        self._path = path
        self._handle = handle
        try:
            _lock(handle, fcntl.LOCK_EX, path, lock_timeout_s)
        except BaseException:
            os.close(handle)
            raise

    def read(self) -> HeadContent:
        """Return the record in the file. Raises OSError."""
        return _parse_head(self._path, self._handle)

    def write(
        self, ledger_id: str, seq: int, digest: str, recorded_at: str, *, moved: str = "", next_hash: str = ""
    ) -> None:
        """Overwrite the record. Raises OSError."""
        record = {"ledger": ledger_id, "seq": seq, "hash": digest, "recorded_at": recorded_at}
        record |= {"goes_on": next_hash} if next_hash else {}  # the stored name of `next_hash`
        text = _with_checksum(record | ({"moved": moved} if moved else {}))
        if len(text) >= _LENGTH:  # an address that does not fit is in the ledger's own last line
            text = _with_checksum(record | {"moved": ANOTHER_PLACE})
        os.pwrite(self._handle, text.encode().ljust(_LENGTH - 1) + b"\n", 0)

    def replace(
        self, ledger_id: str, seq: int, digest: str, recorded_at: str, *, moved: str = "", next_hash: str = ""
    ) -> None:
        """Write the whole record, whatever the file holds, and sync it. Raises OSError."""
        self.write(ledger_id, seq, digest, recorded_at, moved=moved, next_hash=next_hash)
        os.ftruncate(self._handle, _LENGTH)
        os.fsync(self._handle)

    def close(self) -> None:
        """Unlock and close the file. Raises OSError."""
        close_locked(self._handle)


def _with_checksum(record: dict[str, object]) -> str:
    text = json.dumps(record)[:-1]
    return f"{text}{_CHECKSUM_KEY}{_checksum(text)}"


def _checksum(text: str) -> str:
    return f'{int.from_bytes(text.encode(), "big") % _PRIME:x}"}}'


def _parse_head(path: Path, handle: int) -> HeadContent:
    data = os.pread(handle, _LENGTH + 1, 0)
    if not data.strip(b" \n\0"):
        return None
    unsigned_text, _, checksum = (
        data.rstrip().decode(errors="replace").rpartition(_CHECKSUM_KEY)
    )  # without the blanks behind it
    if checksum != _checksum(unsigned_text):
        return DamagedHead(path)
    try:
        stored = json.loads(f"{unsigned_text}}}")
        fields = str(stored["ledger"]), int(stored["seq"]), str(stored["hash"]), str(stored["recorded_at"])
        return HeadRecord(*fields, str(stored.get("moved", "")), str(stored.get("goes_on", "")))
    except (ValueError, KeyError, TypeError):
        return DamagedHead(path)


def _lock(handle: int, operation: int, path: Path, lock_timeout_s: float) -> None:
    seconds = files.current_lock_timeout_s(str(path), lock_timeout_s)
    deadline, pause = time.monotonic() + seconds, 0.0005
    while not files.try_lock(handle, operation):
        if time.monotonic() >= deadline:
            files.lock_timed_out(str(path))
            raise locked_error(path, seconds)
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    files.lock_acquired(str(path))


_SELECT_LAST = "SELECT seq, hash, recorded_at, kind, body FROM line ORDER BY seq DESC LIMIT 1"
FOLLOW_COMMAND = "cloudgpu ledger move --follow"  # what a user types to use the ledger at its new place
_SELECT_BEFORE = "SELECT seq, hash, recorded_at FROM line WHERE seq < ? ORDER BY seq DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class MoveMark:
    """The mark of a move: why a ledger is not in use at its place.

    `to` is where it is, or will be, without a password; `came_from` is where a ledger that is being moved in
    comes from, empty for one that has moved away. `since` is when, empty for an old copy at a place that the ledger has
    left. `last` is the line before the mark, and `next_hash` the hash of the line after that one at the new place.
    """

    to: str
    came_from: str = ""
    since: str = ""
    last: LastLine = (0, "", "")
    next_hash: str = ""


def last_line_and_mark(connection: Connection) -> tuple[LastLine, MoveMark | None]:
    """Return the last line's seq, hash and time, and the move that it records, if any."""
    row = connection.execute(_SELECT_LAST).fetchone()
    if row is None:
        return (0, "", ""), None
    *last_line, kind, body = row
    mark = None
    if kind in (LEDGER_MOVED, LEDGER_MOVING):
        stored = json.loads(body)
        last = connection.execute(_SELECT_BEFORE, last_line[:1]).fetchone() or (0, "", "")
        to, came_from, next_hash = (str(stored.get(name, "")) for name in ("to", "from", "goes_on"))
        mark = MoveMark(to, came_from, str(last_line[2]), last, next_hash)
    return (last_line[0], last_line[1], last_line[2]), mark


def mark_of(record: HeadContent) -> MoveMark | None:
    """Return the move that this client's head record knows; None for none."""
    if not isinstance(record, HeadRecord) or not record.moved:
        return None
    last = (record.seq, record.hash, "")
    return MoveMark(record.moved, since=record.recorded_at, last=last, next_hash=record.next_hash)


def ledger_moved_error(mark: MoveMark, location: str) -> LedgerMoved:
    """Return the error for a write into a ledger that is not in use."""
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
        next=f"To work there: {FOLLOW_COMMAND}",
    )


def ledger_left_error(mark: MoveMark, location: str) -> LedgerMovedAway:
    """Return the error for reading a ledger that has moved, if the old place cannot be read any more."""
    return LedgerMovedAway(
        f"{moved_text(mark, location)} The old place cannot be read.",
        field="ledger",
        value=location,
        next=f"To work there: {FOLLOW_COMMAND}",
    )


def moved_text(mark: MoveMark, location: str) -> str:
    """Return that a ledger has moved, where to, and since when."""
    when = f" on {mark.since[:10]} at {mark.since[11:16]} UTC" if mark.since else ", and this is an old copy of it"
    return f"The ledger at {location} moved to {mark.to}{when}."


MAX_CLOCK_SKEW = timedelta(minutes=5)  # how far two honest clocks may differ

_LINES_IN_THE_FUTURE = """
SELECT max(recorded_at) FROM line WHERE recorded_at > ?
AND seq >= coalesce((SELECT max(seq) FROM line WHERE subject = 'ledger' AND kind = 'ledger_settled'), 0)"""


def missing_ledger_problem(location: str, record: HeadContent) -> str | None:
    """Return a sentence if there is a head record but no ledger; None without a head record."""
    if record is None:
        return None
    had = f"says that it had {record.seq} lines" if isinstance(record, HeadRecord) else "is damaged"
    return f"The ledger {location} is missing or empty, and its head record {had}."


def head_problem(connection: Connection, location: str, record: HeadContent) -> str | None:
    """Return how the lines contradict the head record, or None; a record that lags behind is normal after a crash."""
    if record is None:
        return None
    if isinstance(record, DamagedHead):
        return f"The head record {record.path} of the ledger is damaged."
    if record.ledger_id != lines.id_of(connection):
        return f"The ledger {location} is not the ledger {record.ledger_id} that was used here before."
    hash_row = connection.execute("SELECT hash FROM line WHERE seq = ?", (record.seq,)).fetchone()
    if hash_row is None:
        seq = lines.last_line(connection)[0]
        return f"The ledger {location} ends at line {seq}, and its head record knew line {record.seq}."
    if hash_row[0] != record.hash:
        return f"The ledger {location} has another line {record.seq} than the one its head record knew."
    return None


def line_clock_problem(
    connection: Connection, now: datetime, database_time: Callable[[], datetime | None]
) -> str | None:
    """Return how the clock contradicts the lines since the last `settle`, or None.

    If the database's own clock agrees with this one, the computer that wrote those lines had the wrong time.
    """
    (latest,) = connection.execute(_LINES_IN_THE_FUTURE, (iso(now + MAX_CLOCK_SKEW),)).fetchone()
    if not latest:
        return None
    database_now = database_time()
    if database_now is not None and abs(now - database_now) <= MAX_CLOCK_SKEW:
        return None
    (actor,) = connection.execute("SELECT actor FROM line WHERE recorded_at = ?", (latest,)).fetchone()
    return (
        f"This machine's clock says {iso(now)}, and the ledger has a line that {actor} recorded at {latest}. "
        "One of the two clocks is, or was, wrong."
    )


def client_clock_problem(now: datetime, database_now: datetime | None) -> str | None:
    """Return how this computer's clock contradicts that of the ledger's database; None where they agree."""
    if database_now is None or abs(now - database_now) <= MAX_CLOCK_SKEW:
        return None
    apart = duration_text(round(abs(now - database_now).total_seconds()))
    order = "ahead of" if now > database_now else "behind"
    return f"This computer's clock is {apart} {order} that of the ledger's database."


def id_if_intact(connection: Connection, location: str, record: HeadContent, last_line: LastLine) -> str | None:
    """Return the ledger's id for its next head record; None while lines and head record disagree."""
    if isinstance(record, HeadRecord) and (record.seq, record.hash) == last_line[:2]:
        return record.ledger_id  # the chain begins with the id: what ends with this hash is this ledger
    return lines.id_of(connection) if head_problem(connection, location, record) is None else None


def verification(
    connection: Connection, location: str, record: HeadContent, missing_triggers: list[str]
) -> Verification:
    """Recompute the hash chain; compare triggers, projections and head record, all in the caller's one snapshot.

    `missing_triggers` are names of the database's triggers that keep lines from being changed.
    """
    from cloudgpu.ledger.log.projections import differences  # `ls` does without

    count, last_hash, faults = lines.check_chain(lines.stored_lines(connection))
    differing = [] if faults else differences(connection)
    faults += [f"The guard {name} was taken off or changed." for name in missing_triggers]
    problem = head_problem(connection, location, record)
    problems = (*differing, *faults, *((problem,) if problem else ()))
    return Verification(count, last_hash, problems, rebuildable=bool(differing) and len(differing) == len(problems))
