"""The ledger in one SQLite file: appended under one lock, read without any."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

from cloudgpu.core.events import Draft, Event
from cloudgpu.core.times import iso
from cloudgpu.ledger import faults, lines, migrations, projection
from cloudgpu.ledger.base import Row, Verification, View
from cloudgpu.ledger.connection import SqliteFile
from cloudgpu.ledger.faults import told
from cloudgpu.ledger.head import Head, HeldHead, Record, Unreadable, held_head, read_head

AHEAD = timedelta(minutes=5)  # how far two honest clocks may differ

_FROM_THE_FUTURE = """
SELECT max(recorded_at) FROM line WHERE recorded_at > ?
AND seq >= coalesce((SELECT max(seq) FROM line WHERE subject = 'ledger' AND kind = 'ledger_settled'), 0)"""


class SqliteLedger:
    """`cloudgpu.ledger.base.Ledger` in the SQLite file `path`, with its head record in the file `head_path`.

    Makes no file before the first append. `actor` is written beside every line; `clock` returns aware UTC;
    `patience` is how many seconds a lock is waited for. May be used by several threads and processes at once.
    """

    def __init__(
        self, path: Path, head_path: Path, *, actor: str, clock: Callable[[], datetime], patience: float = 30.0
    ) -> None:
        self._path = path
        self._head_path = head_path
        self._actor = actor
        self._clock = clock
        self._patience = patience
        self._file = SqliteFile(path, patience)
        self._own = threading.RLock()

    @property
    def id(self) -> str:
        """The ledger's id; empty before the first append."""
        with self._reading(missing_ok=True) as connection:
            if connection is not None:
                return lines.id_of(connection)
            head = self._head()
            return head.ledger if isinstance(head, Head) else ""

    def machines(self) -> list[Row]:
        """Return every machine's current row, oldest first."""
        with self._reading() as connection:
            return [] if connection is None else projection.machines(connection)

    def machine(self, id: str) -> Row | None:  # noqa: A002
        """Return one machine's current row, or None."""
        with self._reading() as connection:
            return None if connection is None else projection.machine(connection, id)

    def head(self) -> tuple[int, str, str]:
        """Return (seq, hash, recorded_at) of the last line; seq 0 where there is none."""
        with self._reading(missing_ok=True) as connection:
            return (0, "", "") if connection is None else lines.end_of(connection)

    def last(self, subject: str) -> Event | None:
        """Return the latest line of one subject, or None."""
        with self._reading() as connection:
            return None if connection is None else lines.last_of(connection, subject)

    def events(self, subject: str | None = None) -> Iterator[Event]:
        """Yield lines by seq, of one subject or all; what is appended meanwhile comes too."""
        after = 0
        while True:
            with self._reading() as connection:
                page = [] if connection is None else lines.page_of(connection, subject, after)
            if not page:
                return
            yield from page
            after = page[-1].seq

    def suspect(self) -> str | None:
        """Return why a part of the past seems to be missing or the clock wrong, or None."""
        with self._judging() as (connection, head):
            if connection is None:
                return self._missing_sentence(head) if head else None
            return self._doubt(connection, head) or self._clock_doubt(connection)

    def verify(self) -> Verification:
        """Recompute the chain; compare head record, guards and projection. At most 20 faults of the chain are named."""
        with self._judging() as (connection, head):
            if connection is None:
                return Verification(0, "", (self._missing_sentence(head),) if head else ())
            return self._verified(connection, head)

    def append(self, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        """Write these lines in one transaction; a draft whose dedupe stands already is left out."""
        return self.decide(lambda _view: drafts)

    def decide(self, decision: Callable[[View], Sequence[Draft]]) -> tuple[Event, ...]:
        """Call `decision` under the append lock and write what it returns in the same transaction."""
        with self._writing() as (connection, record, head):
            drafts = decision(self)  # outside of `told`: what it raises passes through as it is
            with told(self._path):
                start = lines.end_of(connection)
                ledger = self._undoubted(connection, head, start)
                written, end = self._write(connection, drafts, start)
                connection.execute("COMMIT")
            if ledger is not None:
                # The lines stand: a head record that could not follow is no failure of theirs, the next one heals it.
                with suppress(OSError):
                    record.write(Head(ledger, *end))
        return written

    def settle(self, why: str) -> Event:
        """Write `ledger_settled` and take the present end and time as the true ones; make a missing file anew."""
        found = self.suspect()
        with self._writing(anew=True) as (connection, record, _), told(self._path):
            start = lines.end_of(connection)
            body = {"found": found, "why": why}
            draft = Draft("ledger_settled", "ledger", body, self._clock(), f"ledger_settled:{start[0] + 1}")
            (written,), end = self._write(connection, [draft], start)
            ledger = lines.id_of(connection)
            connection.execute("COMMIT")
            record.replace(Head(ledger, *end))
        return written

    def rebuild(self) -> None:
        """Fold the projection again from the lines, and put back guards that were taken off."""
        with self._writing() as (connection, _record, _head), told(self._path):
            projection.rebuild(connection)
            migrations.restore_guards(connection)
            connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        with self._own, told(self._path):
            self._file.close()

    @contextmanager
    def _reading(self, *, missing_ok: bool = False) -> Iterator[sqlite3.Connection | None]:
        """Give a connection, or None where there is no ledger yet; one that has been there is missed aloud."""
        with self._own, told(self._path):
            connection = self._file.reader()
            if connection is None and not missing_ok:
                head = self._head()
                connection = self._file.reader()  # again: it may have been made between the two looks
                if connection is None:
                    self._miss(head)
            yield connection

    @contextmanager
    def _judging(self) -> Iterator[tuple[sqlite3.Connection | None, Record]]:
        """Give the connection and the head record, read before it: a file that grows meanwhile contradicts nothing."""
        with self._own, told(self._path):
            head = self._head()
            yield self._file.reader(), head

    @contextmanager
    def _writing(self, *, anew: bool = False) -> Iterator[tuple[sqlite3.Connection, HeldHead, Record]]:
        """Hold the head record and the database's lock inside a transaction; what is not committed is undone."""
        with self._own, ExitStack() as stack:
            if self._file.is_writing:
                raise faults.nested(self._path)
            with told(self._path):
                self._file.reader()  # the place is judged before a file is made
                record = stack.enter_context(held_head(self._head_path, self._patience))
                head = _read(record.read)
                connection = self._file.writer() or self._make(head, anew=anew)
                connection.execute("BEGIN IMMEDIATE")
            stack.callback(_undo, connection)
            yield connection, record, head

    def _make(self, head: Record, *, anew: bool) -> sqlite3.Connection:
        if not anew:
            self._miss(head)
        ledger = head.ledger if isinstance(head, Head) else os.urandom(8).hex()
        opened = Draft("ledger_opened", "ledger", {"ledger": ledger}, self._clock(), "ledger_opened")
        return self._file.create(lambda connection: self._write(connection, [opened], lines.end_of(connection)))

    def _write(
        self, connection: sqlite3.Connection, drafts: Sequence[Draft], start: lines.End
    ) -> tuple[tuple[Event, ...], lines.End]:
        now = iso(self._clock())
        written, end = lines.append_lines(connection, drafts, start, actor=self._actor, recorded_at=now)
        projection.refresh(connection, written)
        return written, end

    def _head(self) -> Record:
        return _read(lambda: read_head(self._head_path, self._patience))

    def _miss(self, head: Record) -> None:
        if head is not None:
            raise faults.missing(self._path, self._missing_sentence(head))

    def _missing_sentence(self, head: Head | Unreadable) -> str:
        had = f"says that it had {head.seq} lines" if isinstance(head, Head) else "is damaged"
        return f"The ledger file {self._path} is missing or empty, and its head record {had}."

    def _verified(self, connection: sqlite3.Connection, head: Record) -> Verification:
        from cloudgpu.ledger.verify import walk

        with _snapshot(connection):
            count, last, found = walk(lines.stored_lines(connection))
            if not found:
                found = projection.differences(connection)
            found += [f"The guard {name} was taken off." for name in migrations.missing_guards(connection)]
            doubt = self._doubt(connection, head)
        return Verification(count, last, (*found, *((doubt,) if doubt else ())))

    def _undoubted(self, connection: sqlite3.Connection, head: Record, end: lines.End) -> str | None:
        """Return the ledger's id for its next head record; None while a doubt stands, which more lines do not end."""
        if isinstance(head, Head) and (head.seq, head.hash) == end[:2]:
            return head.ledger  # the hash chain begins with the id: what has this end is this ledger
        return lines.id_of(connection) if self._doubt(connection, head) is None else None

    def _doubt(self, connection: sqlite3.Connection, head: Record) -> str | None:
        """Return how the file contradicts the head record; a head that lags behind is normal after a crash."""
        if head is None:
            return None
        if isinstance(head, Unreadable):
            return f"The ledger's head record {self._head_path} is damaged."
        if head.ledger != lines.id_of(connection):
            return f"The ledger file {self._path} is not the ledger {head.ledger} that was used here before."
        found = connection.execute("SELECT hash FROM line WHERE seq = ?", (head.seq,)).fetchone()
        if found is None:
            seq = lines.end_of(connection)[0]
            return f"The ledger {self._path} ends at line {seq}, and its head record knew line {head.seq}."
        if found[0] != head.hash:
            return f"The ledger {self._path} has another line {head.seq} than the one its head record knew."
        return None

    def _clock_doubt(self, connection: sqlite3.Connection) -> str | None:
        now = self._clock()
        (latest,) = connection.execute(_FROM_THE_FUTURE, (iso(now + AHEAD),)).fetchone()
        return latest and f"This machine's clock says {iso(now)}, and the ledger has a line recorded at {latest}."


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read one and the same state throughout, whoever writes meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        _undo(connection)


def _undo(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _read(read: Callable[[], Head | None]) -> Record:
    try:
        return read()
    except Unreadable as fault:
        return fault
