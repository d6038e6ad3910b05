"""Disks, snapshots and images on EC2: lists and removes those with our tags, and attaches data volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any

from cloudgpu.core.model.cluster import tags_of_node
from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_IMAGE, TAG_LEDGER, TAG_NODE, TAG_VOLUME
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import InstanceNotFound, InvalidRequest, LaunchUncertain, ProviderUnavailable
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
from cloudgpu.providers.aws.compute.listing import describe_raw
from cloudgpu.providers.aws.compute.translate import our_tags, tag_list, tags_of
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.shared.errors import Tolerating, invalid_id_error
from cloudgpu.providers.shared.named_volumes import pick_in_zone, size_to_make, volume_in_use_error

LARGEST_GB = 16_384  # of a gp3 volume: EC2 API Reference, CreateVolume
SNAPSHOT = "ebs_snapshot"  # the catalogue's name for what snapshots and the images made of them are billed as
_OUR_TAG_FILTER = [{"Name": "tag-key", "Values": [TAG_LEDGER]}]
_DELETED_STATES = ("deleting", "deleted")
_NOT_FOUND_CODES = frozenset(
    "InvalidVolume.NotFound InvalidSnapshot.NotFound InvalidAMIID.NotFound InvalidAMIID.Unavailable".split()
)


def resources(aws: Aws, region: str | None) -> ResourceListing:
    """Return the disks, snapshots and images with our tags, and silent regions. Three calls per region.

    One more in a region with disks of a cluster's machines.
    """
    regions = aws.regions() if region is None else (region,)
    answers, unanswered = aws.ask_each(regions, lambda one: _resources_in(aws, one))
    return ResourceListing(
        tuple(resource for found in answers.values() for resource in found), unanswered, frozenset(regions)
    )


def _resources_in(aws: Aws, region: str) -> list[ProviderResource]:
    filters_by_action: Mapping[str, dict[str, Any]] = {
        "DescribeVolumes": {},
        "DescribeImages": {"Owners": ["self"]},
        "DescribeSnapshots": {"OwnerIds": ["self"]},
    }
    with Pool(len(filters_by_action)) as pool:
        describe_ours = partial(describe_all, aws, region=region, Filters=_OUR_TAG_FILTER)
        volumes, images, snapshots = pool.map(
            lambda action: describe_ours(action, **filters_by_action[action]), filters_by_action
        )
    volumes = _with_own_tags(aws, region, volumes)
    image_snapshots = {snapshot for one in images for snapshot, _ in snapshots_of(one)}
    return [
        *(disk(aws, region, one) for one in volumes if one["State"] not in _DELETED_STATES),
        *(image(aws, region, one) for one in images if one["State"] != "deregistered"),
        *(snapshot(aws, region, one) for one in snapshots if one["SnapshotId"] not in image_snapshots),
    ]


def _with_own_tags(aws: Aws, region: str, volumes: Sequence[Raw]) -> list[Raw]:
    """Return volumes with the tags of their own node: AWS has the same tags for all of a cluster's machines.

    One call more for 200 of these, for the launch indices of the machines that have them.
    """
    shared_volume_ids = {one["VolumeId"] for one in volumes if is_shared(tags_of(one))}
    machine_by_volume = {
        one["VolumeId"]: machine_id
        for one in volumes
        if one["VolumeId"] in shared_volume_ids
        for machine_id in _attached_machines(one)
    }
    if not machine_by_volume:
        return list(volumes)
    index_by_machine = _launch_indices(aws, region, sorted(set(machine_by_volume.values())))
    index_by_volume = {
        volume: index_by_machine[machine_id]
        for volume, machine_id in machine_by_volume.items()
        if machine_id in index_by_machine
    }
    return [
        _with_index(one, index_by_volume[one["VolumeId"]]) if one["VolumeId"] in index_by_volume else one
        for one in volumes
    ]


def _launch_indices(aws: Aws, region: str, machines: Sequence[str]) -> dict[str, int]:
    filters = ({"Name": "instance-id", "Values": batch} for batch in batches(machines, MAX_FILTER_VALUES))
    found = (one for batch_filter in filters for one in describe_instances(aws, region, Filters=[batch_filter]))
    return {one["InstanceId"]: one["AmiLaunchIndex"] for one in found}


def is_shared(tags: Mapping[str, str]) -> bool:
    """Say whether these are tags that one call gave all nodes of a cluster."""
    return TAG_CLUSTER in tags and TAG_NODE not in tags


def _with_index(raw: Raw, launch_index: int) -> Raw:
    return {**raw, "Tags": tag_list(tags_of_node(tags_of(raw), launch_index))}


def _attached_machines(raw: Raw) -> Iterator[str]:
    return (one["InstanceId"] for one in raw.get("Attachments", ()) if one["State"] != "detached")


def disk(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    """Return a volume: a data volume where the user named it, else a machine's system disk."""
    tags = tags_of(raw)
    machine_id = next(_attached_machines(raw), None)
    return _resource(
        aws,
        region,
        raw,
        id=ids.join_id(region, raw["VolumeId"]),
        kind=Kind.VOLUME if TAG_VOLUME in tags else Kind.DISK,
        zone=raw["AvailabilityZone"],
        name=tags.get(TAG_VOLUME, ""),
        size_gb=raw["Size"],
        stored_as=raw.get("VolumeType", "gp3"),
        made_at=raw.get("CreateTime"),
        ready=raw["State"] in ("available", "in-use"),
        attached_to=machine_id and ids.join_id(region, machine_id),
    )


def snapshot(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    """Return a snapshot that is no part of an image."""
    return _resource(
        aws,
        region,
        raw,
        id=ids.join_id(region, raw["SnapshotId"]),
        kind=Kind.SNAPSHOT,
        name=tags_of(raw).get(TAG_IMAGE, ""),
        size_gb=raw["VolumeSize"],
        stored_as=SNAPSHOT,
        made_at=raw.get("StartTime"),
        ready=raw["State"] == "completed",
    )


def image(aws: Aws, region: str, raw: Raw) -> ProviderResource:
    """Return an image with its snapshots, which are what is billed: at most the size of their disks."""
    created = raw.get("CreationDate")
    return _resource(
        aws,
        region,
        raw,
        id=ids.join_id(region, raw["ImageId"]),
        kind=Kind.IMAGE,
        name=tags_of(raw).get(TAG_IMAGE, ""),
        size_gb=sum(size for _, size in snapshots_of(raw)),
        stored_as=SNAPSHOT,
        made_at=datetime.fromisoformat(created) if created else None,
        ready=raw["State"] == "available",
    )


def snapshots_of(raw: Raw) -> Iterator[tuple[str, int]]:
    """Yield id and size in GB of the snapshots of an image, which may be incomplete while it is created."""
    for mapping in raw.get("BlockDeviceMappings", ()):
        disk = mapping.get("Ebs", {})
        if "SnapshotId" in disk:
            yield disk["SnapshotId"], disk.get("VolumeSize", 0)


def _resource(aws: Aws, region: str, raw: Raw, **facts: Any) -> ProviderResource:
    fields = {"zone": "", "name": "", **facts}
    return ProviderResource(
        provider=PROVIDER, account=aws.account, region=region, tags=our_tags(tags_of(raw)), **fields
    )


def remove(aws: Aws, resource: ProviderResource) -> None:
    """Delete it, an image with its snapshots; what is gone already is no error. Raises InvalidRequest while in use."""
    region, native_id = _split_id(resource)
    if resource.kind is Kind.IMAGE:
        _remove_image(aws, region, native_id)
    elif resource.kind is Kind.SNAPSHOT:
        _remove_snapshot(aws, region, native_id)
    else:
        with Tolerating(code_of, *_NOT_FOUND_CODES), aws.calling("DeleteVolume", region, value=resource.id):
            aws.ec2(region).delete_volume(VolumeId=native_id)


def _split_id(resource: ProviderResource) -> tuple[str, str]:
    kinds = {Kind.IMAGE: "ami", Kind.SNAPSHOT: "snap"}
    found = ids.split_id(resource.id, kinds.get(resource.kind, "vol"))
    if found is None:
        raise invalid_id_error(resource.id, f"a {resource.kind} on AWS", "Run: cloudgpu ls --refresh")
    return found


def _remove_image(aws: Aws, region: str, native_id: str) -> None:
    """Deregister the image, then delete its snapshots, which cannot be deleted while the image uses them."""
    id_, filters = ids.join_id(region, native_id), [{"Name": "image-id", "Values": [native_id]}]
    found = describe(aws, "DescribeImages", region, Owners=["self"], Filters=filters)
    with Tolerating(code_of, *_NOT_FOUND_CODES), aws.calling("DeregisterImage", region, value=id_):
        aws.ec2(region).deregister_image(ImageId=native_id)
    for image in found:
        for snapshot_id, _ in snapshots_of(image):
            _remove_snapshot(aws, region, snapshot_id)


def _remove_snapshot(aws: Aws, region: str, native_id: str) -> None:
    id_ = ids.join_id(region, native_id)
    with Tolerating(code_of, *_NOT_FOUND_CODES), aws.calling("DeleteSnapshot", region, value=id_):
        aws.ec2(region).delete_snapshot(SnapshotId=native_id)


def tag_specifications(kinds: Sequence[str], tags: Mapping[str, str], name: str) -> list[dict[str, Any]]:
    """Return the tags of what a call makes; `name` is what AWS's console shows."""
    return [{"ResourceType": kind, "Tags": tag_list({"Name": name, **tags})} for kind in kinds]


DATA_DEVICE = "/dev/sdf"  # the first that AWS names for data; on the machine it is an NVMe device with the volume's id
POLL_PAUSE_S, MAX_POLLS = 1.0, 120  # until a volume is attached
MAX_POLLS_OF_NEW = 30  # until a volume that was just made is surely shown: EC2 is eventually consistent
_MAX_GENERATIONS = 99  # of tokens for one name: AWS remembers a token for a day after its volume was deleted


def attach(aws: Aws, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
    """Find or make the volume in the machine's zone, and attach it; return it as it is afterwards.

    Raises InvalidRequest where another machine uses it, it lies in another zone, or its size has to be named.
    """
    region, native_id = ids.split_machine_id(id)
    zone = describe_raw(aws, region, native_id)["Placement"]["AvailabilityZone"]
    tags = {**tags, TAG_VOLUME: volume.name}
    raw = _find_volume(aws, region, zone, volume, tags) or _create_volume(aws, region, zone, volume, tags)
    is_requested = False  # EC2 may not show at once what it has attached: then a pause comes before the next request
    for _ in range(MAX_POLLS):
        attachment = attachment_of(raw)
        if attachment is not None and attachment["State"] != "detaching":
            if attachment["InstanceId"] == native_id:
                return disk(aws, region, raw)
            raise volume_in_use_error(volume, ids.join_id(region, attachment["InstanceId"]))
        if is_requested or raw["State"] != "available":
            aws.pause(POLL_PAUSE_S)
        if raw["State"] == "available":
            _attach(aws, region, raw["VolumeId"], native_id)
            is_requested = True
        raw = _check_exists(_describe_volume(aws, region, raw["VolumeId"]), raw["VolumeId"])
    message = f"The volume {volume.name} is not ready after {MAX_POLLS * POLL_PAUSE_S:.0f} seconds ({raw['State']})."
    raise ProviderUnavailable(message, field="--volume", value=volume.name, next="Run the same up again.")


def _find_volume(aws: Aws, region: str, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw | None:
    """Return the ledger's volume of this name; raise InvalidRequest where it exists only in another zone."""
    filters = [{"Name": f"tag:{key}", "Values": [tags.get(key, "")]} for key in (TAG_VOLUME, TAG_LEDGER)]
    found = describe(aws, "DescribeVolumes", region, value=volume.name, Filters=filters)
    volumes = [one for one in found if one["State"] not in (*_DELETED_STATES, "error")]
    return pick_in_zone(zone, volumes, itemgetter("AvailabilityZone"), "VolumeId", volume)


def _create_volume(aws: Aws, region: str, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw:
    """Create the volume with a client token derived from its name, so that a lost reply makes no second one.

    AWS remembers a token even after its volume was deleted: then the token of the next generation is tried.
    """
    size_gb = size_to_make(volume, zone)
    for generation in range(1, _MAX_GENERATIONS + 1):
        token = digest("volume", tags.get(TAG_LEDGER, ""), volume.name, zone, str(generation))[:48]
        try:
            return _create_with_token(aws, region, zone, size_gb, tags, token)
        except (LaunchUncertain, InstanceNotFound):  # the token was used for one of another size, or one that is gone
            continue
    message = f"The volume {volume.name} was made and removed too often today."
    raise InvalidRequest(message, field="--volume", value=volume.name, next="Choose another name.")


def _create_with_token(aws: Aws, region: str, zone: str, size_gb: int, tags: Mapping[str, str], token: str) -> Raw:
    with aws.calling("CreateVolume", region, value=tags[TAG_VOLUME]):
        created = aws.ec2(region).create_volume(
            AvailabilityZone=zone,
            Size=size_gb,
            VolumeType="gp3",
            Encrypted=True,
            ClientToken=token,
            TagSpecifications=tag_specifications(("volume",), tags, tags[TAG_VOLUME]),
        )
    return _wait_for_disk(aws, region, created["VolumeId"])


def _wait_for_disk(aws: Aws, region: str, native_id: str) -> Raw:
    """Return a disk as soon as AWS shows it: one that was just made, and is not shown yet, is not made again.

    Raises InstanceNotFound for one that is not shown in time, and at once for one that is shown as deleted.
    """
    raw = _describe_volume(aws, region, native_id)
    for _ in range(MAX_POLLS_OF_NEW):
        if raw is not None:
            break
        aws.pause(POLL_PAUSE_S)
        raw = _describe_volume(aws, region, native_id)
    return _check_exists(raw, native_id)


def _describe_volume(aws: Aws, region: str, native_id: str) -> Raw | None:
    filters = [{"Name": "volume-id", "Values": [native_id]}]
    return next(iter(describe(aws, "DescribeVolumes", region, Filters=filters)), None)


def _check_exists(raw: Raw | None, native_id: str) -> Raw:
    if raw is None or raw["State"] in _DELETED_STATES:
        message = f"The volume {native_id} is not there."
        raise InstanceNotFound(message, field="--volume", value=native_id, next="Run the same up again.")
    return raw


def attachment_of(raw: Raw) -> Raw | None:
    """Return the attachment of a volume to the machine that uses it; None where it is free."""
    return next((one for one in raw.get("Attachments", ()) if one["State"] != "detached"), None)


def _attach(aws: Aws, region: str, volume: str, machine: str) -> None:
    """Request the attachment; the next poll shows the outcome, since AWS refuses a volume that it has just attached."""
    with Tolerating(code_of, "VolumeInUse"), aws.calling("AttachVolume", region, value=volume):
        aws.ec2(region).attach_volume(VolumeId=volume, InstanceId=machine, Device=DATA_DEVICE)
