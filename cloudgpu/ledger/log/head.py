"""The head record: a witness outside the ledger's file of how far it has come, and the lock of its writers.

It is one record of fixed length, overwritten in place: that is a single write inside one sector, which neither a
killed process nor a lost power supply leaves half done. It is not synced by itself: it is written after the line's
own sync, so what a power failure can lose only makes it older, never wrong.

Whoever only reads takes no lock: a process that was suspended while it held it would keep every reader waiting. A read
that falls into a write may find a part of both records, so each record ends with its own checksum. Only where that is
not right does a reader wait for the lock, which tells a write under way from a damaged file.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cloudgpu.ledger.log import locks as waits
from cloudgpu.ledger.log.files import PRIVATE_FILE, make_private_directory
from cloudgpu.ledger.log.storage_errors import locked

_LENGTH = 512  # bytes: one sector of a disk
_CHECK = ', "check": "'
_PRIME = 2**64 - 59
ELSEWHERE = "another place"


@dataclass(frozen=True, slots=True)
class Head:
    """The last line of ledger `ledger` as this client has seen it written.

    `moved` is where the ledger stands now, when this client knows that it has moved away; empty otherwise. The line is
    then the last one before the move, `recorded_at` the time of the move, and `goes_on` the hash of the line behind it
    at the new place.
    """

    ledger: str
    seq: int
    hash: str
    recorded_at: str
    moved: str = ""
    goes_on: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Something stands where the head record should, and it is none."""

    path: Path


Record = Head | Unreadable | None  # None: nothing was written yet


def read_head(path: Path, patience: float) -> Record:
    """Return the head file's record without its lock. Raises OSError.

    Raises LedgerUnavailable where it makes no sense and is locked for `patience` seconds.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        found = _record(path, handle)
        if not isinstance(found, Unreadable):
            return found
        _lock(handle, fcntl.LOCK_SH, path, patience)
        return _record(path, handle)
    finally:
        _close(handle)


def hold_head(path: Path, patience: float) -> LockedHead:
    """Return the head record, held alone until it is let go; the file is made where there is none.

    Waits `patience` seconds at most, then raises LedgerUnavailable. Raises OSError.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        make_private_directory(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    return LockedHead(path, handle, patience)


class LockedHead:
    """The head record while it is locked: this process alone may write it."""

    def __init__(self, path: Path, handle: int, patience: float) -> None:
        self._path = path
        self._handle = handle
        try:
            _lock(handle, fcntl.LOCK_EX, path, patience)
        except BaseException:
            os.close(handle)
            raise

    def read(self) -> Record:
        """Return what stands in the file. Raises OSError."""
        return _record(self._path, self._handle)

    def write(
        self, ledger: str, seq: int, digest: str, recorded_at: str, *, moved: str = "", goes_on: str = ""
    ) -> None:
        """Overwrite the record. Raises OSError."""
        record = {"ledger": ledger, "seq": seq, "hash": digest, "recorded_at": recorded_at}
        record |= {"goes_on": goes_on} if goes_on else {}
        text = _checked(record | ({"moved": moved} if moved else {}))
        if len(text) >= _LENGTH:  # an address that does not fit is told by the ledger's own last line
            text = _checked(record | {"moved": ELSEWHERE})
        os.pwrite(self._handle, text.encode().ljust(_LENGTH - 1) + b"\n", 0)

    def replace(
        self, ledger: str, seq: int, digest: str, recorded_at: str, *, moved: str = "", goes_on: str = ""
    ) -> None:
        """Write the record anew, whatever stood there, and sync it. Raises OSError."""
        self.write(ledger, seq, digest, recorded_at, moved=moved, goes_on=goes_on)
        os.ftruncate(self._handle, _LENGTH)
        os.fsync(self._handle)

    def let_go(self) -> None:
        """Unlock and close the file. Raises OSError."""
        _close(self._handle)


def _checked(record: dict[str, object]) -> str:
    text = json.dumps(record)[:-1]
    return f"{text}{_CHECK}{_sum(text)}"


def _sum(text: str) -> str:
    return f'{int.from_bytes(text.encode(), "big") % _PRIME:x}"}}'


def _record(path: Path, handle: int) -> Record:
    data = os.pread(handle, _LENGTH + 1, 0)
    if not data.strip(b" \n\0"):
        return None
    text, _, check = data.rstrip().decode(errors="replace").rpartition(_CHECK)  # without the blanks behind it
    if check != _sum(text):
        return Unreadable(path)
    try:
        record = json.loads(f"{text}}}")
        known = str(record["ledger"]), int(record["seq"]), str(record["hash"]), str(record["recorded_at"])
        return Head(*known, str(record.get("moved", "")), str(record.get("goes_on", "")))
    except (ValueError, KeyError, TypeError):
        return Unreadable(path)


def _close(handle: int) -> None:
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
    os.close(handle)


def _lock(handle: int, how: int, path: Path, patience: float) -> None:
    seconds = waits.seconds(str(path), patience)
    until, pause = time.monotonic() + seconds, 0.0005
    while True:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                waits.timed_out(str(path))
                raise locked(path, seconds) from None
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        else:
            waits.acquired(str(path))
            return
