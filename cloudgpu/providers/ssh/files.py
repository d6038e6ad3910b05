"""The machine's files on a host, each replaced atomically; the first part of the program that is sent there."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, Dict

HOME = Path.home()
ROOT = HOME / ".cloudgpu"
NEW_PREFIX, GONE_PREFIX = (
    ".cloudgpu-new",
    ".cloudgpu-gone",
)  # of what is being written, or removed; the process id follows
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
BLOCK_BYTES = 4096  # a small file has a block of the disk to itself

# What record.json holds: of the launch, and `wanted` (running, stopped, terminated), `boots` (how often it was
# started), `spawned` (the last of these starts whose processes were started), `revivals` (restarts of a dead agent in a
# row), `devices` (the UUIDs of its GPUs), `ended` and `why`, and `apart` (see `caller_time`).
Record = Dict[str, Any]


class Fault(Exception):
    """A refused or failed request, with a sentence for the user; `kind` decides the error that the caller raises."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


def load(path: Path) -> dict[str, Any]:
    """Return a file's JSON object, empty when there is none."""
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise Fault("broken", f"{path} cannot be read: it is damaged") from None
    return parsed if isinstance(parsed, dict) else {}


def save(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Replace a file atomically: a reader, or a crash, finds the old or the new one."""
    content = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f"{NEW_PREFIX}-{os.getpid()}")
    descriptor = os.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


def update_record(record: Record, **changes: Any) -> Record:
    """Write the record with these changes, and return it."""
    new_record = {**record, **changes}
    save(ROOT / "record.json", json.dumps(new_record))
    return new_record


def update_ending_record(record: Record, **changes: Any) -> Record:
    """Write the record of a machine that ends, and return it; on a full disk, over the old one in its own block."""
    new_record, path = {**record, **changes}, ROOT / "record.json"
    try:
        save(path, json.dumps(new_record))
    except OSError as error:
        content = json.dumps(new_record).encode().ljust(path.stat().st_size)
        if error.errno not in DISK_FULL_ERRORS or len(content) > BLOCK_BYTES:
            raise
        with path.open("r+b", buffering=0) as file:
            file.write(content)
    return new_record


def read_record() -> Record:
    """Return the record of the machine here, empty when there is none."""
    return load(ROOT / "record.json")
