"""Names the locks that keep something from its end, and the command that lifts them.

A lock lies on a thing, its group or the subscription, and holds for all below (Microsoft's page "Lock your Azure
resources to protect your infrastructure"). The error tells the locked scopes; what lies there is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cloudgpu.errors import CloudgpuError, EndRefused
from cloudgpu.providers.azure import client as plainly
from cloudgpu.providers.azure.errors import said

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

Raw = Mapping[str, Any]
READ, VERSION = "Microsoft.Authorization/locks/read", "2016-09-01"  # Management Locks - List By Scope
_SCOPE = re.compile(r"'(/subscriptions/[^']+)'")
_LOCKS = "/providers/microsoft.authorization/locks/"
_LOOK = "az lock list --output table"


def name_them(azure: Azure, error: EndRefused) -> None:
    """Let a refusal say which locks it is about, and what lifts them; where they cannot be read, how they are found."""
    scopes = _SCOPE.findall(said(error.__cause__)[1].partition("locked")[2]) if error.__cause__ else []
    found = [one for scope in scopes for one in _at(azure, scope)]
    if not found:
        error.next = f"Find the lock: {_LOOK}; then run: az lock delete --ids ID"
        return
    named = ", ".join(f"{one['name']} ({_level(one)}) on {_place(str(one['id']))}" for one in found)
    error.message += f" Locked by: {named}."
    error.lifts = f"az lock delete --ids {' '.join(str(one['id']) for one in found)}"
    error.next = f"Run: {error.lifts}"


def _at(azure: Azure, scope: str) -> Iterator[Raw]:
    """Yield the locks that lie on a scope itself; none where they cannot be read."""
    with suppress(CloudgpuError):
        for one in plainly.pages(azure, READ, f"{scope}/providers/Microsoft.Authorization/locks", VERSION):
            if str(one.get("id") or "").lower().startswith(f"{scope.lower()}{_LOCKS}"):
                yield one


def _level(lock: Raw) -> str:
    return str((lock.get("properties") or {}).get("level") or "a lock")


def _place(lock: str) -> str:
    """Return the last two parts of the scope that a lock lies on: `resourceGroups/cloudgpu-1a2b`."""
    return "/".join(lock[: lock.lower().index(_LOCKS)].split("/")[-2:])
