"""Logs in to the user's own (on-premises) machines with the user's own SSH keys and known_hosts.

Only host keys in the user's known_hosts are trusted; that file is read and never written.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fnmatch
import hashlib
import hmac
import itertools
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.access.ssh.client_files import is_public_key
from cloudgpu.access.ssh.connection import Connection
from cloudgpu.access.ssh.target import KeyRefused, Target
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.access.ssh.transport import PKey
    from cloudgpu.core.model.instances import Address

SSH_PORT = 22
KEY_TYPES = (  # the best first
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)


def confirmed_key(file: Path, host: str, port: int) -> str | None:
    """Return the host key (`ssh-ed25519 AAAA...`) that `file` has for this server, the best by KEY_TYPES; or None.

    Plain, hashed (`|1|salt|hash`), `[host]:port` and pattern entries count, certificate authorities do not; see
    sshd(8). A revoked key is never returned. Raises InvalidRequest for a file that cannot be read.
    """
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidRequest(
            f"{file} cannot be read: {error.strerror}.",
            field="known_hosts",
            value=str(file),
            next="Correct its permissions.",
        ) from error
    entries = list(_entries(lines, host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"))
    revoked = {key for marker, key in entries if marker == "@revoked"}
    usable = [key for marker, key in entries if not marker and key not in revoked]
    return next((key for key_type in KEY_TYPES for key in usable if key.split(" ", 1)[0] == key_type), None)


def _entries(lines: list[str], host: str) -> Iterator[tuple[str, str]]:
    for line in lines:
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) >= 3 and not fields[0].startswith("#") and _entry_matches(fields[0], host):  # noqa: PLR2004  (names type key)
            key = f"{fields[1]} {fields[2]}"
            if is_public_key(key):
                yield marker, key


def _entry_matches(field: str, host: str) -> bool:
    if field.startswith("|1|"):
        return _hash_matches(field, host)
    patterns = field.lower().split(",")
    if any(_matches(host, pattern[1:]) for pattern in patterns if pattern.startswith("!")):
        return False
    return any(_matches(host, pattern) for pattern in patterns)


def _matches(host: str, pattern: str) -> bool:
    """Match only the wildcards `*` and `?`, not brackets."""
    return fnmatch.fnmatchcase(host, pattern.replace("[", "[[]"))


def _hash_matches(field: str, host: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in itertools.islice(field.split("|"), 2, 4))
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(hmac.new(salt, host.encode(), hashlib.sha1).digest(), digest)


MAX_KEYS = 6  # as many as an OpenSSH server tries by itself
DEFAULT_KEY_FILES = ("id_ed25519", "id_ecdsa", "id_rsa")
_OPENSSH_KEY = b"openssh-key-v1\0"  # begins the content of a private key file in OpenSSH's format


def log_in(name: str, address: Address, *, host_key: str, key: Path | None, timeout: float) -> Connection:
    """Return a connection to the machine that owns `host_key` (an OpenSSH public line without a comment).

    Logs in with the private key `key`; without it, with the keys of the SSH agent and the default ones of ~/.ssh. A
    key with a passphrase is used through the SSH agent, a named one only if the agent holds it. `timeout` is seconds
    for all of it. Raises WrongHostKey, LoginRefused, Unreachable, and InvalidRequest when there is no key to log in
    with.
    """
    from cloudgpu.access.ssh.handshake import open_transport_with

    keys = _key_from_file(key) if key else list(_default_keys())
    if not keys:
        raise InvalidRequest(
            f"There is no SSH key for {name}, neither in an SSH agent nor in ~/.ssh.",
            field="key",
            value=None,
            next="Create one (ssh-keygen) and install it there (ssh-copy-id), or name one in config.toml: key = ...",
        )
    target = Target(name, name, address, key or Path("~/.ssh"), Path("~/.ssh/known_hosts"))
    deadline = time.monotonic() + timeout
    for candidate in keys[:MAX_KEYS]:  # each over a new connection: not all servers allow a second login attempt
        with contextlib.suppress(KeyRefused):
            return Connection(target, open_transport_with(target, host_key, candidate, deadline))
    raise KeyRefused(
        f"{name} does not let {address.user} in with {key or 'any of your SSH keys'}.",
        field="key",
        value=str(key) if key else None,
        next=f"Let the key in there: ssh-copy-id -p {address.port} {address.user}@{address.host}",
    )


def login_key_path(text: str) -> Path:
    """Return the absolute path of a private key file; raise InvalidRequest where it holds none.

    A key with a passphrase is accepted: the SSH agent may hold it.
    """
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError:
        raise InvalidRequest(
            f"{text!r} names the home of an unknown user.", field="key", value=text, next="Write the full path."
        ) from None
    _load_private_key(path)
    return path


def _key_from_file(path: Path) -> list[PKey]:
    """Return the key of a file; of one with a passphrase, the same key from the SSH agent."""
    key = _load_private_key(path)
    if key is not None:
        return [key]
    agent_keys, public_blob = list(_agent_keys()), _public_blob(path)
    if same_keys := [agent_key for agent_key in agent_keys if agent_key.asbytes() == public_blob]:
        return same_keys
    is_known = public_blob is not None or not agent_keys
    held = "it" if agent_keys else "a key"
    raise InvalidRequest(
        f"The private key {path} has a passphrase, and "
        + (f"no SSH agent holds {held}." if is_known else f"without {path}.pub its key in the SSH agent is not known."),
        field="key",
        value=str(path),
        next=f"Run: ssh-add '{path}'" if is_known else f"Run: ssh-keygen -y -f '{path}' > '{path}.pub'",
    )


def _public_blob(path: Path) -> bytes | None:
    """Return the public half of a private key with a passphrase: of its file, else of the .pub file beside it."""
    with contextlib.suppress(OSError, ValueError, struct.error):
        lines = path.read_text(encoding="ascii").split("-----")[2]
        content = base64.b64decode("".join(lines.split()))
        if content.startswith(_OPENSSH_KEY):  # strings: cipher, key derivation, its options; a number of keys; the key
            position = len(_OPENSSH_KEY)
            for _ in range(3):
                position += 4 + struct.unpack_from(">I", content, position)[0]
            (size,) = struct.unpack_from(">I", content, position + 4)
            return content[position + 8 : position + 8 + size]
    with contextlib.suppress(OSError, ValueError, IndexError):
        return base64.b64decode(Path(f"{path}.pub").read_text(encoding="utf-8").split()[1])
    return None


def _default_keys() -> Iterator[PKey]:
    """Yield the keys of the SSH agent and the usable default ones.

    A file that cannot be used is skipped, as by OpenSSH; without any other key, raises InvalidRequest for it.
    """
    errors, is_empty = [], True
    for key in _agent_keys():
        is_empty = False
        yield key
    for name in DEFAULT_KEY_FILES:
        path = Path.home() / ".ssh" / name
        try:
            file_key = _load_private_key(path) if path.is_file() else None
        except InvalidRequest as error:
            errors.append(error)
            continue
        if file_key is not None:
            is_empty = False
            yield file_key
    if is_empty and errors:
        raise errors[0]


def _load_private_key(path: Path) -> PKey | None:
    """Return the key in a file, None for one with a passphrase; raise InvalidRequest for what is no private key."""
    from cloudgpu.access.ssh.transport import PKey, SSHException

    try:
        return PKey.from_path(path)
    except TypeError:  # what cryptography raises for a missing passphrase
        return None
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
    except (SSHException, ValueError):
        problem = "it is not a private key that SSH can use"
    raise InvalidRequest(
        f"The private key {path} cannot be used: {problem}.",
        field="key",
        value=str(path),
        next="Name the private half of a key pair, such as ~/.ssh/id_ed25519.",
    )


def _agent_keys() -> Iterator[PKey]:
    from paramiko.agent import Agent
    from paramiko.ssh_exception import SSHException

    try:
        yield from Agent().get_keys()
    except (SSHException, OSError):
        return  # an agent that does not answer has no keys
