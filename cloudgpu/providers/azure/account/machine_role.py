"""The role with which machines deallocate and tag themselves: a custom role of the subscription.

It is assigned to each machine's own identity, on that one machine alone (`identity`). Its id is a hash of the
subscription's, so that no search is needed; its name has a part of that, since a name is unique in the whole directory
 ("Azure custom roles": "Must be unique at the scope of the Microsoft Entra directory").
"""

from __future__ import annotations

import json
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cloudgpu.core.model.account import ProviderRole, RolePart
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.azure import groups
from cloudgpu.providers.azure.account.permissions import allows
from cloudgpu.providers.azure.calls import call_or_none, invoke
from cloudgpu.providers.azure.client import Azure

PART_KIND, ACTIONS_KIND = "custom role", "actions of the custom role"
ACTIONS = ("Microsoft.Compute/virtualMachines/deallocate/action", "Microsoft.Resources/tags/write")  # what it is for
ADMINISTRATOR = "f58310d9-a9f6-439a-9e8d-f62e7b41a168"  # Azure built-in roles: Role Based Access Control Administrator
_ROLE_DEFINITIONS = "Microsoft.Authorization/roleDefinitions"
_WRITE_ASSIGNMENT, _DELETE_ASSIGNMENT = (
    f"Microsoft.Authorization/roleAssignments/{one}" for one in ("write", "delete")
)


def read_role(azure: Azure, document: str) -> ProviderRole:
    """Return what there is of the role, and in which subscription. One call; changes nothing.

    Its actions are a part of their own where the role is ours and allows something else than `document`.
    """
    same_name_roles = _roles_of_this_name(azure)
    our_role = next((one for one in same_name_roles if _guid(one) == guid(azure)), None)
    is_ours = our_role is not None or not same_name_roles
    parts = [RolePart(PART_KIND, name(azure), exists=our_role is not None, is_ours=is_ours)]
    if our_role is not None and not _allows_exactly(our_role.permissions, json.loads(document)["Actions"]):
        parts.append(RolePart(ACTIONS_KIND, name(azure), exists=False, is_ours=True))
    subscription_label = f"Azure subscription {azure.subscription}, where {groups.TIMERS} is switched on for timers"
    return ProviderRole(subscription_label, tuple(parts), {"machine_role": id_of(azure), "timers": True})


def make(azure: Azure, document: str) -> None:
    """Create or correct the role, and register the resource provider of timers. Idempotent.

    Raises InvalidRequest for somebody else's role of this name, AuthFailed naming the action.
    """
    same_name_roles = _roles_of_this_name(azure)
    if same_name_roles and all(_guid(one) != guid(azure) for one in same_name_roles):
        message = f"There is a custom role {name(azure)!r} already that cloudgpu init did not create."
        remedy = "Remove or rename it there, or use cloudgpu without it: launches work, and say what is lost."
        raise InvalidRequest(message, field="machine_role", value=name(azure), next=remedy)
    role = json.loads(document)
    body: dict[str, Any] = {
        "roleName": name(azure),
        "description": role["Description"],
        "type": "CustomRole",
        "permissions": [{"actions": role["Actions"], "notActions": [], "dataActions": [], "notDataActions": []}],
        "assignableScopes": [scope(azure)],
    }
    roles, role = azure.client("authorization").role_definitions, _definition(body)
    invoke(
        azure,
        f"{_ROLE_DEFINITIONS}/write",
        lambda: roles.create_or_update(scope(azure), guid(azure), role),
        value=name(azure),
    )
    groups.register(azure, groups.TIMERS)


def remove(azure: Azure) -> None:
    """Delete the role, where it is ours, after its assignments: Azure does not delete a role that is assigned.

    Idempotent. Machines that run lose it, so that a shutdown from inside does not end their bill any more.
    """
    from cloudgpu.providers.azure.account import identity

    for assignment in identity.role_assignments(azure, id_of(azure)):
        identity.remove_assignment(azure, assignment.id)
    roles = azure.client("authorization").role_definitions
    call_or_none(
        azure, f"{_ROLE_DEFINITIONS}/delete", lambda: roles.delete(scope(azure), guid(azure)), value=name(azure)
    )


def allowed_actions(azure: Azure) -> dict[str, bool] | None:
    """Return whether the role that the settings name allows each of ACTIONS; None for no such role. One call."""
    role_id, roles = azure.options.machine_role, azure.client("authorization").role_definitions
    role = call_or_none(azure, f"{_ROLE_DEFINITIONS}/read", lambda: roles.get_by_id(role_id), value=role_id)
    if role is None:
        return None
    rights = [{"actions": one.actions, "notActions": one.not_actions} for one in role.permissions or ()]
    return {action: allows(rights, action) is True for action in ACTIONS}


def condition(role: str) -> str:
    """Return the condition under which a launcher may assign and unassign this role (its id) to machines, and no other.

    Written as in "Examples to delegate Azure role assignment management with conditions", version 2.0.
    """
    guid = role.rpartition("/")[2]
    clauses = []
    for action, source in ((_WRITE_ASSIGNMENT, "@Request"), (_DELETE_ASSIGNMENT, "@Resource")):
        attribute = f"{source}[Microsoft.Authorization/roleAssignments:"
        clauses.append(
            f"((!(ActionMatches{{'{action}'}})) OR ({attribute}RoleDefinitionId] ForAnyOfAnyValues:"
            f"GuidEquals {{{guid}}} AND {attribute}PrincipalType] ForAnyOfAnyValues:"
            f"StringEqualsIgnoreCase {{'ServicePrincipal'}}))"
        )
    return " AND ".join(clauses)


def assign_role_command(azure: Azure) -> str:
    """Return the command with which an administrator lets a launcher assign machines their role, and nothing else."""
    return (
        f"az role assignment create --assignee LAUNCHER --role {ADMINISTRATOR} --scope {scope(azure)} "
        f'--condition-version 2.0 --condition "{condition(id_of(azure))}"'
    )


def name(azure: Azure) -> str:
    """Return the role's name."""
    return f"cloudgpu-machine-{azure.subscription[:8]}"


def guid(azure: Azure) -> str:
    """Return the role's GUID, a hash of the subscription's id."""
    return str(uuid5(NAMESPACE_URL, f"cloudgpu machine {azure.subscription.lower()}"))


def id_of(azure: Azure) -> str:
    """Return the role's full id, as config.toml names it."""
    return f"{scope(azure)}/providers/Microsoft.Authorization/roleDefinitions/{guid(azure)}"


def scope(azure: Azure) -> str:
    """Return the subscription's id as a scope of Azure's roles."""
    return f"/subscriptions/{azure.subscription}"


def _roles_of_this_name(azure: Azure) -> list[Any]:
    """Return the roles of this name, ours or not. One call, and its pages: Azure cannot filter by name."""
    custom = "type eq 'CustomRole'"
    roles = azure.client("authorization").role_definitions
    found = invoke(
        azure, f"{_ROLE_DEFINITIONS}/read", lambda: list(roles.list(scope(azure), filter=custom)), value=name(azure)
    )
    return [one for one in found if one.role_name == name(azure)]


def _definition(body: dict[str, Any]) -> Any:
    """Return the SDK's model of a role: this generation of models takes no plain JSON."""
    from azure.mgmt.authorization.v2022_04_01.models import RoleDefinition

    return RoleDefinition.from_dict({"properties": body})


def _guid(one: Any) -> str:
    return str(one.name or "").lower()


def _allows_exactly(permissions: Any, actions: list[str]) -> bool:
    """Say whether these permissions of a role allow these actions, and exclude none of them."""
    allowed = {action for one in permissions or () for action in one.actions or ()}
    return allowed == set(actions) and not any(one.not_actions for one in permissions or ())
