"""Turns errors of SQLite and the operating system into LedgerUnavailable."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from cloudgpu.core.events.log import FORMAT
from cloudgpu.errors import CloudgpuError, LedgerUnavailable
from cloudgpu.ledger.log import lines
from cloudgpu.ledger.log.sql import Connection

Unavailable = TypeVar("Unavailable", bound=LedgerUnavailable)

# What a user does about a ledger that may be incomplete or damaged; `Ledger.settle` ends that problem.
REPAIR_REMEDY = (
    "Restore a backup of the ledger (cloudgpu ledger restore FILE --yes), or run: cloudgpu cost --verify --yes "
    "(it checks the ledger against the providers, and repairs it)"
)

# Each: what is wrong with the ledger, and what to do.
FULL = ("cannot be written: the disk is full", "Free some space there, then try again; what is in it is safe.")
LOCKED = (
    "is locked by another process",
    "Wait for the other cloudgpu commands to end, or end one that is suspended (Ctrl-Z, see `jobs`), then try again.",
)
DAMAGED = ("is damaged", REPAIR_REMEDY.replace("Restore", "Move the damaged file away, then restore", 1))
DENIED = ("cannot be opened or written", "Check that the file and its directory belong to you and can be written to.")
BROKEN = ("cannot be read or written", "Check the disk (its free space, its health), then try again.")
READ_ONLY = "is read-only"
_LASTING_PROBLEMS = (  # do not go away by themselves
    DAMAGED[0],
    DENIED[0],
    BROKEN[0],
    READ_ONLY,
)

_PROBLEM_BY_SQLITE_CODE = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_PROTOCOL: LOCKED,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_FORMAT: DAMAGED,
    sqlite3.SQLITE_READONLY: DENIED,
    sqlite3.SQLITE_CANTOPEN: DENIED,
    sqlite3.SQLITE_PERM: DENIED,
    sqlite3.SQLITE_AUTH: DENIED,
}
_MAYBE_FULL = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)  # codes that SQLite also uses for a full disk
_MIN_FREE_BYTES = 64 * 1024  # for SQLite's shared memory, and some lines
_PROBLEM_BY_ERRNO = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: FULL,
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
    errno.EROFS: DENIED,
    errno.ENOTDIR: DENIED,
    errno.EISDIR: DENIED,
}


class LedgerAway(LedgerUnavailable):
    """The ledger cannot be reached or written now: stops and terminations continue without it, and are written later.

    Another LedgerUnavailable (a database that lets this user in no more, another format) stops them, too.
    `is_disk_full`: because a disk, or a quota on it, is full. `is_locked`: because another process holds its lock.
    `is_lasting`: it does not come back by itself; `next` says what to do.
    """

    is_disk_full = False
    is_locked = False
    is_lasting = False


class EntryRefused(LedgerUnavailable):
    """The ledger can be written, but its triggers or constraints refuse this entry."""


class LedgerMovedAway(LedgerAway):
    """The ledger has moved, and the old place, which this home still uses, cannot be read."""

    is_lasting = True


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise LedgerUnavailable about the ledger at `path` for every sqlite3.Error and OSError of this block."""
    try:
        yield
    except sqlite3.Error as error:
        raise sqlite_error(error, path) from error
    except OSError as error:
        raise system_error(error, path) from error


def sqlite_error(error: sqlite3.Error, path: Path) -> LedgerUnavailable:
    """Return the error for an error of SQLite; one without a code means a damaged file."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    problem, remedy = (
        FULL if code in _MAYBE_FULL and not _has_free_space(path) else _PROBLEM_BY_SQLITE_CODE.get(code, BROKEN)
    )
    if code == sqlite3.SQLITE_CONSTRAINT:
        return unavailable_error(EntryRefused, path, problem, str(error), remedy)
    return away_error(path, problem, str(error), remedy)


def _has_free_space(path: Path) -> bool:
    """Return whether the disk has space for SQLite's temporary files; a quota is not seen here."""
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize >= _MIN_FREE_BYTES and (found.f_files == 0 or found.f_favail > 0)


def system_error(error: OSError, path: object) -> LedgerUnavailable:
    """Return the error for an error of the operating system."""
    problem, remedy = _PROBLEM_BY_ERRNO.get(error.errno or 0, BROKEN)
    return away_error(path, problem, error.strerror or str(error), remedy)


def locked_error(path: Path, seconds: float) -> LedgerUnavailable:
    """Return the error for a lock that was not free in time."""
    return away_error(path, LOCKED[0], f"waited {seconds:g} seconds", LOCKED[1])


def missing_error(location: str, sentence: str) -> LedgerUnavailable:
    """Return the error for a missing ledger that has a head record."""
    return LedgerUnavailable(sentence, field="ledger", value=location, next=f"{REPAIR_REMEDY}.")


def vanished_error(location: str) -> LedgerUnavailable:
    """Return the error for a ledger that was created and removed a moment later."""
    return LedgerUnavailable(
        f"The ledger {location} was removed while it was opened.", field="ledger", value=location, next="Try again."
    )


def no_ledger_error(location: str) -> LedgerUnavailable:
    """Return the error for copying a ledger that does not exist."""
    return LedgerUnavailable(
        f"There is no ledger at {location} yet.", field="ledger", value=location, next="Check CLOUDGPU_LEDGER."
    )


def newer_schema_error(location: object, version: int, latest: int) -> LedgerUnavailable:
    """Return the error for a ledger that a later cloudgpu wrote."""
    return LedgerUnavailable(
        f"The ledger {location} was written by a newer cloudgpu (schema {version}; this one knows up to {latest}).",
        field="ledger",
        value=str(location),
        next="Upgrade cloudgpu on this machine.",
    )


def check_format(connection: Connection, location: object) -> None:
    """Raise LedgerUnavailable if a ledger's lines have another format than this cloudgpu reads."""
    mismatch = format_mismatch(connection, f"The ledger {location}", "use a new ledger: CLOUDGPU_LEDGER=sqlite:///PATH")
    if mismatch is not None:
        raise LedgerUnavailable(mismatch[0], field="ledger", value=str(location), next=mismatch[1])


def format_mismatch(connection: Connection, problem: str, older_remedy: str) -> tuple[str, str] | None:
    """Return why lines of another format cannot be read, and what to do; None if they have the present format."""
    stored_format = lines.format_of(connection)
    if stored_format is None or stored_format == FORMAT:
        return None
    if stored_format > FORMAT:
        return f"{problem} has format {stored_format}, and this cloudgpu reads format {FORMAT}.", "Update cloudgpu."
    mismatch = f"has format {stored_format}" if stored_format else "has no format number"
    why = f"{problem} {mismatch}: it is of before 0.1.0. This cloudgpu reads format {FORMAT}."
    return why, f"End its machines with the cloudgpu that wrote it; then {older_remedy}"


def nested_append_error(location: str) -> CloudgpuError:
    """Return the error for an append from inside a decision: ours, to be reported."""
    return CloudgpuError("A decision tried to append by itself; it returns its lines.", field="ledger", value=location)


def unavailable_error(
    kind: type[Unavailable], location: object, problem: str, database_message: str, remedy: str
) -> Unavailable:
    """Return the error in one sentence: the ledger, what is wrong, the database's message, and what to do."""
    return kind(
        f"The ledger {location} {problem} ({database_message}).", field="ledger", value=str(location), next=remedy
    )


def away_error(location: object, problem: str, database_message: str, remedy: str) -> LedgerAway:
    """Return the error, like `unavailable_error`, of a ledger that cannot be written now: full, locked or unreachable.

    Stops and terminations do not wait for it.
    """
    error = unavailable_error(LedgerAway, location, problem, database_message, remedy)
    error.is_disk_full = problem == FULL[0] or "disk is full" in problem
    error.is_locked, error.is_lasting = problem.startswith(LOCKED[0].rpartition(" ")[0]), problem in _LASTING_PROBLEMS
    return error
