"""The agent's files, clock and locks. The umask keeps the files private to their owner."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

LOG_SIZE = 256 * 1024  # bytes after which a log is rotated


def read_text(path: Path) -> str:
    """Return a file's text, empty when it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def load(path: Path) -> dict[str, Any]:
    """Return a file's JSON object, empty when there is none."""
    try:
        return dict(json.loads(read_text(path)))
    except (ValueError, TypeError):
        return {}


def save(path: Path, value: Any) -> None:
    """Replace a file atomically, as JSON. Errors are ignored: a full disk must not keep a lease from ending."""
    with suppress(OSError):
        new_file = path.with_suffix(".new")
        new_file.write_text(json.dumps(value) + "\n")
        new_file.replace(path)


def remove(path: Path) -> None:
    """Remove a file if it is there."""
    with suppress(OSError):
        path.unlink()


def open_log(path: Path) -> TextIO:
    """Open a log to append to, rotated when it is large; /dev/null when it cannot be written."""
    try:
        if path.exists() and path.stat().st_size > LOG_SIZE:
            path.replace(path.with_suffix(".old"))
        return path.open("a")
    except OSError:
        return open(os.devnull, "w")  # noqa: PTH123


def append(path: Path, text: str) -> None:
    """Append a line to a log, if possible."""
    with suppress(OSError), open_log(path) as file:
        file.write(text + "\n")


def monotonic() -> float:
    """Return seconds since the boot; with time asleep where the system counts it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def lock(file: Any, mode: int) -> bool:
    """Tell whether the lock was free and is taken now; `mode` is LOCK_EX or LOCK_SH."""
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
