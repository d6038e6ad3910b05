"""The ledger in one SQLite file: appended under one lock, read without any."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.ledger import faults, lines, migrations, projection
from cloudgpu.ledger.connection import SqliteFile
from cloudgpu.ledger.faults import told

if TYPE_CHECKING:  # what only a writer or a judge needs is imported by them: `cloudgpu ls` pays for every module
    from cloudgpu.core.events import Draft, Event
    from cloudgpu.ledger.base import Row, Verification, View
    from cloudgpu.ledger.head import HeldHead, Record


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
            return getattr(self._record(), "ledger", "")

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
        from cloudgpu.ledger import doubt

        with self._judging() as (connection, record):
            if connection is None:
                return doubt.of_missing(self._path, record)
            return doubt.of_past(connection, self._path, record) or doubt.of_clock(connection, self._clock())

    def verify(self) -> Verification:
        """Recompute the chain; compare head record, guards and projection. At most 20 faults of the chain are named."""
        from cloudgpu.ledger import doubt
        from cloudgpu.ledger.base import Verification

        with self._judging() as (connection, record):
            if connection is None:
                missing = doubt.of_missing(self._path, record)
                return Verification(0, "", (missing,) if missing else ())
            with _snapshot(connection):
                return doubt.verification(connection, self._path, record)

    def append(self, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        """Write these lines in one transaction; a draft whose dedupe stands already is left out."""
        return self.decide(lambda _view: drafts)

    def decide(self, decision: Callable[[View], Sequence[Draft]]) -> tuple[Event, ...]:
        """Call `decision` under the append lock and write what it returns in the same transaction."""
        from cloudgpu.ledger.doubt import undoubted_id

        with self._writing() as (connection, held, record):
            drafts = decision(self)  # outside of `told`: what it raises passes through as it is
            with told(self._path):
                start = lines.end_of(connection)
                ledger = undoubted_id(connection, self._path, record, start)
                written, end = self._write(connection, drafts, start)
                connection.execute("COMMIT")
            if ledger is not None:
                # The lines stand: a head record that could not follow is no failure of theirs, the next one heals it.
                with suppress(OSError):
                    held.write(ledger, *end)
        return written

    def settle(self, why: str) -> Event:
        """Write `ledger_settled` and take the present end and time as the true ones; make a missing file anew."""
        found = self.suspect()
        with self._writing(anew=True) as (connection, held, _), told(self._path):
            start = lines.end_of(connection)
            draft = self._own_draft("ledger_settled", {"found": found, "why": why}, f"ledger_settled:{start[0] + 1}")
            (written,), end = self._write(connection, [draft], start)
            ledger = lines.id_of(connection)
            connection.execute("COMMIT")
            held.replace(ledger, *end)
        return written

    def rebuild(self) -> None:
        """Fold the projection again from the lines, and put back guards that were taken off."""
        with self._writing() as (connection, _held, _record), told(self._path):
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
                record = self._record()
                connection = self._file.reader()  # again: it may have been made between the two looks
                if connection is None:
                    self._miss(record)
            yield connection

    @contextmanager
    def _judging(self) -> Iterator[tuple[sqlite3.Connection | None, Record]]:
        """Give the connection and the head record, read before it: a file that grows meanwhile contradicts nothing."""
        with self._own, told(self._path):
            record = self._record()
            yield self._file.reader(), record

    @contextmanager
    def _writing(self, *, anew: bool = False) -> Iterator[tuple[sqlite3.Connection, HeldHead, Record]]:
        """Hold the head record and the database's lock inside a transaction; what is not committed is undone."""
        from cloudgpu.ledger.head import held_head

        with self._own, ExitStack() as stack:
            if self._file.is_writing:
                raise faults.nested(self._path)
            with told(self._path):
                self._file.reader()  # the place is judged before a file is made
                held = stack.enter_context(held_head(self._head_path, self._patience))
                record = held.read()
                connection = self._begun(lambda: self._file.writer() or self._make(record, anew=anew))
                stack.callback(_undo, connection)
            yield connection, held, record

    def _begun(self, writer: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
        """Return the writer inside a transaction; one that cannot begin is closed, since a reader may do without it.

        On a full disk there is no room for the shared memory that a writer reads through.
        """
        try:
            connection = writer()
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            self._file.close()
            raise
        return connection

    def _make(self, record: Record, *, anew: bool) -> sqlite3.Connection:
        if not anew:
            self._miss(record)
        ledger = getattr(record, "ledger", None) or os.urandom(8).hex()
        opened = self._own_draft("ledger_opened", {"ledger": ledger}, "ledger_opened")
        return self._file.create(lambda connection: self._write(connection, [opened], lines.end_of(connection)))

    def _own_draft(self, kind: str, body: dict[str, Any], dedupe: str) -> Draft:
        from cloudgpu.core.events import Draft

        return Draft(kind, "ledger", body, self._clock(), dedupe)

    def _write(
        self, connection: sqlite3.Connection, drafts: Sequence[Draft], start: lines.End
    ) -> tuple[tuple[Event, ...], lines.End]:
        from cloudgpu.core.times import iso

        now = iso(self._clock())
        written, end = lines.append_lines(connection, drafts, start, actor=self._actor, recorded_at=now)
        projection.refresh(connection, written)
        return written, end

    def _record(self) -> Record:
        from cloudgpu.ledger.head import read_head

        return read_head(self._head_path, self._patience)

    def _miss(self, record: Record) -> None:
        from cloudgpu.ledger.doubt import of_missing

        sentence = of_missing(self._path, record)
        if sentence is not None:
            raise faults.missing(self._path, sentence)


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
