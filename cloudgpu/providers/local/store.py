"""The local cloud: its lock, its machines' directories, and the finishing of what a killed call had accepted.

A call writes what it has accepted first and then does it, by `complete_pending`. The next call, whichever it is,
completes all machines first: a kill at any point loses nothing and leaves nothing half.

An account is one computer, user and place: only from there can anything be said about its machines.
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
    process_number,
    read_json,
    remove,
    write_json,
    write_json_over,
)
from cloudgpu.providers.local.processes import end_all, terminate_process

LOCK = "lock"
LOCK_S = 60.0
POLL_S = 0.02
STOP_TIMEOUT_S = 4.0  # from asking a machine's process to end to killing it
DIED = "died"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True)
class StoredMachine:
    """One machine as its files describe it: its record, what its process reported, and whether that process lives."""

    layout: Layout
    record: dict[str, Any]
    run: dict[str, Any]
    alive: bool

    @property
    def id(self) -> str:
        """The instance id."""
        return self.layout.root.name

    @property
    def reported(self) -> dict[str, Any]:
        """What the process of the current boot reported in run.json; empty before it has."""
        return self.run if self.run.get("boot") == self.record["boots"] else {}


@contextlib.contextmanager
def cloud_lock(home: Path, wait_s: float = LOCK_S) -> Iterator[None]:
    """Hold the lock of the local machines; remove its file at the end when no machine is left.

    Raises ProviderUnavailable when another process holds it too long.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = _lock(home, time.monotonic() + wait_s)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            left = set(os.listdir(home))  # noqa: PTH208
            if left <= {LOCK, IDENTITY_FILE}:
                (home / LOCK).unlink()
            if left == {LOCK}:
                home.rmdir()
        os.close(descriptor)


def _lock(home: Path, deadline: float) -> int:
    while True:
        with contextlib.suppress(FileNotFoundError):  # the directory was just removed by the last one out
            descriptor = os.open(home / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            if _try_lock(descriptor, home / LOCK):
                return descriptor
            os.close(descriptor)
        if time.monotonic() >= deadline:
            raise ProviderUnavailable(
                "Another cloudgpu process has held the local machines for a minute.",
                field="provider",
                value="local",
                next=f"see who holds {home / LOCK} and try again",
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
    """Turn an OSError into our own error with its remedy; `making`: the launch was not accepted yet."""
    try:
        yield
    except OSError as error:
        where = error.filename or home
        if error.errno in _FULL and making:
            message = f"There is no room left on the disk for local machines ({where})."
            raise NoCapacity(message, field="provider", value="local", next="free some space and try again") from error
        if error.errno in _FORBIDDEN:
            message = f"This user may not write where local machines are kept ({where})."
            raise AuthFailed(message, next=f"Give yourself write access to {home}.") from error
        message = f"The local machines cannot be reached: {error.strerror or error} ({where})."
        raise ProviderUnavailable(message, field="provider", value="local", next="try again") from error


def find(layout: Layout) -> StoredMachine | None:
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


def complete_all_pending(home: Path, account: str | None, now: datetime, start_timeout: timedelta) -> None:
    """Finish what earlier calls had accepted; what cannot be finished now stays as it is and holds up no other.

    `account` is the identity of this place, None where it has none yet: machines of other places are not looked at.
    """
    for path in sorted(home.iterdir()):
        if path.name.startswith(BUILT_PREFIX):
            remove(path)
        elif path.name.startswith(INSTANCE_PREFIX):
            with contextlib.suppress(ProviderUnavailable, StopUnproved, OSError):
                found = find(Layout(path))
                if found is None or found.record["identity"] == account:
                    complete_pending(Layout(path), now, start_timeout)


def complete_pending(layout: Layout, now: datetime, start_timeout: timedelta, *, overdue: bool = False) -> None:
    """Bring one machine to its wanted state; `overdue` says that its process has had its time to end."""
    found = find(layout)
    if found is not None and found.record["root"] != str(layout.root):
        rewrite_paths(layout, found.record["root"])
        save(layout, found.record | {"root": str(layout.root)})
        found = find(layout)
    if found is None:
        remove(layout.root)
    elif found.record["wanted"] == "running":
        _complete_running(found, now, start_timeout)
    elif found.record["wanted"] == "terminated":
        if _may_end(found, now, overdue=overdue):
            end_and_remove(found)
    elif "ended" not in found.record and _may_end(found, now, overdue=overdue):
        _end_processes(found)
        _save_ended(found, {"state": "stopped", "reason": "asked", "at": iso(now)})


def end_and_remove(found: StoredMachine) -> None:
    """End the machine's processes and remove its directory; raise StopUnproved where we cannot see one that lives."""
    _end_processes(found)
    remove(found.layout.root)


def _end_processes(found: StoredMachine) -> None:
    end_all(found.record["mark"])
    if is_alive(found.layout):  # in another container, or at another computer that has this directory too
        raise StopUnproved(
            f"A process of the machine {found.id} lives where this one cannot see it.",
            next="run the same command in the container, or on the computer, where it was launched",
        )


def _complete_running(found: StoredMachine, now: datetime, start_timeout: timedelta) -> None:
    record = found.record
    if found.alive:
        if record["spawned"] != record["boots"]:
            save(found.layout, record | {"spawned": record["boots"]})
        if "port" not in found.reported and _has_passed(record["boot_at"], now, start_timeout):
            _record_death(found, now, f"{DIED} while starting: it did not answer in time")
    elif record["spawned"] != record["boots"]:
        if spawn(found.layout):
            save(found.layout, record | {"spawned": record["boots"]})
    else:
        _record_death(found, now, _cause_of_death(found))


def _record_death(found: StoredMachine, now: datetime, reason: str) -> None:
    """End the processes that a dead machine left, and record why and when it ended."""
    _end_processes(found)
    _save_ended(found, {"state": "stopped", "reason": reason, "at": iso(_last_seen_alive(found, now))})


def _save_ended(found: StoredMachine, ended: dict[str, Any]) -> None:
    """Record how the machine ended: as its process reported it, else `ended`."""
    save_end(found.layout, found.record | {"wanted": "stopped", "ended": found.reported.get("end", ended)})


def _cause_of_death(found: StoredMachine) -> str:
    if "port" in found.reported:
        return DIED
    line = last_line(found.layout.logs / "machine.log")
    return f"{DIED} while starting: {line}" if line else f"{DIED} while starting"


def _last_seen_alive(found: StoredMachine, now: datetime) -> datetime:
    try:
        return min(now, datetime.fromtimestamp(found.layout.lifetime_lock.stat().st_mtime, UTC))
    except OSError:
        return now


def _may_end(found: StoredMachine, now: datetime, *, overdue: bool) -> bool:
    return overdue or not found.alive or _has_passed(found.record["asked_at"], now, timedelta(seconds=STOP_TIMEOUT_S))


def _has_passed(since: str, now: datetime, duration: timedelta) -> bool:
    """Say whether `span` has passed; a clock that was set back counts as passed."""
    return not timedelta(0) <= now - from_iso(since) < duration


def save(layout: Layout, record: dict[str, Any]) -> None:
    """Write the machine's record."""
    write_json(layout.record, record)


def save_end(layout: Layout, record: dict[str, Any]) -> None:
    """Write the record of a machine that ends; on a full disk, over the old one in place."""
    try:
        save(layout, record)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        write_json_over(layout.record, record)


def request_end(found: StoredMachine, wanted: str, now: datetime) -> None:
    """Record that the machine shall end, then ask its process to end, even where the disk is too full to record it."""
    record = found.record
    try:
        if wanted == "terminated" or record["wanted"] == "running":
            save_end(found.layout, record | {"wanted": wanted, "asked_at": record.get("asked_at") or iso(now)})
    finally:
        number = process_number(found.layout) if found.alive else None
        if number is not None:
            terminate_process(number, found.record["mark"])


def wait_until_dead(layout: Layout) -> None:
    """Wait for the machine process to end by itself, `STOP_TIMEOUT_S` seconds at most."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while is_alive(layout) and time.monotonic() < deadline:
        time.sleep(POLL_S)


_NUMBER_OF_OTHER_USER = "of-another-user"


def identity(home: Path) -> AccountIdentity:
    """Return the identity of the account whose machines lie in `home`; the first call gives the place its number.

    Raises AuthFailed where that may not be written, ProviderUnavailable where it cannot be read or written.
    """
    with system_errors(home):
        number = _number_if_known(home, _read_place(home))
        if number is None:
            with cloud_lock(home):
                number = _directory_number(home)
    root = home.parents[2] if home.parent.parent.name == "providers" else home
    return AccountIdentity("computer", _place_id(number), f"{hostname()} (user {login_name()}, home {root})")


def _place_id(number: str) -> str:
    return f"{computer_id()}/{os.geteuid()}/{number}"


def known_id(home: Path) -> str | None:
    """Return the identity's id, None where this directory has none yet. The caller holds the cloud's lock."""
    return id_or_new(home) if (home / IDENTITY_FILE).exists() else None


def id_or_new(home: Path) -> str:
    """Return the identity's id; the place gets its number when it has none. The caller holds the cloud's lock."""
    return _place_id(_directory_number(home))


def _directory_number(home: Path) -> str:
    """Return the number of this place on this computer.

    A directory that was moved keeps its number. A copy gets one of its own: on another computer, because its file has
    no number for that computer; on the same one, because the original is still there.
    """
    known = _read_place(home)
    found = _number_if_known(home, known)
    if found is not None:
        return found
    here, this_computer = os.path.realpath(home), computer_id()
    if this_computer in known and not _is_copy(home, known[this_computer]):
        moved = str(known[this_computer]["id"])
        with suppress(OSError):  # a full disk: the next look writes it
            _write_place(home, known | {this_computer: {"id": moved, "path": here}})
        return moved
    fresh = secrets.token_hex(8)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_place(home, known | {this_computer: {"id": fresh, "path": here}})
    return fresh


def _write_place(home: Path, known: dict[str, Any]) -> None:
    """Write the identity file, and remove temporary files of killed writers. The caller holds the cloud's lock."""
    for part in home.glob(f".{IDENTITY_FILE}.*"):
        part.unlink(missing_ok=True)
    write_json(home / IDENTITY_FILE, known)


def _read_place(home: Path) -> dict[str, Any]:
    try:
        return read_json(home / IDENTITY_FILE) or {}
    except ValueError as error:
        message = f"The file that says whose local machines these are cannot be read ({home / IDENTITY_FILE})."
        raise ProviderUnavailable(message, field="provider", value="local") from error


def _number_if_known(home: Path, known: dict[str, Any]) -> str | None:
    """Return the number of this place if it has one already; None where it has to be written."""
    if home.exists() and home.stat().st_uid != os.geteuid():
        return _NUMBER_OF_OTHER_USER  # root, mostly: a file of root's would lock the owner out
    entry = known.get(computer_id())
    return str(entry["id"]) if entry and _is_at(home, entry["path"]) else None


def _is_at(home: Path, path: str) -> bool:
    """Say whether this is the directory at `path`, under whatever name."""
    with suppress(OSError):
        return os.path.realpath(home) == path or home.samefile(path)
    return False


def _is_copy(home: Path, entry: dict[str, Any]) -> bool:
    """Say whether the directory that got this number is still where it was."""
    try:
        original = read_json(Path(entry["path"]) / IDENTITY_FILE) or {}
    except (OSError, ValueError):
        return False
    return bool(original.get(computer_id(), {}).get("id") == entry["id"]) and not _is_at(home, entry["path"])
