"""Small private files that several processes write at once: locked, written atomically, mode 0600."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from cloudgpu.errors import InvalidRequest


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock of `file`; others wait. The system releases the lock of a killed process.

    Raises InvalidRequest when the directory cannot be written to.
    """
    lock_file = lock_of(file)
    with explain_os_errors(file):
        descriptor = _acquire(lock_file)
    try:
        remove_part_files(file)
        yield
    finally:
        _release(lock_file, descriptor)


@contextlib.contextmanager
def unique_number(file: Path) -> Iterator[int]:
    """Yield the lowest number that no other process or thread has of `file`, which need not exist. Raises OSError."""
    for number in itertools.count():
        lock_file = lock_of(file.with_name(f"{file.name}-{number}"))
        with contextlib.suppress(BlockingIOError):
            descriptor = _acquire(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
    try:
        yield number
    finally:
        _release(lock_file, descriptor)


def lock_of(file: Path) -> Path:
    """Return the lock file of `file`; it exists while a process holds it, or was killed holding it."""
    return file.with_name(f".{file.name}.lock")


def remove_part_files(file: Path) -> None:
    """Remove the part files of killed writers; the caller holds the lock, so no living writer has one."""
    for part_file in file.parent.glob(f".{glob.escape(file.name)}.????????.part"):
        with contextlib.suppress(OSError):
            part_file.unlink()


def _release(lock_file: Path, descriptor: int) -> None:
    with contextlib.suppress(OSError):
        lock_file.unlink()  # while held: whoever waits for it sees that it is gone and makes a new one
    os.close(descriptor)


def _acquire(lock_file: Path, operation: int = fcntl.LOCK_EX) -> int:
    while True:
        make_private_directory(lock_file.parent)
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, operation)
            if os.path.samestat(os.fstat(descriptor), lock_file.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def write_atomically(file: Path, content: bytes) -> None:
    """Replace the file's content atomically, mode 0600. The caller holds the file's lock.

    Raises InvalidRequest when it cannot be written (a full disk, a read-only directory).
    """
    import tempfile  # takes 5 ms, which readers need not wait for

    with explain_os_errors(file):
        make_private_directory(file.parent)
        descriptor, part_file = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".part", dir=file.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            Path(part_file).replace(file)
        except OSError:
            Path(part_file).unlink(missing_ok=True)
            raise


def remove(file: Path) -> None:
    """Remove the file if it is there; raise InvalidRequest when that is not allowed."""
    with explain_os_errors(file):
        file.unlink(missing_ok=True)


def make_private_directory(directory: Path) -> None:
    """Make the directory, mode 0700, where it is missing. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def explain_os_errors(file: Path) -> Iterator[None]:
    """Turn an OSError about `file` into InvalidRequest."""
    try:
        yield
    except OSError as error:
        raise InvalidRequest(
            f"{file} cannot be read or written: {error.strerror or error}.",
            field="CLOUDGPU_HOME",
            value=str(file),
            next="Free some space there or correct its permissions, or point CLOUDGPU_HOME elsewhere.",
        ) from error
