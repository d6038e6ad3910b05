"""Assigns the machine role to a machine's own identity, on itself alone; lists and removes these assignments.

The assignment's name is a hash of the machine and its identity, so that assigning twice makes one, and the next
identity of a machine of the same name gets one of its own: "Tenant ID, application ID, principal ID, and scope are
not allowed to be updated" (RoleAssignmentUpdateNotPermitted, Troubleshoot Azure RBAC).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import call_or_none, invoke
from cloudgpu.providers.azure.client import Azure
from cloudgpu.providers.azure.compute import machine
from cloudgpu.providers.azure.errors import code_of
from cloudgpu.providers.shared.errors import Tolerating

_ACTION = "Microsoft.Authorization/roleAssignments"


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    """Azure's assignment of a role: its id, its scope (a machine's id) and the id of the principal that has it."""

    id: str
    scope: str
    principal_id: str


def assign(azure: Azure, machine_id: str, principal_id: str) -> None:
    """Assign the settings' `machine_role` to this identity (its principal's id) on its machine (Azure's full id).

    One call; idempotent. Without `machine_role` in the settings, no call. `principalType` is sent since Azure
    may not know a new identity everywhere yet ("Assign Azure roles using the REST API", new service principal).
    """
    role_id = azure.options.machine_role
    if not role_id:
        return
    properties = {"roleDefinitionId": role_id, "principalId": principal_id, "principalType": "ServicePrincipal"}
    name, parameters = assignment_name(machine_id, principal_id), _parameters({"properties": properties})
    assignments = azure.client("authorization").role_assignments
    with Tolerating(code_of, "RoleAssignmentExists"):
        invoke(azure, f"{_ACTION}/write", lambda: assignments.create(machine_id, name, parameters), value=machine_id)


def role_assignments(azure: Azure, role_id: str) -> list[RoleAssignment]:
    """Return the assignments of this role (its full id) anywhere in the subscription. A call per page.

    Azure has no filter by role: all assignments of the subscription are read.
    """
    role_guid = role_id.rpartition("/")[2].lower()
    listed = azure.client("authorization").role_assignments.list_for_subscription
    raw_assignments = invoke(azure, f"{_ACTION}/read", lambda: list(listed()))
    of_role = (one for one in raw_assignments if str(one.role_definition_id).rpartition("/")[2].lower() == role_guid)
    return [RoleAssignment(str(one.id), str(one.scope), str(one.principal_id)) for one in of_role]


def remove_assignment(azure: Azure, assignment_id: str) -> None:
    """Delete an assignment (its full id) of a role; what is gone already is no error."""
    assignments = azure.client("authorization").role_assignments
    call_or_none(azure, f"{_ACTION}/delete", lambda: assignments.delete_by_id(assignment_id), value=assignment_id)


def assignment_of(azure: Azure, id: str) -> str:  # noqa: A002
    """Return the full id of the assignment of a machine's role; empty where it has none, or Azure does not say.

    One call; none without `machine_role` in the settings: an assignment made with other settings is found by
    `orphans`.
    """
    if not azure.options.machine_role:
        return ""
    scope = ids.machine_id(azure.subscription, ids.split_machine_id(id)[1])
    try:
        principal_id = str((machine.read(azure, id).get("identity") or {}).get("principalId") or "")
    except CloudgpuError:  # no error here is a reason not to end the machine
        return ""
    return (
        f"{scope}/providers/Microsoft.Authorization/roleAssignments/{assignment_name(scope, principal_id)}"
        if principal_id
        else ""
    )


def remove_machine_assignment(azure: Azure, assignment_id: str) -> None:
    """Delete the assignment of a machine that is being ended; where it fails, `orphans` finds it. One call at most."""
    if assignment_id:
        with suppress(CloudgpuError):
            remove_assignment(azure, assignment_id)


def assignment_name(machine_id: str, principal_id: str) -> str:
    """Return the name of the assignment of a machine's role to this identity of it."""
    return str(uuid5(NAMESPACE_URL, f"{machine_id.lower()} {principal_id.lower()}"))


def _parameters(body: dict[str, Any]) -> Any:
    from azure.mgmt.authorization.v2022_04_01.models import RoleAssignmentCreateParameters

    return RoleAssignmentCreateParameters.from_dict(body)
