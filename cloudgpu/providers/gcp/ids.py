"""cloudgpu's ids of machines on Google Cloud: zone and name, `us-central1-a/cg-3f9a...`, so that reads need no search.

A machine's name follows from its attempt's token: in its zone there can be one machine of that name, so the name is a
second proof that a launch made none twice.
"""

from __future__ import annotations

import re

from cloudgpu.providers.shared.errors import invalid_id_error

REGION = re.compile(r"[a-z]+-[a-z]+\d+")
ZONE = re.compile(r"([a-z]+-[a-z]+\d+)-(?:[a-z]|ai\d+[a-z])")  # us-central1-a; us-central1-ai1a: "AI zones"
_ID = re.compile(r"([a-z]+-[a-z]+\d+-(?:[a-z]|ai\d+[a-z]))/([a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)")
NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")  # of whatever Google names: a network, a tag, an image
NAME_PREFIX = "cg-"
TOKEN_DIGITS = 20  # of the token's 48: with the prefix, and what names of firewall rules add, at most 63 characters


def machine_id(zone: str, name: str) -> str:
    """Return cloudgpu's id of the machine that Google calls `name` in a zone."""
    return f"{zone}/{name}"


def parse(id: str) -> tuple[str, str] | None:  # noqa: A002
    """Return the zone and Google's name of the machine with this id; None for any other text."""
    match = _ID.fullmatch(id)
    return (match[1], match[2]) if match else None


def zone_and_name(id: str) -> tuple[str, str]:  # noqa: A002
    """Return the zone and Google's name of a machine.

    Raises InvalidRequest for any other text: it does not prove that a machine is gone.
    """
    parsed = parse(id)
    if parsed is None:
        raise invalid_id_error(
            id, "a machine on Google Cloud", "It looks like us-central1-a/cg-0123456789abcdef0123.", field="instance"
        )
    return parsed


def machine_name(token: str) -> str:
    """Return the name of the machine that a token makes: 23 characters as Google takes them."""
    return f"{NAME_PREFIX}{token[:TOKEN_DIGITS].lower()}"


def region_of(zone: str) -> str | None:
    """Return the region of a zone; None for any other text."""
    match = ZONE.fullmatch(zone)
    return match[1] if match else None


def last_part(url: str) -> str:
    """Return the last part of a resource's URL, which is its name."""
    return url.rpartition("/")[2]
