"""What a machine of Google's has said of itself: its guest attributes, by one call. Neither a credential nor SSH.

A program on the machine puts them into its metadata server (Compute Engine's guide, "Set and query guest attributes").
Where nothing was said yet Google answers with 404, as it does for a machine that there is not: its sentence alone
tells which ("The resource 'hostkeys/' of type 'Guest Attribute' was not found"; from public logs, unverified).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.errors import is_gone

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp

_CALL = "compute.instances.getGuestAttributes"
_NOT_SAID, _NOT_THERE = "guest attribute", "/instances/"


def said(gcp: Gcp, id: str, path: str) -> Mapping[str, str]:  # noqa: A002
    """Return what a machine has said under a path (`hostkeys/`), by key; nothing where it has not said anything yet.

    Raises InstanceNotFound. One call; a second one only where Google's 404 does not tell a silent machine from none.
    """
    zone, name = ids.machine(id)
    try:
        found = gcp.ask(_CALL, zone, value=id, zone=zone, instance=name, queryPath=path)
    except CloudgpuError as fault:
        if not is_gone(fault) or _NOT_THERE in fault.message:
            raise
        if _NOT_SAID not in fault.message.lower():
            gcp.ask("compute.instances.get", zone, value=id, zone=zone, instance=name)
        return {}
    items = found.get("queryValue", {}).get("items", ())
    if not items and found.get("variableValue"):  # a path that is a key's own
        return {path.rpartition("/")[2]: found["variableValue"]}
    return {one["key"]: one.get("value", "") for one in items if "key" in one}
