"""Reads what a Google machine says of itself in guest attributes: its last use and its host keys.

One call reads them, with neither a credential on the machine nor SSH. A program on the machine puts them into its
metadata server (Compute Engine's guide, "Set and query guest attributes"). Where nothing was said yet Google answers
with 404, as it does for a machine that there is not: its sentence alone tells which ("The resource 'hostkeys/' of type
'Guest Attribute' was not found"; from public logs, unverified).

Host keys are made at boot and read before the first connection. The guest agent of Google's images writes them,
`hostkeys/ssh-ed25519` and so on, where the machine's metadata has `enable-guest-attributes` (Compute Engine's guide,
"Store host keys by enabling guest attributes").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.errors import is_gone
from cloudgpu.providers.shared.calls import by_item, result_or_error
from cloudgpu.providers.shared.rules import time_of_tag

_CALL = "compute.instances.getGuestAttributes"
_NOT_SAID, _NOT_THERE = "guest attribute", "/instances/"


def read_attributes(gcp: Gcp, id: str, path: str) -> Mapping[str, str]:  # noqa: A002
    """Return what a machine has said under a path (`hostkeys/`), by key; nothing where it has not said anything yet.

    Raises InstanceNotFound. One call; a second one only where Google's 404 does not tell a silent machine from none.
    """
    zone, name = ids.machine(id)
    try:
        found = gcp.call(_CALL, zone, value=id, zone=zone, instance=name, queryPath=path)
    except CloudgpuError as error:
        if not is_gone(error) or _NOT_THERE in error.message:
            raise
        if _NOT_SAID not in error.message.lower():
            gcp.call("compute.instances.get", zone, value=id, zone=zone, instance=name)
        return {}
    items = found.get("queryValue", {}).get("items", ())
    if not items and found.get("variableValue"):  # a path that is a key's own
        return {path.rpartition("/")[2]: found["variableValue"]}
    return {one["key"]: one.get("value", "") for one in items if "key" in one}


SPACE, KEY = "cloudgpu", "last-active"  # the machine writes epoch seconds there


def activity(gcp: Gcp, ids: Sequence[str]) -> Mapping[str, datetime | CloudgpuError | None]:
    """Return when each machine was last in use, aware UTC; None where it has said nothing, else why it is not known.

    One call for each, side by side.
    """
    return by_item(ids, partial(result_or_error, _last_active, gcp))


def _last_active(gcp: Gcp, id: str) -> datetime | None:  # noqa: A002
    return time_of_tag(read_attributes(gcp, id, f"{SPACE}/{KEY}").get(KEY, "").strip())


PATH = "hostkeys/"
_KIND = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+")
_BLOB = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")


def host_keys(gcp: Gcp, id: str) -> list[str]:  # noqa: A002
    """Return the OpenSSH public lines (type and key) that the machine has said; none yet while it boots.

    Raises InstanceNotFound.
    """
    found = sorted(read_attributes(gcp, id, PATH).items())
    return [f"{kind} {blob}" for kind, text in found if (blob := _blob(kind, text))]


def _blob(kind: str, text: str) -> str:
    """Return the key of an attribute, whose value is the key alone or a whole line; empty for what is none."""
    words = [word for word in text.split() if word != kind]
    is_key = _KIND.fullmatch(kind) and words and _BLOB.fullmatch(words[0])
    return words[0] if is_key else ""
