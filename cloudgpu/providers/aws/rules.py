"""The rules of our own security group, and what to change in them. Pure: `access` does the talking.

A rule's description is `cloudgpu caller`, or `cloudgpu caller, share cg-1f2e.k3d9`: EC2 keeps one rule per port and
network, so labels that come from one network stand in one rule. Rules without our words are somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.instances import TAG_OWNER
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.callers import CALLER, INSIDE
from cloudgpu.providers.openings import Opening, is_wide

LONGEST = 255  # characters of a description (EC2's API reference, IpRange)
_OURS = "cloudgpu "
_OWN_WORDS = re.compile(rf"{CALLER}(-\d+)?|{INSIDE}")
_SHARED = re.compile(r"share ([a-z0-9][a-z0-9._-]{0,99})")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of ours: TCP from this network to these ports, and for whom."""

    cidr: str
    first_port: int
    last_port: int
    labels: tuple[str, ...]

    def permission(self) -> dict[str, Any]:
        """Return it as EC2's calls take it."""
        source = {"CidrIp": self.cidr, "Description": description(self.labels)}
        return {"IpProtocol": "tcp", "FromPort": self.first_port, "ToPort": self.last_port, "IpRanges": [source]}


@dataclass(frozen=True, slots=True)
class Changes:
    """What makes a group's rules what they are to be; to be done in this order, so that nobody is out in between."""

    added: tuple[Rule, ...] = ()
    renamed: tuple[Rule, ...] = ()
    removed: tuple[Rule, ...] = ()


def rules(group: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Return the rules of ours in a group."""
    found = [
        Rule(source["CidrIp"], permission["FromPort"], permission["ToPort"], _labels(source.get("Description", "")))
        for permission in group.get("IpPermissions", ())
        if permission["IpProtocol"] == "tcp"
        for source in permission.get("IpRanges", ())
    ]
    return tuple(rule for rule in found if rule.labels)


def changes(found: Sequence[Rule], wanted: Mapping[str, str | None], port: int) -> Changes:
    """Return what leads from the rules found to those where each label of `wanted` has its CIDR and no other."""
    before = {(rule.cidr, rule.first_port, rule.last_port): rule.labels for rule in found}
    after = {key: [label for label in labels if label not in wanted] for key, labels in before.items()}
    for label, cidr in wanted.items():
        if cidr is not None:
            after.setdefault((cidr, port, port), []).append(label)
    kept = {key: tuple(sorted(labels)) for key, labels in after.items() if labels}
    return Changes(
        added=tuple(Rule(*key, labels) for key, labels in kept.items() if key not in before),
        renamed=tuple(
            Rule(*key, labels) for key, labels in kept.items() if key in before and set(before[key]) != set(labels)
        ),
        removed=tuple(Rule(*key, labels) for key, labels in before.items() if key not in kept),
    )


def description(labels: Sequence[str]) -> str:
    """Return the description of a rule for these labels; raise InvalidRequest for what cannot stand in one."""
    words = [label if _OWN_WORDS.fullmatch(label) else f"share {label}" for label in labels]
    text = _OURS + ", ".join(words)
    if _labels(text) != tuple(labels):
        bad = ", ".join(labels)
        raise InvalidRequest(
            f"{bad!r} cannot label a rule.", field="label", value=bad, next="Use a-z, 0-9, dot, _ and -."
        )
    if len(text) > LONGEST:
        raise InvalidRequest(
            f"{len(labels)} keys are let in from one network already, and a rule of EC2 can name no more.",
            field="--from",
            value=None,
            next="Take one out (cloudgpu share NAME --remove), or name a wider network with --from.",
        )
    return text


def is_ours(group: Mapping[str, Any], owner: str) -> bool:
    """Say whether a group is the one that cloudgpu keeps for this owner (the value of the tag cloudgpu-owner)."""
    return {"Key": TAG_OWNER, "Value": owner} in list(group.get("Tags", ()))


def openings(group: Mapping[str, Any], region: str) -> tuple[Opening, ...]:
    """Return the rules of a group of ours that cloudgpu did not make and that let everybody, or others' lists, in."""
    return tuple(
        _opening(group, region, permission, key, source, whom)
        for permission in group.get("IpPermissions", ())
        for key, source, whom in _strangers(group, permission)
    )


def _strangers(group: Mapping[str, Any], permission: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield whom a permission lets in that no label of ours names, as the key and value of EC2's, and in words."""
    for source in permission.get("IpRanges", ()):
        if is_wide(source["CidrIp"]) and not _labels(source.get("Description", "")):
            yield "IpRanges", f"CidrIp={source['CidrIp']}", f"everybody ({source['CidrIp']})"
    for source in permission.get("Ipv6Ranges", ()):
        if is_wide(source["CidrIpv6"]):
            yield "Ipv6Ranges", f"CidrIpv6={source['CidrIpv6']}", f"everybody ({source['CidrIpv6']})"
    for source in permission.get("PrefixListIds", ()):
        name = source["PrefixListId"]
        yield (
            "PrefixListIds",
            f"PrefixListId={name}",
            f"the networks of the prefix list {name} (not read)",
        )
    for source in permission.get("UserIdGroupPairs", ()):
        name = source.get("GroupId")
        if name and name != group["GroupId"]:
            yield "UserIdGroupPairs", f"GroupId={name}", f"the machines of the security group {name}"


def _opening(
    group: Mapping[str, Any], region: str, permission: Mapping[str, Any], key: str, source: str, whom: str
) -> Opening:
    protocol, first, last = permission["IpProtocol"], permission.get("FromPort"), permission.get("ToPort")
    ports = "" if protocol == "-1" or first is None else f",FromPort={first},ToPort={last}"
    which = "every port" if not ports or (first, last) in ((0, 65535), (-1, -1)) else f"{protocol} port {first}"
    which += f" to {last}" if ports and first != last and "every" not in which else ""
    name = f"{group.get('GroupName', group['GroupId'])} ({group['GroupId']}, {region})"
    return Opening(
        f"the security group {name} lets {whom} reach {which}, by a rule that is not cloudgpu's",
        f"aws ec2 revoke-security-group-ingress --region {region} --group-id {group['GroupId']} "
        f"--ip-permissions 'IpProtocol={protocol}{ports},{key}=[{{{source}}}]'",
    )


def _labels(text: str) -> tuple[str, ...]:
    """Return the labels that a description names; none, where it is not ours word for word."""
    found = [_label(word) for word in text[len(_OURS) :].split(", ")] if text.startswith(_OURS) else []
    return tuple(label for label in found if label) if all(found) else ()


def _label(word: str) -> str | None:
    if _OWN_WORDS.fullmatch(word):
        return word
    shared = _SHARED.fullmatch(word)
    return shared[1] if shared else None
