"""Pinned host keys in OpenSSH's known_hosts format, one line per machine under its cloudgpu-id.

The id is the alias (`HostKeyAlias`): a machine keeps its key when its address changes.
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

from cloudgpu.access.files import explain_os_errors, locked, remove, write_whole
from cloudgpu.errors import InvalidRequest

_KEY = re.compile(r"(ssh-[a-z0-9-]+|ecdsa-sha2-[a-z0-9-]+|sk-[a-z0-9@.-]+) ([A-Za-z0-9+/]+={0,2})(?: .*)?")
_ALIAS = re.compile(r"[A-Za-z0-9._-]+")


def pin(file: Path, id: str, public_line: str) -> None:  # noqa: A002
    """Write down the one key that machine `id` may show; an older pin is replaced.

    Raises InvalidRequest when `public_line` is no OpenSSH public key, or the file is damaged or cannot be written.
    """
    line = f"{id} {_key(public_line)}"
    if not _ALIAS.fullmatch(id):
        raise InvalidRequest(f"{id!r} cannot name a line of known_hosts.", field="id", value=id, next="Report this.")
    if pinned(file, id) == _key(public_line):
        return
    with locked(file):
        others = [old for old in _lines(file) if _alias(old) != id]
        _write(file, [*others, line])


def unpin(file: Path, id: str) -> None:  # noqa: A002
    """Forget the key of machine `id`; the file goes with its last line. No error when there is none."""
    if not file.exists():
        return
    with locked(file):
        _write(file, [line for line in _lines(file) if _alias(line) != id])


def pinned(file: Path, id: str) -> str | None:  # noqa: A002
    """Return the pinned key of machine `id` as `ssh-ed25519 AAAA...`, or None. Raises InvalidRequest for bad lines."""
    for line in _lines(file):
        if _alias(line) == id:
            return line.split(" ", 1)[1]
    return None


def machines(file: Path) -> tuple[str, ...]:
    """Return the id of every machine that has a pinned key. Raises InvalidRequest for bad lines."""
    return tuple(_alias(line) for line in _lines(file))


def public_key(line: str) -> str:
    """Return an OpenSSH public line without its comment; raise InvalidRequest for anything else."""
    return _key(line)


def is_public_key(line: str) -> bool:
    """Say whether this is an OpenSSH public line."""
    found = _KEY.fullmatch(line.strip())
    return bool(found and _algorithm(found[2]) == found[1])


def _lines(file: Path) -> list[str]:
    with explain_os_errors(file):
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return []
    return [_checked(file, number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]


def _checked(file: Path, number: int, line: bytes) -> str:
    try:
        alias, key = line.decode("utf-8").strip().split(" ", 1)
        return f"{alias} {_key(key)}"
    except (ValueError, InvalidRequest) as error:
        raise InvalidRequest(
            f"Line {number} of {file} is not a pinned host key.",
            field=f"known_hosts:{number}",
            value=line[:60].decode("utf-8", "replace"),
            next="Correct or remove that line (the machine it belonged to can then no longer be verified).",
        ) from error


def _key(public_line: str) -> str:
    """Return algorithm and key without the comment; raise InvalidRequest when they do not belong together."""
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


def _alias(line: str) -> str:
    return line.split(" ", 1)[0]


def _write(file: Path, lines: list[str]) -> None:
    if lines:
        write_whole(file, "".join(f"{line}\n" for line in lines).encode())
    else:
        remove(file)
