"""Takes locks that a living process holds, and says how long one is waited for.

A killed process lets go by itself, and no lock is left behind as a file. A process does not wait as long again for a
lock that was not to be had in time: its holder may be suspended, a command that ends a machine asks for the lock
several times, and the bill goes on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cloudgpu.errors import LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.log.files import PRIVATE_DIRECTORY, PRIVATE_FILE, make_private_directory
from cloudgpu.ledger.log.storage_errors import LedgerAway

_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_MOMENT = 0.1  # seconds: for so long a sync by `is_locked` may be in the way of one who does not wait
_PAUSE = 0.05  # seconds between two tries, at most
_ROOTS = ("/dev/shm", "/tmp")  # noqa: S108  (what is made there is a directory that this user alone enters)


def of_this_computer() -> Path | None:
    """Return a directory for locks among all homes of this user, made where it is missing; None where there is none.

    It is in memory where the computer has such a place: there it needs no room on a full disk.
    """
    for root in _ROOTS:
        path = Path(root, f"cloudgpu-{os.geteuid()}")
        try:
            path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
            found = path.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            return path
    return None


@contextmanager
def lock(directory: Path, name: str, *, wait: bool | float, ledger: str = "") -> Iterator[None]:
    """Hold the lock `name` alone, among threads and processes; wait for ever (True), not at all, or so many seconds.

    `ledger` tells locks of one name apart in a directory that several ledgers share.

    Raises ProviderUnavailable when somebody else holds it to the end, LedgerUnavailable when no lock can be made.
    """
    path = _path_of(directory, name, ledger)
    until = None if wait is True else time.monotonic() + max(float(wait), _MOMENT)
    handle = _acquired(path, until)
    if handle is None:
        raise _taken(path, name, float(wait))
    try:
        with suppress(OSError):  # a hint for whoever waits; a full disk may refuse it
            os.truncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        _release(path, handle)


def is_locked(directory: Path, name: str, *, ledger: str = "") -> bool:
    """Say whether a living process, this one too, holds the lock now. Makes no file."""
    path = _path_of(directory, name, ledger)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        return not _locked(handle, fcntl.LOCK_SH)  # shared: two who look are not in each other's way
    finally:
        _close(handle)


def check(directory: Path, name: str, *, ledger: str = "") -> None:
    """Raise LedgerUnavailable where this process held the lock `name` and has lost it unawares.

    The lock itself is lost with the process alone; but where somebody has removed its file, another may hold a new one.
    """
    path = _path_of(directory, name, ledger)
    try:
        holder = path.read_text().strip()
    except OSError:
        holder = "nobody"
    if holder not in ("", str(os.getpid())):  # empty: a full disk has refused the hint
        raise LedgerUnavailable(
            f"The lock {path} is not ours any more: it is held by {holder}.",
            field="lock",
            value=str(path),
            next="Leave the files in that directory alone while cloudgpu runs.",
        )


def _path_of(directory: Path, name: str, ledger: str = "") -> Path:
    name = f"{ledger}-{name}" if ledger else name
    if _SAFE.fullmatch(name):
        return directory / f"{name}.lock"
    import hashlib

    return directory / f"{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}.lock"


def _acquired(path: Path, until: float | None) -> int | None:
    """Return a descriptor that holds the lock on the file that stands at `path`, or None when time is over."""
    pause = 0.002
    while True:
        handle = _opened(path)
        if _locked(handle, fcntl.LOCK_EX):
            if is_same_file(path, handle):
                return handle
            _close(handle)  # its holder removed the file between our open and our lock
            continue
        os.close(handle)
        if until is not None and time.monotonic() >= until:
            return None
        time.sleep(pause)
        pause = min(pause * 2, _PAUSE)


def _opened(path: Path) -> int:
    try:
        make_private_directory(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise _unusable(path, error) from error


def _locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_same_file(path: Path, handle: int) -> bool:
    """Say whether nobody has removed or replaced the file between our open and our lock."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _release(path: Path, handle: int) -> None:
    """Remove the file while the lock is held: who waits on it sees that it is gone, and opens a new one."""
    with suppress(OSError):
        if is_same_file(path, handle):
            path.unlink()
    _close(handle)


def _close(handle: int) -> None:
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
    os.close(handle)


def _taken(path: Path, name: str, waited: float) -> ProviderUnavailable:
    holder = ""
    with suppress(OSError, ValueError):
        holder = f" (process {int(path.read_text())})"
    return ProviderUnavailable(
        f"Another cloudgpu command{holder} is at work on {name!r}; waited {waited:g} seconds.",
        field="lock",
        value=str(path),
        next="Wait until it has ended, then try again.",
    )


def _unusable(path: Path, error: OSError) -> LedgerUnavailable:
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    made = LedgerAway(
        f"The lock {path} cannot be made ({error.strerror or error}).",
        field="lock",
        value=str(path),
        next="Free some space on that disk." if full else "Check that the directory is yours and can be written to.",
    )
    made.full = full
    return made


AGAIN_S = 0.5
REMEMBERED_S = 60.0
_in_vain: dict[str, float] = {}  # by lock: when it was last waited for in vain


def seconds(lock: str, usual: float) -> float:
    """Return how many seconds to wait for this lock now."""
    since = _in_vain.get(lock)
    if since is None or time.monotonic() - since >= REMEMBERED_S:
        return usual
    return min(AGAIN_S, usual)


def timed_out(lock: str) -> None:
    """Remember that the lock was not to be had in time."""
    _in_vain[lock] = time.monotonic()


def acquired(lock: str) -> None:
    """Remember that the lock was to be had."""
    _in_vain.pop(lock, None)
