"""Who may do what: role definitions, assignments, permissions, and which permission a call needs.

A permission is asked of the call's own scope; a create with parts in other groups needs theirs too ("linked" scopes).
Conditions of assignments are kept and not weighed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from tests.clouds.azure.handlers import answers, pages
from tests.clouds.azure.model import LAUNCHER, SUBSCRIPTION, Ask, Model, Thing, stamp
from tests.clouds.azure.routes import Route
from tests.clouds.rest import Refusal, Reply

OWNER = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
RBAC_ADMINISTRATOR = "f58310d9-a9f6-439a-9e8d-f62e7b41a168"
_AUTHORIZATION = ["Microsoft.Authorization/*/Delete", "Microsoft.Authorization/*/Write"]
BUILT_IN = {
    OWNER: ("Owner", ["*"], []),
    CONTRIBUTOR: ("Contributor", ["*"], [*_AUTHORIZATION, "Microsoft.Authorization/elevateAccess/Action"]),
    RBAC_ADMINISTRATOR: (
        "Role Based Access Control Administrator",
        ["Microsoft.Authorization/roleAssignments/write", "Microsoft.Authorization/roleAssignments/delete", "*/read"],
        [],
    ),
}
_FILTER = re.compile(r"(atScope\(\)|principalId eq '([^']*)'|assignedTo\('([^']*)'\)|roleName eq '([^']*)')")
_TYPE_FILTER = re.compile(r"(?:atScopeAndBelow\(\)|atScope\(\)|type eq '(CustomRole|BuiltInRole)')")
_VERBS = {"GET": "read", "HEAD": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}
_NAMED = {  # those that do not follow from the path
    "Resources.ListByResourceGroup": "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
    "Subscriptions.ListLocations": "Microsoft.Resources/subscriptions/locations/read",
    "ActivityLogs.List": "Microsoft.Insights/eventtypes/values/read",
}
_SPACES = {
    "ResourceGroups": "Microsoft.Resources/subscriptions/resourceGroups",
    "Resources": "Microsoft.Resources/subscriptions/resources",
    "Providers": "Microsoft.Resources/subscriptions/providers",
    "Subscriptions": "Microsoft.Resources/subscriptions",
    "Tags": "Microsoft.Resources/tags",
}


def permission_of(route: Route, where: dict[str, str]) -> str:
    """Return the operation, as roles name it, that a call is."""
    group = route.action.partition(".")[0]
    if route.action == "Providers.Register":
        return f"{where['resourceProviderNamespace']}/register/action"
    if route.action in _NAMED:
        return _NAMED[route.action]
    if group in _SPACES:
        return f"{_SPACES[group]}/{_VERBS[route.method]}"
    if group in {"RoleAssignments", "RoleDefinitions"}:
        return f"Microsoft.Authorization/{group[0].lower()}{group[1:]}/{_VERBS[route.method]}"
    parts = route.path.rpartition("/providers/")[2].split("/")
    named = "/".join(one for one in parts if not one.startswith("{") and one != "vmimage")
    return f"{named}/action" if route.method == "POST" else f"{named}/{_VERBS[route.method]}"


def linked(ask: Ask) -> Iterator[tuple[str, str]]:
    """Yield what a call needs elsewhere: for a machine its disk, its network, the group of its subnet."""
    if ask.action != "VirtualMachines.CreateOrUpdate":
        return
    home = "/".join(ask.id.split("/")[:5])
    yield "Microsoft.Compute/disks/write", home
    network = (ask.body.get("properties") or {}).get("networkProfile") or {}
    for one in network.get("networkInterfaces") or []:
        yield "Microsoft.Network/networkInterfaces/join/action", one["id"]
    for one in network.get("networkInterfaceConfigurations") or []:
        yield from _of_interface(one["properties"], home)


def _of_interface(facts: dict[str, Any], home: str) -> Iterator[tuple[str, str]]:
    yield "Microsoft.Network/networkInterfaces/write", home
    if "networkSecurityGroup" in facts:
        yield "Microsoft.Network/networkSecurityGroups/join/action", facts["networkSecurityGroup"]["id"]
    for one in facts["ipConfigurations"]:
        if subnet := one["properties"].get("subnet"):
            yield "Microsoft.Network/virtualNetworks/subnets/join/action", subnet["id"]
        if "publicIPAddressConfiguration" in one["properties"]:
            yield "Microsoft.Network/publicIPAddresses/write", home


def may(model: Model, principal: str, permission: str, scope: str) -> bool:
    """Say whether somebody may do something to something: the launcher by its permissions, others by assignments."""
    if principal == LAUNCHER:
        return any(_grants(one, permission) for one in model.permissions)
    for one in model.assignments.values():
        at = one.facts["scope"].lower().rstrip("/")
        inside = scope.lower() == at or scope.lower().startswith(f"{at}/")
        if one.facts["principalId"] == principal and inside:
            definition = _definition(model, one.facts["roleDefinitionId"])
            if any(_grants(row, permission) for row in definition.facts["permissions"]):
                return True
    return False


def _grants(row: dict[str, list[str]], permission: str) -> bool:
    wanted = permission.lower()
    given = any(fnmatchcase(wanted, one.lower()) for one in row.get("actions") or [])
    return given and not any(fnmatchcase(wanted, one.lower()) for one in row.get("notActions") or [])


def refusal(principal: str, permission: str, scope: str) -> Refusal:
    """Return what Azure says to somebody who may not."""
    client = f"The client '{principal}' with object id '{principal}' does not have authorization to perform action"
    rest = "or the scope is invalid. If access was recently granted, please refresh your credentials."
    return Refusal("AuthorizationFailed", f"{client} '{permission}' over scope '{scope}' {rest}")


@answers(
    "Permissions.ListForSubscription",
    "Permissions.ListForResourceGroup",
    "Permissions.ListForResource",
)
def list_permissions(model: Model, ask: Ask) -> Reply:
    """List what the caller may do there."""
    if ask.principal == LAUNCHER:
        return pages(model, ask, model.permissions)
    scope = ask.id.rpartition("/providers/Microsoft.Authorization")[0].lower()
    mine = [one for one in model.assignments.values() if one.facts["principalId"] == ask.principal]
    rows = [one for one in mine if scope.startswith(one.facts["scope"].lower())]
    definitions = [_definition(model, one.facts["roleDefinitionId"]) for one in rows]
    return pages(model, ask, [row for one in definitions for row in one.facts["permissions"]])


# Definitions.


def definition_id(guid: str) -> str:
    return f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions/{guid}"


def _definition(model: Model, id_: str) -> Thing:
    guid = id_.rpartition("/")[2].lower()
    if guid in model.definitions:
        return model.definitions[guid]
    if guid in BUILT_IN:
        name, actions, none = BUILT_IN[guid]
        row = {"actions": actions, "notActions": none, "dataActions": [], "notDataActions": []}
        facts = {"roleName": name, "type": "BuiltInRole", "description": "", "assignableScopes": ["/"]}
        kind = "Microsoft.Authorization/roleDefinitions"
        body = {"id": definition_id(guid), "name": guid, "type": kind, "properties": {**facts, "permissions": [row]}}
        return Thing(definition_id(guid), body)
    raise Refusal("RoleDefinitionDoesNotExist", f"The specified role definition with ID '{guid}' does not exist.")


@answers("RoleDefinitions.CreateOrUpdate")
def put_definition(model: Model, ask: Ask) -> Reply:
    """Make or replace one: 201 each time, as the SDK has it; names are unique in a tenant (documentation)."""
    guid, facts = ask.where["roleDefinitionId"].lower(), copy.deepcopy(ask.body["properties"])
    if guid in BUILT_IN:
        raise Refusal("RoleDefinitionUpdateRejected", "Built-in roles cannot be changed.")
    for other in model.definitions.values():
        if other.name.lower() != guid and other.facts["roleName"] == facts["roleName"]:
            sentence = f"A custom role with the same name '{facts['roleName']}' already exists in this directory."
            raise Refusal("RoleDefinitionWithSameNameExists", sentence)
    facts.setdefault("type", "CustomRole")
    kind = "Microsoft.Authorization/roleDefinitions"
    body = {"id": definition_id(guid), "name": guid, "type": kind, "properties": facts}
    model.definitions[guid] = Thing(definition_id(guid), body)
    return Reply(201, copy.deepcopy(body))


@answers("RoleDefinitions.Get", "RoleDefinitions.GetById")
def get_definition(model: Model, ask: Ask) -> Reply:
    return Reply(200, copy.deepcopy(_definition(model, ask.id).body))


@answers("RoleDefinitions.List")
def list_definitions(model: Model, ask: Ask) -> Reply:
    rows = [*model.definitions.values(), *(_definition(model, one) for one in BUILT_IN)]
    text = ask.query.get("$filter", "")
    if found := re.fullmatch(r"roleName eq '([^']*)'", text):
        rows = [one for one in rows if one.facts["roleName"] == found[1]]
    elif found := _TYPE_FILTER.fullmatch(text):
        rows = [one for one in rows if found[1] in {None, one.facts["type"]}]
    elif text:
        raise Refusal("BadRequestFormat", f"The filter '{text}' is not supported.", 400)
    return pages(model, ask, (one.body for one in rows))


@answers("RoleDefinitions.Delete")
def delete_definition(model: Model, ask: Ask) -> Reply:
    guid = ask.where["roleDefinitionId"].lower()
    found = model.definitions.get(guid)
    if found is None:
        return Reply(204)
    if any(one.facts["roleDefinitionId"].lower().endswith(guid) for one in model.assignments.values()):
        raise Refusal("RoleDefinitionHasAssignments", "There are existing role assignments referencing role.")
    del model.definitions[guid]
    return Reply(200, found.body)


# Assignments.


@answers("RoleAssignments.Create", "RoleAssignments.CreateById")
def assign(model: Model, ask: Ask) -> Reply:
    """Assign a role: twice the same is 409 under another name, and answered under its own (REST reference)."""
    facts = copy.deepcopy(ask.body["properties"])
    scope = ask.id.rpartition("/providers/Microsoft.Authorization/")[0]
    facts["scope"] = scope
    _definition(model, facts["roleDefinitionId"])
    if scope.count("/") > 2 and scope.lower() not in model.resources:
        model.get(scope)
    there = model.assignments.get(ask.id.lower())
    if there is None:
        _check_new(model, facts)
    elif _essence(there.facts) != _essence(facts):
        raise Refusal("RoleAssignmentUpdateNotPermitted", "Tenant ID, application ID, principal ID cannot be changed.")
    now = stamp(model.now())
    facts |= {"createdOn": now, "updatedOn": now, "createdBy": ask.principal, "updatedBy": ask.principal}
    facts.setdefault("principalType", "ServicePrincipal")
    kind = "Microsoft.Authorization/roleAssignments"
    body = {"id": ask.id, "name": ask.id.rpartition("/")[2], "type": kind, "properties": facts}
    model.assignments[ask.id.lower()] = Thing(ask.id, body)
    return Reply(200 if there else 201, copy.deepcopy(body))


def _essence(facts: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(facts.get(one, "")).lower() for one in ("principalId", "roleDefinitionId", "scope"))


def _check_new(model: Model, facts: dict[str, Any]) -> None:
    """A new identity is unknown to the directory for a while, unless its type is told (documentation)."""
    if any(_essence(one.facts) == _essence(facts) for one in model.assignments.values()):
        raise Refusal("RoleAssignmentExists", "The role assignment already exists.")
    if "principalType" not in facts:
        sentence = f"Principal {facts['principalId']} does not exist in the directory."
        raise Refusal("PrincipalNotFound", f"{sentence} Set principalType to ServicePrincipal for a new one.")


@answers("RoleAssignments.Get", "RoleAssignments.GetById")
def get_assignment(model: Model, ask: Ask) -> Reply:
    found = model.assignments.get(ask.id.lower())
    if found is None:
        name = ask.id.rpartition("/")[2]
        raise Refusal("RoleAssignmentNotFound", f"The role assignment '{name}' is not found.")
    return Reply(200, copy.deepcopy(found.body))


@answers("RoleAssignments.Delete", "RoleAssignments.DeleteById")
def delete_assignment(model: Model, ask: Ask) -> Reply:
    found = model.assignments.pop(ask.id.lower(), None)
    return Reply(204) if found is None else Reply(200, found.body)


@answers(
    "RoleAssignments.ListForScope",
    "RoleAssignments.ListForSubscription",
    "RoleAssignments.ListForResourceGroup",
    "RoleAssignments.ListForResource",
)
def list_assignments(model: Model, ask: Ask) -> Reply:
    """List assignments at a scope, above it and below it; `atScope()` leaves those below away."""
    scope = ask.id.rpartition("/providers/Microsoft.Authorization/")[0].lower()
    text = ask.query.get("$filter", "")
    found = _FILTER.fullmatch(text)
    if text and found is None:
        raise Refusal("BadRequestFormat", f"The filter '{text}' is not supported.", 400)
    rows = []
    for one in model.assignments.values():
        at = one.facts["scope"].lower()
        above, below = scope.startswith(at), at.startswith(scope) and not text.startswith("atScope()")
        wanted = found and (found[2] or found[3])
        if (above or below) and wanted in {None, "", one.facts["principalId"]}:
            rows.append(one.body)
    return pages(model, ask, rows)
