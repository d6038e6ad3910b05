"""Lets networks reach machines, or no longer, by changing the rules of our own security group.

The new rule is added before the old is removed. All machines of one owner in a VPC share the group; it has the tag
cloudgpu-owner. A machine in somebody else's group is left alone.

A rule's description is `cloudgpu caller`, or `cloudgpu caller, share cg-1f2e.k3d9`: EC2 keeps one rule per port and
network, so labels with the same network share one rule. Rules with any other description are somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_OWNER
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import Aws, describe, describe_instances
from cloudgpu.providers.aws.compute.translate import ENDED_STATES, tags_of
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.shared.errors import Tolerating
from cloudgpu.providers.shared.rules import CALLER, INSIDE, OpenRule, is_open_to_all

MAX_DESCRIPTION = 255  # characters of a description (EC2's API reference, IpRange)
_DESCRIPTION_PREFIX = "cloudgpu "
_PLAIN_LABELS = re.compile(rf"(?:{CALLER}|{INSIDE})(-\d+)?")
_SHARE_LABEL = re.compile(r"share ([a-z0-9][a-z0-9._-]{0,99})")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of ours: TCP from this network to these ports; `labels`: `caller`, and names given to `share`."""

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
    """The changes of a group's rules, made in this order, so that nobody is locked out in between.

    `renamed` are rules of the same network and ports with other labels.
    """

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


def changes(rules: Sequence[Rule], cidr_by_label: Mapping[str, str | None], port: int) -> Changes:
    """Return the changes after which each label has this CIDR and no other; a CIDR of None: no rule at all."""
    labels_before = {(rule.cidr, rule.first_port, rule.last_port): rule.labels for rule in rules}
    new_labels = {
        key: [label for label in labels if label not in cidr_by_label] for key, labels in labels_before.items()
    }
    for label, cidr in cidr_by_label.items():
        if cidr is not None:
            new_labels.setdefault((cidr, port, port), []).append(label)
    labels_after = {key: tuple(sorted(labels)) for key, labels in new_labels.items() if labels}
    return Changes(
        added=tuple(Rule(*key, labels) for key, labels in labels_after.items() if key not in labels_before),
        renamed=tuple(
            Rule(*key, labels)
            for key, labels in labels_after.items()
            if key in labels_before and set(labels_before[key]) != set(labels)
        ),
        removed=tuple(Rule(*key, labels) for key, labels in labels_before.items() if key not in labels_after),
    )


def description(labels: Sequence[str]) -> str:
    """Return the description of a rule for these labels; raise InvalidRequest for labels that cannot be in one."""
    label_texts = [label if _PLAIN_LABELS.fullmatch(label) else f"share {label}" for label in labels]
    text = _DESCRIPTION_PREFIX + ", ".join(label_texts)
    if _labels(text) != tuple(labels):
        labels_text = ", ".join(labels)
        raise InvalidRequest(
            f"{labels_text!r} cannot label a rule.",
            field="label",
            value=labels_text,
            next="Use a-z, 0-9, dot, _ and -.",
        )
    if len(text) > MAX_DESCRIPTION:
        raise InvalidRequest(
            f"{len(labels)} keys are let in from one network already, and a rule of EC2 can name no more.",
            field="--from",
            value=None,
            next="Take one out (cloudgpu share NAME --remove), or name a wider network with --from.",
        )
    return text


def is_ours(group: Mapping[str, Any], owner: str) -> bool:
    """Say whether a group is the one that cloudgpu keeps for this owner (the value of the tag cloudgpu-owner).

    That of a cluster is not: nobody is let in to it.
    """
    tags = tags_of(group)
    return tags.get(TAG_OWNER) == owner and TAG_CLUSTER not in tags


def open_rules(group: Mapping[str, Any], region: str) -> tuple[OpenRule, ...]:
    """Return the rules of a group of ours, not made by cloudgpu, that let everybody in, or a prefix list or a group."""
    return tuple(
        _open_rule(group, region, permission, key, source, source_text)
        for permission in group.get("IpPermissions", ())
        for key, source, source_text in _foreign_sources(group, permission)
    )


def _foreign_sources(group: Mapping[str, Any], permission: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the sources of a permission without a label of ours: its key and value in EC2's syntax, and its text."""
    for source in permission.get("IpRanges", ()):
        if is_open_to_all(source["CidrIp"]) and not _labels(source.get("Description", "")):
            yield "IpRanges", f"CidrIp={source['CidrIp']}", f"everybody ({source['CidrIp']})"
    for source in permission.get("Ipv6Ranges", ()):
        if is_open_to_all(source["CidrIpv6"]):
            yield "Ipv6Ranges", f"CidrIpv6={source['CidrIpv6']}", f"everybody ({source['CidrIpv6']})"
    for source in permission.get("PrefixListIds", ()):
        name = source["PrefixListId"]
        yield "PrefixListIds", f"PrefixListId={name}", f"the networks of the prefix list {name} (not read)"
    for source in permission.get("UserIdGroupPairs", ()):
        name = source.get("GroupId")
        if name and name != group["GroupId"]:
            yield "UserIdGroupPairs", f"GroupId={name}", f"the machines of the security group {name}"


def _open_rule(
    group: Mapping[str, Any], region: str, permission: Mapping[str, Any], key: str, source: str, source_text: str
) -> OpenRule:
    protocol, first_port, last_port = permission["IpProtocol"], permission.get("FromPort"), permission.get("ToPort")
    ports = "" if protocol == "-1" or first_port is None else f",FromPort={first_port},ToPort={last_port}"
    ports_text = (
        "every port"
        if not ports or (first_port, last_port) in ((0, 65535), (-1, -1))
        else f"{protocol} port {first_port}"
    )
    ports_text += f" to {last_port}" if ports and first_port != last_port and "every" not in ports_text else ""
    name = f"{group.get('GroupName', group['GroupId'])} ({group['GroupId']}, {region})"
    return OpenRule(
        f"the security group {name} lets {source_text} reach {ports_text}, by a rule that is not cloudgpu's",
        f"aws ec2 revoke-security-group-ingress --region {region} --group-id {group['GroupId']} "
        f"--ip-permissions 'IpProtocol={protocol}{ports},{key}=[{{{source}}}]'",
    )


def _labels(text: str) -> tuple[str, ...]:
    """Return the labels that a description names; none, where cloudgpu did not write it."""
    found = (
        [_label(label_text) for label_text in text[len(_DESCRIPTION_PREFIX) :].split(", ")]
        if text.startswith(_DESCRIPTION_PREFIX)
        else []
    )
    return tuple(label for label in found if label) if all(found) else ()


def _label(label_text: str) -> str | None:
    if _PLAIN_LABELS.fullmatch(label_text):
        return label_text
    share_match = _SHARE_LABEL.fullmatch(label_text)
    return share_match[1] if share_match else None


def allowed(aws: Aws, id: str) -> Mapping[str, str]:  # noqa: A002
    """Return the CIDR per label that may reach SSH; empty where another's group decides. Raises InstanceNotFound."""
    _, group = _region_and_group(aws, id)
    port = aws.options.ssh_port
    ssh_rules = [rule for rule in rules(group or {}) if rule.first_port <= port <= rule.last_port]
    return {label: rule.cidr for rule in ssh_rules for label in rule.labels}


def allow(aws: Aws, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
    """Let this CIDR in under this label in place of the one before; None removes it.

    Raises InstanceNotFound, InvalidRequest where somebody else's security group decides.
    """
    region, group = _region_and_group(aws, id)
    if group is None:
        raise InvalidRequest(
            f"Somebody else's security group decides who may connect to {id}: cloudgpu does not change it.",
            field="--security-group",
            value=id,
            next="Ask whoever keeps that group to let the address in, or launch without --security-group.",
        )
    admit(aws, region, group, {label: cidr})


def admit(aws: Aws, region: str, group: Mapping[str, Any], cidr_by_label: Mapping[str, str | None]) -> None:
    """Make a group (as DescribeSecurityGroups returns it) let each label in from its CIDR, from nowhere for None.

    No call where that is so already. Rules of other labels stay. Raises InvalidRequest for an invalid label.
    """
    planned = changes(rules(group), cidr_by_label, aws.options.ssh_port)
    if not _apply(aws, region, group["GroupId"], planned):  # another process changed it, or the rule is not ours
        group = _groups(aws, region, [group["GroupId"]])[0]
        _apply(aws, region, group["GroupId"], changes(rules(group), cidr_by_label, aws.options.ssh_port))


def _region_and_group(aws: Aws, id: str) -> tuple[str, Mapping[str, Any] | None]:  # noqa: A002
    """Return a machine's region and its group of ours; None for the group where it has none."""
    region, native_id = ids.split_machine_id(id)
    machine = _machine(aws, region, native_id)
    owner = tags_of(machine).get(TAG_OWNER, "")
    group_ids = [group["GroupId"] for group in machine.get("SecurityGroups", ())]
    found = _groups(aws, region, group_ids) if group_ids else []
    return region, next((group for group in found if is_ours(group, owner)), None)


def _machine(aws: Aws, region: str, native_id: str) -> Mapping[str, Any]:
    found = describe_instances(aws, region, value=native_id, InstanceIds=[native_id])
    if not found or found[0]["State"]["Name"] in ENDED_STATES:
        raise InstanceNotFound(f"AWS {region} has no machine {native_id} any more.", field="id", value=native_id)
    return found[0]


def _groups(aws: Aws, region: str, ids: Sequence[str]) -> list[Mapping[str, Any]]:
    return describe(aws, "DescribeSecurityGroups", region, GroupIds=list(ids))


def _apply(aws: Aws, region: str, group_id: str, planned: Changes) -> bool:
    """Change the rules; return False where one to be added existed already."""
    ec2, was_added = aws.ec2(region), True
    for rule in planned.added:
        was_added &= add_permission(aws, region, group_id, rule.permission(), value=rule.cidr)
    if planned.renamed:
        permissions = [rule.permission() for rule in planned.renamed]
        with aws.calling("UpdateSecurityGroupRuleDescriptionsIngress", region):
            ec2.update_security_group_rule_descriptions_ingress(GroupId=group_id, IpPermissions=permissions)
    for rule in planned.removed:
        with (
            Tolerating(code_of, "InvalidPermission.NotFound"),
            aws.calling("RevokeSecurityGroupIngress", region, value=rule.cidr),
        ):
            ec2.revoke_security_group_ingress(GroupId=group_id, IpPermissions=[rule.permission()])
    return was_added


def add_permission(aws: Aws, region: str, group_id: str, permission: Mapping[str, Any], *, value: str) -> bool:
    """Add a permission to a group; return False where it existed already. `value` is what it is about, for errors."""
    with (
        Tolerating(code_of, "InvalidPermission.Duplicate"),
        aws.calling("AuthorizeSecurityGroupIngress", region, value=value),
    ):
        aws.ec2(region).authorize_security_group_ingress(GroupId=group_id, IpPermissions=[permission])
        return True
    return False
