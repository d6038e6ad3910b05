"""Puts another ledger in the place of a SQLite file that other processes may have open, and sets the old one aside."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

from cloudgpu.ledger.log.files import make_empty_file, make_private_directory
from cloudgpu.ledger.log.head import last_line_and_mark
from cloudgpu.ledger.sqlite.backup import write_copy
from cloudgpu.ledger.sqlite.migrations import delete_move_mark

_UNREADABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal")


class FileStore(Protocol):
    """`cloudgpu.ledger.log.store.Store` in one SQLite file, as far as its replacement needs it."""

    path: Path

    def reader(self) -> sqlite3.Connection | None:
        """Return a connection to a ledger of the present schema; None where there is none yet."""
        ...

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy into the empty file `path`."""
        ...

    def close(self) -> None:
        """Close the connection, if there is one."""
        ...


def replace_file(
    file: FileStore, source: sqlite3.Connection, check: Callable[[sqlite3.Connection | None], None], name_suffix: str
) -> str | None:
    """Replace the ledger as `Store.replace` does. Raises the errors of `check`, SQLite and the system.

    The content is exchanged by SQLite itself, in one transaction of the file that stands there: a file that was
    renamed under a process that has it open would lose what that process writes.
    """
    present = _present_ledger(file)
    check(present)
    previous_file = _set_aside(file, present, name_suffix)
    make_private_directory(file.path.parent)
    make_empty_file(file.path)
    file.close()
    with _prepared(source, file.path) as prepared, closing(sqlite3.connect(file.path)) as live:
        live.execute("PRAGMA synchronous = full")
        prepared.backup(live)
    return previous_file


def _present_ledger(file: FileStore) -> sqlite3.Connection | None:
    """Return the ledger that stands there; None where there is none, or none that can be read."""
    try:
        connection = file.reader()
        if connection is not None:
            connection.execute("SELECT max(seq), count(hash) FROM line").fetchone()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _UNREADABLE:
            raise
        file.close()
        return None
    return connection


def _set_aside(file: FileStore, present: sqlite3.Connection | None, name_suffix: str) -> str | None:
    """Copy what can be read to a file of its own, move away what cannot; return that file."""
    previous_file = file.path.with_name(f"{file.path.name}.before-{name_suffix}")
    if present is not None:
        make_empty_file(previous_file)
        file.copy_to(previous_file)
        return str(previous_file)
    if not file.path.exists() or not file.path.stat().st_size:
        return None
    for suffix in _FILE_SUFFIXES:
        temporary = file.path.with_name(file.path.name + suffix)
        if temporary.exists():
            temporary.rename(previous_file.with_name(previous_file.name + suffix))
    return str(previous_file)


@contextmanager
def _prepared(source: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a ledger of the present schema with the lines of `source`, in a file that is deleted afterwards."""
    temporary = path.with_name(f"{path.name}.restoring")
    temporary.unlink(missing_ok=True)
    make_empty_file(temporary)
    try:
        write_copy(source, temporary)
        with closing(sqlite3.connect(temporary)) as connection:
            if (
                last_line_and_mark(connection)[1] is not None
            ):  # the owner restores a copy of a ledger that has moved away
                delete_move_mark(connection)
                connection.commit()
            yield connection
    finally:
        for suffix in _FILE_SUFFIXES:
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
