"""The agent's files, clock and locks. The umask keeps all of them for their owner alone."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

LOG_SIZE = 256 * 1024


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
    """Write a file whole, as JSON: readers see the old or the new. A full disk keeps no lease from ending."""
    with suppress(OSError):
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(value) + "\n")
        fresh.replace(path)


def remove(path: Path) -> None:
    """Remove a file that may be gone."""
    with suppress(OSError):
        path.unlink()


def appended(path: Path) -> TextIO:
    """Open a log at its end; one that cannot be written is none. One that has grown is moved aside."""
    try:
        if path.exists() and path.stat().st_size > LOG_SIZE:
            path.replace(path.with_suffix(".old"))
        return path.open("a")
    except OSError:
        return open(os.devnull, "w")  # noqa: PTH123


def append(path: Path, text: str) -> None:
    """Write at the end of a log, if that can be done."""
    with suppress(OSError), appended(path) as file:
        file.write(text + "\n")


def monotonic() -> float:
    """Return seconds since the boot, sleep included where the system can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def lock(file: Any, how: int) -> bool:
    """Take a lock at once, or not."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
