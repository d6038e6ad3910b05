"""The local cloud: its lock, its machines' directories, and completing what a killed call had accepted.

A call writes what it has accepted first and then does it, by `complete_pending`. The next call, whichever it is,
completes all machines first: a kill at any point loses nothing and leaves nothing half.

An account is one computer, user and directory of machines (its place): only there is anything known of its machines.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloudgpu.access.computer import computer_id, hostname, login_name
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import AuthFailed, NoCapacity, ProviderUnavailable, StopUnproved
from cloudgpu.providers.local.build import rewrite_paths, spawn
from cloudgpu.providers.local.layout import (
    BUILT_PREFIX,
    IDENTITY_FILE,
    INSTANCE_PREFIX,
    Layout,
    is_alive,
    last_line,
    read_json,
    recorded_pid,
    remove_machine,
    write_json,
    write_json_over,
)
from cloudgpu.providers.local.processes import end_all, terminate_process

LOCK_FILE = "lock"
LOCK_WAIT_S = 60.0  # how long to wait for it
POLL_S = 0.02
STOP_TIMEOUT_S = 4.0  # from asking a machine's process to end to killing it
DIED = "died"  # why a machine ended whose process was killed or crashed
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PERMISSION_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True)
class StoredMachine:
    """One machine as its files describe it: its record, what its process reported, and whether that process lives.

    Keys of the record: `wanted` (running, stopped, terminated), `boots` (how often it was started), `boot_at`,
    `spawned` (the last of these starts whose process was started), `asked_at` (when it was asked to end), `ended` (how
    and when it ended), `mark` (of its processes), `identity` and `root` (of its directory).
    """

    layout: Layout
    record: dict[str, Any]
    run: dict[str, Any]
    is_alive: bool

    @property
    def id(self) -> str:
        """The instance id."""
        return self.layout.root.name

    @property
    def reported(self) -> dict[str, Any]:
        """What the process of the current boot reported in run.json; empty before it has."""
        return self.run if self.run.get("boot") == self.record["boots"] else {}


@contextlib.contextmanager
def cloud_lock(home: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the lock of the local machines; remove its file at the end when no machine is left.

    Raises ProviderUnavailable when another process holds it too long.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = _lock(home, time.monotonic() + wait_s)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            names = set(os.listdir(home))  # noqa: PTH208
            if names <= {LOCK_FILE, IDENTITY_FILE}:
                (home / LOCK_FILE).unlink()
            if names == {LOCK_FILE}:
                home.rmdir()
        os.close(descriptor)


def _lock(home: Path, deadline: float) -> int:
    while True:
        with contextlib.suppress(FileNotFoundError):  # the directory was just removed by the last one out
            descriptor = os.open(home / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
            if _try_lock(descriptor, home / LOCK_FILE):
                return descriptor
            os.close(descriptor)
        if time.monotonic() >= deadline:
            raise ProviderUnavailable(
                "Another cloudgpu process has held the local machines for a minute.",
                field="provider",
                value="local",
                next=f"see who holds {home / LOCK_FILE} and try again",
            )
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        time.sleep(POLL_S)


def _try_lock(descriptor: int, path: Path) -> bool:
    """Lock the file, and make sure it is still the one that others will find."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


@contextlib.contextmanager
def system_errors(home: Path, *, making: bool = False) -> Iterator[None]:
    """Turn an OSError into our own error with its remedy; `making`: it happens while a launch writes its files."""
    try:
        yield
    except OSError as error:
        path = error.filename or home
        if error.errno in _DISK_FULL_ERRORS and making:
            message = f"There is no room left on the disk for local machines ({path})."
            raise NoCapacity(message, field="provider", value="local", next="free some space and try again") from error
        if error.errno in _PERMISSION_ERRORS:
            message = f"This user may not write where local machines are kept ({path})."
            raise AuthFailed(message, next=f"Give yourself write access to {home}.") from error
        message = f"The local machines cannot be reached: {error.strerror or error} ({path})."
        raise ProviderUnavailable(message, field="provider", value="local", next="try again") from error


def read_machine(layout: Layout) -> StoredMachine | None:
    """Return the machine in a directory, None when there is none; raise ProviderUnavailable for a broken record."""
    try:
        record, run = read_json(layout.record), read_json(layout.run) or {}
        if record is None:
            return None
        record["boots"], record["wanted"], record["mark"], record["identity"], record["root"]
    except (ValueError, KeyError) as error:
        message = f"The record of the local machine {layout.root.name} cannot be read ({layout.root})."
        raise ProviderUnavailable(message, field="instance", value=layout.root.name) from error
    return StoredMachine(layout, record, run, is_alive(layout))


def read_tags(layout: Layout) -> dict[str, Any]:
    """Return a machine's tags as its file has them; raise ProviderUnavailable for a damaged file."""
    try:
        return read_json(layout.tags) or {}
    except ValueError as error:
        message = f"The tags of the local machine {layout.root.name} cannot be read ({layout.tags})."
        raise ProviderUnavailable(message, field="instance", value=layout.root.name) from error


def complete_all_pending(home: Path, identity_id: str | None, now: datetime, start_timeout: timedelta) -> None:
    """Finish what earlier calls had accepted; what cannot be finished now stays as it is and holds up no other.

    `identity_id` is the id of the account's identity, None where this directory has none yet: machines of others are
    not looked at.
    """
    for path in sorted(home.iterdir()):
        if path.name.startswith(BUILT_PREFIX):
            remove_machine(path)
        elif path.name.startswith(INSTANCE_PREFIX):
            with contextlib.suppress(ProviderUnavailable, StopUnproved, OSError):
                stored = read_machine(Layout(path))
                if stored is None or stored.record["identity"] == identity_id:
                    complete_pending(Layout(path), now, start_timeout)


def complete_pending(layout: Layout, now: datetime, start_timeout: timedelta, *, overdue: bool = False) -> None:
    """Bring one machine to its wanted state; `overdue`: its process has had its time to end."""
    stored = read_machine(layout)
    if stored is not None and stored.record["root"] != str(layout.root):
        rewrite_paths(layout, stored.record["root"])
        write_json(layout.record, stored.record | {"root": str(layout.root)})
        stored = read_machine(layout)
    if stored is None:
        remove_machine(layout.root)
    elif stored.record["wanted"] == "running":
        _complete_running(stored, now, start_timeout)
    elif stored.record["wanted"] == "terminated":
        if _may_end(stored, now, overdue=overdue):
            end_and_remove(stored)
    elif "ended" not in stored.record and _may_end(stored, now, overdue=overdue):
        _end_processes(stored)
        _save_ended(stored, {"state": "stopped", "reason": "asked", "at": iso(now)})


def end_and_remove(stored: StoredMachine) -> None:
    """End the machine's processes and remove its directory; raise StopUnproved where we cannot see one that lives."""
    _end_processes(stored)
    remove_machine(stored.layout.root)


def _end_processes(stored: StoredMachine) -> None:
    end_all(stored.record["mark"])
    if is_alive(stored.layout):  # in another container, or at another computer that has this directory too
        raise StopUnproved(
            f"A process of the machine {stored.id} lives where this one cannot see it.",
            next="run the same command in the container, or on the computer, where it was launched",
        )


def _complete_running(stored: StoredMachine, now: datetime, start_timeout: timedelta) -> None:
    record = stored.record
    if stored.is_alive:
        if record["spawned"] != record["boots"]:
            write_json(stored.layout.record, record | {"spawned": record["boots"]})
        if "port" not in stored.reported and _has_passed(record["boot_at"], now, start_timeout):
            _record_death(stored, now, f"{DIED} while starting: it did not answer in time")
    elif record["spawned"] != record["boots"]:
        if spawn(stored.layout):
            write_json(stored.layout.record, record | {"spawned": record["boots"]})
    else:
        _record_death(stored, now, _cause_of_death(stored))


def _record_death(stored: StoredMachine, now: datetime, reason: str) -> None:
    """End the processes that a dead machine left, and record why and when it ended."""
    _end_processes(stored)
    _save_ended(stored, {"state": "stopped", "reason": reason, "at": iso(_last_seen_alive(stored, now))})


def _save_ended(stored: StoredMachine, ended: dict[str, Any]) -> None:
    """Record how the machine ended: as its process reported it, else `ended`."""
    save_end(stored.layout, stored.record | {"wanted": "stopped", "ended": stored.reported.get("end", ended)})


def _cause_of_death(stored: StoredMachine) -> str:
    if "port" in stored.reported:
        return DIED
    line = last_line(stored.layout.logs / "machine.log")
    return f"{DIED} while starting: {line}" if line else f"{DIED} while starting"


def _last_seen_alive(stored: StoredMachine, now: datetime) -> datetime:
    try:
        return min(now, datetime.fromtimestamp(stored.layout.lifetime_lock.stat().st_mtime, UTC))
    except OSError:
        return now


def _may_end(stored: StoredMachine, now: datetime, *, overdue: bool) -> bool:
    return (
        overdue or not stored.is_alive or _has_passed(stored.record["asked_at"], now, timedelta(seconds=STOP_TIMEOUT_S))
    )


def _has_passed(since: str, now: datetime, duration: timedelta) -> bool:
    """Say whether `duration` has passed since an ISO time; a clock that was set back counts as passed."""
    return not timedelta(0) <= now - from_iso(since) < duration


def save_end(layout: Layout, record: dict[str, Any]) -> None:
    """Write the record of a machine that ends; on a full disk, over the old one in place."""
    try:
        write_json(layout.record, record)
    except OSError as error:
        if error.errno not in _DISK_FULL_ERRORS:
            raise
        write_json_over(layout.record, record)


def request_end(stored: StoredMachine, wanted_state: str, now: datetime) -> None:
    """Record that the machine shall end, then ask its process to end, even where the disk is too full to record it."""
    record = stored.record
    try:
        if wanted_state == "terminated" or record["wanted"] == "running":
            save_end(stored.layout, record | {"wanted": wanted_state, "asked_at": record.get("asked_at") or iso(now)})
    finally:
        pid = recorded_pid(stored.layout) if stored.is_alive else None
        if pid is not None:
            terminate_process(pid, stored.record["mark"])


def wait_until_dead(layout: Layout) -> None:
    """Wait for the machine process to end by itself, `STOP_TIMEOUT_S` seconds at most."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while is_alive(layout) and time.monotonic() < deadline:
        time.sleep(POLL_S)


_ID_OF_OTHER_USER = "of-another-user"  # in place of an id, where the directory belongs to another user


def identity(home: Path) -> AccountIdentity:
    """Return the identity of the account whose machines lie in `home`; the first call gives the directory its id.

    Raises AuthFailed where that may not be written, ProviderUnavailable where it cannot be read or written.
    """
    with system_errors(home):
        directory_id = _known_directory_id(home, _read_identity_file(home))
        if directory_id is None:
            with cloud_lock(home):
                directory_id = _directory_id(home)
    root = home.parents[2] if home.parent.parent.name == "providers" else home
    return AccountIdentity("computer", _identity_id(directory_id), f"{hostname()} (user {login_name()}, home {root})")


def _identity_id(directory_id: str) -> str:
    return f"{computer_id()}/{os.geteuid()}/{directory_id}"


def known_identity_id(home: Path) -> str | None:
    """Return the identity's id, None where this directory has none yet. The caller holds the cloud's lock."""
    return identity_id_or_new(home) if (home / IDENTITY_FILE).exists() else None


def identity_id_or_new(home: Path) -> str:
    """Return the identity's id; the directory gets its own id when it has none. The caller holds the cloud's lock."""
    return _identity_id(_directory_id(home))


def _directory_id(home: Path) -> str:
    """Return the id of this directory of machines on this computer; write a new one where it has none.

    A directory that was moved keeps its id. A copy gets one of its own: on another computer, because its file has no id
    for that computer; on the same one, because the original is still there.
    """
    entries = _read_identity_file(home)
    directory_id = _known_directory_id(home, entries)
    if directory_id is not None:
        return directory_id
    path, this_computer = os.path.realpath(home), computer_id()
    if this_computer in entries and not _is_copy(home, entries[this_computer]):
        moved_id = str(entries[this_computer]["id"])
        with suppress(OSError):  # a full disk: the next call writes it
            _write_identity_file(home, entries | {this_computer: {"id": moved_id, "path": path}})
        return moved_id
    new_id = secrets.token_hex(8)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_identity_file(home, entries | {this_computer: {"id": new_id, "path": path}})
    return new_id


def _write_identity_file(home: Path, entries: dict[str, Any]) -> None:
    """Write the identity file, and remove temporary files of killed writers. The caller holds the cloud's lock."""
    for leftover in home.glob(f".{IDENTITY_FILE}.*"):
        leftover.unlink(missing_ok=True)
    write_json(home / IDENTITY_FILE, entries)


def _read_identity_file(home: Path) -> dict[str, Any]:
    try:
        return read_json(home / IDENTITY_FILE) or {}
    except ValueError as error:
        message = f"The file that says whose local machines these are cannot be read ({home / IDENTITY_FILE})."
        raise ProviderUnavailable(message, field="provider", value="local") from error


def _known_directory_id(home: Path, entries: dict[str, Any]) -> str | None:
    """Return the id of this directory if it has one already; None where it has to be written."""
    if home.exists() and home.stat().st_uid != os.geteuid():
        return _ID_OF_OTHER_USER  # root, mostly: a file of root's would lock the owner out
    entry = entries.get(computer_id())
    return str(entry["id"]) if entry and _is_at(home, entry["path"]) else None


def _is_at(home: Path, path: str) -> bool:
    """Say whether this is the directory at `path`, under whatever name."""
    with suppress(OSError):
        return os.path.realpath(home) == path or home.samefile(path)
    return False


def _is_copy(home: Path, entry: dict[str, Any]) -> bool:
    """Say whether the directory that got this id is still where it was, so that this one is a copy."""
    try:
        original = read_json(Path(entry["path"]) / IDENTITY_FILE) or {}
    except (OSError, ValueError):
        return False
    return bool(original.get(computer_id(), {}).get("id") == entry["id"]) and not _is_at(home, entry["path"])
