"""What the machines of one cluster share on EC2: a security group that lets them reach each other, a placement group.

Both are created for one attempt, are tagged with the id of the cluster's first node, and cost nothing. A refused launch
deletes them; so does the end of the last node, once no machine uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.cluster import node_name
from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_ID, TAG_LEDGER, TAG_OWNER
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.aws.client import Aws, describe, describe_all
from cloudgpu.providers.aws.compute.request import Call
from cloudgpu.providers.aws.compute.translate import tags_of
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.aws.storage.disks import tag_specifications
from cloudgpu.providers.shared.calls import retry
from cloudgpu.providers.shared.errors import Tolerating

Raw = Mapping[str, Any]  # a resource as AWS describes it
NOT_FOUND_CODES = ("InvalidPlacementGroup.Unknown", "InvalidGroup.NotFound")
IN_USE_CODES = ("InvalidPlacementGroup.InUse", "DependencyViolation", "InvalidGroup.InUse")
EVENTUAL_PAUSES_S = (1.0, 2.0, 4.0)  # between tries: EC2 may not find yet what was just created


@dataclass(frozen=True, slots=True)
class Shared:
    """What the nodes of one launch share: the id of a security group, and the name of a placement group or None."""

    group: str
    placement: str | None


def shared_name(first_attempt: Attempt) -> str:
    """Return the name of both groups, by the first node's attempt: a replay has the same, another attempt not."""
    return f"cloudgpu-{first_attempt.machine.removesuffix('-0')}-{first_attempt.number}"


def make_shared(aws: Aws, first_attempt: Attempt, call: Call) -> Shared:
    """Find or make the resources that the nodes of this launch share.

    Raises InvalidRequest where a name is taken by something that is not this cluster's.
    """
    return Shared(
        _security_group(aws, first_attempt, call),
        _placement_group(aws, first_attempt, call) if call.placement else None,
    )


def clear_shared(aws: Aws, cluster: str, region: str) -> bool:
    """Ask to delete both; return whether neither was found. What machines still use stays, and is no error."""
    # by these tags they are found also where their names are not known
    filters = [
        {"Name": f"tag:{TAG_ID}", "Values": [node_name(cluster, 0)]},
        {"Name": "tag-key", "Values": [TAG_CLUSTER]},
    ]
    placement_groups = describe(aws, "DescribePlacementGroups", region, value=cluster, Filters=filters)
    placements = [one for one in placement_groups if one.get("State") != "deleted"]
    groups = describe_all(aws, "DescribeSecurityGroups", region, value=cluster, Filters=filters)
    ec2 = aws.ec2(region)
    for one in placements:
        if one.get("State") != "deleting":
            _delete(aws, region, "DeletePlacementGroup", one["GroupName"], ec2.delete_placement_group, "GroupName")
    for one in groups:
        _delete(aws, region, "DeleteSecurityGroup", one["GroupId"], ec2.delete_security_group, "GroupId")
    return not placements and not groups


def _delete(aws: Aws, region: str, action: str, name: str, delete: Any, key: str) -> None:
    with Tolerating(code_of, *NOT_FOUND_CODES, *IN_USE_CODES), aws.calling(action, region, value=name):
        delete(**{key: name})


def _tags(first_attempt: Attempt, kind: str) -> list[dict[str, Any]]:
    tags = {key: first_attempt.tags[key] for key in (TAG_ID, TAG_LEDGER, TAG_OWNER, TAG_CLUSTER)}
    return tag_specifications((kind,), tags, shared_name(first_attempt))


# The security group


def _security_group(aws: Aws, first_attempt: Attempt, call: Call) -> str:
    """Return the id of the group in which all ports are open to its own members, and to nobody else."""
    id_ = (
        _existing_group(aws, first_attempt, call)
        or _create_group(aws, first_attempt, call)
        or _existing_group(aws, first_attempt, call)
    )
    if id_ is None:
        raise _name_taken_error(first_attempt, call, "security group")
    retry(
        lambda: _open_inside(aws, call.region, id_),
        len(EVENTUAL_PAUSES_S) + 1,
        after=lambda error: code_of(error) == "InvalidGroup.NotFound",
        pause=lambda tries: aws.pause(EVENTUAL_PAUSES_S[tries - 1]),
    )
    return id_


def _open_inside(aws: Aws, region: str, group_id: str) -> None:
    permission = {
        "IpProtocol": "-1",
        "UserIdGroupPairs": [{"GroupId": group_id, "Description": "cloudgpu inside the cluster"}],
    }
    with (
        Tolerating(code_of, "InvalidPermission.Duplicate"),
        aws.calling("AuthorizeSecurityGroupIngress", region, value=group_id),
    ):
        aws.ec2(region).authorize_security_group_ingress(GroupId=group_id, IpPermissions=[permission])


def _existing_group(aws: Aws, first_attempt: Attempt, call: Call) -> str | None:
    name = shared_name(first_attempt)
    filters = [{"Name": "vpc-id", "Values": [call.vpc]}, {"Name": "group-name", "Values": [name]}]
    found = describe(aws, "DescribeSecurityGroups", call.region, value=name, Filters=filters)
    if not found:
        return None
    _check_ours(found[0], first_attempt, call, "security group")
    return str(found[0]["GroupId"])


def _create_group(aws: Aws, first_attempt: Attempt, call: Call) -> str | None:
    """Make the group, tagged in the same call; None where another process was first."""
    name = shared_name(first_attempt)
    with Tolerating(code_of, "InvalidGroup.Duplicate"), aws.calling("CreateSecurityGroup", call.region, value=name):
        answer = aws.ec2(call.region).create_security_group(
            GroupName=name,
            Description="cloudgpu: the machines of one cluster reach each other",
            VpcId=call.vpc,
            TagSpecifications=_tags(first_attempt, "security-group"),
        )
        return str(answer["GroupId"])
    return None


# The placement group


def _placement_group(aws: Aws, first_attempt: Attempt, call: Call) -> str:
    name = shared_name(first_attempt)
    with (
        Tolerating(code_of, "InvalidPlacementGroup.Duplicate"),
        aws.calling("CreatePlacementGroup", call.region, value=name),
    ):
        aws.ec2(call.region).create_placement_group(
            GroupName=name, Strategy="cluster", TagSpecifications=_tags(first_attempt, "placement-group")
        )
        return name
    filters = [{"Name": "group-name", "Values": [name]}]
    for one in describe(aws, "DescribePlacementGroups", call.region, value=name, Filters=filters):
        _check_ours(one, first_attempt, call, "placement group")
    return name


def _check_ours(raw: Raw, first_attempt: Attempt, call: Call, resource_label: str) -> None:
    """Raise InvalidRequest for a resource without the id of this cluster as its tag."""
    if tags_of(raw).get(TAG_ID) != first_attempt.tags[TAG_ID]:
        raise _name_taken_error(first_attempt, call, resource_label)


def _name_taken_error(first_attempt: Attempt, call: Call, resource_label: str) -> InvalidRequest:
    name = shared_name(first_attempt)
    return InvalidRequest(
        f"The {resource_label} {name} in {call.region} is not this cluster's.",
        field="--nodes",
        value=name,
        next="Remove or rename it, and run the same up again.",
    )
