"""What launches leave on EC2 beside machines, disks, images: addresses, interfaces, groups, key pairs, requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.parallel import Pool
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import (
    MAX_FILTER_VALUES,
    PROVIDER,
    Aws,
    Raw,
    batches,
    describe,
    describe_all,
    describe_instances,
)
from cloudgpu.providers.aws.compute.translate import our_tags, tags_of
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.shared.errors import Tolerating, invalid_id_error

ADDRESS = "public_ipv4"  # as the price list calls it: AWS bills every public IPv4 address, used or not
ACTIVE_REQUEST_STATES = ("open", "active", "disabled")  # states in which a spot request may launch, or keeps, a machine
_TERMINATED = ("instance-terminated", "spot-instance-terminated")  # codes of a request's status
_NOT_FOUND_CODES = frozenset(
    "InvalidAllocationID.NotFound InvalidNetworkInterfaceID.NotFound InvalidGroup.NotFound "
    "InvalidSecurityGroupID.NotFound InvalidKeyPair.NotFound InvalidSpotInstanceRequestID.NotFound "
    "InvalidPlacementGroup.Unknown InvalidPlacementGroupId.Unknown".split()
)


@dataclass(frozen=True, slots=True)
class _Query:
    """A query of a region: the action, and the tag and states that filter it; `paged`: it may have several pages."""

    action: str
    tag: str = TAG_LEDGER
    paged: bool = True
    states: tuple[str, ...] = ()

    def filters(self) -> list[dict[str, Any]]:
        states = [{"Name": "state", "Values": list(self.states)}] if self.states else []
        return [{"Name": "tag-key", "Values": [self.tag]}, *states]


_QUERIES = (
    _Query("DescribeAddresses", paged=False),
    _Query("DescribeNetworkInterfaces"),
    _Query("DescribeSecurityGroups"),
    _Query("DescribeKeyPairs", paged=False),
    _Query("DescribeSpotInstanceRequests", tag=TAG_ID, states=ACTIVE_REQUEST_STATES),
    _Query("DescribePlacementGroups", paged=False, states=("pending", "available", "deleting")),
)


def orphans(aws: Aws, region: str | None) -> ResourceListing:
    """Return these resources with our tags, in use or not, by six calls per region, and who did not answer.

    One more in a region with placement groups of ours: it says which machines use them.
    """
    regions = aws.regions() if region is None else (region,)
    answers, unanswered = aws.ask_each(regions, lambda one: _orphans_in(aws, one))
    return ResourceListing(
        tuple(orphan for found in answers.values() for orphan in found), unanswered, frozenset(regions)
    )


def _orphans_in(aws: Aws, region: str) -> list[ProviderResource]:
    def send_query(query: _Query) -> list[Raw]:
        return (describe_all if query.paged else describe)(aws, query.action, region, Filters=query.filters())

    with Pool(len(_QUERIES)) as pool:
        addresses, interfaces, groups, keys, requests, placements = pool.map(send_query, _QUERIES)
    user_by_group = _placement_group_users(aws, region, [one["GroupName"] for one in placements])
    return [
        *(_address(aws, region, one) for one in addresses),
        *(_interface(aws, region, one) for one in interfaces),
        *(_group(aws, region, one, interfaces) for one in groups),
        *(_key_pair(aws, region, one) for one in keys),
        *(_request(aws, region, one) for one in requests),
        *(_placement_group(aws, region, one, user_by_group) for one in placements),
    ]


def _address(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    used_by = raw.get("InstanceId") or raw.get("NetworkInterfaceId") or None
    # An address is billed as one unit of what it is `stored_as`.
    fields = {"stored_as": ADDRESS, "size_gb": 1, "name": raw.get("PublicIp", ""), "attached_to": used_by}
    return _orphan(aws, region, raw, Kind.ADDRESS, raw["AllocationId"], **fields)


def _interface(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    named = {**raw, "Tags": raw.get("TagSet", ())}  # where EC2 has an interface's tags
    fields = {"zone": raw.get("AvailabilityZone", ""), "attached_to": _interface_user(raw)}
    return _orphan(aws, region, named, Kind.INTERFACE, raw["NetworkInterfaceId"], **fields)


def _group(aws: Aws, region: str, raw: Raw, interfaces: Sequence[Raw]) -> ProviderResource:
    """Return a group; it is used as long as an interface is in it, whatever has become of the machine."""
    native_id = raw["GroupId"]
    members = [one for one in interfaces if any(group["GroupId"] == native_id for group in one.get("Groups", ()))]
    used_by = next((_interface_user(one) or one["NetworkInterfaceId"] for one in members), None)
    return _orphan(aws, region, raw, Kind.SECURITY_GROUP, native_id, name=raw["GroupName"], attached_to=used_by)


def _key_pair(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    created = raw.get("CreateTime")
    return _orphan(aws, region, raw, Kind.KEY_PAIR, raw["KeyPairId"], name=raw["KeyName"], made_at=created)


def _request(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    """Return a spot request; one whose machine was terminated still names that.

    An open one may hold a machine that EC2 has stopped: whoever cancels it then ends that machine (EC2 user guide,
    "Cancel a Spot Instance request").
    """
    is_terminated = raw.get("Status", {}).get("Code", "").startswith(_TERMINATED)
    machine = None if is_terminated else raw.get("InstanceId")
    created, native_id = raw.get("CreateTime"), raw["SpotInstanceRequestId"]
    return _orphan(aws, region, raw, Kind.SPOT_REQUEST, native_id, made_at=created, attached_to=machine)


def _placement_group_users(aws: Aws, region: str, names: Sequence[str]) -> Mapping[str, str]:
    """Return a machine for each placement group that is in use; one that is shutting down still uses it.

    One call for 195 groups, none without any.
    """
    states = ["pending", "running", "stopping", "stopped", "shutting-down"]
    machines = (
        machine
        for batch in batches(names, MAX_FILTER_VALUES - len(states))  # the values of all filters count
        for machine in describe_instances(
            aws,
            region,
            Filters=[
                {"Name": "placement-group-name", "Values": batch},
                {"Name": "instance-state-name", "Values": states},
            ],
        )
    )
    return {one["Placement"]["GroupName"]: one["InstanceId"] for one in machines}


def _placement_group(aws: Aws, region: str, raw: Raw, user_by_group: Mapping[str, str]) -> ProviderResource:
    name = raw["GroupName"]
    fields = {"name": name, "attached_to": user_by_group.get(name), "ready": raw.get("State") == "available"}
    return _orphan(aws, region, raw, Kind.PLACEMENT_GROUP, raw["GroupId"], **fields)


def _interface_user(interface: Raw) -> str | None:
    """Return what an interface is attached to: a machine, or whatever else AWS names. None where it is free."""
    attached = interface.get("Attachment") or {}
    if interface.get("Status") == "available" or not attached:
        return None
    return str(attached.get("InstanceId") or attached.get("AttachmentId") or "in use")


def _orphan(aws: Aws, region: str, raw: Raw, kind: Kind, native_id: str, **facts: Any) -> ProviderResource:
    used_by = facts.pop("attached_to", None)
    fields = {"zone": "", "name": "", "size_gb": 0, "stored_as": "", **facts}
    return ProviderResource(
        provider=PROVIDER,
        account=aws.account,
        region=region,
        id=ids.join_id(region, native_id),
        kind=kind,
        tags=our_tags(tags_of(raw)),
        attached_to=ids.join_id(region, used_by) if used_by else None,
        **fields,
    )


def remove(aws: Aws, orphan: ProviderResource) -> None:
    """Ask to delete it; what is gone already is no error. Raises InvalidRequest while something uses it.

    The machine of a spot request goes on: only the request ends.
    """
    region, native_id = _split_id(orphan)
    ec2 = aws.ec2(region)
    calls: dict[Kind, tuple[str, Callable[[], object]]] = {
        Kind.ADDRESS: ("ReleaseAddress", lambda: ec2.release_address(AllocationId=native_id)),
        Kind.INTERFACE: ("DeleteNetworkInterface", lambda: ec2.delete_network_interface(NetworkInterfaceId=native_id)),
        Kind.SECURITY_GROUP: ("DeleteSecurityGroup", lambda: ec2.delete_security_group(GroupId=native_id)),
        Kind.KEY_PAIR: ("DeleteKeyPair", lambda: ec2.delete_key_pair(KeyPairId=native_id)),
        Kind.SPOT_REQUEST: (
            "CancelSpotInstanceRequests",
            lambda: ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[native_id]),
        ),
        Kind.PLACEMENT_GROUP: ("DeletePlacementGroup", lambda: _remove_placement_group(ec2, native_id)),
    }
    action, call = calls[orphan.kind]
    with Tolerating(code_of, *_NOT_FOUND_CODES), aws.calling(action, region, value=orphan.id):
        call()


def _remove_placement_group(ec2: Any, native_id: str) -> None:
    """Delete a placement group by the name that its id has now: EC2 deletes by names alone."""
    for found in ec2.describe_placement_groups(GroupIds=[native_id])["PlacementGroups"]:
        ec2.delete_placement_group(GroupName=found["GroupName"])


_PREFIXES = {
    Kind.ADDRESS: "eipalloc-",
    Kind.INTERFACE: "eni-",
    Kind.SECURITY_GROUP: "sg-",
    Kind.KEY_PAIR: "key-",
    Kind.SPOT_REQUEST: "sir-",
    Kind.PLACEMENT_GROUP: "pg-",
}


def _split_id(orphan: ProviderResource) -> tuple[str, str]:
    """Return the region and AWS's own id. Raises InvalidRequest for any other id."""
    region, _, native_id = orphan.id.partition("/")
    prefix = _PREFIXES.get(orphan.kind)
    if prefix is None or not ids.REGION.fullmatch(region) or not native_id.startswith(prefix):
        raise invalid_id_error(orphan.id, f"a {orphan.kind} on AWS", "Run: cloudgpu orphans")
    return region, native_id
