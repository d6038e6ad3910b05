"""Which computer this is, and which of its users we are: the same after a reboot and under another host name."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
TRANSIENT = Path("/run/machine-id")  # what systemd makes up at each boot where /etc cannot keep one
IN_CONTAINER = (Path("/.dockerenv"), Path("/run/.containerenv"), Path("/run/systemd/container"))
MOUNTS = Path("/proc/self/mountinfo")
_IS_ID = re.compile(r"[0-9a-f]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def hostname() -> str:
    """Return this computer's host name, which may change."""
    return os.uname().nodename


def login_name() -> str:
    """Return the name of the user whose rights we have."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user without an entry
        return os.environ.get("LOGNAME") or os.environ.get("USER") or f"uid-{os.geteuid()}"


def computer() -> str:
    """Return what this computer is called for good: the machine id, whatever its name or address.

    In a container the machine id may be that of its image or of its host, or be missing: its name counts too, or alone.
    """
    found, name = _machine_id(), hostname()
    if found is None:
        return f"name:{name}"
    return f"{found}:{name}" if _is_container() else found


def _machine_id() -> str | None:
    if sys.platform == "darwin":
        return _host_uuid()
    if TRANSIENT.exists():
        return None
    for file in MACHINE_IDS:
        with suppress(OSError, ValueError):
            text = file.read_text(encoding="ascii").strip()
            if _IS_ID.fullmatch(text) and text.strip("0-"):
                return text
    return None


def _host_uuid() -> str | None:
    """Return macOS's number of this computer (IOPlatformUUID), by gethostuuid(2)."""
    import ctypes
    import uuid

    raw, wait = ctypes.create_string_buffer(16), (ctypes.c_long * 2)(5, 0)  # a struct timespec
    try:
        failed = ctypes.CDLL(None).gethostuuid(raw, ctypes.byref(wait))
    except (OSError, AttributeError):
        return None
    return None if failed else str(uuid.UUID(bytes=raw.raw))


def _is_container() -> bool:
    if any(path.exists() for path in IN_CONTAINER):
        return True
    with suppress(OSError):
        return any(_is_overlay(line) for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines())
    return False


def _is_overlay(line: str) -> bool:
    """Say whether this line of mountinfo is a root directory made of an image's layers."""
    before, _, after = line.partition(" - ")
    return before.split()[4:5] == ["/"] and after.split()[:1] == ["overlay"]
