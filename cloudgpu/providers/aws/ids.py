"""Ids of ours on AWS: the region and AWS's own id, `us-east-1/i-0123456789abcdef0`, so that no look has to search."""

from __future__ import annotations

import re

from cloudgpu.errors import InvalidRequest

REGION = re.compile(r"[a-z]{2,3}(-[a-z]+)+-\d{1,2}")
ZONE = re.compile(r"([a-z]{2,3}(?:-[a-z]+)+-\d{1,2})[a-z]")
_ID = re.compile(r"([a-z]{2,3}(?:-[a-z]+)+-\d{1,2})/((i|vol|snap|ami)-[0-9a-f]{8,17})")


def joined(region: str, own: str) -> str:
    """Return our id of what AWS calls `own` in a region."""
    return f"{region}/{own}"


def split(id: str, kind: str) -> tuple[str, str] | None:  # noqa: A002
    """Return the region and AWS's id of one of ours, of this kind (`i`, `vol`, `snap`, `ami`); None for any other."""
    found = _ID.fullmatch(id)
    return (found[1], found[2]) if found and found[3] == kind else None


def machine(id: str) -> tuple[str, str]:  # noqa: A002
    """Return the region and AWS's id of a machine.

    Raises InvalidRequest for what is no such id: AWS was not asked, so the machine is not proved to be gone.
    """
    found = split(id, "i")
    if found is None:
        message = f"{id!r} is no id of a machine on AWS."
        raise InvalidRequest(message, field="instance", value=id, next="It looks like us-east-1/i-0123456789abcdef0.")
    return found


def region_of(zone: str) -> str | None:
    """Return the region of an availability zone, None for what is none (a local zone has a longer name)."""
    found = ZONE.fullmatch(zone)
    return found[1] if found else None
