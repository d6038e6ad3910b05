"""What the machines of one cluster share on EC2: a security group that lets them reach each other, a placement group.

Both are created for one attempt, are tagged with the id of the cluster's first node, and cost nothing. A refused launch
deletes them; so does the end of the last node, once no machine uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.cluster import node_name
from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_ID, TAG_LEDGER, TAG_OWNER
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.aws.client import Aws, Raw, describe, describe_all
from cloudgpu.providers.aws.compute.request import Call
from cloudgpu.providers.aws.compute.translate import tags_of
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.aws.network.network import change_new_group, find_or_create_group
from cloudgpu.providers.aws.network.security_group import add_permission
from cloudgpu.providers.aws.storage.disks import tag_specifications
from cloudgpu.providers.shared.errors import Tolerating

NOT_FOUND_CODES = ("InvalidPlacementGroup.Unknown", "InvalidGroup.NotFound")
IN_USE_CODES = ("InvalidPlacementGroup.InUse", "DependencyViolation", "InvalidGroup.InUse")


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


def _tags(first_attempt: Attempt) -> dict[str, str]:
    return {key: first_attempt.tags[key] for key in (TAG_ID, TAG_LEDGER, TAG_OWNER, TAG_CLUSTER)}


# The security group


def _security_group(aws: Aws, first_attempt: Attempt, call: Call) -> str:
    """Return the id of the group in which all ports are open to its own members, and to nobody else."""
    group = find_or_create_group(
        aws,
        call,
        shared_name(first_attempt),
        _tags(first_attempt),
        "cloudgpu: the machines of one cluster reach each other",
        check=lambda raw: _check_ours(raw, first_attempt, call, "security group"),
    )
    if group is None:
        raise _name_taken_error(first_attempt, call, "security group")
    change_new_group(aws, lambda: _open_inside(aws, call.region, group["GroupId"]))
    return str(group["GroupId"])


def _open_inside(aws: Aws, region: str, group_id: str) -> None:
    permission = {
        "IpProtocol": "-1",
        "UserIdGroupPairs": [{"GroupId": group_id, "Description": "cloudgpu inside the cluster"}],
    }
    add_permission(aws, region, group_id, permission, value=group_id)


# The placement group


def _placement_group(aws: Aws, first_attempt: Attempt, call: Call) -> str:
    name = shared_name(first_attempt)
    with (
        Tolerating(code_of, "InvalidPlacementGroup.Duplicate"),
        aws.calling("CreatePlacementGroup", call.region, value=name),
    ):
        aws.ec2(call.region).create_placement_group(
            GroupName=name,
            Strategy="cluster",
            TagSpecifications=tag_specifications(("placement-group",), _tags(first_attempt), name),
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
