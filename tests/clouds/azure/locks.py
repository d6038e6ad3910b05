"""Management locks: what lies under one is not deleted, or (ReadOnly) not changed at all, by nobody.

A lock holds for all below it, and a group is not deleted while something in it is locked (Microsoft's page "Lock your
Azure resources to protect your infrastructure", which says of ReadOnly that it forbids every POST, too). The sentence
is from public reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.clouds.azure.handlers import answers, pages
from tests.clouds.azure.model import Ask, Model
from tests.clouds.azure.routes import Route
from tests.clouds.rest import Refusal, Reply

_VERBS = {"DELETE": "delete", "PUT": "write", "PATCH": "write", "POST": "write"}
_BELOW = "/providers/Microsoft.Authorization/locks"


def put(model: Model, scope: str, name: str, level: str) -> str:
    """Lock a scope: `CanNotDelete` or `ReadOnly`; return the lock's id."""
    body = {"id": f"{scope}{_BELOW}/{name}", "name": name, "type": "Microsoft.Authorization/locks"}
    model.locks[body["id"].lower()] = {**body, "properties": {"level": level}}
    return body["id"]


def check(model: Model, route: Route, ask: Ask) -> None:
    """Raise Refusal for what a lock forbids."""
    verb = _VERBS.get(route.method)
    locked = [] if verb is None else [_scope(one) for one in _against(model, ask.id.lower(), verb)]
    if locked:
        where = "','".join(dict.fromkeys(locked))
        said = f"The scope '{ask.id}' cannot perform {verb} operation because following scope(s) are locked: '{where}'."
        raise Refusal("ScopeLocked", f"{said} Please remove the lock and try again.", 409)


def _against(model: Model, id_: str, verb: str) -> Iterator[dict[str, Any]]:
    for one in model.locks.values():
        scope = _scope(one).lower()
        above = id_ == scope or id_.startswith(f"{scope}/")
        inside = verb == "delete" and scope.startswith(f"{id_}/")
        if (above or inside) and (verb == "delete" or one["properties"]["level"] == "ReadOnly"):
            yield one


def _scope(lock: dict[str, Any]) -> str:
    return str(lock["id"]).rpartition(_BELOW)[0]


@answers("ManagementLocks.ListByScope")
def list_locks(model: Model, ask: Ask) -> Reply:
    """List the locks that hold for a scope: its own, and those above it."""
    scope = ask.id.rpartition(_BELOW)[0].lower()
    found = [one for one in model.locks.values() if f"{scope}/".startswith(f"{_scope(one).lower()}/")]
    return pages(model, ask, found)
