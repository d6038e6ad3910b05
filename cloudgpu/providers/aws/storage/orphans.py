"""What launches leave on EC2 beside machines, disks, images: addresses, interfaces, groups, key pairs, requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import KIND, Aws, pages
from cloudgpu.providers.aws.compute.translate import TAG_PREFIX, tags_of
from cloudgpu.providers.aws.storage.disks import code_of

Raw = Mapping[str, Any]
ADDRESS = "public_ipv4"  # the price list's word: AWS bills every public IPv4 address, used or not
ACTIVE_REQUEST_STATES = ("open", "active", "disabled")  # states in which a spot request may launch, or keeps, a machine
_TERMINATED = ("instance-terminated", "spot-instance-terminated")  # codes of a request's status
_GONE = frozenset(
    "InvalidAllocationID.NotFound InvalidNetworkInterfaceID.NotFound InvalidGroup.NotFound "
    "InvalidSecurityGroupID.NotFound InvalidKeyPair.NotFound InvalidSpotInstanceRequestID.NotFound "
    "InvalidPlacementGroup.Unknown InvalidPlacementGroupId.Unknown".split()
)


@dataclass(frozen=True, slots=True)
class _Query:
    """A question to a region: the operation, the part of its answer that counts, and what it is filtered by."""

    operation: str
    key: str
    tag: str = TAG_LEDGER
    paged: bool = True
    states: tuple[str, ...] = ()

    def filters(self) -> list[dict[str, Any]]:
        states = [{"Name": "state", "Values": list(self.states)}] if self.states else []
        return [{"Name": "tag-key", "Values": [self.tag]}, *states]


_QUESTIONS = (
    _Query("describe_addresses", "Addresses", paged=False),
    _Query("describe_network_interfaces", "NetworkInterfaces"),
    _Query("describe_security_groups", "SecurityGroups"),
    _Query("describe_key_pairs", "KeyPairs", paged=False),
    _Query("describe_spot_instance_requests", "SpotInstanceRequests", tag=TAG_ID, states=ACTIVE_REQUEST_STATES),
    _Query("describe_placement_groups", "PlacementGroups", paged=False, states=("pending", "available", "deleting")),
)


def orphans(aws: Aws, region: str | None) -> ResourceListing:
    """Return these things with our tags, in use or not, by six calls per region, and who did not answer.

    One more in a region with placement groups of ours: that says which machines use them.
    """
    regions = aws.regions() if region is None else (region,)
    answers, silent = aws.each(regions, lambda one: _of_region(aws, one))
    return ResourceListing(tuple(orphan for found in answers.values() for orphan in found), silent, frozenset(regions))


def _of_region(aws: Aws, region: str) -> list[ProviderResource]:
    ec2 = aws.ec2(region)

    def ask(one: _Query) -> list[Raw]:
        with aws.calling(one.operation.title().replace("_", ""), region):
            if not one.paged:
                return list(getattr(ec2, one.operation)(Filters=one.filters())[one.key])
            return [item for page in pages(ec2, one.operation, Filters=one.filters()) for item in page[one.key]]

    with Pool(len(_QUESTIONS)) as pool:
        addresses, interfaces, groups, keys, requests, placements = pool.map(ask, _QUESTIONS)
    users = _placement_group_users(aws, region, [one["GroupName"] for one in placements])
    return [
        *(_address(aws, region, one) for one in addresses),
        *(_interface(aws, region, one) for one in interfaces),
        *(_group(aws, region, one, interfaces) for one in groups),
        *(_key_pair(aws, region, one) for one in keys),
        *(_request(aws, region, one) for one in requests),
        *(_placement_group(aws, region, one, users) for one in placements),
    ]


def _address(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    used_by = raw.get("InstanceId") or raw.get("NetworkInterfaceId") or None
    more = {"stored_as": ADDRESS, "size_gb": 1, "name": raw.get("PublicIp", ""), "attached_to": used_by}
    return _orphan(aws, region, raw, Kind.ADDRESS, raw["AllocationId"], **more)


def _interface(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    named = {**raw, "Tags": raw.get("TagSet", ())}  # EC2's word for an interface's tags
    more = {"zone": raw.get("AvailabilityZone", ""), "attached_to": _user(raw)}
    return _orphan(aws, region, named, Kind.INTERFACE, raw["NetworkInterfaceId"], **more)


def _group(aws: Aws, region: str, raw: Raw, interfaces: Sequence[Raw]) -> ProviderResource:
    """Return a group; it is used as long as an interface is in it, whatever has become of the machine."""
    native_id = raw["GroupId"]
    inside = [one for one in interfaces if any(group["GroupId"] == native_id for group in one.get("Groups", ()))]
    used_by = next((_user(one) or one["NetworkInterfaceId"] for one in inside), None)
    return _orphan(aws, region, raw, Kind.SECURITY_GROUP, native_id, name=raw["GroupName"], attached_to=used_by)


def _key_pair(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    made = raw.get("CreateTime")
    return _orphan(aws, region, raw, Kind.KEY_PAIR, raw["KeyPairId"], name=raw["KeyName"], made_at=made)


def _request(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    """Return a spot request; one whose machine was terminated still names that.

    An open one may hold a machine that EC2 has stopped: whoever cancels it then ends that machine (EC2 user guide,
    "Cancel a Spot Instance request").
    """
    over = raw.get("Status", {}).get("Code", "").startswith(_TERMINATED)
    machine = None if over else raw.get("InstanceId")
    made, native_id = raw.get("CreateTime"), raw["SpotInstanceRequestId"]
    return _orphan(aws, region, raw, Kind.SPOT_REQUEST, native_id, made_at=made, attached_to=machine)


def _placement_group_users(aws: Aws, region: str, names: Sequence[str]) -> Mapping[str, str]:
    """Return a machine by the placement group that it uses; one that is shutting down uses it yet."""
    if not names:
        return {}
    meant = [
        {"Name": "placement-group-name", "Values": list(names)},
        {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped", "shutting-down"]},
    ]
    with aws.calling("DescribeInstances", region):
        found = [one for page in pages(aws.ec2(region), "describe_instances", Filters=meant) for one in _machines(page)]
    return {one["Placement"]["GroupName"]: one["InstanceId"] for one in found}


def _machines(page: Raw) -> list[Raw]:
    return [one for part in page["Reservations"] for one in part["Instances"]]


def _placement_group(aws: Aws, region: str, raw: Raw, users: Mapping[str, str]) -> ProviderResource:
    name = raw["GroupName"]
    more = {"name": name, "attached_to": users.get(name), "ready": raw.get("State") == "available"}
    return _orphan(aws, region, raw, Kind.PLACEMENT_GROUP, raw["GroupId"], **more)


def _user(interface: Raw) -> str | None:
    """Return what an interface hangs on: a machine, or whatever AWS attached it to. None where it is free."""
    attached = interface.get("Attachment") or {}
    if interface.get("Status") == "available" or not attached:
        return None
    return str(attached.get("InstanceId") or attached.get("AttachmentId") or "in use")


def _orphan(aws: Aws, region: str, raw: Raw, kind: Kind, native_id: str, **facts: Any) -> ProviderResource:
    ours = {key: value for key, value in tags_of(raw).items() if key.startswith(TAG_PREFIX)}
    used_by = facts.pop("attached_to", None)
    usual = {"zone": "", "name": "", "size_gb": 0, "stored_as": "", **facts}
    return ProviderResource(
        provider=KIND,
        account=aws.account,
        region=region,
        id=ids.joined(region, native_id),
        kind=kind,
        tags=ours,
        attached_to=ids.joined(region, used_by) if used_by else None,
        **usual,
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
    try:
        with aws.calling(action, region, value=orphan.id):
            call()
    except CloudgpuError as error:
        if code_of(error) not in _GONE:
            raise


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
    """Return the region and AWS's own id. Raises InvalidRequest for what is none of these things."""
    region, _, native_id = orphan.id.partition("/")
    prefix = _PREFIXES.get(orphan.kind)
    if prefix is None or not ids.REGION.fullmatch(region) or not native_id.startswith(prefix):
        message = f"{orphan.id!r} is not an id of a {orphan.kind} on AWS."
        raise InvalidRequest(message, field="id", value=orphan.id, next="Run: cloudgpu orphans")
    return region, native_id
