"""Logs in to machines that are not cloudgpu's, as their user does: with the user's own keys and known_hosts.

It takes no host key on faith. It reads the known_hosts file, where the user has confirmed keys already, and never
writes it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fnmatch
import hashlib
import hmac
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.access.known_hosts import is_public_key
from cloudgpu.access.ssh.connection import Connection
from cloudgpu.access.ssh.target import LoginRefused, Target
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.access.ssh.transport import PKey
    from cloudgpu.core.model.instances import Address

SSH_PORT = 22
BEST_FIRST = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


def confirmed_key(file: Path, host: str, port: int) -> str | None:
    """Return the best host key (`ssh-ed25519 AAAA...`) that `file` has for this server; None when it has none.

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
    found = list(_entries(lines, host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"))
    revoked = {key for marker, key in found if marker == "@revoked"}
    usable = [key for marker, key in found if not marker and key not in revoked and _rank(key) is not None]
    return min(usable, key=lambda key: _rank(key) or 0, default=None)


def _entries(lines: list[str], host: str) -> Iterator[tuple[str, str]]:
    for line in lines:
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) >= 3 and not words[0].startswith("#") and _names(words[0], host):  # noqa: PLR2004  (names type key)
            key = f"{words[1]} {words[2]}"
            if is_public_key(key):
                yield marker, key


def _names(field: str, host: str) -> bool:
    if field.startswith("|1|"):
        return _hashed(field, host)
    patterns = field.lower().split(",")
    if any(_matches(host, pattern[1:]) for pattern in patterns if pattern.startswith("!")):
        return False
    return any(_matches(host, pattern) for pattern in patterns)


def _matches(host: str, pattern: str) -> bool:
    """Match `*` and `?` only: brackets stand for themselves here."""
    return fnmatch.fnmatchcase(host, pattern.replace("[", "[[]"))


def _hashed(field: str, host: str) -> bool:
    try:
        salt, wanted = (base64.b64decode(word) for word in itertools.islice(field.split("|"), 2, 4))
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(hmac.new(salt, host.encode(), hashlib.sha1).digest(), wanted)


def _rank(key: str) -> int | None:
    kind = key.split(" ", 1)[0]
    return BEST_FIRST.index(kind) if kind in BEST_FIRST else None


MAX_KEYS = 6  # as many as an OpenSSH server tries by itself
DEFAULT = ("id_ed25519", "id_ecdsa", "id_rsa")


def visit(name: str, address: Address, *, known: str, key: Path | None, timeout: float) -> Connection:
    """Return a connection to the machine that owns the host key `known` (an OpenSSH public line without a comment).

    Logs in with the private key `key`; without one, with the keys of the SSH agent and the usual ones of ~/.ssh. A key
    with a passphrase is used through the SSH agent. `timeout` is seconds for all of it. Raises WrongHostKey,
    LoginRefused, Unreachable, and InvalidRequest when there is no key to log in with.
    """
    from cloudgpu.access.ssh.handshake import open_transport_with

    keys = _named(key) if key else list(_usual())
    if not keys:
        raise InvalidRequest(
            f"There is no SSH key for {name}, neither in an SSH agent nor in ~/.ssh.",
            field="key",
            value=None,
            next="Create one (ssh-keygen) and install it there (ssh-copy-id), or name one in config.toml: key = ...",
        )
    target = Target(name, name, address, key or Path("~/.ssh"), Path("~/.ssh/known_hosts"))
    deadline = time.monotonic() + timeout
    for tried in keys[:MAX_KEYS]:  # a connection each: paramiko asks for the login service anew, which not all allow
        with contextlib.suppress(LoginRefused):
            return Connection(target, open_transport_with(target, known, tried, deadline))
    raise LoginRefused(
        f"{name} does not let {address.user} in with {key or 'any of your SSH keys'}.",
        field="key",
        value=str(key) if key else None,
        next=f"Let the key in there: ssh-copy-id -p {address.port} {address.user}@{address.host}",
    )


def login_key(text: str) -> Path:
    """Return the file that is named, as a whole path; raise InvalidRequest where it holds no private key.

    One with a passphrase is one: the SSH agent may hold it.
    """
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError:
        raise InvalidRequest(
            f"{text!r} names the home of an unknown user.", field="key", value=text, next="Write the full path."
        ) from None
    _load(path)
    return path


def _named(path: Path) -> list[PKey]:
    """Return the key of a file; of one with a passphrase, the same key from the SSH agent."""
    found = _load(path)
    if found is not None:
        return [found]
    held = list(_agent())
    if held:
        return held
    raise InvalidRequest(
        f"The private key {path} has a passphrase, and no SSH agent holds a key.",
        field="key",
        value=str(path),
        next=f"Run: ssh-add '{path}'",
    )


def _usual() -> Iterator[PKey]:
    yield from _agent()
    for name in DEFAULT:
        path = Path.home() / ".ssh" / name
        if path.is_file() and (found := _load(path)) is not None:
            yield found


def _load(path: Path) -> PKey | None:
    """Return the key in a file, None for one with a passphrase; raise InvalidRequest for what is no private key."""
    from cloudgpu.access.ssh.transport import PKey, SSHException

    try:
        return PKey.from_path(path)
    except TypeError:  # cryptography's word for a missing passphrase
        return None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
    except (SSHException, ValueError):
        why = "it is not a private key that SSH can use"
    raise InvalidRequest(
        f"The private key {path} cannot be used: {why}.",
        field="key",
        value=str(path),
        next="Name the private half of a key pair, such as ~/.ssh/id_ed25519.",
    )


def _agent() -> Iterator[PKey]:
    from paramiko.agent import Agent
    from paramiko.ssh_exception import SSHException

    try:
        yield from Agent().get_keys()
    except (SSHException, OSError):
        return  # one that does not answer is none
