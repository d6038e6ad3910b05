"""Saved calls: launch attempts, each in a 0600 file from before it is sent until its machine's end is confirmed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from cloudgpu.core.launch.attempt import attempt_from_json, attempt_to_json
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import LedgerUnavailable
from cloudgpu.ledger.log.files import fsync

_MAX_TRIES = 100  # to make a file in a directory that others remove


def save(directory: Path, attempt: Attempt) -> None:
    """Write the call and sync it, or raise LedgerUnavailable and leave no part of it."""
    path = directory / f"{attempt.token}.{lock_name(attempt.request.key)}.json"
    temporary = path.with_suffix(".part")
    try:
        with os.fdopen(_open_new(temporary), "w", encoding="utf-8") as file:
            file.write(json.dumps(attempt_to_json(attempt)))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        fsync(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise LedgerUnavailable(
            f"The launch could not be recorded before sending it, so nothing was launched: {error.strerror}.",
            field="CLOUDGPU_HOME",
            value=str(directory),
            next="Free some space there (or point CLOUDGPU_HOME elsewhere) and run it again.",
        ) from error


def _open_new(path: Path) -> int:
    """Return a descriptor of the new 0600 file, in a directory that another command may remove as empty meanwhile."""
    for _ in range(_MAX_TRIES - 1):
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            return _make_and_open(path)
    return _make_and_open(path)


def _make_and_open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


def exists(directory: Path, token: str) -> bool:
    """Return whether this client has a saved call of this token, which may be one that cannot be read."""
    return any(directory.glob(f"{token}.*.json"))


def load(directory: Path, token: str) -> Attempt | None:
    """Return the saved call of this token, or None when this client has none."""
    path = next(directory.glob(f"{token}.*.json"), None)
    if path is None:
        return None
    try:
        return attempt_from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise LedgerUnavailable(
            f"The saved call {token[:12]}... cannot be read: {error}.",
            field="attempts",
            value=str(path),
            next="Run: cloudgpu ls --refresh (it looks for the machine), then remove that file.",
        ) from error


def delete(directory: Path, token: str) -> None:
    """Delete a saved call, and the directory when it was the last."""
    for path in directory.glob(f"{token}.*"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


def all_saved(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield (token, lock) of every saved call, half-written ones too: the lock is held while it is being made."""
    for path in directory.glob("*.*.*"):
        token, lock, *suffixes = path.name.split(".")
        if len(suffixes) == 1:  # an editor that looks at a call has a file with another name beside it
            yield token, lock
