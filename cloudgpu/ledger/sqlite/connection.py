"""The SQLite file and the one connection to it: found, made, opened anew where another file has taken its place."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import finalize

from cloudgpu.errors import InvalidRequest, LedgerUnavailable
from cloudgpu.ledger.log import files, storage_errors
from cloudgpu.ledger.sqlite import migrations

if TYPE_CHECKING:
    from cloudgpu.core.team.rights import Role
    from cloudgpu.ledger.log.lines import LastLine
    from cloudgpu.ledger.log.teams import Sharing, Team, TeamRequest

# What SQLite reports for a disk that is full or read-only.
_DISK_FULL_CODES = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY)


TURN_S = 0.2  # seconds that SQLite itself waits for a lock, before Ctrl-C is looked for
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY)
_INHERITED_CONNECTIONS: list[sqlite3.Connection] = []  # connections of the process that this one was forked from


class _LockWaitingConnection(sqlite3.Connection):
    """Waits for a lock in short steps: Ctrl-C is noticed between two of them, and never while SQLite itself waits."""

    lock_timeout_s = 0.0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Carry out a statement; raise "database is locked" when it still is after `lock_timeout_s` seconds."""
        deadline = None
        while True:
            try:
                return super().execute(sql, parameters)
            except sqlite3.OperationalError as error:
                deadline = deadline or monotonic() + self.lock_timeout_s - TURN_S
                if error.sqlite_errorcode not in _BUSY or monotonic() >= deadline:
                    raise

    def begin(self, location: str, usual_timeout_s: float) -> None:
        """Begin a transaction that may write; wait for a lock `usual_timeout_s`, or less after a wait in vain."""
        self.lock_timeout_s = files.current_lock_timeout_s(location, usual_timeout_s)
        try:
            self.execute("BEGIN IMMEDIATE")
            files.lock_acquired(location)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in _BUSY:
                files.lock_timed_out(location)
            raise
        finally:
            self.lock_timeout_s = usual_timeout_s


class SqliteFile:
    """`cloudgpu.ledger.log.store.Store` in one file. `lock_timeout_s` is how many seconds a lock is waited for.

    Methods raise sqlite3.Error and OSError; InvalidRequest for a place or a file that is not for a ledger;
    LedgerUnavailable for a schema that is not known.
    """

    can_be_shared = False

    def __init__(self, path: Path, lock_timeout_s: float) -> None:
        self.path = path
        self._lock_timeout_s = lock_timeout_s
        self._connection: sqlite3.Connection | None = None
        self._close_connection: Callable[[], object] | None = None
        self._writable = False
        self._file_id: tuple[int, int] | None = None
        self._is_directory_checked = False

    @property
    def location(self) -> str:
        """The file's path."""
        return str(self.path)

    @property
    def is_writing(self) -> bool:
        """Whether a transaction is open, also that of a `snapshot`, which only reads."""
        return self._connection is not None and self._connection.in_transaction

    @property
    def is_connection_lost(self) -> bool:
        """Never: a file has no connection that others could cut."""
        return False

    @property
    def required_actor(self) -> str:
        """The actor that each line must have: "", since a file knows no users, and the client chooses it."""
        return ""

    def time(self) -> None:
        """Return None: a file has no clock."""
        return

    def role_and_user(self) -> tuple[Role, str]:
        """Return that nobody shares a file."""
        from cloudgpu.core.team.rights import Role

        return Role.ALONE, ""

    def members(self) -> tuple[str, ...]:
        """Return nobody: a file has no team."""
        return ()

    def payers(self) -> tuple[str, ...]:
        """Return nobody: a file has no team."""
        return ()

    def sharing(self, request: TeamRequest | None = None) -> Sharing | None:  # noqa: ARG002
        """Return that no team can share a file."""
        return None

    def grant_roles(self, request: TeamRequest) -> Sharing:  # noqa: ARG002
        """Raise InvalidRequest: a file has no users."""
        from cloudgpu.ledger.log.teams import not_shareable_error

        raise not_shareable_error(self.location)

    def record_team(self, team: Team) -> bool:  # noqa: ARG002
        """Do nothing: a file has no team."""
        return False

    def translated(self) -> AbstractContextManager[None]:
        """Let every sqlite3.Error and OSError out of this block as LedgerUnavailable."""
        return storage_errors.translated(self.path)

    def reader(self) -> sqlite3.Connection | None:
        """Return a connection to a ledger of the present schema, or None where there is none yet. Makes no file."""
        if self._connection is not None and (self.is_writing or self._file_id == _file_id(self.path)):
            return self._connection
        self.close()
        self._check_directory()
        if _file_id(self.path) is None:
            return None
        self._take_connection(self._open_for_reading(), writable=False)
        version = self._known_version()
        if version == 0:
            self.close()
            return None
        return self._connection if version == len(migrations.MIGRATIONS) else self.writer()

    def writer(self) -> sqlite3.Connection | None:
        """Return a connection that may write, its schema brought up to date; None where there is no ledger yet."""
        if self.reader() is None or self._writable:
            return self._connection
        connection = self._open_for_writing()
        if self._known_version() < len(migrations.MIGRATIONS):
            from cloudgpu.ledger.log.projections import rebuild

            try:
                connection.execute("BEGIN IMMEDIATE")
                migrations.migrate(connection)
                rebuild(connection)
                connection.execute("COMMIT")
            except BaseException:  # a connection that stays open would count as one to a ledger of the present schema
                self.close()
                raise
        return connection

    def begin(self) -> sqlite3.Connection | None:
        """Return the writer inside a transaction; one that cannot begin is closed, since a reader may do without it.

        On a full disk there is no room for the shared memory that a writer reads through.
        """
        try:
            connection = self.writer()
            if isinstance(connection, _LockWaitingConnection):
                connection.begin(self.location, self._lock_timeout_s)
        except sqlite3.Error:
            self.close()
            raise
        return connection

    def create(self, fill: Callable[[sqlite3.Connection], object]) -> None:
        """Make the file with its schema and what `fill` writes, in one transaction, unless another process just did."""
        self._check_directory()
        files.make_private_directory(self.path.parent)
        files.make_empty_file(self.path)
        connection = self._open_for_writing()
        try:
            connection.execute("BEGIN IMMEDIATE")
            if migrations.version_of(connection) == 0:
                migrations.migrate(connection)
                fill(connection)
            connection.execute("COMMIT")
        except BaseException:
            self.close()
            raise

    def commit(self, _end: LastLine) -> None:
        """End the transaction for good: when this returns, it is on the disk."""
        self._open().execute("COMMIT")

    def rollback(self) -> None:
        """Roll back what is not committed."""
        if self.is_writing:
            with suppress(sqlite3.Error):
                self._open().execute("ROLLBACK")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one and the same state throughout, whoever writes meanwhile."""
        self._open().execute("BEGIN")
        try:
            yield
        finally:
            self.rollback()

    def missing_triggers(self) -> list[str]:
        """Return the names of triggers that somebody has dropped."""
        return migrations.missing_triggers(self._open())

    def restore_triggers(self) -> None:
        """Put back the triggers that are missing, inside the open transaction."""
        migrations.restore_triggers(self._open())

    def without_actor_check(self) -> AbstractContextManager[None]:
        """Return a block that changes nothing: a file does not check who the actors of lines are."""
        return nullcontext()

    def delete_move_mark(self) -> None:
        """Delete the last line, which the caller knows for a mark of a move, inside the open transaction."""
        migrations.delete_move_mark(self._open())

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy into the empty file `path`."""
        with closing(sqlite3.connect(path, isolation_level=None)) as copy:
            self._open().backup(copy)
            copy.execute("PRAGMA journal_mode = delete")  # one file, without a log beside it

    def replace(
        self, source: sqlite3.Connection, check: Callable[[sqlite3.Connection | None], None], name_suffix: str
    ) -> str | None:
        """Set the file aside and put the lines of `source` in its place, in one transaction of the same file.

        The file stays the same one, since other processes may have it open. One that cannot be read is moved away.
        """
        from cloudgpu.ledger.sqlite.replacing import replace_file

        return replace_file(self, source, check, name_suffix)

    def lock(self, name: str, wait: bool | float) -> AbstractContextManager[None]:  # noqa: FBT001
        """Hold the lock beside the file: homes that share a file have no other lock in common."""
        return files.lock(self.path.parent, name, wait=wait, ledger_id=self.path.name)

    def is_locked(self, name: str) -> bool:
        """Say whether a living process of any home that uses this file holds the lock."""
        return files.is_locked(self.path.parent, name, ledger_id=self.path.name)

    def check_lock(self, name: str) -> None:
        """Raise LedgerUnavailable where this process held the lock and has lost it unawares."""
        files.check_lock(self.path.parent, name, ledger_id=self.path.name)

    def close(self) -> None:
        """Close the connection, if there is one; an open transaction is rolled back."""
        close_connection, self._close_connection, self._connection, self._writable = (
            self._close_connection,
            None,
            None,
            False,
        )
        if close_connection is not None:
            close_connection()

    def _check_directory(self) -> None:
        if not self._is_directory_checked:
            files.refuse_network(self.path)
            self._is_directory_checked = True

    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None  # noqa: S101  (for the type checker: the callers have opened it)
        return self._connection

    def _known_version(self) -> int:
        """Return the file's schema. One that cannot be read here is closed: whoever asks next is refused, too."""
        try:
            return self._checked_version()
        except (InvalidRequest, LedgerUnavailable):
            self.close()
            raise

    def _checked_version(self) -> int:
        version = migrations.version_of(self._open())
        if migrations.is_foreign(self._open()):
            raise _not_a_ledger_error(self.path)
        if version > len(migrations.MIGRATIONS):
            raise storage_errors.newer_schema_error(self.path, version, len(migrations.MIGRATIONS))
        if version:
            storage_errors.check_format(self._open(), self.path)
        return version

    def _open_for_reading(self) -> sqlite3.Connection:
        connection = self._connect("mode=ro")
        try:
            migrations.version_of(connection)
        except sqlite3.OperationalError as error:
            connection.close()
            wal_file = self.path.with_name(f"{self.path.name}-wal")
            if error.sqlite_errorcode & 0xFF not in _DISK_FULL_CODES or _has_content(wal_file):
                raise
            # A full or read-only disk has no room for the shared memory of a reader. Nothing waits in the log,
            # so the file is whole and can be read as it stands.
            return self._connect("immutable=1")
        return connection

    def _open_for_writing(self) -> sqlite3.Connection:
        self.close()
        connection = self._connect("mode=rw")
        self._take_connection(connection, writable=True)
        with suppress(sqlite3.OperationalError):  # a file system without shared memory, or somebody is reading
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = full")
        return connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        name = str(self.path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        connection = sqlite3.connect(
            f"file:{name}?{mode}",
            uri=True,
            timeout=min(self._lock_timeout_s, TURN_S),
            isolation_level=None,
            check_same_thread=False,
            factory=_LockWaitingConnection,
        )
        connection.lock_timeout_s = self._lock_timeout_s
        return connection

    def _take_connection(self, connection: sqlite3.Connection, *, writable: bool) -> None:
        self._connection, self._writable = connection, writable
        # With its session, or at the process's end: the last to close empties the log, and one file is the ledger.
        self._close_connection = finalize(self, _close_in_owner, connection, os.getpid())
        self._file_id = _file_id(self.path)


def _close_in_owner(connection: sqlite3.Connection, owner_pid: int) -> None:
    """Close it in the process that opened it. A fork keeps it: to close it there could remove the parent's log."""
    if os.getpid() == owner_pid:
        connection.close()
    else:
        _INHERITED_CONNECTIONS.append(connection)


def _file_id(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  (a Path's own stat takes twice as long, and every read does it)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _not_a_ledger_error(path: Path) -> InvalidRequest:
    return InvalidRequest(
        f"The file {path} is another program's database, not a ledger.",
        field="CLOUDGPU_LEDGER",
        value=str(path),
        next="Name a file that does not exist yet: CLOUDGPU_LEDGER=sqlite:///a/local/path/ledger.db",
    )
