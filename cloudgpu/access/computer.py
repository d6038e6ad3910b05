"""Identifies this computer, after a reboot and under another host name too, and the user we run as.

It is also a part of the program that the ssh provider sends to a host: standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
TRANSIENT_ID_FILE = Path("/run/machine-id")  # systemd's random id of one boot, where /etc cannot store an id
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"), Path("/run/systemd/container"))
MOUNTS = Path("/proc/self/mountinfo")
_IS_ID = re.compile(r"[0-9a-f]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def hostname() -> str:
    """Return this computer's host name, which may change."""
    return os.uname().nodename


def login_name() -> str:
    """Return the name of the effective user."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user without an entry
        return os.environ.get("LOGNAME") or os.environ.get("USER") or f"uid-{os.geteuid()}"


def computer_id() -> str:
    """Return a lasting id of this computer, whatever its name or address; without a machine id its host name."""
    return lasting_id() or f"name:{hostname()}"


def lasting_id() -> str | None:
    """Return this computer's machine id, None without one.

    A container's machine id may be that of its image or its host, so the host name is added.
    """
    machine_id = _machine_id()
    return f"{machine_id}:{hostname()}" if machine_id and _is_container() else machine_id


def _machine_id() -> str | None:
    if sys.platform == "darwin":
        return _host_uuid()
    if TRANSIENT_ID_FILE.exists():
        return None
    for file in MACHINE_IDS:
        with suppress(OSError, ValueError):
            text = file.read_text(encoding="ascii").strip()
            if _IS_ID.fullmatch(text) and text.strip("0-"):
                return text
    return None


def _host_uuid() -> str | None:
    """Return the IOPlatformUUID of a Mac, by gethostuuid(2)."""
    import ctypes
    import uuid

    buffer, timeout = ctypes.create_string_buffer(16), (ctypes.c_long * 2)(5, 0)  # a struct timespec
    try:
        failed = ctypes.CDLL(None).gethostuuid(buffer, ctypes.byref(timeout))
    except (OSError, AttributeError):
        return None
    return None if failed else str(uuid.UUID(bytes=buffer.raw))


def _is_container() -> bool:
    if any(path.exists() for path in CONTAINER_FILES):
        return True
    with suppress(OSError):
        return any(_is_overlay(line) for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines())
    return False


def _is_overlay(line: str) -> bool:
    """Tell whether this line of mountinfo mounts the root directory as an overlay of image layers."""
    before, _, after = line.partition(" - ")
    return before.split()[4:5] == ["/"] and after.split()[:1] == ["overlay"]
