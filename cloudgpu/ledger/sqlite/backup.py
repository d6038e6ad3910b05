"""Copies of a ledger, from any store and back into any: one SQLite file, checked line by line when written and read.

A copy is a ledger by itself: `CLOUDGPU_LEDGER=sqlite:////path/to/copy.db cloudgpu ls` reads it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable
from cloudgpu.ledger.log import lines
from cloudgpu.ledger.log.base import Ledger, LedgerCopy
from cloudgpu.ledger.log.files import fsync, make_empty_file
from cloudgpu.ledger.log.sql import Connection
from cloudgpu.ledger.log.storage_errors import format_mismatch, translated
from cloudgpu.ledger.sqlite import migrations

INSERT = f"INSERT INTO line ({lines.COLUMNS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_BATCH = 5000  # lines written at once
# What SQLite reports where a file cannot be written to: reading the ledger writes nothing.
_WRITE_FAILED_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC)
_HASH = "SELECT hash FROM line WHERE seq = ?"


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore: how many lines of the previous ledger the copy lacks, and where that ledger is now."""

    copy: LedgerCopy
    missing_line_count: int
    previous_ledger: str | None


def write_backup(ledger: Ledger, path: Path) -> LedgerCopy:
    """Write a consistent copy of the ledger to the new 0600 file `path`, check all of it, and describe it.

    Others may append meanwhile. Raises InvalidRequest for a file that exists or cannot be written, LedgerUnavailable
    for a ledger that cannot be read or whose chain is broken: then no file is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    if path.exists():
        raise _backup_error(
            f"The file {path} exists already.", path, "Name a new file: an old backup is not overwritten."
        )
    try:
        _create_file(temporary, path)
        _copy(ledger, temporary, path)
        copy = _checked(temporary, ledger.location)
        with translated(temporary):
            fsync(temporary)
        temporary.rename(path)
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                temporary.with_name(temporary.name + suffix).unlink()
    return LedgerCopy(path, copy.ledger_id, copy.line_count, copy.head_hash, copy.recorded_at)


def restore(ledger: Ledger, path: Path, *, even_if_older: bool = False) -> Restored:
    """Put the copy's lines in the ledger's place, and move the present ledger aside.

    Nothing is changed before every line of the copy is checked, nor if the ledger has lines that the copy lacks,
    unless `even_if_older`. The head record stays as it is, so a copy that is older than what this client has
    seen has an integrity problem until it is settled; without a head record, a line says so.
    Raises InvalidRequest for an incomplete copy and for a ledger that would lose lines.
    """
    with _open_copy(path) as source:
        copy = _describe_copy(source, path)
        missing_line_count = 0

        def check(present: Connection | None) -> None:
            nonlocal missing_line_count
            missing_line_count = 0 if present is None else _count_missing_lines(present, source)
            if missing_line_count and not even_if_older:
                raise _older_copy_error(ledger.location, path, missing_line_count)

        previous_ledger = ledger.replace(source, check, copy)
    return Restored(copy, missing_line_count, previous_ledger)


def copy_lines_after(source: Connection, target: Connection, *, after: int = 0) -> None:
    """Copy every line after `after` from one database into another, which ends with that line."""
    found = lines.stored_lines(source, after=after or None)
    while batch := list(islice(found, _BATCH)):
        target.executemany(INSERT, batch)


def write_copy(connection: Connection, path: Path) -> None:
    """Write a ledger with these lines and their projections into the empty file `path`."""
    from cloudgpu.ledger.log.projections import rebuild

    with closing(sqlite3.connect(path, isolation_level=None)) as target:
        target.execute("BEGIN IMMEDIATE")
        migrations.migrate(target)
        copy_lines_after(connection, target)
        rebuild(target)
        target.execute("COMMIT")


def _count_missing_lines(present: Connection, source: Connection) -> int:
    """Return how many lines the present ledger has after those that both have; equal hashes mean equal lines before."""
    common_until, search_until = 0, lines.last_line(present)[0]
    line_count = search_until
    while common_until < search_until:
        middle = (common_until + search_until + 1) // 2
        ours, theirs = (one.execute(_HASH, (middle,)).fetchone() for one in (present, source))
        if ours is not None and ours == theirs:
            common_until = middle
        else:
            search_until = middle - 1
    return line_count - common_until


@contextmanager
def _open_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy read-only, whatever its schema: only its lines are used."""
    if not path.is_file():
        raise _backup_error(f"There is no file {path}.", path, "Name a file that `cloudgpu ledger backup` wrote.")
    try:
        name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        with closing(sqlite3.connect(f"file:{name}?mode=ro", uri=True)) as connection:
            if migrations.is_foreign(connection) or migrations.version_of(connection) == 0:
                raise _not_a_copy_error(path, "another program's database, or empty")
            yield connection
    except sqlite3.Error as error:
        raise _not_a_copy_error(path, str(error)) from error


def _describe_copy(source: sqlite3.Connection, path: Path) -> LedgerCopy:
    version, latest = migrations.version_of(source), len(migrations.MIGRATIONS)
    if version > latest:
        raise _backup_error(
            f"The backup {path} was written by a newer cloudgpu (schema {version}; this one knows up to {latest}).",
            path,
            "Upgrade cloudgpu on this machine.",
        )
    mismatch = format_mismatch(source, f"The backup {path}", "restore a backup that this cloudgpu made.")
    if mismatch is not None:
        raise _backup_error(mismatch[0], path, mismatch[1])
    count, last_hash, faults = lines.check_chain(lines.stored_lines(source))
    if faults or not count:
        raise _not_a_copy_error(path, faults[0] if faults else "it has no lines")
    return LedgerCopy(path, lines.id_of(source), count, last_hash, lines.last_line(source)[2])


def _checked(temporary: Path, location: str) -> LedgerCopy:
    """Describe a copy that was just made; raise if it is not complete: then the ledger is not either."""
    try:
        with _open_copy(temporary) as copy:
            return _describe_copy(copy, temporary)
    except CloudgpuError as error:
        raise LedgerUnavailable(
            f"No backup was made: the ledger {location} is not whole ({error.message.partition(': ')[2]})",
            field="ledger",
            value=location,
            next="Run: cloudgpu cost --verify",
        ) from error


def _copy(ledger: Ledger, temporary: Path, path: Path) -> None:
    """Copy the ledger into the temporary file; InvalidRequest about `path` where no more can be written there."""
    try:
        with translated(path):
            ledger.copy_to(temporary)
    except LedgerUnavailable as error:
        if getattr(error.__cause__, "sqlite_errorcode", None) not in _WRITE_FAILED_CODES:
            raise
        raise _backup_error(
            f"The backup {path} cannot be written: {error.__cause__}.",
            path,
            "Free some space on its disk, or name a file on another one.",
        ) from error


def _create_file(temporary: Path, path: Path) -> None:
    try:
        make_empty_file(temporary)
    except OSError as error:
        sentence = f"The file {path} cannot be made ({error.strerror})."
        raise _backup_error(sentence, path, "Name a file in a directory that exists and is yours.") from error


def _older_copy_error(location: str, path: Path, missing_line_count: int) -> InvalidRequest:
    lines_text = f"{missing_line_count} lines" if missing_line_count > 1 else "a line"
    return _backup_error(
        f"The ledger {location} has {lines_text} that the backup {path} lacks.",
        path,
        "Take a newer backup; or add --even-if-older: the ledger of now is set aside, not removed.",
    )


def _not_a_copy_error(path: Path, why: str) -> InvalidRequest:
    return _backup_error(
        f"{path} is not a complete backup of a ledger: {why.rstrip('.')}.",
        path,
        "Name a file that `cloudgpu ledger backup` wrote.",
    )


def _backup_error(message: str, path: Path, remedy: str) -> InvalidRequest:
    return InvalidRequest(message, field="FILE", value=str(path), next=remedy)
