"""The rules of a machine's own security group: who may open SSH, and nobody else from outside. Pure.

One rule per label (`caller`, or a name given by `share`), named after it; its description says whose it is. The lowest
number comes first, and no two may have the same ("Network security groups", how traffic is filtered).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.values.naming import digest
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.shared.rules import OpenRule, is_open_to_all

FIRST, LAST, DENY = 100, 3999, 4000
_PREFIX, _OURS = "ssh-", "cloudgpu "
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_PLAIN = re.compile(r"[a-z0-9._-]{0,60}[a-z0-9_]")  # what a rule's name can hold as it is
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of ours: TCP from this network to SSH, for whom `label` says."""

    name: str
    label: str
    cidr: str
    port: str
    priority: int

    def body(self) -> Body:
        """Return it as Azure's calls take it."""
        return _rule(self.name, self.priority, "Allow", "Tcp", self.cidr, self.port, f"{_OURS}{self.label}")


def security_group(region: str, tags: Mapping[str, str], callers: Mapping[str, str], port: int) -> Body:
    """Return the security group of a launch: these callers get to SSH, and nobody else from the Internet anywhere."""
    allowed = [
        rule(label, cidr, port, FIRST + number).body() for number, (label, cidr) in enumerate(sorted(callers.items()))
    ]
    closed = _rule("nobody-else", DENY, "Deny", "*", "Internet", "*", "cloudgpu: nobody else from outside")
    return {"location": region, "tags": dict(tags), "properties": {"securityRules": [*allowed, closed]}}


def rule(label: str, cidr: str, port: int, priority: int) -> Rule:
    """Return the rule of a label; raise InvalidRequest for what cannot be one."""
    if not _LABEL.fullmatch(label):
        message = f"{label!r} cannot label a rule."
        raise InvalidRequest(message, field="label", value=label, next="Use a-z, 0-9, dot, _ and -.")
    return Rule(name_of(label), label, cidr, str(port), priority)


def name_of(label: str) -> str:
    """Return what the rule of a label is called: Azure takes 80 characters that end in a letter, a digit or `_`."""
    return f"{_PREFIX}{label}" if _PLAIN.fullmatch(label) else f"{_PREFIX}{digest(label)[:20]}"


def rules(found: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Return the rules of ours among those that a security group has; a person's own are none of them."""
    return tuple(one for one in map(_read, found) if one is not None)


def free_priority(found: Collection[Mapping[str, Any]]) -> int:
    """Return a number that no rule of a security group has."""
    taken = {int((one.get("properties") or {}).get("priority") or 0) for one in found}
    return next(number for number in range(FIRST, LAST) if number not in taken)


def openings(group: str, found: Sequence[Mapping[str, Any]]) -> tuple[OpenRule, ...]:
    """Return the rules of a machine's own group that cloudgpu did not make and that let everybody in."""
    return tuple(
        OpenRule(
            f"the security group {group} lets everybody ({_sources(one)[0]}) reach {_ports(one)}, by the rule "
            f"{one.get('name')}, which is not cloudgpu's",
            f"az network nsg rule delete --resource-group {group} --nsg-name {group} --name {one.get('name')}",
        )
        for one in found
        if _read(one) is None and _is_open(one.get("properties") or {}) and _sources(one)
    )


def _is_open(properties: Mapping[str, Any]) -> bool:
    """Say whether a rule lets somebody in before the rule that shuts everybody out."""
    inward = str(properties.get("direction")).lower() == "inbound" and str(properties.get("access")).lower() == "allow"
    return inward and int(properties.get("priority") or 0) < DENY


def _sources(raw: Mapping[str, Any]) -> list[str]:
    properties = raw.get("properties") or {}
    every = [properties.get("sourceAddressPrefix") or "", *(properties.get("sourceAddressPrefixes") or ())]
    return [str(source) for source in every if is_open_to_all(str(source))]


def _ports(raw: Mapping[str, Any]) -> str:
    properties = raw.get("properties") or {}
    every = [properties.get("destinationPortRange") or "", *(properties.get("destinationPortRanges") or ())]
    named = [str(port) for port in every if port]
    return "every port" if "*" in named or not named else f"port {', '.join(named)}"


def _read(raw: Mapping[str, Any]) -> Rule | None:
    properties = raw.get("properties") or {}
    words = str(properties.get("description") or "")
    label = words.removeprefix(_OURS)
    if not words.startswith(_OURS) or not _LABEL.fullmatch(label) or str(properties.get("access")).lower() != "allow":
        return None
    cidr, port = str(properties.get("sourceAddressPrefix") or ""), str(properties.get("destinationPortRange") or "")
    return Rule(str(raw["name"]), label, cidr, port, int(properties.get("priority") or 0))


def _rule(name: str, priority: int, access: str, protocol: str, source: str, port: str, words: str) -> Body:
    properties = {
        "priority": priority,
        "direction": "Inbound",
        "access": access,
        "protocol": protocol,
        "sourceAddressPrefix": source,
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": port,
        "description": words,
    }
    return {"name": name, "properties": properties}
