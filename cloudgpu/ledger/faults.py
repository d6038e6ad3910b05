"""Turns what SQLite and the operating system say into one sentence: LedgerUnavailable."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloudgpu.errors import CloudgpuError, LedgerUnavailable

SETTLE = "Restore a backup of the ledger, or run: cloudgpu cost --verify --yes (it asks the providers and settles it)"

_FULL = ("cannot be written: the disk is full", "Free some space there, then try again; what is in it is safe.")
_LOCKED = ("is locked by another process", "Wait for the other cloudgpu commands to end, then try again.")
_DAMAGED = ("is damaged", SETTLE.replace("Restore", "Move the damaged file away, then restore", 1))
_DENIED = ("cannot be opened or written", "Check that the file and its directory belong to you and can be written to.")
_BROKEN = ("cannot be read or written", "Check the disk (its free space, its health), then try again.")

_BY_SQLITE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_FORMAT: _DAMAGED,
    sqlite3.SQLITE_READONLY: _DENIED,
    sqlite3.SQLITE_CANTOPEN: _DENIED,
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_AUTH: _DENIED,
}
_BY_ERRNO = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: _DENIED,
    errno.ENOTDIR: _DENIED,
    errno.EISDIR: _DENIED,
}


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Let every sqlite3.Error and OSError of this block out as LedgerUnavailable about the ledger at `path`."""
    try:
        yield
    except sqlite3.Error as fault:
        raise of_sqlite(fault, path) from fault
    except OSError as fault:
        raise of_system(fault, path) from fault


def of_sqlite(fault: sqlite3.Error, path: Path) -> LedgerUnavailable:
    """Return the sentence for what SQLite said; an error that it gave no code for is a damaged file."""
    code = getattr(fault, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    what, way = _BY_SQLITE.get(code, _BROKEN)
    return _unavailable(path, what, str(fault), way)


def of_system(fault: OSError, path: Path) -> LedgerUnavailable:
    """Return the sentence for what the operating system said."""
    what, way = _BY_ERRNO.get(fault.errno or 0, _BROKEN)
    return _unavailable(path, what, fault.strerror or str(fault), way)


def locked(path: Path, seconds: float) -> LedgerUnavailable:
    """Return the error for a lock that was not to be had in time."""
    return _unavailable(path, _LOCKED[0], f"waited {seconds:g} seconds", _LOCKED[1])


def missing(path: Path, sentence: str) -> LedgerUnavailable:
    """Return the error for a ledger file that is gone while its head record stands."""
    return LedgerUnavailable(sentence, field="ledger", value=str(path), next=f"{SETTLE}.")


def newer(path: Path, found: int, known: int) -> LedgerUnavailable:
    """Return the error for a ledger that a later cloudgpu wrote."""
    return LedgerUnavailable(
        f"The ledger {path} was written by a newer cloudgpu (schema {found}; this one knows up to {known}).",
        field="ledger",
        value=str(path),
        next="Upgrade cloudgpu on this machine.",
    )


def nested(path: Path) -> CloudgpuError:
    """Return the error for an append from inside a decision: ours, to be reported."""
    return CloudgpuError("A decision tried to append by itself; it returns its lines.", field="ledger", value=str(path))


def _unavailable(path: Path, what: str, words: str, way: str) -> LedgerUnavailable:
    return LedgerUnavailable(f"The ledger {path} {what} ({words}).", field="ledger", value=str(path), next=way)
