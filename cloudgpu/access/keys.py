"""SSH keys: the one that logs in to every machine, and a fresh host key per launch."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.access.files import explain_os_errors, lock_of, locked, remove_part_files, write_whole
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FILE = "id_ed25519"
COMMENT = "cloudgpu"
OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class ClientKey:
    """The key that logs in: where its private half lies, and the line for `authorized_keys`."""

    path: Path
    public_line: str


@dataclass(frozen=True, slots=True)
class HostKey:
    """A machine's host key, made before the launch so that the first connection can be verified.

    `private_pem` is in OpenSSH's format, as cloud-init's `ssh_keys` and every SSH server take it.
    """

    public_line: str
    private_pem: str = field(repr=False)


def client_key(directory: Path) -> ClientKey:
    """Return the key in `directory`, made there on first use (ed25519, mode 0600); safe with several processes.

    Raises InvalidRequest when the private key can be read by others, is damaged, or cannot be written.
    """
    path = directory / FILE
    if not path.exists() or lock_of(path).exists():  # its maker is at work, or was killed and left the lock
        with locked(path):
            if not path.exists():
                write_whole(path, _private_pem(_generate()).encode())
    check_private(path)
    public_line = _public_line(_read(path))
    _write_public(path, public_line)
    return ClientKey(path, public_line)


def new_host_key() -> HostKey:
    """Return a fresh ed25519 host key. Nothing is written anywhere."""
    key = _generate()
    return HostKey(_public_line(key), _private_pem(key))


def check_private(path: Path) -> None:
    """Raise InvalidRequest when others than the owner can read or write the private key."""
    with explain_os_errors(path):
        mode = path.stat().st_mode
    if mode & OPEN_TO_OTHERS:
        raise InvalidRequest(
            f"The private key {path} can be read by others (mode {stat.S_IMODE(mode):04o}).",
            field="keys",
            value=str(path),
            next=f"Run: chmod 600 '{path}' (and if others may have copied it: remove it and launch new machines).",
        )


def _generate() -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate()


def _private_pem(key: Ed25519PrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode("ascii")


def _public_line(key: Ed25519PrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii") + f" {COMMENT}"


def _read(path: Path) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    with explain_os_errors(path):
        text = path.read_bytes()
    try:
        key = load_ssh_private_key(text, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _unusable(path, "is not an OpenSSH private key without a passphrase") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable(path, "is not an ed25519 key")
    return key


def _unusable(path: Path, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The private key {path} {why}.",
        field="keys",
        value=str(path),
        next="Restore it from a backup; or move it away, and a new one is made (it logs in to new machines only).",
    )


def _write_public(private: Path, line: str) -> None:
    """Keep the public half beside the private one, for people and for other tools."""
    path, wanted = private.with_name(f"{FILE}.pub"), f"{line}\n".encode()
    if not path.exists() or path.read_bytes() != wanted:
        with locked(private), explain_os_errors(path):
            remove_part_files(path)
            write_whole(path, wanted)
            os.chmod(path, 0o644)  # noqa: PTH101  (public)
