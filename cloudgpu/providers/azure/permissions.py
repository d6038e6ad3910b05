"""Asks Azure what a credential may do, without doing it: one call tells all, with wildcards, and is compared here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.account import Permission
from cloudgpu.providers.azure import places, plainly
from cloudgpu.providers.azure.probes import PROBES

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure
    from cloudgpu.providers.azure.probes import Probe

VERSION = "2022-04-01"  # of Microsoft.Authorization/permissions
Rights = Mapping[str, Any]


def permissions(azure: Azure, region: str | None = None) -> Sequence[Permission]:
    """Return every action that cloudgpu uses at Azure, and whether it is allowed in the subscription. One call.

    Azure tells what the caller's roles allow, not what a policy or a lock of the organisation forbids. What is allowed
    under a condition is not known: only Azure reads those. Raises AuthFailed for credentials that do not work.
    """
    if region is not None:
        places.check_region(azure, region)
    found = rights(azure)
    return [_judged(probe, found) for probe in PROBES]


def rights(azure: Azure) -> list[Rights]:
    """Return what the caller's roles allow at the scope of the subscription, one entry for each. One call per page."""
    path = f"/subscriptions/{azure.subscription}/providers/Microsoft.Authorization/permissions"
    return list(plainly.pages(azure, "Microsoft.Authorization/permissions/read", path, VERSION))


def allows(found: Iterable[Rights], action: str) -> bool | None:
    """Say whether one of these allows an action; None where it does so under a condition alone.

    An entry allows what `actions` names and `notActions` does not: that subtracts from its own entry and denies
    nothing that another one allows ("Understand Azure role definitions", NotActions).
    """
    entries = [one for one in found if _names(one, "actions", action) and not _names(one, "notActions", action)]
    if any(not one.get("condition") for one in entries):
        return True
    return None if entries else False


def _names(entry: Rights, key: str, action: str) -> bool:
    return any(_matches(str(pattern), action) for pattern in entry.get(key) or ())


def _matches(pattern: str, action: str) -> bool:
    """Say whether a pattern names an action: `*` stands for any text, and Azure reads no capitals."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), action, re.IGNORECASE) is not None


def _judged(probe: Probe, found: Sequence[Rights]) -> Permission:
    allowed = allows(found, probe.action)
    said = "it is allowed under a condition, which Azure alone can judge" if allowed is None else ""
    return Permission(probe.action, allowed, probe.used_for, said, needed=probe.needed)
