"""The rules of a machine's own security group: who may reach SSH, and that nobody else from outside may connect. Pure.

One rule per label (`caller`, or a name given by `share`), named after it; its description has the label. The lowest
priority is evaluated first, and no two may have the same ("Network security groups", how traffic is filtered).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.values.naming import digest
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.shared.rules import OpenRule, is_open_to_all

FIRST_PRIORITY, LAST_PRIORITY, DENY_PRIORITY = 100, 3999, 4000
_PREFIX, _DESCRIPTION_PREFIX = "ssh-", "cloudgpu "
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_NAMEABLE_LABEL = re.compile(r"[a-z0-9._-]{0,60}[a-z0-9_]")  # what a rule's name can hold as it is
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of ours: TCP from this network to SSH, under the name `label`."""

    name: str
    label: str
    cidr: str
    port: str
    priority: int

    def body(self) -> Body:
        """Return it as Azure's calls take it."""
        return _rule(
            self.name, self.priority, "Allow", "Tcp", self.cidr, self.port, f"{_DESCRIPTION_PREFIX}{self.label}"
        )


def security_group(region: str, tags: Mapping[str, str], callers: Mapping[str, str], port: int) -> Body:
    """Return the security group of a launch: these callers may reach SSH, and nobody else on the Internet any port."""
    allow_rules = [
        rule(label, cidr, port, FIRST_PRIORITY + number).body()
        for number, (label, cidr) in enumerate(sorted(callers.items()))
    ]
    deny_rule = _rule("nobody-else", DENY_PRIORITY, "Deny", "*", "Internet", "*", "cloudgpu: nobody else from outside")
    return {"location": region, "tags": dict(tags), "properties": {"securityRules": [*allow_rules, deny_rule]}}


def rule(label: str, cidr: str, port: int, priority: int) -> Rule:
    """Return the rule of a label; raise InvalidRequest for an invalid label."""
    if not _LABEL.fullmatch(label):
        message = f"{label!r} cannot label a rule."
        raise InvalidRequest(message, field="label", value=label, next="Use a-z, 0-9, dot, _ and -.")
    return Rule(name_of(label), label, cidr, str(port), priority)


def name_of(label: str) -> str:
    """Return the name of a label's rule: Azure takes 80 characters that end in a letter, a digit or `_`."""
    return f"{_PREFIX}{label}" if _NAMEABLE_LABEL.fullmatch(label) else f"{_PREFIX}{digest(label)[:20]}"


def rules(raw_rules: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Return the rules of ours among those that a security group has; others' are left out."""
    return tuple(one for one in map(_parse_own_rule, raw_rules) if one is not None)


def free_priority(raw_rules: Collection[Mapping[str, Any]]) -> int:
    """Return a priority that no rule of a security group has. Raises InvalidRequest where all are taken."""
    taken = {int((one.get("properties") or {}).get("priority") or 0) for one in raw_rules}
    free = next((number for number in range(FIRST_PRIORITY, LAST_PRIORITY + 1) if number not in taken), None)
    if free is None:
        raise InvalidRequest(
            f"All priorities of rules, {FIRST_PRIORITY} to {LAST_PRIORITY}, are taken in this security group.",
            field="security group",
            value=None,
            next="Delete rules that nobody needs.",
        )
    return free


def open_rules(group: str, raw_rules: Sequence[Mapping[str, Any]]) -> tuple[OpenRule, ...]:
    """Return the rules of a machine's own group that cloudgpu did not make and that let everybody in."""
    return tuple(
        OpenRule(
            f"the security group {group} lets everybody ({_open_sources(one)[0]}) reach {_ports(one)}, by the rule "
            f"{one.get('name')}, which is not cloudgpu's",
            f"az network nsg rule delete --resource-group {group} --nsg-name {group} --name {one.get('name')}",
        )
        for one in raw_rules
        if _parse_own_rule(one) is None and _is_open(one.get("properties") or {}) and _open_sources(one)
    )


def _is_open(properties: Mapping[str, Any]) -> bool:
    """Say whether a rule lets somebody in before the rule that denies everybody."""
    is_allowed_inbound = (
        str(properties.get("direction")).lower() == "inbound" and str(properties.get("access")).lower() == "allow"
    )
    return is_allowed_inbound and int(properties.get("priority") or 0) < DENY_PRIORITY


def _open_sources(raw: Mapping[str, Any]) -> list[str]:
    properties = raw.get("properties") or {}
    all_values = [properties.get("sourceAddressPrefix") or "", *(properties.get("sourceAddressPrefixes") or ())]
    return [str(source) for source in all_values if is_open_to_all(str(source))]


def _ports(raw: Mapping[str, Any]) -> str:
    properties = raw.get("properties") or {}
    all_values = [properties.get("destinationPortRange") or "", *(properties.get("destinationPortRanges") or ())]
    port_texts = [str(port) for port in all_values if port]
    return "every port" if "*" in port_texts or not port_texts else f"port {', '.join(port_texts)}"


def _parse_own_rule(raw: Mapping[str, Any]) -> Rule | None:
    properties = raw.get("properties") or {}
    description = str(properties.get("description") or "")
    label = description.removeprefix(_DESCRIPTION_PREFIX)
    if (
        not description.startswith(_DESCRIPTION_PREFIX)
        or not _LABEL.fullmatch(label)
        or str(properties.get("access")).lower() != "allow"
    ):
        return None
    cidr, port = str(properties.get("sourceAddressPrefix") or ""), str(properties.get("destinationPortRange") or "")
    return Rule(str(raw["name"]), label, cidr, port, int(properties.get("priority") or 0))


def _rule(name: str, priority: int, access: str, protocol: str, source: str, port: str, description: str) -> Body:
    properties = {
        "priority": priority,
        "direction": "Inbound",
        "access": access,
        "protocol": protocol,
        "sourceAddressPrefix": source,
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": port,
        "description": description,
    }
    return {"name": name, "properties": properties}
