"""The host keys that a machine of Google's made at its boot, read through the API: before the first connection.

The guest agent of Google's images writes them as guest attributes, `hostkeys/ssh-ed25519` and so on, where the
machine's metadata has `enable-guest-attributes` (Compute Engine's guide, "Store host keys by enabling guest
attributes").
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cloudgpu.providers.gcp.guest import said

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp

PATH = "hostkeys/"
_KIND = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+")
_BLOB = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")


def host_keys(gcp: Gcp, id: str) -> list[str]:  # noqa: A002
    """Return the OpenSSH public lines (type and key) that the machine has said; none yet while it boots.

    Raises InstanceNotFound.
    """
    found = sorted(said(gcp, id, PATH).items())
    return [f"{kind} {blob}" for kind, text in found if (blob := _blob(kind, text))]


def _blob(kind: str, text: str) -> str:
    """Return the key of an attribute, whose value is the key alone or a whole line; empty for what is none."""
    words = [word for word in text.split() if word != kind]
    is_key = _KIND.fullmatch(kind) and words and _BLOB.fullmatch(words[0])
    return words[0] if is_key else ""
