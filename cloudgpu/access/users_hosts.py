"""Host keys that the user has confirmed already: the user's own known_hosts, read and never written."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import itertools
from collections.abc import Iterator
from pathlib import Path

from cloudgpu.access.known_hosts import is_public_key
from cloudgpu.errors import InvalidRequest

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
    except OSError as fault:
        raise InvalidRequest(
            f"{file} cannot be read: {fault.strerror}.",
            field="known_hosts",
            value=str(file),
            next="Mend its permissions.",
        ) from fault
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
