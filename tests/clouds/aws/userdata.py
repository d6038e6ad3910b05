"""What a machine was given at its launch, unpacked: base64, gzip, and the parts of a multipart message."""

from __future__ import annotations

import base64
import gzip
from email import message_from_bytes
from typing import Any, NamedTuple

import yaml

GZIP = b"\x1f\x8b"


class Part(NamedTuple):
    """One part: its type, its file name and its text."""

    type: str
    name: str
    text: str


def raw(user_data: str | None) -> bytes:
    """Return user data as the machine reads it, still compressed: the 16,384 bytes are counted here."""
    return base64.b64decode(user_data or "")


def parts(user_data: str | None) -> list[Part]:
    """Return the parts of user data (base64, as in RunInstances); a plain script is one part."""
    found = raw(user_data)
    found = gzip.decompress(found) if found.startswith(GZIP) else found
    if not found.lower().startswith((b"content-type:", b"mime-version:")):
        kind = "text/cloud-config" if found.startswith(b"#cloud-config") else "text/x-shellscript"
        return [Part(kind, "", found.decode())] if found else []
    message = message_from_bytes(found)
    return [_part(one) for one in message.walk() if not one.is_multipart()]


def _part(message: Any) -> Part:
    content = message.get_payload(decode=True)
    content = gzip.decompress(content) if content.startswith(GZIP) else content
    return Part(message.get_content_type(), message.get_filename() or "", content.decode())


def cloud_config(user_data: str | None) -> dict[str, Any]:
    """Return the cloud-config parts as one; of a key that several have, lists are joined and the last text wins."""
    made: dict[str, Any] = {}
    for part in parts(user_data):
        if part.type == "text/cloud-config":
            for key, value in (yaml.safe_load(part.text) or {}).items():
                made[key] = made[key] + value if isinstance(made.get(key), list) and isinstance(value, list) else value
    return made
