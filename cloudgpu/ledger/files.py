"""Private files: a directory that only its owner enters, a file that only its owner reads."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


def make_private_directory(directory: Path) -> None:
    """Make the directory, and whatever is missing above it, with mode 0700; one that exists is left as it is."""
    if directory.is_dir():
        return
    make_private_directory(directory.parent)
    directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)


def make_empty_file(path: Path) -> None:
    """Make an empty 0600 file unless something stands there.

    Closing a descriptor drops the locks that SQLite holds on the same file for this process: only a file that this
    call has made itself is opened and closed, before anybody can have written to it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_FILE))


def open_to_write(path: Path, flags: int) -> int:
    """Return a descriptor of a 0600 file, made where there is none; OSError for a link, which may lead anywhere."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, PRIVATE_FILE)


def read_own(path: Path, most: int) -> bytes:
    """Return what is in a file of ours. Raises OSError for a link, a pipe, a device, and more than `most` bytes."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "this is no file", str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"this has more than {most} bytes", str(path))
        return file.read(most)
