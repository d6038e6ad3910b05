"""Colleagues' keys on a machine: checked here, let in and out over the verified connection."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.access.ssh.client_files import KEY_COMMENT, is_public_key
from cloudgpu.errors import InvalidRequest, Unreachable

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection

MAX_KEY_BYTES = 64 * 1024  # bytes of a key file
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class GuestKey:
    """A public key: `ssh-ed25519 AAAA...`, whose it is, and its fingerprint as ssh-keygen -l shows it.

    `comment` names its owner; the keys that homes make all have the same comment, so theirs is the file's name.
    """

    line: str
    comment: str
    fingerprint: str


def read_guest_key(path: Path) -> GuestKey:
    """Return the one public key in a file; raise InvalidRequest for a private key, several, or none."""
    text = _read_key_file(path)
    if "PRIVATE KEY" in text:
        raise _key_file_error(
            path, "holds a private key, which is to be shared with nobody", f"Name its public half: {path}.pub"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if len(lines) > 1:
        raise _key_file_error(
            path, f"holds {len(lines)} lines, and one key is let in at a time", "Give each its own file."
        )
    if not lines or not is_public_key(lines[0]):
        way_out = "Ask for the line of ~/.ssh/id_ed25519.pub: ssh-ed25519 AAAA..."
        raise _key_file_error(path, "holds no OpenSSH public key", way_out)
    key = guest_key(lines[0])
    says_who = key.comment not in ("", KEY_COMMENT) or path.stem.startswith("id_")
    return key if says_who else replace(key, comment=path.stem)


def guest_key(line: str) -> GuestKey:
    """Return the key of an OpenSSH public line that was checked."""
    kind, blob, *comment = line.strip().split(maxsplit=2)
    digest = base64.b64encode(hashlib.sha256(base64.b64decode(blob)).digest()).decode().rstrip("=")
    return GuestKey(f"{kind} {blob}", "".join(comment), f"SHA256:{digest}")


def add_key(connection: Connection, key: GuestKey) -> bool:
    """Let this key log in as the machine's user; return whether it could not before. Raises Unreachable."""
    return _change(connection, key, let_in=True)


def remove_key(connection: Connection, key: GuestKey | None) -> bool:
    """Take this key (every shared one, for None) out again; return whether there was one. Raises Unreachable.

    Who is logged in stays so until the connection ends.
    """
    return _change(connection, key, let_in=False)


def _change(connection: Connection, key: GuestKey | None, *, let_in: bool) -> bool:
    mark, line = f"cloudgpu:{connection.target.id}", key.line if key else ""
    text = Path(__file__).with_name("remote_authorized_keys.py").read_text(encoding="utf-8")
    program = f"{text}\n\nmain({mark!r}, {line!r}, let_in={let_in!r})\n".encode()
    done = connection.capture('"$HOME"/.cloudgpu/agent python -IS -', timeout=TIMEOUT_S, input=program)
    name = connection.target.name
    try:
        answer = json.loads(done.stdout)
        return bool(answer["changed"])
    except (ValueError, KeyError, TypeError):
        output = (done.stdout + done.stderr).decode("utf-8", "replace").strip()[-200:]
        raise Unreachable(
            f"The keys of {name} could not be changed: {output or f'status {done.status}'}.",
            field="name",
            value=name,
            next=f"Look at ~/.ssh/authorized_keys there: cloudgpu ssh {name}",
        ) from None


def _read_key_file(path: Path) -> str:
    try:
        with path.expanduser().open("rb") as file:
            return file.read(MAX_KEY_BYTES).decode("utf-8", "replace")
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise _key_file_error(path, f"cannot be read ({why.lower()})", "Name a file with one public key.") from error


def _key_file_error(path: Path, says: str, way_out: str) -> InvalidRequest:
    return InvalidRequest(f"{path} {says}.", field="--key", value=str(path), next=way_out)
