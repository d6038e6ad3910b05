"""Where a local machine's files lie, and how they are written so that a kill leaves the old or the new content.

machine.json   the record: the accepted launch, and the wanted state; only the provider writes it
run.json       the machine process's report about itself; only that process writes it
alive          locked by the machine process for as long as it lives; its process id is inside
metadata/      what the machine may read about itself: tags.json, spot.json
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudgpu.providers.shared.python_environment import remove_tree

INSTANCE_PREFIX = "i-"
BUILT_PREFIX = "tmp-"  # a machine that is being built and was never accepted
RECORD_FILE = "machine.json"
IDENTITY_FILE = "place.json"  # the id of the directory of local machines, by computer: see `store.identity`
BLOCK_BYTES = 4096  # a small file has a block of the disk to itself
MAX_LINE_LENGTH = 200  # characters of a log's last line that a reason may hold


class _PathBelow:
    """A path below a machine's directory, by its parts."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, layout: Layout, _kind: object = None) -> Path:
        return layout.root.joinpath(*self._parts)


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths inside one machine's directory."""

    root: Path

    record = _PathBelow(RECORD_FILE)  # the accepted launch, and the wanted state
    run = _PathBelow("run.json")  # the machine process's report
    lifetime_lock = _PathBelow("alive")  # the machine process's lock; touched every second
    tags = _PathBelow("metadata", "tags.json")  # the only copy
    spot = _PathBelow("metadata", "spot.json")  # the interruption notice, when there is one
    power_off = _PathBelow("metadata", "power-off.json")  # the reason, where the machine was ended from inside
    host_key = _PathBelow("ssh", "host_key")  # the SSH server's private key
    authorized_keys = _PathBelow("ssh", "authorized_keys")  # the public keys that may log in
    on_start = _PathBelow("on_start.sh")  # the template's script, when it has one
    logs = _PathBelow("log")  # where machine, on_start and agent write
    scratch = _PathBelow("tmp")  # the machine's own TMPDIR
    home = _PathBelow("home")  # HOME and working directory of its sessions
    python = _PathBelow("python")  # the machine's own Python environment
    agent = _PathBelow("home", ".cloudgpu")  # the agent's directory
    on_start_status = _PathBelow("home", ".cloudgpu", "on_start.status")  # `running`, or what that script ended with


def write_file(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file atomically and durably: a temporary one beside it is synced, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json_over(path: Path, body: Mapping[str, Any]) -> None:
    """Overwrite a JSON object in its file's own block: for a disk that is full.

    One write inside one block: a kill leaves the old or the new one. Raises OSError where it needs more.
    """
    content, old_content = (json.dumps(body, sort_keys=True, indent=1) + "\n").encode(), path.read_bytes()
    if len(content) > BLOCK_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    descriptor = os.open(path, os.O_RDWR)
    try:
        written = os.pwrite(descriptor, content.ljust(len(old_content)), 0)
        if written < len(content):  # a limit on files, not on the disk
            os.pwrite(descriptor, old_content[:written], 0)
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, body: Mapping[str, Any]) -> None:
    """Replace a file by a JSON object, atomically and durably."""
    write_file(path, json.dumps(body, sort_keys=True, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, None when there is no file; raise ValueError when it is no JSON object."""
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if not isinstance(parsed, dict):
        message = f"{path.name} holds no JSON object"
        raise ValueError(message)  # noqa: TRY004  (json raises ValueError too)
    return parsed


def sync_directory(path: Path) -> None:
    """Make what was created, renamed or removed in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hold_lifetime_lock(layout: Layout) -> int | None:
    """Take the machine's own lock and return its descriptor; None when the machine process holds it."""
    return _try_lock(os.open(layout.lifetime_lock, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)


def is_alive(layout: Layout) -> bool:
    """Say whether the machine process lives."""
    try:
        descriptor = os.open(layout.lifetime_lock, os.O_RDWR)
    except FileNotFoundError:  # never spawned, or gone with its directory
        return False
    lock_descriptor = _try_lock(descriptor, fcntl.LOCK_SH)
    if lock_descriptor is not None:
        os.close(lock_descriptor)
    return lock_descriptor is None


def _try_lock(descriptor: int, operation: int) -> int | None:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def recorded_pid(layout: Layout) -> int | None:
    """Return the process id of the machine process as it last wrote it; None where it is not known."""
    try:
        text = layout.lifetime_lock.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def last_line(path: Path) -> str:
    """Return the last line of a log that is not blank, cut short; empty when there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:MAX_LINE_LENGTH] for line in reversed(lines) if line.strip()), "")


def remove_machine(directory: Path) -> None:
    """Remove a machine's directory, its record last: what a kill leaves is still known to be removed."""
    with os.scandir(directory) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in names:
        path = directory / name
        if is_directory:
            remove_tree(path)
        elif name != RECORD_FILE:
            path.unlink(missing_ok=True)
    (directory / RECORD_FILE).unlink(missing_ok=True)
    directory.rmdir()
