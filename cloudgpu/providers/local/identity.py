"""Which computer, user and place a local account is."""

from __future__ import annotations

import getpass
import os
import platform
from contextlib import suppress
from pathlib import Path

from cloudgpu.core.facts import AccountIdentity

_MACHINE_ID = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


def identity(place: Path) -> AccountIdentity:
    """Return this computer and user, and where the machines' directories lie. Asks nothing over the network."""
    host, user = platform.node(), _user()
    return AccountIdentity("computer", f"{_computer() or host}/{user}/{place.resolve()}", f"{user} on {host}")


def _computer() -> str:
    for file in _MACHINE_ID:
        with suppress(OSError):
            return file.read_text(encoding="ascii").strip()
    return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return str(os.getuid())
