"""Holds requests to what Lambda's published description (API v1, 1.10) says of them: fields, types, lengths, patterns.

What it refuses here, Lambda refuses with `global/invalid-parameters`; that a field nobody knows is refused, too, is our
belief: the description does not say that it is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], str | None]
USER_DATA_BYTES = 1 << 20
HOSTNAME = re.compile(r"[a-z0-9][0-9a-z-]{0,62}")
CIDR = re.compile(r"\d{1,3}(\.\d{1,3}){3}/\d{1,2}")
PUBLIC_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp\d+) [A-Za-z0-9+/=]{40,}( .*)?")


def faults(action: str, query: Mapping[str, str], body: Any) -> list[str]:
    """Return what is wrong with a request; none for one that Lambda takes."""
    found = [f"{name} is no parameter" for name in query if name not in _QUERIES.get(action, ())]
    fields = _BODIES.get(action)
    if fields is None:
        return [*found, *(["a body, where none is read"] if body is not None else [])]
    if not isinstance(body, dict):
        return [*found, "the body is not an object"]
    needed, known = fields
    found += [f"{name} is missing" for name in needed if name not in body]
    found += [f"{name} is no field" for name in body if name not in known]
    said = ((name, known[name](value)) for name, value in body.items() if name in known)
    return [*found, *(f"{name} {fault}" for name, fault in said if fault)]


def _text(longest: int = 256, pattern: re.Pattern[str] | None = None) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, str):
            return "is not text"
        if not 1 <= len(value.encode()) <= longest:
            return f"has {len(value.encode())} bytes, not 1 to {longest}"
        return "does not look as it has to" if pattern and not pattern.fullmatch(value) else None

    return check


def _list(each: Check, least: int = 0, most: int = 100) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, list) or not least <= len(value) <= most:
            return f"is not a list of {least} to {most}"
        return next(filter(None, map(each, value)), None)

    return check


def _object(needed: tuple[str, ...], **known: Check) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "is not an object"
        lacks = [name for name in needed if name not in value]
        more = [name for name in value if name not in known]
        if lacks or more:
            return f"lacks {lacks}, and has {more}, which is no field"
        return next((f"{name} {fault}" for name, one in value.items() if (fault := known[name](one))), None)

    return check


def _ports(value: Any) -> str | None:
    fine = (
        isinstance(value, list) and len(value) == 2 and all(isinstance(one, int) and 1 <= one <= 65535 for one in value)
    )
    return None if fine and value[0] <= value[1] else "is not two ports"


def _protocol(value: Any) -> str | None:
    return None if value in ("tcp", "udp", "icmp", "all") else "is no protocol"


_TAG = _object(("key", "value"), key=_text(55, re.compile(r"[a-z][a-z0-9:-]+")), value=_text(128))
_RULE = _object(
    ("protocol", "source_network"),
    protocol=_protocol,
    port_range=_ports,
    source_network=_text(18, CIDR),
    description=_text(128),
)
_LAUNCH = {
    "region_name": _text(),
    "instance_type_name": _text(),
    "ssh_key_names": _list(_text(), 1, 1),
    "name": _text(64),
    "hostname": _text(63, HOSTNAME),
    "image": _object((), id=_text(), family=_text()),
    "user_data": _text(USER_DATA_BYTES),
    "tags": _list(_TAG),
    "firewall_rulesets": _list(_object(("id",), id=_text())),
    "file_system_names": _list(_text(), 0, 1),
    "file_system_mounts": _list(
        _object(("mount_point", "file_system_id"), mount_point=_text(), file_system_id=_text())
    ),
}
_BODIES: dict[str, tuple[tuple[str, ...], dict[str, Check]]] = {
    "launch": (("region_name", "instance_type_name", "ssh_key_names"), _LAUNCH),
    "terminate": (("instance_ids",), {"instance_ids": _list(_text(), 1)}),
    "rename": (("name",), {"name": _text(64)}),
    "add-key": (("name",), {"name": _text(64), "public_key": _text(4096, PUBLIC_KEY)}),
    "patch-global-firewall": (("rules",), {"rules": _list(_RULE)}),
}
_QUERIES = {"list": ("cluster_id",)}
