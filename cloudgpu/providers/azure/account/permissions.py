"""Lists every action that cloudgpu uses at Azure, and checks which of them a credential may do, without doing it.

The documents in policies/permissions allow these and no others: a test compares them both ways. What the names mean is
in "Azure permissions" (learn.microsoft.com/azure/role-based-access-control/resource-provider-operations). One call
returns all that a credential may do, with wildcards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloudgpu.core.model.account import Permission
from cloudgpu.providers.azure.client import Azure, get_values
from cloudgpu.providers.azure.market.availability import check_region

_COMPUTE, _NETWORK, _RESOURCES = "Microsoft.Compute", "Microsoft.Network", "Microsoft.Resources"
_AUTHORIZATION, _SCHEDULE = "Microsoft.Authorization", "Microsoft.ComputeSchedule/locations"


def _probes_of(provider: str, actions_by_use: dict[str, str], *, needed: bool = True) -> tuple[Permission, ...]:
    """Return the actions at one resource provider, from their names without its own, by what they are used for."""
    return tuple(
        Permission(f"{provider}/{action}", None, used_for, needed=needed)
        for used_for, actions in actions_by_use.items()
        for action in actions.split()
    )


PROBES = (
    *_probes_of(_COMPUTE, {
        "see machines": "virtualMachines/read",
        "launch machines": "virtualMachines/write",
        "end machines": "virtualMachines/delete disks/delete",
        "stop machines": "virtualMachines/deallocate/action",
        "start machines": "virtualMachines/start/action",
        "find where a size is offered": "skus/read",
        "check a quota before a launch": "locations/usages/read",
        "find the image to start from": "locations/publishers/artifacttypes/offers/skus/versions/read images/read",
        "see disks that are left": "disks/read",
        "see snapshots that are left": "snapshots/read",
        "give a machine its system disk": "disks/write",
    }),
    *_probes_of(_NETWORK, {
        "make a machine's network": "virtualNetworks/read virtualNetworks/write virtualNetworks/subnets/join/action",
        "let SSH in from the caller": "networkSecurityGroups/read networkSecurityGroups/write "
            "networkSecurityGroups/join/action "
            "networkSecurityGroups/securityRules/write networkSecurityGroups/securityRules/delete",
        "connect a machine": "networkInterfaces/read networkInterfaces/write networkInterfaces/join/action",
        "give a machine its address": "publicIPAddresses/read publicIPAddresses/write publicIPAddresses/join/action",
        "end machines with what was made for them": "networkInterfaces/delete publicIPAddresses/delete",
    }),
    *_probes_of(_RESOURCES, {
        "find a machine's group": "subscriptions/resourceGroups/read subscriptions/resourceGroups/resources/read",
        "launch machines in groups of their own": "subscriptions/resourceGroups/write",
        "end machines with all that is in their groups": "subscriptions/resourceGroups/delete",
        "extend and hold a lease": "tags/write",
    }),
    *_probes_of(_RESOURCES, {
        "find the account's regions": "subscriptions/locations/read",
        "tell whether the subscription is switched off": "subscriptions/read",
        "tell which services are switched off": "subscriptions/providers/read",
    }, needed=False),
    *_probes_of(_COMPUTE, {
        "attach data volumes": "virtualMachines/attachDetachDataDisks/action",
        "rehearse an interruption": "virtualMachines/simulateEviction/action",
        "install a driver": "virtualMachines/extensions/write",
        "save images": "snapshots/write images/write galleries/write galleries/images/write "
            "galleries/images/versions/write galleries/read",
        "see images that are left": "galleries/images/read galleries/images/versions/read",
        "remove snapshots": "snapshots/delete",
        "remove images": "images/delete galleries/images/delete galleries/images/versions/delete",
    }, needed=False),
    *_probes_of(_AUTHORIZATION, {
        "tell what this credential may do": "permissions/read",
        "name the lock that keeps a machine from its end": "locks/read",
        "let machines deallocate and tag themselves": "roleAssignments/write",
        "see and remove the rights of machines that are gone": "roleAssignments/read roleAssignments/delete",
        "tell whether the role of machines is there": "roleDefinitions/read",
    }, needed=False),
    *_probes_of(_SCHEDULE, {
        "set the timers in the cloud": "virtualMachinesSubmitDeallocate/action virtualMachinesCancelOperations/action "
            "virtualMachinesGetOperationStatus/action",
    }, needed=False),
    *_probes_of("Microsoft.Insights", {"tell when Azure took a spot machine": "eventtypes/values/read"}, needed=False),
    *_probes_of("Microsoft.Quota", {"ask for a higher quota": "quotas/write"}, needed=False),
)  # fmt: skip


VERSION = "2022-04-01"  # of Microsoft.Authorization/permissions
Rights = Mapping[str, Any]  # what one role allows: `actions`, `notActions`, `condition`


def permissions(azure: Azure, region: str | None = None) -> Sequence[Permission]:
    """Return every action that cloudgpu uses at Azure, and whether it is allowed in the subscription. One call.

    Azure returns what the caller's roles allow, not what a policy or lock of the organisation forbids. What is allowed
    under a condition is not known: only Azure evaluates those. Raises AuthFailed for credentials that do not work.
    """
    if region is not None:
        check_region(azure, region)
    role_rights = rights(azure)
    verdicts = {probe: allows(role_rights, probe.action) for probe in PROBES}
    reason = "it is allowed under a condition that only Azure can evaluate"
    return [
        replace(probe, allowed=allowed, unknown_reason=reason if allowed is None else "")
        for probe, allowed in verdicts.items()
    ]


def rights(azure: Azure) -> list[Rights]:
    """Return what the caller's roles allow at the scope of the subscription, one entry for each. One call per page."""
    path = f"/subscriptions/{azure.subscription}/providers/Microsoft.Authorization/permissions"
    return list(get_values(azure, "Microsoft.Authorization/permissions/read", path, VERSION))


def allows(rights: Iterable[Rights], action: str) -> bool | None:
    """Say whether one of these allows an action; None where it does so under a condition alone.

    An entry allows what `actions` names and `notActions` does not: that subtracts from its own entry and denies
    nothing that another one allows ("Understand Azure role definitions", NotActions).
    """
    entries = [
        one for one in rights if _lists_action(one, "actions", action) and not _lists_action(one, "notActions", action)
    ]
    if any(not one.get("condition") for one in entries):
        return True
    return None if entries else False


def _lists_action(entry: Rights, key: str, action: str) -> bool:
    """Say whether one of an entry's patterns names an action: `*` stands for any text, and case does not matter."""
    patterns = (".*".join(map(re.escape, str(pattern).split("*"))) for pattern in entry.get(key) or ())
    return any(re.fullmatch(pattern, action, re.IGNORECASE) for pattern in patterns)
