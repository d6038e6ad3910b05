"""The writing half of a ledger, over any store: appends under one lock, moves; `cloudgpu.ledger.reader` reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cloudgpu.ledger.log import lines, storage_errors
from cloudgpu.ledger.log.head import (
    HeadContent,
    LockedHead,
    MoveMark,
    head_problem,
    id_if_intact,
    last_line_and_mark,
    mark_of,
)
from cloudgpu.ledger.reader import Reader, write_move_mark

if TYPE_CHECKING:  # imported only where it is needed: every module costs `cloudgpu ls` time
    import sqlite3

    from cloudgpu.core.events.log import Draft, Event
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.ledger.log.base import LedgerCopy, View
    from cloudgpu.ledger.log.sql import Connection
    from cloudgpu.ledger.log.store import Store
    from cloudgpu.ledger.log.teams import Sharing, Team, TeamRequest

T = TypeVar("T")

_MAX_CACHED_STATES = 256  # subjects whose folded state a writer keeps in memory for its next line


class Book(Reader):
    """`cloudgpu.ledger.log.base.Ledger` in the database of `store`, with this client's head record in `head_path`.

    Creates nothing before the first append. `actor` is the writer in every line, unless a team shares the ledger: then
    the database user is. `clock` returns aware UTC; `lock_timeout_s` is how many seconds to wait for a lock. May be
    used by several threads and processes at once.

    A line's subject is the id of what it is about: a machine, a resource, a job, an account. A `LastLine` is the seq,
    hash and time of the last line.
    """

    def __init__(
        self, store: Store, head_path: Path, *, actor: str, clock: Callable[[], datetime], lock_timeout_s: float
    ) -> None:
        super().__init__(store, head_path, clock=clock, lock_timeout_s=lock_timeout_s)
        self._actor = actor
        # The folded states of some subjects (`core.events.projection`), as of the line whose hash is `_states_hash`.
        self._states: dict[str, Any] = {}
        self._states_hash: str | None = None

    def append(self, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        """Write these lines in one transaction; a draft whose `dedupe` exists already is skipped."""
        return self.decide(lambda _view: drafts)

    def append_to(self, machine: Machine, drafts: Sequence[Draft]) -> Machine:
        """Write these lines; return this machine's record after them, `machine` itself if the ledger has none."""
        self.append(drafts)
        return self.machine(machine.id) or machine

    def decide(self, decision: Callable[[View], Sequence[Draft]]) -> tuple[Event, ...]:
        """Append what `decision` returns: call it under the append lock and write in the same transaction."""
        with self._writing() as (connection, head_lock, record, last_line):
            drafts = decision(self)  # outside of `translated`: its errors pass through as they are
            with self._store.translated():
                ledger_id = id_if_intact(connection, self.location, record, last_line)
                written, new_last_line = self._write(connection, drafts, last_line)
                self._store.commit(new_last_line)
                self._states_hash = new_last_line[1]
            if ledger_id is not None:
                # The lines are committed: if the head record cannot be written now, the next append corrects it.
                with suppress(OSError):
                    head_lock.write(ledger_id, *new_last_line)
        return written

    def settle(self, why: str, *, followed_by: Draft | None = None) -> Event:
        """End an integrity problem: write `ledger_settled`, accept the present last line and clock as right.

        A missing ledger is created again. `followed_by` is a line to write after that one, in the same transaction.
        """
        from cloudgpu.core.events import general_events

        problem = self.integrity_problem()
        with self._writing(recreate=True) as (connection, head_lock, _, last_line), self._store.translated():
            draft = general_events.ledger_settled(problem, why, self.now(), last_line[0])
            drafts = [draft] if followed_by is None else [draft, followed_by]
            written, new_last_line = self._write(connection, drafts, last_line)
            ledger_id = lines.id_of(connection)
            self._store.commit(new_last_line)
            head_lock.replace(ledger_id, *new_last_line)
        return written[0]

    def rebuild(self) -> None:
        """Fold the projections again from the lines, and restore missing triggers (against changed lines)."""
        from cloudgpu.ledger.log.projections import rebuild

        with self._writing() as (connection, _head_lock, _record, last_line), self._store.translated():
            rebuild(connection)
            self._store.restore_triggers()
            self._store.commit(last_line)
            self._machine_cache.forget()

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy of the ledger, as one SQLite file, into the empty file `path`."""
        with self._thread_lock, self._store.translated():
            if self._store.reader() is None:
                raise storage_errors.no_ledger_error(self.location)
            self._store.copy_to(path)

    def replace(
        self, source: sqlite3.Connection, check: Callable[[Connection | None], None], copy: LedgerCopy
    ) -> str | None:
        """Move the ledger aside and put the lines of `source` in its place; return where the old one is.

        The head record stays. If there was none, a line says that what came after the copy is not known.
        Raises LedgerMoved if the ledger has moved away, as others already use it elsewhere.
        """
        from cloudgpu.core.events import general_events

        def check_present(present: Connection | None) -> None:
            mark = None if present is None else last_line_and_mark(present)[1]
            self._raise_if_moved(mark or mark_of(record))
            check(present)

        with self._thread_lock, closing(self._lock_head()) as head_lock:
            record, now = head_lock.read(), self.now()
            with self._store.translated():
                old_location = self._store.replace(source, check_present, f"{now:%Y%m%dt%H%M%Sz}")
        if record is None:
            why = f"It was restored from a backup that ends at line {copy.line_count}, recorded at {copy.recorded_at}."
            self.append([general_events.ledger_restored(why, copy.line_count, copy.head_hash, now)])
        return old_location

    @contextmanager
    def read_connection(self) -> Iterator[Connection]:
        """Yield a connection with one consistent state of the lines. Raises LedgerUnavailable without a ledger."""
        with self._thread_lock, self._store.translated():
            connection = self._reader(missing_ok=False)
            if connection is None:
                raise storage_errors.no_ledger_error(self.location)
            with self._store.snapshot():
                yield connection

    def fill(self, write_lines: Callable[[Connection, Callable[[], None]], Draft]) -> str:
        """Have `write_lines` copy another ledger's lines here, in one transaction, and append the line that it returns.

        Return that line's hash. Creates missing tables. `write_lines` also gets a function that deletes the last line
        if that is a mark of a move. The head record stays as it is.
        """
        hashes: list[str] = []

        def write_into(connection: Connection) -> None:
            with self._store.without_actor_check():
                draft = write_lines(connection, self._store.delete_move_mark)
                hashes.append(self._write(connection, [draft], lines.last_line(connection))[1][1])

        with self._thread_lock, closing(self._lock_head()):
            try:
                with self._store.translated():
                    connection = self._store.begin()
                    if connection is None:
                        self._store.create(write_into)
                    else:
                        write_into(connection)
                        self._store.commit(lines.last_line(connection))
            finally:
                self._store.rollback()
                self._machine_cache.forget()
        if not hashes:  # another client has made it meanwhile
            raise storage_errors.vanished_error(self.location)
        return hashes[0]

    @contextmanager
    def writers_blocked(self) -> Iterator[tuple[Connection, Callable[[str, str], None]]]:
        """Block all writers; yield the connection, and a function that writes the last line: where the ledger moved."""
        from cloudgpu.core.events.general_events import ledger_moved

        with self._writing() as (connection, _head_lock, _record, last_line):

            def write_move(to: str, next_hash: str) -> None:
                with self._store.translated():
                    draft = ledger_moved(to, next_hash, self.now(), last_line[0])
                    _, new_last_line = self._write(connection, [draft], last_line)
                    self._store.commit(new_last_line)

            yield connection, write_move

    def open_here(self, check: Callable[[Connection, lines.LastLine, MoveMark | None], str]) -> None:
        """Take the ledger into use here, and update this client's head record.

        `check` gets the connection, the last line and the mark of a move, raises if this is not the ledger that has
        moved, and returns where that came from. A head record of a later line than those here is left as it is.
        """
        from cloudgpu.core.events import general_events

        with self._writing(allow_moved=True) as (connection, head_lock, record, last_line):
            new_last_line = last_line
            mark = last_line_and_mark(connection)[1]
            came_from = check(connection, last_line, mark)
            with self._store.translated():
                if mark is not None:
                    draft = general_events.ledger_arrived(came_from, self.now(), new_last_line[0])
                    _, new_last_line = self._write(connection, [draft], new_last_line)
                self._store.commit(new_last_line)
                if mark_of(record) or head_problem(connection, self.location, record) is None:
                    head_lock.replace(lines.id_of(connection), *new_last_line)

    def record_new_place(self, ledger_id: str, mark: MoveMark) -> None:
        """Record in this client's head record where the ledger is now, whatever is put here later."""
        with self._thread_lock, self._store.translated(), closing(self._lock_head()) as head_lock:
            write_move_mark(head_lock, ledger_id, mark)

    def share(self, request: TeamRequest) -> Sharing:
        """Share the ledger with a team, or change the team, as far as this user may; return the resulting state."""
        from cloudgpu.ledger.log.teams import not_shareable_error

        if not self._store.can_be_shared:
            raise not_shareable_error(self.location)
        self.append(())  # makes the tables where there are none
        sharing = self._read(lambda _: self._store.grant_roles(request))
        team = sharing.team
        if team is None or not sharing.roles_have_all_rights:
            return sharing
        self.decide(lambda view: self._team_events(team, view))
        latest = self._read(lambda _: self._store.sharing(request))
        return replace(latest, remarks=sharing.remarks) if latest else sharing

    def _team_events(self, team: Team, view: View) -> list[Draft]:
        """Record the team under the append lock, and return the line about it if it has changed."""
        from cloudgpu.core.events.general_events import team_set

        self._store.restore_triggers()
        if not self._store.record_team(team):
            return []
        return [team_set(team.members, team.payers, self.now(), view.head()[0])]

    @contextmanager
    def _writing(
        self, *, recreate: bool = False, allow_moved: bool = False
    ) -> Iterator[tuple[Connection, LockedHead, HeadContent, lines.LastLine]]:
        """Hold the head record and the database's lock inside a transaction; what is not committed is rolled back.

        Yields the database, the locked head record, what it says, and the last line.

        Raises LedgerMoved for a ledger that is not in use at this place, unless `allow_moved`.
        """
        with self._thread_lock:
            if self._store.is_writing or self._is_in_snapshot:
                raise storage_errors.nested_append_error(self.location)
            with self._store.translated():
                self._store.reader()  # the place is checked before a file is created
                head_lock = self._lock_head()
            try:
                with self._store.translated():
                    record = head_lock.read()
                    remembered_move = None if allow_moved else mark_of(record)
                    if remembered_move is not None and self._store.reader() is None:
                        self._raise_if_moved(remembered_move)
                    connection = self._begin(record, recreate=recreate)
                    last_line, mark = last_line_and_mark(connection)
                if not allow_moved:
                    self._raise_if_moved(mark or (remembered_move and replace(remembered_move, since="")))
                yield connection, head_lock, record, last_line
            finally:
                self._store.rollback()
                head_lock.close()

    def _begin(self, record: HeadContent, *, recreate: bool) -> Connection:
        connection = self._store.begin()
        if connection is None:
            self._create(record, recreate=recreate)
            connection = self._store.begin()
        if connection is None:
            self._raise_if_missing(record)
            raise storage_errors.vanished_error(self.location)
        return connection

    def _create(self, record: HeadContent, *, recreate: bool) -> None:
        from cloudgpu.core.events.general_events import ledger_opened

        if not recreate:
            self._raise_if_missing(record)
        ledger_id = getattr(record, "ledger_id", None) or os.urandom(8).hex()
        opened = ledger_opened(ledger_id, self.now())
        self._store.create(lambda connection: self._write(connection, [opened], lines.last_line(connection)))

    def _write(
        self, connection: Connection, drafts: Sequence[Draft], last_line: lines.LastLine
    ) -> tuple[tuple[Event, ...], lines.LastLine]:
        from cloudgpu.core.values.times import iso
        from cloudgpu.ledger.log.projections import append_lines, refresh

        states = self._states if self._states_hash == last_line[1] else {}
        self._states_hash = None  # until these lines are committed
        actor = self._store.required_actor or self._actor
        written, new_last_line = append_lines(connection, drafts, last_line, actor=actor, recorded_at=iso(self.now()))
        refresh(connection, written, states)
        while len(states) > _MAX_CACHED_STATES:
            del states[next(iter(states))]
        self._states = states
        return written, new_last_line
