"""Saved calls: each attempt as a 0600 file, written before it is sent, deleted when its end is proved."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.core.attempts import attempt_from_json, attempt_to_json
from cloudgpu.errors import LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudgpu.core.facts import Attempt


def save(directory: Path, attempt: Attempt) -> None:
    """Write the whole call durably, or raise LedgerUnavailable and leave no part of it."""
    path = _path(directory, attempt.token)
    part = path.with_suffix(".part")
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(attempt_to_json(attempt), file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync(directory)
    except OSError as fault:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise LedgerUnavailable(
            f"The launch could not be written down before it is sent, so nothing was launched: {fault.strerror}.",
            field="CLOUDGPU_HOME",
            value=str(directory),
            next="Free some space there (or point CLOUDGPU_HOME elsewhere) and run it again.",
        ) from fault


def load(directory: Path, token: str) -> Attempt | None:
    """Return the saved call of this token, or None when this client has none."""
    try:
        return attempt_from_json(json.loads(_path(directory, token).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError) as fault:
        raise LedgerUnavailable(
            f"The saved call {token[:12]}... cannot be read: {fault}.",
            field="attempts",
            value=str(_path(directory, token)),
            next="Run: cloudgpu ls --refresh (it looks for the machine), then remove that file.",
        ) from fault


def forget(directory: Path, token: str) -> None:
    """Delete a saved call, and the directory when it was the last."""
    for suffix in (".json", ".part"):
        _path(directory, token).with_suffix(suffix).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


def tokens(directory: Path) -> Iterator[str]:
    """Yield the token of every saved call, half-written ones too."""
    if directory.is_dir():
        yield from sorted({path.stem for path in directory.iterdir() if path.suffix in (".json", ".part")})


def _path(directory: Path, token: str) -> Path:
    return directory / f"{token}.json"


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
