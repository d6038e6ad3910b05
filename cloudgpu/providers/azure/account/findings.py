"""What in a subscription stands in the way of cloudgpu, or makes it less safe: looked at, and never changed."""

from __future__ import annotations

from collections.abc import Callable

from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Pool
from cloudgpu.providers.account_abilities import Finding
from cloudgpu.providers.azure import groups
from cloudgpu.providers.azure.account import machine_role, permissions
from cloudgpu.providers.azure.calls import properties_of
from cloudgpu.providers.azure.client import Azure, get_json
from cloudgpu.providers.azure.market import availability
from cloudgpu.providers.azure.network import security_rules
from cloudgpu.providers.shared.rules import OPEN_RULES_FINDING, open_rules_finding

_ASSIGN = "Microsoft.Authorization/roleAssignments/write"
_INIT = "Run: cloudgpu init azure"
_NONE_OPEN = "no security group of this ledger's machines lets everybody in by one"


def findings(azure: Azure, region: str | None) -> list[Finding]:
    """Return how it stands with the subscription, its services, the role of machines and timers. Up to seven calls.

    What could not be looked at has `good` None. Raises InvalidRequest for a region that the account does not use.
    """
    if region is not None:
        availability.check_region(azure, region)
    looks: list[tuple[str, Callable[[], list[Finding]]]] = [
        ("subscription", lambda: _subscription(azure)),
        (groups.COMPUTE, lambda: [_service(azure, groups.COMPUTE)]),
        (groups.NETWORK, lambda: [_service(azure, groups.NETWORK)]),
        ("machine role", lambda: _machine_role(azure)),
        ("timers", lambda: [_timers(azure)]),
        (OPEN_RULES_FINDING, lambda: [_openings(azure)]),
    ]
    with Pool(len(looks)) as pool:
        return [one for found in pool.map(lambda look: _look_or_unknown(*look), looks) for one in found]


def _look_or_unknown(what: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return look()
    except CloudgpuError as error:
        return [Finding(what, None, error.message, error.next or "")]


def _subscription(azure: Azure) -> list[Finding]:
    """Return whether the subscription is switched on, and whether a spending limit may switch it off."""
    path = f"/subscriptions/{azure.subscription}"
    found = get_json(azure, "Microsoft.Resources/subscriptions/read", path, availability.VERSION)
    state, named = str(found.get("state") or "unknown"), str(found.get("displayName") or azure.subscription)
    limit = str((found.get("subscriptionPolicies") or {}).get("spendingLimit") or "Off")
    good = None if state == "unknown" else state == "Enabled"
    remedy = "" if good else "Open it in the Azure portal and finish what it asks for: a payment, mostly."
    return [Finding("subscription", good, f"{named} is {state.lower()}", remedy, needed=True), _spending(limit)]


def _spending(limit: str) -> Finding:
    """Return what a spending limit means: a subscription with credit alone is switched off when that is used up."""
    if limit == "On":
        says = "a spending limit is on: Azure stops all machines when the credit is used up, and has no quota of GPUs"
        return Finding("spending limit", good=False, says=says, next="Remove it: https://aka.ms/remove-spending-limit")
    return Finding("spending limit", good=True, says="there is none in the way")


def _service(azure: Azure, namespace: str) -> Finding:
    state = groups.state(azure, namespace)
    good = state.lower() in groups.ON
    says = f"it is {state or 'not known here'}"
    remedy = "" if good else f"Run: {groups.register_command(namespace)}"
    return Finding(namespace, good, says, remedy, needed=True)


def _machine_role(azure: Azure) -> list[Finding]:
    """Return whether machines can end their own bill, and whether whoever launches may give them that right."""
    what, where = "machine role", f"accounts.{azure.account}.machine_role"
    absent = "a shutdown from inside does not end a machine's bill: stop and reap deallocate it"
    if azure.options.machine_role is None:
        return [Finding(what, good=False, says=f"{where} is not set, so {absent}", next=_INIT)]
    if not machine_role.role_exists(azure):
        return [Finding(what, good=False, says=f"the role that {where} names is not there, so {absent}", next=_INIT)]
    may = permissions.allows(permissions.rights(azure), _ASSIGN)
    if may is False:
        says = f"this credential may not give machines their role, so {absent}"
        remedy = f"An administrator lets it do that, and no more: {machine_role.assign_role_command(azure)}"
        return [Finding(what, good=False, says=says, next=remedy)]
    says = "machines may deallocate and tag themselves, each itself alone"
    if may is None:
        says += "; whether this credential may give them that right depends on a condition that only Azure can evaluate"
    return [Finding(what, good=True, says=says)]


def _timers(azure: Azure) -> Finding:
    if not azure.options.timers:
        says = f"accounts.{azure.account}.timers is not set: nothing of Azure's ends a machine at its renew-until"
        return Finding("timers", good=False, says=says, next=_INIT)
    if not groups.is_on(azure, groups.TIMERS):
        says = f"{groups.TIMERS} is not switched on in the subscription"
        return Finding("timers", good=False, says=says, next=f"Run: {groups.register_command(groups.TIMERS)}")
    return Finding("timers", good=True, says="Azure deallocates each machine at its renew-until")


def _openings(azure: Azure) -> Finding:
    """Return whether somebody has opened a machine's own security group to everybody.

    A call per page of groups; none before the ledger's first line.
    """
    if not azure.ledger:
        return open_rules_finding((), _NONE_OPEN)
    with azure.calling("Microsoft.Network/networkSecurityGroups/read"):
        listed = [one.as_dict() for one in azure.network.network_security_groups.list_all()]
    ours = [one for one in listed if (one.get("tags") or {}).get(TAG_LEDGER) == azure.ledger]
    found = [
        opening
        for one in ours
        for opening in security_rules.openings(str(one["name"]), properties_of(one).get("securityRules") or ())
    ]
    return open_rules_finding(found, _NONE_OPEN)
