"""Lets networks reach a machine, or no longer: a rule per label in the security group of the machine's own launch.

A machine that was launched with somebody else's security group has none of ours, and is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import call_or_none, complete, properties_of, provisioning_state
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.compute import listing
from cloudgpu.providers.azure.errors import code_of
from cloudgpu.providers.azure.network import security_rules
from cloudgpu.providers.shared.calls import retry

CHANGE_TIMEOUT = timedelta(minutes=2)
_PRIORITY_TAKEN, _MAX_TRIES = "SecurityRuleConflict", 5  # another process took the number in the same moment
_SECURITY_GROUPS = "Microsoft.Network/networkSecurityGroups"


def allowed(azure: Azure, id: str) -> Mapping[str, str]:  # noqa: A002
    """Return the CIDR per label that may reach SSH; empty where another's group decides. Raises InstanceNotFound."""
    raw_rules = _rules_of(azure, id)
    port = str(azure.options.ssh_port)
    return {one.label: one.cidr for one in security_rules.rules(raw_rules or ()) if one.port == port}


def allow(azure: Azure, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
    """Let this CIDR in under this label in place of the one before; None removes it. No change where it is so already.

    Raises InstanceNotFound, InvalidRequest where somebody else's security group decides.
    """
    retry(lambda: _allow(azure, id, label, cidr), _MAX_TRIES, after=lambda error: code_of(error) == _PRIORITY_TAKEN)


def _allow(azure: Azure, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
    raw_rules = _rules_of(azure, id)
    if raw_rules is None:
        raise InvalidRequest(
            f"Somebody else's security group decides who may connect to {id}: cloudgpu does not change it.",
            field="--security-group",
            value=id,
            next="Ask whoever keeps that group to let the address in, or launch without --security-group.",
        )
    port = azure.options.ssh_port
    previous = next(
        (one for one in security_rules.rules(raw_rules) if one.label == label and one.port == str(port)), None
    )
    if cidr is None:
        if previous is not None:
            _delete_rule(azure, id, previous.name)
    elif previous is None or previous.cidr != cidr:
        priority = previous.priority if previous else security_rules.free_priority(raw_rules)
        _put_rule(azure, id, security_rules.rule(label, cidr, port, priority))


def _rules_of(azure: Azure, id: str) -> list[Raw] | None:  # noqa: A002
    """Return the rules of a machine's own security group; None where it has none. Raises InstanceNotFound."""
    region, group = ids.split_machine_id(id)
    groups = azure.network.network_security_groups
    raw_group = call_or_none(
        azure, f"{_SECURITY_GROUPS}/read", lambda: groups.get(group, group).as_dict(), region=region, value=id
    )
    if raw_group is None:
        machine = listing.read_with_view(azure, region, group)
        if machine is None or provisioning_state(machine) == "deleting":
            raise InstanceNotFound(f"Azure {region} has no machine {group}.", field="instance", value=id)
        return None
    return list(properties_of(raw_group).get("securityRules") or ())


def _put_rule(azure: Azure, id: str, rule: security_rules.Rule) -> None:  # noqa: A002
    region, group = ids.split_machine_id(id)
    operations = azure.network.security_rules
    complete(
        azure,
        f"{_SECURITY_GROUPS}/securityRules/write",
        lambda polling: operations.begin_create_or_update(group, group, rule.name, rule.body(), polling=polling),
        deadline=azure.clock() + CHANGE_TIMEOUT,
        region=region,
        value=rule.cidr,
    )


def _delete_rule(azure: Azure, id: str, name: str) -> None:  # noqa: A002
    region, group = ids.split_machine_id(id)
    operations = azure.network.security_rules
    call_or_none(
        azure,
        f"{_SECURITY_GROUPS}/securityRules/delete",
        lambda: complete(
            azure,
            f"{_SECURITY_GROUPS}/securityRules/delete",
            lambda polling: operations.begin_delete(group, group, name, polling=polling),
            deadline=azure.clock() + CHANGE_TIMEOUT,
            region=region,
        ),
        region=region,
    )
