"""Which computer, user and place a local account is: only from there can anything be said about its machines."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from cloudgpu.access.computer import computer, hostname, login_name
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.providers.local.layout import IDENTITY_FILE, read_json, write_json

_OTHER_USERS = "of-another-user"


def identity(home: Path) -> AccountIdentity:
    """Return the identity of the account whose machines lie in `home`; the first call gives the place its number.

    Raises AuthFailed where that may not be written, ProviderUnavailable where it cannot be read or written.
    """
    from cloudgpu.providers.local.store import cloud_lock, system_errors

    with system_errors(home):
        number = _number_if_known(home, _read(home))
        if number is None:
            with cloud_lock(home):
                number = _directory_number(home)
    root = home.parents[2] if home.parent.parent.name == "providers" else home
    words = f"{hostname()} (user {login_name()}, home {root})"
    return AccountIdentity("computer", _id(number), words)


def _id(number: str) -> str:
    return f"{computer()}/{os.geteuid()}/{number}"


def known_id(home: Path) -> str | None:
    """Return the identity's id, None where this is no place yet. The caller holds the cloud's lock."""
    return id_or_new(home) if (home / IDENTITY_FILE).exists() else None


def id_or_new(home: Path) -> str:
    """Return the identity's id; the place gets its number when it has none. The caller holds the cloud's lock."""
    return _id(_directory_number(home))


def _directory_number(home: Path) -> str:
    """Return the number of this place on this computer.

    A directory that was moved keeps its number. A copy gets one of its own: on another computer, because its file has
    no number for that computer; on the same one, because the original is still there.
    """
    known = _read(home)
    found = _number_if_known(home, known)
    if found is not None:
        return found
    here, computer_ = os.path.realpath(home), computer()
    if computer_ in known and not _is_copy(home, known[computer_]):
        moved = str(known[computer_]["id"])
        with suppress(OSError):  # a full disk: the next look writes it
            _write(home, known | {computer_: {"id": moved, "path": here}})
        return moved
    fresh = secrets.token_hex(8)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(home, known | {computer_: {"id": fresh, "path": here}})
    return fresh


def _write(home: Path, known: dict[str, Any]) -> None:
    """Write the file, and remove what one that was killed over it has left. The caller holds the cloud's lock."""
    for part in home.glob(f".{IDENTITY_FILE}.*"):
        part.unlink(missing_ok=True)
    write_json(home / IDENTITY_FILE, known)


def _read(home: Path) -> dict[str, Any]:
    try:
        return read_json(home / IDENTITY_FILE) or {}
    except ValueError as error:
        message = f"The file that says whose local machines these are cannot be read ({home / IDENTITY_FILE})."
        raise ProviderUnavailable(message, field="provider", value="local") from error


def _number_if_known(home: Path, known: dict[str, Any]) -> str | None:
    """Return the number where nothing has to be written for it."""
    if home.exists() and home.stat().st_uid != os.geteuid():
        return _OTHER_USERS  # root, mostly: a file of root's would lock the owner out
    entry = known.get(computer())
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
    return bool(original.get(computer(), {}).get("id") == entry["id"]) and not _is_at(home, entry["path"])
