"""Gives a machine's own identity its role on itself, and on nothing else; tells and takes what was given.

The assignment's name follows from the machine and from its identity, so that one that was given twice is one, and the
next identity of a machine of the same name gets one of its own: "Tenant ID, application ID, principal ID, and scope are
not allowed to be updated" (RoleAssignmentUpdateNotPermitted, Troubleshoot Azure RBAC).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import find, invoke
from cloudgpu.providers.azure.client import Azure
from cloudgpu.providers.azure.compute import machine
from cloudgpu.providers.azure.errors import code_of
from cloudgpu.providers.shared.errors import Tolerating

_ACTION = "Microsoft.Authorization/roleAssignments"


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    """Azure's assignment of a role: its id, its scope (a machine's id) and who has it."""

    id: str
    scope: str
    principal: str


def assign(azure: Azure, machine_id: str, principal: str) -> None:
    """Give a machine (Azure's whole id) with this identity (its principal's id) the settings' role on itself.

    One call; idempotent. Without `machine_role` in the settings, nothing is given. `principalType` is said since Azure
    may not know a new identity everywhere yet ("Assign Azure roles using the REST API", new service principal).
    """
    role = azure.options.machine_role
    if not role:
        return
    properties = {"roleDefinitionId": role, "principalId": principal, "principalType": "ServicePrincipal"}
    name, parameters = assignment_name(machine_id, principal), _parameters({"properties": properties})
    assignments = azure.client("authorization").role_assignments
    with Tolerating(code_of, "RoleAssignmentExists"):
        invoke(azure, f"{_ACTION}/write", lambda: assignments.create(machine_id, name, parameters), value=machine_id)


def role_assignments(azure: Azure, role: str) -> list[RoleAssignment]:
    """Return who has this role (its whole id) anywhere in the subscription. A call per page.

    Azure has no filter by role: all assignments of the subscription are read.
    """
    wanted = role.rpartition("/")[2].lower()
    listed = azure.client("authorization").role_assignments.list_for_subscription
    found = invoke(azure, f"{_ACTION}/read", lambda: list(listed()))
    ours = (one for one in found if str(one.role_definition_id).rpartition("/")[2].lower() == wanted)
    return [RoleAssignment(str(one.id), str(one.scope), str(one.principal_id)) for one in ours]


def remove_assignment(azure: Azure, assignment: str) -> None:
    """Take a role away (the whole id of its assignment); what is gone already is no error."""
    assignments = azure.client("authorization").role_assignments
    find(azure, f"{_ACTION}/delete", lambda: assignments.delete_by_id(assignment), value=assignment)


def assignment_of(azure: Azure, id: str) -> str:  # noqa: A002
    """Return the whole id of the assignment of a machine's role; empty where it has none, or Azure does not tell.

    One call; none without `machine_role` in the settings: a role that was given under other settings is found by
    `orphans`, too.
    """
    if not azure.options.machine_role:
        return ""
    scope = ids.machine_id(azure.subscription, ids.machine(id)[1])
    try:
        principal = str((machine.read(azure, id).get("identity") or {}).get("principalId") or "")
    except CloudgpuError:  # whatever it is, it is no reason to leave the machine on
        return ""
    return (
        f"{scope}/providers/Microsoft.Authorization/roleAssignments/{assignment_name(scope, principal)}"
        if principal
        else ""
    )


def remove_machine_assignment(azure: Azure, assignment: str) -> None:
    """Take its role from a machine that is being ended; what fails is left for `orphans`. One call, none for none."""
    if assignment:
        with suppress(CloudgpuError):
            remove_assignment(azure, assignment)


def assignment_name(machine_id: str, principal: str) -> str:
    """Return the name of the assignment of a machine's role to this identity of it."""
    return str(uuid5(NAMESPACE_URL, f"{machine_id.lower()} {principal.lower()}"))


def _parameters(body: dict[str, Any]) -> Any:
    from azure.mgmt.authorization.v2022_04_01.models import RoleAssignmentCreateParameters

    return RoleAssignmentCreateParameters.from_dict(body)
