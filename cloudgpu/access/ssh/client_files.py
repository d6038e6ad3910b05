"""The files of SSH on this computer: the key that logs in, pinned host keys, and a config for the system's client.

Pinned keys are in OpenSSH's known_hosts format, one line per machine under its cloudgpu-id. The id is the alias
(`HostKeyAlias`): a machine keeps its key when its address changes. Users may `Include` the config.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.access.files import explain_os_errors, lock_of, locked, remove, remove_part_files, write_atomically
from cloudgpu.core.model.instances import Address
from cloudgpu.core.model.machine import Machine, jump_host_of
from cloudgpu.core.values.network import JumpHost
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_FILE = "id_ed25519"
KEY_COMMENT = "cloudgpu"
GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class ClientKey:
    """The key that logs in: the file of its private half, and the line for `authorized_keys`."""

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
    path = directory / KEY_FILE
    if not path.exists() or lock_of(path).exists():  # another process makes it now, or was killed while it did
        with locked(path):
            if not path.exists():
                write_atomically(path, _private_pem(_generate()).encode())
    check_private(path)
    public_line = _public_line(_read_private_key(path))
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
    if mode & GROUP_AND_OTHERS:
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

    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii") + f" {KEY_COMMENT}"


def _read_private_key(path: Path) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    with explain_os_errors(path):
        text = path.read_bytes()
    try:
        key = load_ssh_private_key(text, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _unusable_key_error(path, "is not an OpenSSH private key without a passphrase") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable_key_error(path, "is not an ed25519 key")
    return key


def _unusable_key_error(path: Path, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"The private key {path} {problem}.",
        field="keys",
        value=str(path),
        next="Restore it from a backup; or move it away, and a new one is made (it logs in to new machines only).",
    )


def _write_public(private: Path, line: str) -> None:
    """Write the public half beside the private one, for people and other tools."""
    path, content = private.with_name(f"{KEY_FILE}.pub"), f"{line}\n".encode()
    if _read_bytes(path) != content:
        with locked(private), explain_os_errors(path):
            remove_part_files(path)
            write_atomically(path, content)
            os.chmod(path, 0o644)  # noqa: PTH101  (public)


_KEY_PATTERN = re.compile(r"(ssh-[a-z0-9-]+|ecdsa-sha2-[a-z0-9-]+|sk-[a-z0-9@.-]+) ([A-Za-z0-9+/]+={0,2})(?: .*)?")
_ALIAS_PATTERN = re.compile(r"[A-Za-z0-9._-]+")


def pin(file: Path, id: str, public_line: str) -> None:  # noqa: A002
    """Pin the only host key that machine `id` may have; an older pin is replaced.

    Raises InvalidRequest when `public_line` is no OpenSSH public key, or the file is damaged or cannot be written.
    """
    key = public_key(public_line)
    if not _ALIAS_PATTERN.fullmatch(id):
        raise InvalidRequest(f"{id!r} cannot name a line of known_hosts.", field="id", value=id, next="Report this.")
    if pinned(file, id) == key:
        return
    with locked(file):
        _write_pins(file, {**_pins(file), id: key})


def unpin(file: Path, id: str) -> None:  # noqa: A002
    """Remove the pin of machine `id`, and the file with its last line. No error when there is none."""
    if not file.exists():
        return
    with locked(file):
        _write_pins(file, {alias: key for alias, key in _pins(file).items() if alias != id})


def pinned(file: Path, id: str) -> str | None:  # noqa: A002
    """Return the pinned key of machine `id` as `ssh-ed25519 AAAA...`, or None. Raises InvalidRequest for bad lines."""
    return _pins(file).get(id)


def pinned_machines(file: Path) -> tuple[str, ...]:
    """Return the id of every machine that has a pinned key. Raises InvalidRequest for bad lines."""
    return tuple(_pins(file))


def is_public_key(line: str) -> bool:
    """Tell whether this is an OpenSSH public line."""
    match = _KEY_PATTERN.fullmatch(line.strip())
    return bool(match and _algorithm(match[2]) == match[1])


def _pins(file: Path) -> dict[str, str]:
    """Return the pinned key of each machine, by id."""
    lines = enumerate((_read_bytes(file) or b"").splitlines(), 1)
    return dict(_parse_pin(file, number, line) for number, line in lines if line.strip())


def _parse_pin(file: Path, number: int, line: bytes) -> tuple[str, str]:
    try:
        alias, key = line.decode("utf-8").strip().split(" ", 1)
        return alias, public_key(key)
    except (ValueError, InvalidRequest) as error:
        raise InvalidRequest(
            f"Line {number} of {file} is not a pinned host key.",
            field=f"known_hosts:{number}",
            value=line[:60].decode("utf-8", "replace"),
            next="Correct or remove that line (the machine it belonged to can then no longer be verified).",
        ) from error


def public_key(public_line: str) -> str:
    """Return an OpenSSH public line without its comment; raise InvalidRequest for anything else."""
    if is_public_key(public_line):
        return " ".join(public_line.split()[:2])
    raise InvalidRequest(
        "This is not an OpenSSH public key.",
        field="host_key",
        value=public_line[:60],
        next="Copy the line from the machine's ssh_host_*_key.pub file.",
    )


def _algorithm(blob: str) -> str | None:
    """Return the name that the key itself carries (RFC 4253, 6.6: a length and a name lead the blob)."""
    try:
        raw = base64.b64decode(blob, validate=True)
    except binascii.Error:
        return None
    return raw[4 : 4 + int.from_bytes(raw[:4], "big")].decode("ascii", "replace")


def _write_pins(file: Path, pins: Mapping[str, str]) -> None:
    if pins:
        write_atomically(file, "".join(f"{alias} {key}\n" for alias, key in pins.items()).encode())
    else:
        remove(file)


CONFIG_HEADER = (
    "# Written by cloudgpu; changes are lost. To use it, put this line first in ~/.ssh/config:\n#   Include {file}\n"
)
KEEPALIVE_S = 15  # OpenSSH gives up after three of these intervals without an answer


@dataclass(frozen=True, slots=True)
class SshHost:
    """A machine as `ssh NAME` should find it; `id` is the alias of its host key, `jump` the host in between."""

    name: str
    id: str
    address: Address
    jump: JumpHost | None = None


def hosts_of(machines: Iterable[Machine]) -> list[SshHost]:
    """Return the machines that have an address."""
    return [
        SshHost(machine.name, machine.id, Address(*machine.address), jump_host_of(machine))
        for machine in machines
        if machine.address
    ]


def write_config(file: Path, hosts: Sequence[SshHost], *, key_file: Path, known_hosts: Path) -> None:
    """Write the config for these machines, mode 0600; remove it when there are none.

    An unchanged config is not written again. Raises InvalidRequest when it cannot be written.
    """
    if not hosts:
        remove(file)
        return
    text = config_text(file, hosts, key_file=key_file, known_hosts=known_hosts).encode()
    if _read_bytes(file) != text:
        with locked(file):
            write_atomically(file, text)


def config_text(file: Path, hosts: Sequence[SshHost], *, key_file: Path, known_hosts: Path) -> str:
    """Return the whole config as text, sorted by name."""
    common = "".join(f"  {name} {value}\n" for name, value in _common_options(key_file, known_hosts).items())
    blocks = [_host_block(host) + common for host in sorted(hosts, key=lambda host: host.name)]
    return CONFIG_HEADER.format(file=_quoted_path(file)) + "".join(blocks)


def ssh_command(file: Path, name: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the argument list that opens `name` with the system's ssh; raise InvalidRequest when there is none.

    `arguments` follow the name, as a command to run there; options go before it through the user's own `ssh -F`.
    """
    return [ssh_client(), "-F", str(file), name, *arguments]


def ssh_client() -> str:
    """Return the path of the system's `ssh`; raise InvalidRequest when there is none."""
    import shutil

    path = shutil.which("ssh")
    if path is None:
        raise InvalidRequest(
            "This machine has no ssh client.",
            field="PATH",
            value="ssh",
            next="Install it (Debian, Ubuntu, WSL: apt-get install openssh-client), or use: cloudgpu exec NAME -- CMD",
        )
    return path


def _host_block(host: SshHost) -> str:
    """Return the lines of this machine only."""
    address, user = host.address, _quoted_text(host.address.user, "user", "a user name")
    text = (
        f"\nHost {host.name}\n  HostName {address.host}\n  Port {address.port}\n  User {user}\n"
        f"  HostKeyAlias {host.id}\n"
    )
    if host.jump:
        # Not ProxyJump: with `-F` that would read this file for the jump host too, and not the user's own config.
        text += f"  ProxyCommand ssh -W '[%h]:%p' {' '.join(host.jump.ssh_arguments())}\n"
    return text


def _common_options(key_file: Path, known_hosts: Path) -> dict[str, str]:
    """Return the options that are the same for every machine."""
    return {
        "IdentityFile": _quoted_path(key_file),
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UserKnownHostsFile": _quoted_path(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "CheckHostIP": "no",
        "ServerAliveInterval": str(KEEPALIVE_S),
    }


def _quoted_path(path: Path) -> str:
    # OpenSSH expands %-tokens and ${VAR} in these paths: a percent character is doubled, a variable cannot be escaped.
    if "${" in str(path):
        raise InvalidRequest(
            f"The path {path} cannot be used in an SSH config: OpenSSH would read ${{ as a variable.",
            field="CLOUDGPU_HOME",
            value=str(path),
            next="Set CLOUDGPU_HOME to a path without ${.",
        )
    return _quoted_text(str(path).replace("%", "%%"), "CLOUDGPU_HOME", "paths")


@lru_cache(maxsize=64)  # machines have the same few users
def _quoted_text(text: str, field: str, what: str) -> str:
    if any(character in text for character in '"\n\r\\'):
        raise InvalidRequest(
            f"{text!r} cannot be used in an SSH config.",
            field=field,
            value=text,
            next=f"Use {what} without quotes, backslashes and line ends.",
        )
    return f'"{text}"' if any(character in text for character in " \t#'") else text


def _read_bytes(file: Path) -> bytes | None:
    with explain_os_errors(file):
        try:
            return file.read_bytes()
        except FileNotFoundError:
            return None
