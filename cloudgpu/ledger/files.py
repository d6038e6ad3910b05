"""Private files: a directory that only its owner enters, a file that only its owner reads."""

from __future__ import annotations

import os
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

    It is made under another name and linked, so that no descriptor of ours is ever open on `path`: closing one
    would drop the locks that SQLite holds on it for another thread.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_FILE))
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
