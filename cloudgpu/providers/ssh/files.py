"""The machine's files on a host, each replaced atomically; the first part of the program that is sent there."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, Dict

HOME = Path.home()
ROOT = HOME / ".cloudgpu"
NEW_PREFIX, GONE_PREFIX = ".cloudgpu-new", ".cloudgpu-gone"  # being written, being removed; the process number follows
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
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
    """Replace a file atomically: a reader, or a crash, finds the old or the new one."""
    content = content.encode() if isinstance(content, str) else content
    fresh = path.with_name(f"{NEW_PREFIX}-{os.getpid()}")
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


def update_record(record: Record, **changes: Any) -> Record:
    """Write the record with these changes, and return it."""
    fresh = {**record, **changes}
    save(ROOT / "record.json", json.dumps(fresh))
    return fresh


def update_ending(record: Record, **changes: Any) -> Record:
    """Write the record of a machine that ends; on a full disk, over the old one in its own block."""
    fresh, path = {**record, **changes}, ROOT / "record.json"
    try:
        save(path, json.dumps(fresh))
    except OSError as fault:
        content = json.dumps(fresh).encode().ljust(path.stat().st_size)
        if fault.errno not in DISK_FULL_ERRORS or len(content) > BLOCK:
            raise
        with path.open("r+b", buffering=0) as file:
            file.write(content)
    return fresh


def machine() -> Record:
    """Return the record of the machine here, empty when there is none."""
    return load(ROOT / "record.json")
