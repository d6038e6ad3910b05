"""Lets addresses in to machines, and out: changes our own security group's rules, the new before the old.

The group is shared by all machines of one owner in a VPC; it bears the tag cloudgpu-owner. A machine in somebody
else's group is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.instances import TAG_OWNER
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.rules import Changes, changes, is_ours, rules

if TYPE_CHECKING:
    from cloudgpu.providers.aws.client import Aws

_GONE = ("terminated", "shutting-down")


def allowed(aws: Aws, id: str) -> Mapping[str, str]:  # noqa: A002
    """Return the CIDR per label that may reach SSH; empty where somebody else's group decides. InstanceNotFound."""
    _, group = _group_of(aws, id)
    port = aws.options.ssh_port
    open_here = [rule for rule in rules(group or {}) if rule.first_port <= port <= rule.last_port]
    return {label: rule.cidr for rule in open_here for label in rule.labels}


def allow(aws: Aws, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
    """Let this CIDR in under this label in place of the one before; None takes it out.

    Raises InstanceNotFound, InvalidRequest where somebody else's security group decides.
    """
    region, group = _group_of(aws, id)
    if group is None:
        raise InvalidRequest(
            f"Somebody else's security group decides who may connect to {id}: cloudgpu does not change it.",
            field="--security-group",
            value=id,
            next="Ask whoever keeps that group to let the address in, or launch without --security-group.",
        )
    admit(aws, region, group, {label: cidr})


def admit(aws: Aws, region: str, group: Mapping[str, Any], wanted: Mapping[str, str | None]) -> None:
    """Make a group (as DescribeSecurityGroups says it) let each label in from its CIDR, from nowhere for None.

    No call where that is so already. Rules of other labels stay. Raises InvalidRequest for a label that is none.
    """
    planned = changes(rules(group), wanted, aws.options.ssh_port)
    if not _carried_out(aws, region, group["GroupId"], planned):  # another process was at it, or the rule is not ours
        group = _groups(aws, region, [group["GroupId"]])[0]
        _carried_out(aws, region, group["GroupId"], changes(rules(group), wanted, aws.options.ssh_port))


def _group_of(aws: Aws, id: str) -> tuple[str, Mapping[str, Any] | None]:  # noqa: A002
    """Return a machine's region and its group of ours; None for the group where it has none."""
    region, own = ids.machine(id)
    machine = _machine(aws, region, own)
    owner = next((tag["Value"] for tag in machine.get("Tags", ()) if tag["Key"] == TAG_OWNER), "")
    named = [group["GroupId"] for group in machine.get("SecurityGroups", ())]
    found = _groups(aws, region, named) if named else []
    return region, next((group for group in found if is_ours(group, owner)), None)


def _machine(aws: Aws, region: str, own: str) -> Mapping[str, Any]:
    with aws.said("DescribeInstances", region, value=own):
        answer = aws.ec2(region).describe_instances(InstanceIds=[own])
    found = [one for reservation in answer["Reservations"] for one in reservation["Instances"]]
    if not found or found[0]["State"]["Name"] in _GONE:
        raise InstanceNotFound(f"AWS {region} has no machine {own} any more.", field="id", value=own)
    machine: Mapping[str, Any] = found[0]
    return machine


def _groups(aws: Aws, region: str, ids: Sequence[str]) -> list[Mapping[str, Any]]:
    with aws.said("DescribeSecurityGroups", region):
        found: list[Mapping[str, Any]] = aws.ec2(region).describe_security_groups(GroupIds=list(ids))["SecurityGroups"]
    return found


def _carried_out(aws: Aws, region: str, group: str, planned: Changes) -> bool:
    """Change the rules; return False where one that was to be added stood there already."""
    ec2 = aws.ec2(region)
    new = True
    for rule in planned.added:
        with aws.said("AuthorizeSecurityGroupIngress", region, value=rule.cidr):
            new &= _unless(
                "InvalidPermission.Duplicate", ec2.authorize_security_group_ingress, group, [rule.permission()]
            )
    if planned.renamed:
        named = [rule.permission() for rule in planned.renamed]
        with aws.said("UpdateSecurityGroupRuleDescriptionsIngress", region):
            ec2.update_security_group_rule_descriptions_ingress(GroupId=group, IpPermissions=named)
    for rule in planned.removed:
        with aws.said("RevokeSecurityGroupIngress", region, value=rule.cidr):
            _unless("InvalidPermission.NotFound", ec2.revoke_security_group_ingress, group, [rule.permission()])
    return new


def _unless(code: str, call: Any, group: str, permissions: list[dict[str, Any]]) -> bool:
    """Make the call; return False where it was refused with this code: what it asks for is so already."""
    from botocore.exceptions import ClientError

    try:
        call(GroupId=group, IpPermissions=permissions)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != code:
            raise
        return False
    return True
