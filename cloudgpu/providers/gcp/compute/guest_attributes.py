"""Reads the guest attributes that a machine on Google Cloud publishes: its last activity and its host keys.

One call reads them, with neither a credential on the machine nor SSH. A program on the machine puts them into its
metadata server (Compute Engine's guide, "Set and query guest attributes"). Where an attribute is not set yet Google
answers with 404, as it does for a machine that does not exist: only the message tells which ("The resource 'hostkeys/'
of type 'Guest Attribute' was not found"; from public logs, unverified).

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
from cloudgpu.providers.gcp.compute.listing import fetch_machine
from cloudgpu.providers.gcp.errors import is_gone
from cloudgpu.providers.shared.calls import by_item, result_or_error
from cloudgpu.providers.shared.rules import time_of_tag

_ACTION = "compute.instances.getGuestAttributes"
# What the message of a 404 contains, by what is missing.
_NO_ATTRIBUTE_TEXT, _NO_MACHINE_TEXT = "guest attribute", "/instances/"


def read_attributes(gcp: Gcp, id: str, path: str) -> Mapping[str, str]:  # noqa: A002
    """Return a machine's guest attributes under a path (`hostkeys/`), by key; none where it has not set any yet.

    Raises InstanceNotFound. One call; a second one only where Google's 404 does not tell which of the two is missing.
    """
    zone, name = ids.zone_and_name(id)
    try:
        answer = gcp.call(_ACTION, zone, value=id, zone=zone, instance=name, queryPath=path)
    except CloudgpuError as error:
        if not is_gone(error) or _NO_MACHINE_TEXT in error.message:
            raise
        if _NO_ATTRIBUTE_TEXT not in error.message.lower():
            fetch_machine(gcp, id)
        return {}
    attributes = answer.get("queryValue", {}).get("items", ())
    if not attributes and answer.get("variableValue"):  # a path that is a key's own
        return {path.rpartition("/")[2]: answer["variableValue"]}
    return {attribute["key"]: attribute.get("value", "") for attribute in attributes if "key" in attribute}


NAMESPACE, LAST_ACTIVE_KEY = "cloudgpu", "last-active"  # of the guest attribute with the last activity in epoch seconds


def activity(gcp: Gcp, machine_ids: Sequence[str]) -> Mapping[str, datetime | CloudgpuError | None]:
    """Return when each machine was last in use, aware UTC; None where it has not set the attribute, or the error.

    One call for each, in parallel.
    """
    return by_item(machine_ids, partial(result_or_error, _last_active, gcp))


def _last_active(gcp: Gcp, id: str) -> datetime | None:  # noqa: A002
    return time_of_tag(read_attributes(gcp, id, f"{NAMESPACE}/{LAST_ACTIVE_KEY}").get(LAST_ACTIVE_KEY, "").strip())


HOST_KEYS_PATH = "hostkeys/"
_KEY_TYPE = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+")
_KEY_BLOB = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")


def host_keys(gcp: Gcp, id: str) -> list[str]:  # noqa: A002
    """Return the host keys that the machine has published, as OpenSSH lines (type and key); none yet while it boots.

    Raises InstanceNotFound.
    """
    attributes = sorted(read_attributes(gcp, id, HOST_KEYS_PATH).items())
    return [f"{key_type} {blob}" for key_type, text in attributes if (blob := _blob(key_type, text))]


def _blob(key_type: str, text: str) -> str:
    """Return the key blob of an attribute, whose value is the blob or an OpenSSH line; empty for anything else."""
    fields = [word for word in text.split() if word != key_type]
    is_key = _KEY_TYPE.fullmatch(key_type) and fields and _KEY_BLOB.fullmatch(fields[0])
    return fields[0] if is_key else ""
