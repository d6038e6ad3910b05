"""Checks what in a subscription blocks cloudgpu, or makes it less safe. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Pool
from cloudgpu.providers.account_abilities import AccountFinding
from cloudgpu.providers.azure import groups
from cloudgpu.providers.azure.account import machine_role, permissions
from cloudgpu.providers.azure.calls import properties_of
from cloudgpu.providers.azure.client import Azure, get_json
from cloudgpu.providers.azure.market import availability
from cloudgpu.providers.azure.network import security_rules
from cloudgpu.providers.shared.calls import result_or_error
from cloudgpu.providers.shared.rules import OPEN_RULES_FINDING, open_rules_finding, unknown_finding

_ASSIGN_ACTION = "Microsoft.Authorization/roleAssignments/write"
_INIT_REMEDY = "Run: cloudgpu init azure"
_NO_OPEN_RULE_TEXT = "no security group of this ledger's machines lets everybody in by one"


def findings(azure: Azure, region: str | None) -> list[AccountFinding]:
    """Return the results of checks of the subscription, its services, machine role and timers. Up to seven calls.

    A check that was not possible has `is_ok` None. Raises InvalidRequest for a region that the account does not use.
    """
    if region is not None:
        availability.check_region(azure, region)
    checks: dict[str, Callable[[], list[AccountFinding]]] = {
        "subscription": lambda: _subscription_findings(azure),
        groups.COMPUTE: lambda: [_service_finding(azure, groups.COMPUTE)],
        groups.NETWORK: lambda: [_service_finding(azure, groups.NETWORK)],
        "machine role": lambda: [_machine_role_finding(azure)],
        "timers": lambda: [_timers_finding(azure)],
        OPEN_RULES_FINDING: lambda: [_open_rules_finding(azure)],
    }
    with Pool(len(checks)) as pool:
        answers = pool.map(result_or_error, checks.values())
        return [
            one
            for name, answer in zip(checks, answers, strict=True)
            for one in ([unknown_finding(name, answer)] if isinstance(answer, CloudgpuError) else answer)
        ]


def _subscription_findings(azure: Azure) -> list[AccountFinding]:
    """Return whether the subscription is enabled, and whether a spending limit may disable it."""
    path = f"/subscriptions/{azure.subscription}"
    subscription = get_json(azure, "Microsoft.Resources/subscriptions/read", path, availability.VERSION)
    state = str(subscription.get("state") or "unknown")
    name = str(subscription.get("displayName") or azure.subscription)
    is_ok = None if state == "unknown" else state == "Enabled"
    remedy = "" if is_ok else "Open it in the Azure portal and finish what it asks for: a payment, mostly."
    # with a limit, Azure disables a subscription whose credit is used up
    is_limited = (subscription.get("subscriptionPolicies") or {}).get("spendingLimit") == "On"
    limit = "a spending limit is on: Azure stops all machines when the credit is used up, and has no quota of GPUs"
    limit_remedy = "Remove it: https://aka.ms/remove-spending-limit"
    return [
        AccountFinding("subscription", is_ok, f"{name} is {state.lower()}", remedy, needed=True),
        AccountFinding("spending limit", is_ok=False, message=limit, next=limit_remedy)
        if is_limited
        else AccountFinding("spending limit", is_ok=True, message="there is none in the way"),
    ]


def _service_finding(azure: Azure, namespace: str) -> AccountFinding:
    state = groups.registration_state(azure, namespace)
    is_ok = state.lower() in groups.REGISTERED_STATES
    message = f"it is {state or 'not known here'}"
    remedy = "" if is_ok else f"Run: {groups.register_command(namespace)}"
    return AccountFinding(namespace, is_ok, message, remedy, needed=True)


def _machine_role_finding(azure: Azure) -> AccountFinding:
    """Return whether machines can deallocate themselves, and whether this credential may give them the role for it."""
    setting, remedy, condition, problem = f"accounts.{azure.account}.machine_role", _INIT_REMEDY, "", ""
    actions = machine_role.allowed_actions(azure) if azure.options.machine_role else {}
    if azure.options.machine_role is None:
        problem = f"{setting} is not set"
    elif actions is None:
        problem = f"the role that {setting} names is not there"
    elif denied := [action for action, allowed in actions.items() if not allowed]:
        problem = f"the role that {setting} names does not allow {' and '.join(denied)}"
    else:
        can_assign = permissions.allows(permissions.rights(azure), _ASSIGN_ACTION)
        if can_assign is False:
            problem = "this credential may not give machines their role"
            remedy = f"An administrator lets it do that, and no more: {machine_role.assign_role_command(azure)}"
        elif can_assign is None:
            condition = (
                "; whether this credential may give them that right depends on a condition that only Azure can evaluate"
            )
    if problem:
        message = f"{problem}, so a shutdown from inside does not end a machine's bill: stop and reap deallocate it"
        return AccountFinding("machine role", is_ok=False, message=message, next=remedy)
    message = f"machines may deallocate and tag themselves, each itself alone{condition}"
    return AccountFinding("machine role", is_ok=True, message=message)


def _timers_finding(azure: Azure) -> AccountFinding:
    if not azure.options.timers:
        message = f"accounts.{azure.account}.timers is not set: nothing of Azure's ends a machine at its renew-until"
        return AccountFinding("timers", is_ok=False, message=message, next=_INIT_REMEDY)
    if not groups.is_registered(azure, groups.TIMERS):
        message = f"{groups.TIMERS} is not switched on in the subscription"
        return AccountFinding(
            "timers", is_ok=False, message=message, next=f"Run: {groups.register_command(groups.TIMERS)}"
        )
    return AccountFinding("timers", is_ok=True, message="Azure deallocates each machine at its renew-until")


def _open_rules_finding(azure: Azure) -> AccountFinding:
    """Return whether somebody has opened a machine's own security group to everybody.

    A call per page of groups; none for a ledger without an id yet.
    """
    if not azure.ledger:
        return open_rules_finding((), _NO_OPEN_RULE_TEXT)
    with azure.calling("Microsoft.Network/networkSecurityGroups/read"):
        listed = [one.as_dict() for one in azure.network.network_security_groups.list_all()]
    our_groups = [one for one in listed if (one.get("tags") or {}).get(TAG_LEDGER) == azure.ledger]
    open_rules = [
        opening
        for one in our_groups
        for opening in security_rules.open_rules(str(one["name"]), properties_of(one).get("securityRules") or ())
    ]
    return open_rules_finding(open_rules, _NO_OPEN_RULE_TEXT)
