"""Stores the ledger in one PostgreSQL database: connects, locks, commits, and reconnects after a lost connection."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from cloudgpu.core.team.rights import Role
from cloudgpu.ledger.book import Book
from cloudgpu.ledger.log import files, storage_errors
from cloudgpu.ledger.log.head import client_clock_problem, last_line_and_mark
from cloudgpu.ledger.log.lines import LastLine
from cloudgpu.ledger.log.sql import Connection
from cloudgpu.ledger.log.teams import Sharing, Team, TeamRequest
from cloudgpu.ledger.postgresql import denied, errors, locks, schema, team
from cloudgpu.ledger.postgresql.address import Address
from cloudgpu.ledger.postgresql.connection import DATABASE_TIME, Adapter, connect_to_ledger

_APPEND_LOCK_CLASS = 0x63677075  # "cgpu": the first half of the append lock's key; the second is the schema's
_CHECK_COMMIT_S = 10.0  # how long to check whether an unconfirmed commit was made; a termination waits for this
_RETRY_PAUSE_S = 0.2  # seconds between two tries to reach a server that went away


class PostgresStore:
    """`cloudgpu.ledger.log.store.Store` in the database at `address`.

    `lock_timeout_s` is how many seconds to wait for a lock. `on_database_time` is called with the database's own time,
    where that counts, at each connection and each transaction that appends.

    Methods raise psycopg.Error; InvalidRequest for a database that is not for a ledger; LedgerUnavailable for a
    schema that is not known, and for lines whose commit was not confirmed.
    """

    can_be_shared = True

    def __init__(self, address: Address, lock_timeout_s: float, on_database_time: Callable[[datetime], None]) -> None:
        self._address = address
        self._lock_timeout_s = lock_timeout_s
        self._raw: psycopg.Connection[Any] | None = None
        self._schema = ""
        self._version = 0
        self._lock_connections: dict[str, psycopg.Connection[Any]] = {}
        self.is_writing = False
        self.required_actor = ""
        self._on_database_time = on_database_time

    @property
    def location(self) -> str:
        """The database's address without its password."""
        return self._address.location

    @property
    def is_connection_lost(self) -> bool:
        """Whether the connection was open and is broken now."""
        return self._raw is not None and self._raw.closed

    def translated(self) -> AbstractContextManager[None]:
        """Raise LedgerUnavailable for every psycopg.Error and OSError of this block."""
        return errors.translated(self._address)

    def reader(self) -> Connection | None:
        """Return a connection to a ledger of the present schema; None where there is none yet."""
        if self._raw is None or (self.is_connection_lost and not self.is_writing):
            self.close()
            self._raw, self._schema, database_now = connect_to_ledger(self._address)
            self._version = 0
            self._report_database_time(database_now)
        if self._version == 0:
            self._version = self._known_version()
        if 0 < self._version < len(schema.MIGRATIONS):
            self._migrate()
        return Adapter(self._raw) if self._version else None

    def begin(self) -> Connection | None:
        """Take the append lock in a new transaction; over a new connection if the old one broke meanwhile."""
        for is_last_try in (False, True):
            connection = self.reader()
            if connection is None:
                return None
            try:
                self.required_actor, database_now = self._begin_locked(team.REQUIRED_ACTOR)
            except psycopg.OperationalError:
                if is_last_try or not self.is_connection_lost:
                    raise
            else:
                self._report_database_time(database_now)
                break
        self.is_writing = True
        return connection

    def create(self, fill: Callable[[Connection], object]) -> None:
        """Make the tables with what `fill` writes, in one transaction, unless another client just did."""
        self.reader()
        with self._locked_transaction():
            if schema.version_of(self._adapter()) == 0:
                schema.migrate(self._adapter())
                fill(self._adapter())

    def commit(self, last_line: LastLine) -> None:
        """Commit the transaction. Without an answer, check whether the last line was committed; if not, raise."""
        try:
            cursor = self._connection().execute("COMMIT")
        except psycopg.OperationalError as error:
            if not self.is_connection_lost:
                raise
            self._check_committed(last_line, errors.without_secrets(str(error), self._address))
        else:
            self.is_writing = False
            if cursor.statusmessage != "COMMIT":  # a transaction that had failed before
                raise errors.unwritten_error(self._address, "the transaction was rolled back")

    def rollback(self) -> None:
        """Roll back what is not committed."""
        self.is_writing = False
        if self._raw is not None and self._raw.info.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                self._raw.execute("ROLLBACK")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one and the same state throughout, whoever writes meanwhile."""
        self._adapter().execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            self.rollback()

    def missing_triggers(self) -> list[str]:
        """Return the names of triggers that somebody has dropped, disabled or changed."""
        return schema.missing_triggers(self._adapter())

    def restore_triggers(self) -> None:
        """Put back the triggers that are missing, inside the open transaction."""
        schema.restore_triggers(self._adapter())

    @contextmanager
    def without_actor_check(self) -> Iterator[None]:
        """Remove the team inside the block, since with one every line has to name the user who writes it."""
        present_team = team.team_of(self._adapter())
        if present_team is not None:
            team.remove(self._adapter())
        yield
        if present_team is not None:
            team.write_team(self._adapter(), present_team)

    def delete_move_mark(self) -> None:
        """Delete the last line, which has to be a mark of a move, inside the open transaction."""
        schema.delete_move_mark(self._adapter())

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy, as one SQLite file, into the empty file `path`."""
        from cloudgpu.ledger.sqlite.backup import write_copy

        with self.snapshot():
            write_copy(self._adapter(), path)

    def replace(
        self, source: sqlite3.Connection, check: Callable[[Connection | None], None], name_suffix: str
    ) -> str | None:
        """Move the tables into a schema of their own and fill new ones from `source`, in one transaction."""
        from cloudgpu.ledger.log.projections import rebuild
        from cloudgpu.ledger.sqlite.backup import copy_lines_after

        present = self.reader()
        with self._locked_transaction():
            check(present)
            present_team = team.team_of(present) if present else None
            archive_schema = (
                schema.archive_tables(self._adapter(), f"{self._schema}_before_{name_suffix}") if present else None
            )
            schema.migrate(self._adapter())
            copy_lines_after(source, self._adapter())
            if (
                last_line_and_mark(self._adapter())[1] is not None
            ):  # the owner restores a copy of a ledger that has moved away
                schema.delete_move_mark(self._adapter())
            rebuild(self._adapter())
            if present_team is not None:
                team.write_team(self._adapter(), present_team)  # last: the lines are by others than who restores them
                team.regrant_tables(self._adapter())
        return archive_schema and f"the schema {archive_schema} of {self.location}"

    @contextmanager
    def lock(self, name: str, wait: bool | float) -> Iterator[None]:  # noqa: FBT001
        """Hold the lock `name` alone among all clients of this ledger, as `locks.lock` says."""
        with locks.lock(self._address, name, wait) as raw:
            self._lock_connections[name] = raw
            try:
                yield
            finally:
                del self._lock_connections[name]

    def is_locked(self, name: str) -> bool:
        """Return whether a living client holds the lock `name`."""
        self.reader()
        return locks.is_locked(self._connection(), self._schema, name)

    def check_lock(self, name: str) -> None:
        """Raise LedgerUnavailable where this client held the lock `name` and has lost it with its connection."""
        if name in self._lock_connections:
            locks.check(self._lock_connections[name], self._address, self._schema_name(), name)

    def time(self) -> datetime | None:
        """Return the database's own time; None where it is left out."""
        found: datetime | None = (self._connection().execute(f"SELECT {DATABASE_TIME}").fetchone() or (None,))[0]
        return found

    def role_and_user(self) -> tuple[Role, str]:
        """Return the role and the name of this client's user; ALONE and "" without a team."""
        return team.current_role(self._adapter()) if self._version else (Role.ALONE, "")

    def members(self) -> tuple[str, ...]:
        """Return the names of the users who may write, payers too."""
        return team.members(self._adapter()) if self._version else ()

    def payers(self) -> tuple[str, ...]:
        """Return the names of the users who have the payer's role."""
        return team.payers(self._adapter()) if self._version else ()

    def sharing(self, request: TeamRequest | None = None) -> Sharing:
        """Return how the ledger is shared, and what a request lacks."""
        if not self._version:
            return team.missing_sharing(self._adapter(), self.location)
        return team.sharing(self._adapter(), self.location, self.missing_triggers(), request)

    def grant_roles(self, request: TeamRequest) -> Sharing:
        """Grant a team's roles what they need, as far as this user may; return how the ledger is shared then."""
        return team.grant(self._adapter(), self.location, request)

    def record_team(self, new_team: Team) -> bool:
        """Record the team inside the open transaction; return whether it differs from the present one."""
        if team.team_of(self._adapter()) == new_team:
            return False
        team.write_team(self._adapter(), new_team)
        self.required_actor = team.current_role(self._adapter())[1]
        return True

    def close(self) -> None:
        """Close the connection, if there is one; an open transaction is rolled back."""
        raw, self._raw, self._version, self.is_writing = self._raw, None, 0, False
        if raw is not None:
            raw.close()

    def _report_database_time(self, database_now: datetime | None) -> None:
        if database_now is not None:
            self._on_database_time(database_now)

    def _adapter(self) -> Connection:
        return Adapter(self._connection())

    def _connection(self) -> psycopg.Connection[Any]:
        assert self._raw is not None  # noqa: S101  (for the type checker: the callers have opened it)
        return self._raw

    def _schema_name(self) -> str:
        if not self._schema:
            self.reader()
        return self._schema

    def _known_version(self) -> int:
        version = schema.version_of(self._adapter())
        if version == 0 and schema.is_foreign(self._adapter()):
            version = schema.version_of(
                self._adapter()
            )  # again: another client may have made it between the two queries
            if version == 0:
                raise errors.foreign_schema_error(self._address, self._schema)
        if version > len(schema.MIGRATIONS):
            raise storage_errors.newer_schema_error(self.location, version, len(schema.MIGRATIONS))
        if version:
            storage_errors.check_format(self._adapter(), self.location)
        return version

    def _migrate(self) -> None:
        from cloudgpu.ledger.log.projections import rebuild

        try:
            with self._locked_transaction():
                schema.migrate(self._adapter())
                rebuild(self._adapter())
                team.regrant_tables(self._adapter())
        except psycopg.errors.InsufficientPrivilege:
            raise denied.older_schema_error(self._adapter(), self._address, self._schema) from None
        self._version = self._known_version()

    @contextmanager
    def _locked_transaction(self) -> Iterator[None]:
        """Hold the append lock in a transaction, which is committed unless the block raises."""
        self._begin_locked()
        try:
            yield
            self._adapter().execute("COMMIT")
        finally:
            self.rollback()

    def _begin_locked(self, query: str = "SELECT ''") -> Any:
        """Begin a transaction that sees everything up to when it got the lock, and hold the lock to its end.

        Return the row of `query`.
        """
        key = locks.lock_key(self._schema, "") & 0x7FFFFFFF
        lock = f"{self.location}/{self._schema}"
        lock_timeout_ms = max(1, int(files.current_lock_timeout_s(lock, self._lock_timeout_s) * 1000))
        try:
            cursor = self._connection().execute(
                "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
                f"SET LOCAL lock_timeout = {lock_timeout_ms}; "
                f"SELECT pg_advisory_xact_lock({_APPEND_LOCK_CLASS}, {key}); {query}"
            )
        except psycopg.errors.LockNotAvailable:
            files.lock_timed_out(lock)
            self.rollback()
            raise
        files.lock_acquired(lock)
        while cursor.nextset():
            pass
        return cursor.fetchone()

    def _check_committed(self, last_line: LastLine, error_text: str) -> None:
        """Return if the line `last_line` was committed after all; raise if it was not, or cannot be read.

        The append lock is taken first: the unconfirmed transaction is over then, committed or not.
        """
        deadline = time.monotonic() + min(self._lock_timeout_s, _CHECK_COMMIT_S)
        self.close()
        while True:
            try:
                connection = self.begin()
                break
            except psycopg.OperationalError:
                if time.monotonic() >= deadline:
                    raise errors.unknown_commit_error(self._address, error_text) from None
                time.sleep(_RETRY_PAUSE_S)
        hash_row = connection and connection.execute("SELECT hash FROM line WHERE seq = ?", last_line[:1]).fetchone()
        self.rollback()
        if hash_row != (last_line[1],):
            raise errors.unwritten_error(self._address, error_text)


# A wrong time zone or day is less; if two clocks are further apart, it is not known which of them is right.
_MAX_CLOCK_CORRECTION = timedelta(days=1)
_NOT_CORRECTED = "Set the wrong one right: the times that this computer writes may be wrong, and so may bills be."


class PostgresLedger(Book):
    """`cloudgpu.ledger.log.base.Ledger` in the database at `address`; everything else as `Book` says.

    If the database's clock differs from this computer's by up to a day, `now` follows the database's, unless the
    caller of the library set the time.
    """

    def __init__(
        self,
        address: Address,
        head_path: Path,
        *,
        actor: str,
        clock: Callable[[], datetime],
        lock_timeout_s: float = 30.0,
    ) -> None:
        self._clock_ahead, self._server_time_counts = timedelta(0), False
        store = PostgresStore(address, lock_timeout_s, self._compare_clocks)
        super().__init__(store, head_path, actor=actor, clock=clock, lock_timeout_s=lock_timeout_s)
        self.now, self.clock_ahead = lambda: clock() - self._clock_ahead, lambda: self._clock_ahead

    def server_now(self) -> datetime | None:
        """Return what time it is by the database; None where its clock does not count. Raises LedgerUnavailable."""
        self.head()
        return self.now() if self._server_time_counts else None

    def _compare_clocks(self, database_now: datetime) -> None:
        """Compare this computer's clock with the database's time."""
        now = self._clock()
        problem = client_clock_problem(now, database_now)
        is_corrected = problem is not None and self.has_own_clock and abs(now - database_now) <= _MAX_CLOCK_CORRECTION
        self._clock_ahead = now - database_now if is_corrected else timedelta(0)
        self._server_time_counts = problem is None or is_corrected
        if problem and self.tell is not None:
            remedy = "cloudgpu goes by the database's. Set this computer's right."
            self.tell(f"{problem} {remedy if is_corrected else _NOT_CORRECTED}")
            self.tell = None
