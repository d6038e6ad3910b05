"""What the machines of one cluster share on EC2: a security group that lets them reach each other, a placement group.

Both are made for one attempt, bear the id of the cluster's first node, and cost nothing. A launch that was refused
takes them away again; so does the end of the last node, once EC2 lets go of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.cluster import node_name
from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_ID, TAG_LEDGER, TAG_OWNER
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.providers.aws.client import Aws, describe, describe_all
from cloudgpu.providers.aws.compute.request import Call
from cloudgpu.providers.aws.compute.translate import tags_of
from cloudgpu.providers.aws.storage.disks import code_of

Raw = Mapping[str, Any]
NOT_FOUND_CODES = ("InvalidPlacementGroup.Unknown", "InvalidGroup.NotFound")
IN_USE = ("InvalidPlacementGroup.InUse", "DependencyViolation", "InvalidGroup.InUse")
NOT_YET_PAUSES_S = (1.0, 2.0, 4.0, 0.0)  # what was just made is not known everywhere at once


@dataclass(frozen=True, slots=True)
class Shared:
    """What was made for one launch: the security group's id, the placement group's name; None where there is none."""

    group: str
    placement: str | None


def shared_name(first: Attempt) -> str:
    """Return the name of both groups, by the attempt of the first node: no two attempts have one, a replay has it."""
    return f"cloudgpu-{first.machine.removesuffix('-0')}-{first.number}"


def make_shared(aws: Aws, first: Attempt, call: Call) -> Shared:
    """Find or make the resources that the nodes of this launch share.

    Raises InvalidRequest where a name is taken by something that is not this cluster's.
    """
    group = _security_group(aws, first, call)
    return Shared(group, _placement_group(aws, first, call) if call.placement else None)


def clear_shared(aws: Aws, cluster: str, region: str) -> bool:
    """Ask to delete both; return whether a look found neither. What machines still use stays, and is no error."""
    placements, groups = list(_placements(aws, region, cluster)), _groups(aws, region, cluster)
    ec2 = aws.ec2(region)
    for one in placements:
        if one.get("State") != "deleting":
            _delete(aws, region, "DeletePlacementGroup", one["GroupName"], ec2.delete_placement_group, "GroupName")
    for one in groups:
        _delete(aws, region, "DeleteSecurityGroup", one["GroupId"], ec2.delete_security_group, "GroupId")
    return not placements and not groups


def _delete(aws: Aws, region: str, action: str, name: str, call: Any, key: str) -> None:
    try:
        with aws.calling(action, region, value=name):
            call(**{key: name})
    except CloudgpuError as error:
        if code_of(error) not in (*NOT_FOUND_CODES, *IN_USE):
            raise


def _of_cluster(cluster: str) -> list[dict[str, Any]]:
    """Return the filter that finds what the nodes share: it is there also where a name is not known."""
    return [{"Name": f"tag:{TAG_ID}", "Values": [node_name(cluster, 0)]}, {"Name": "tag-key", "Values": [TAG_CLUSTER]}]


def _placements(aws: Aws, region: str, cluster: str) -> Iterator[Raw]:
    found = describe(aws, "DescribePlacementGroups", region, value=cluster, Filters=_of_cluster(cluster))
    yield from (one for one in found if one.get("State") != "deleted")


def _groups(aws: Aws, region: str, cluster: str) -> list[Raw]:
    return describe_all(aws, "DescribeSecurityGroups", region, value=cluster, Filters=_of_cluster(cluster))


def _tags(first: Attempt, kind: str) -> list[dict[str, Any]]:
    tags = {"Name": shared_name(first)} | {key: first.tags[key] for key in (TAG_ID, TAG_LEDGER, TAG_OWNER, TAG_CLUSTER)}
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]


# The security group


def _security_group(aws: Aws, first: Attempt, call: Call) -> str:
    """Return the id of the group in which all ports are open to its own members, and to nobody else."""
    made = _existing_group(aws, first, call) or _create_group(aws, first, call) or _existing_group(aws, first, call)
    if made is None:
        raise _name_taken_error(first, call, "security group")
    inside = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": made, "Description": "cloudgpu inside the cluster"}]}
    for pause in NOT_YET_PAUSES_S:
        try:
            with aws.calling("AuthorizeSecurityGroupIngress", call.region, value=made):
                aws.ec2(call.region).authorize_security_group_ingress(GroupId=made, IpPermissions=[inside])
        except InvalidRequest as error:
            if code_of(error) == "InvalidPermission.Duplicate":
                break
            if code_of(error) != "InvalidGroup.NotFound" or not pause:
                raise
            aws.pause(pause)
        else:
            break
    return made


def _existing_group(aws: Aws, first: Attempt, call: Call) -> str | None:
    name = shared_name(first)
    asked = [{"Name": "vpc-id", "Values": [call.vpc]}, {"Name": "group-name", "Values": [name]}]
    found = describe(aws, "DescribeSecurityGroups", call.region, value=name, Filters=asked)
    if not found:
        return None
    return str(_check_ours(found[0], first, call, "security group")["GroupId"])


def _create_group(aws: Aws, first: Attempt, call: Call) -> str | None:
    """Make the group, tagged in the same call; None where another process was first."""
    name = shared_name(first)
    try:
        with aws.calling("CreateSecurityGroup", call.region, value=name):
            answer = aws.ec2(call.region).create_security_group(
                GroupName=name,
                Description="cloudgpu: the machines of one cluster reach each other",
                VpcId=call.vpc,
                TagSpecifications=_tags(first, "security-group"),
            )
    except InvalidRequest as error:
        if code_of(error) != "InvalidGroup.Duplicate":
            raise
        return None
    return str(answer["GroupId"])


# The placement group


def _placement_group(aws: Aws, first: Attempt, call: Call) -> str:
    name = shared_name(first)
    try:
        with aws.calling("CreatePlacementGroup", call.region, value=name):
            aws.ec2(call.region).create_placement_group(
                GroupName=name, Strategy="cluster", TagSpecifications=_tags(first, "placement-group")
            )
    except InvalidRequest as error:
        if code_of(error) != "InvalidPlacementGroup.Duplicate":
            raise
        asked = [{"Name": "group-name", "Values": [name]}]
        found = describe(aws, "DescribePlacementGroups", call.region, value=name, Filters=asked)
        if found:
            _check_ours(found[0], first, call, "placement group")
    return name


def _check_ours(raw: Raw, first: Attempt, call: Call, what: str) -> Raw:
    """Return what bears this cluster's id; raise InvalidRequest for anything else of that name."""
    if tags_of(raw).get(TAG_ID) != first.tags[TAG_ID]:
        raise _name_taken_error(first, call, what)
    return raw


def _name_taken_error(first: Attempt, call: Call, what: str) -> InvalidRequest:
    name = shared_name(first)
    return InvalidRequest(
        f"The {what} {name} in {call.region} is not this cluster's.",
        field="--nodes",
        value=name,
        next="Remove or rename it, and run the same up again.",
    )
