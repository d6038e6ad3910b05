"""What a machine was given at its launch, unpacked: gzip, and the parts of a multipart message."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from email import message_from_bytes
from typing import Any, NamedTuple

import yaml

GZIP = b"\x1f\x8b"


class Part(NamedTuple):
    """One part: its type, its file name and its text."""

    type: str
    name: str
    text: str


def parts(given: bytes) -> list[Part]:
    """Return the parts of user data as the machine reads it; a plain script is one part."""
    found = gzip.decompress(given) if given.startswith(GZIP) else given
    if not found.lower().startswith((b"content-type:", b"mime-version:")):
        kind = "text/cloud-config" if found.startswith(b"#cloud-config") else "text/x-shellscript"
        return [Part(kind, "", found.decode())] if found else []
    message = message_from_bytes(found)
    return [_part(one) for one in message.walk() if not one.is_multipart()]


def _part(message: Any) -> Part:
    content = message.get_payload(decode=True)
    content = gzip.decompress(content) if content.startswith(GZIP) else content
    return Part(message.get_content_type(), message.get_filename() or "", content.decode())


def cloud_config(parts: Iterable[Part]) -> dict[str, Any]:
    """Return the cloud-config parts as one; of a key that several have, lists are joined and the last text wins."""
    made: dict[str, Any] = {}
    for part in parts:
        if part.type == "text/cloud-config":
            for key, value in (yaml.safe_load(part.text) or {}).items():
                made[key] = made[key] + value if isinstance(made.get(key), list) and isinstance(value, list) else value
    return made
