"""The files of the machine on a host, each written whole; the first part of the program that is sent there."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, Dict

HOME = Path.home()
ROOT = HOME / ".cloudgpu"
NEW, GONE = ".cloudgpu-new", ".cloudgpu-gone"  # being written, being removed; the process number follows
FULL = (errno.ENOSPC, errno.EDQUOT)
BLOCK = 4096  # bytes of a disk that a small file has to itself

Record = Dict[str, Any]  # what record.json holds


class Fault(Exception):
    """A sentence for the user; `kind` says what the caller does next."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


def load(path: Path) -> dict[str, Any]:
    """Return a file's JSON object, empty when there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise Fault("broken", f"{path} cannot be read: it is damaged") from None
    return found if isinstance(found, dict) else {}


def save(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Write a file whole: a reader, or a crash, finds the old or the new."""
    content = content.encode() if isinstance(content, str) else content
    fresh = path.with_name(f"{NEW}-{os.getpid()}")
    handle = os.open(str(fresh), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.chmod(mode)
        fresh.replace(path)
    except BaseException:
        fresh.unlink()
        raise


def keep(record: Record, **changes: Any) -> Record:
    """Write the record with some facts changed, and return it."""
    fresh = {**record, **changes}
    save(ROOT / "record.json", json.dumps(fresh))
    return fresh


def keep_end(record: Record, **changes: Any) -> Record:
    """Keep what ends the machine; on a full disk over the record that stands there, in the block that it has."""
    fresh, path = {**record, **changes}, ROOT / "record.json"
    try:
        save(path, json.dumps(fresh))
    except OSError as fault:
        content = json.dumps(fresh).encode().ljust(path.stat().st_size)
        if fault.errno not in FULL or len(content) > BLOCK:
            raise
        with path.open("r+b", buffering=0) as file:
            file.write(content)
    return fresh


def machine() -> Record:
    """Return the record of the machine here, empty when there is none."""
    return load(ROOT / "record.json")
