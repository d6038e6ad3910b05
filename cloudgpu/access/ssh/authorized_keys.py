"""Adds colleagues' public keys to a machine's authorized_keys, and removes them, over a verified connection."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.access.ssh.client_files import KEY_COMMENT, is_public_key
from cloudgpu.access.ssh.target import fingerprint
from cloudgpu.core.values.printable import one_line
from cloudgpu.errors import InvalidRequest, Unreachable

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection

MAX_KEY_BYTES = 64 * 1024
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class SharedPublicKey:
    """A colleague's public key: `ssh-ed25519 AAAA...`, its owner, and its fingerprint as `ssh-keygen -l` shows it.

    `comment` names the owner. Keys that cloudgpu makes all have the same comment: of those it is the file's name.
    """

    line: str
    comment: str
    fingerprint: str


def read_public_key(path: Path) -> SharedPublicKey:
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
        raise _key_file_error(
            path, "holds no OpenSSH public key", "Ask for the line of ~/.ssh/id_ed25519.pub: ssh-ed25519 AAAA..."
        )
    key = parse_public_key(lines[0])
    names_owner = key.comment not in ("", KEY_COMMENT) or path.stem.startswith("id_")
    return key if names_owner else replace(key, comment=path.stem)


def parse_public_key(line: str) -> SharedPublicKey:
    """Return the key of a valid OpenSSH public line."""
    key_type, blob, *comment = line.strip().split(maxsplit=2)
    # A colleague wrote the comment, and terminals show it.
    return SharedPublicKey(f"{key_type} {blob}", one_line("".join(comment)), fingerprint(f"{key_type} {blob}"))


def add_key(connection: Connection, key: SharedPublicKey) -> bool:
    """Let this key log in as the machine's user; return whether it was added. Raises Unreachable."""
    return _change(connection, key, add=True)


def remove_key(connection: Connection, key: SharedPublicKey | None) -> bool:
    """Remove this key (None: every shared one); return whether there was one. Raises Unreachable.

    Open sessions stay open.
    """
    return _change(connection, key, add=False)


def _change(connection: Connection, key: SharedPublicKey | None, *, add: bool) -> bool:
    machine_tag, line = f"cloudgpu:{connection.target.id}", key.line if key else ""
    text = Path(__file__).with_name("remote_authorized_keys.py").read_text(encoding="utf-8")
    program = f"{text}\n\nmain({machine_tag!r}, {line!r}, add={add!r})\n".encode()
    completed = connection.capture('"$HOME"/.cloudgpu/agent python -IS -', timeout=TIMEOUT_S, input=program)
    name = connection.target.name
    try:
        answer = json.loads(completed.stdout)
        return bool(answer["changed"])
    except (ValueError, KeyError, TypeError):
        output = (completed.stdout + completed.stderr).decode("utf-8", "replace").strip()[-200:]
        raise Unreachable(
            f"The keys of {name} could not be changed: {output or f'status {completed.status}'}.",
            field="name",
            value=name,
            next=f"Look at ~/.ssh/authorized_keys there: cloudgpu ssh {name}",
        ) from None


def _read_key_file(path: Path) -> str:
    try:
        with path.expanduser().open("rb") as file:
            return file.read(MAX_KEY_BYTES).decode("utf-8", "replace")
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _key_file_error(path, f"cannot be read ({reason.lower()})", "Name a file with one public key.") from error


def _key_file_error(path: Path, problem: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{path} {problem}.", field="--key", value=str(path), next=remedy)
