"""Data disks on EC2 that outlive machines: found by name in a zone, made once, attached."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from cloudgpu.core.model.instances import TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest, LaunchUncertain, ProviderUnavailable
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import Aws, describe
from cloudgpu.providers.aws.compute.listing import raw
from cloudgpu.providers.aws.storage.disks import code_of, disk, tag_specifications
from cloudgpu.providers.shared.calls import retry
from cloudgpu.providers.shared.named_volumes import pick_in_zone, size_to_make, used

Raw = Mapping[str, Any]
DEVICE = "/dev/sdf"  # the first that AWS names for data; on the machine it is an NVMe device with the volume's id
SETTLES_S, LOOKS = 1.0, 120
SEEN_AFTER = 30  # looks until a disk that was just made is surely shown: EC2 is eventually consistent
_GENERATIONS = 100  # a token of a volume that was removed is remembered for a day


def attach(aws: Aws, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
    """Find or make the volume in the machine's zone, and attach it; return it as it is then.

    Raises InvalidRequest where another machine uses it, it lies in another zone, or its size has to be said.
    """
    region, own = ids.machine(id)
    zone = raw(aws, region, own)["Placement"]["AvailabilityZone"]
    named = {**tags, TAG_VOLUME: volume.name}
    found = _found(aws, region, zone, volume, named) or _made(aws, region, zone, volume, named)
    for _ in range(LOOKS):
        at = holder(found)
        if at is not None and at["InstanceId"] == own and at["State"] != "detaching":
            return disk(aws, region, found)
        if at is not None and at["State"] != "detaching":
            raise used(volume, ids.joined(region, at["InstanceId"]))
        if found["State"] == "available":
            _attach(aws, region, found["VolumeId"], own)
        else:
            aws.pause(SETTLES_S)
        found = _read_volume(aws, region, found["VolumeId"])
    message = f"The volume {volume.name} is not ready after {LOOKS * SETTLES_S:.0f} seconds ({found['State']})."
    raise ProviderUnavailable(message, field="--volume", value=volume.name, next="Run the same up again.")


def _found(aws: Aws, region: str, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw | None:
    """Return the ledger's volume of this name; one that lies in another zone alone is refused."""
    asked = [{"Name": f"tag:{key}", "Values": [tags.get(key, "")]} for key in (TAG_VOLUME, TAG_LEDGER)]
    found = describe(aws, "DescribeVolumes", region, value=volume.name, Filters=asked)
    there = [one for one in found if one["State"] not in ("deleting", "deleted", "error")]
    return pick_in_zone(zone, there, itemgetter("AvailabilityZone"), "VolumeId", volume)


def _made(aws: Aws, region: str, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw:
    """Make the volume under a token of its name, so that a lost reply makes no second one.

    A token stands for the volume that it made even when that was removed since: then the next one is taken.
    """
    size_gb = size_to_make(volume, zone)
    for generation in range(1, _GENERATIONS):
        token = digest("volume", tags.get(TAG_LEDGER, ""), volume.name, zone, str(generation))[:48]
        try:
            return _create(aws, region, zone, size_gb, tags, token)
        except (LaunchUncertain, InstanceNotFound):  # the token was used for one of another size, or one that is gone
            continue
    message = f"The volume {volume.name} was made and removed too often today."
    raise InvalidRequest(message, field="--volume", value=volume.name, next="Choose another name.")


def _create(aws: Aws, region: str, zone: str, size_gb: int, tags: Mapping[str, str], token: str) -> Raw:
    with aws.calling("CreateVolume", region, value=tags[TAG_VOLUME]):
        made = aws.ec2(region).create_volume(
            AvailabilityZone=zone,
            Size=size_gb,
            VolumeType="gp3",
            Encrypted=True,
            ClientToken=token,
            TagSpecifications=tag_specifications(("volume",), tags, tags[TAG_VOLUME]),
        )
    return _seen(aws, region, made["VolumeId"])


def _seen(aws: Aws, region: str, own: str) -> Raw:
    """Return a disk as soon as AWS shows it: one that was just made, and is not shown yet, is not made again."""
    return retry(
        lambda: _read_volume(aws, region, own),
        SEEN_AFTER + 1,
        after=lambda error: isinstance(error, InstanceNotFound),
        pause=lambda _tries: aws.pause(SETTLES_S),
    )


def _read_volume(aws: Aws, region: str, own: str) -> Raw:
    asked = [{"Name": "volume-id", "Values": [own]}]
    found = describe(aws, "DescribeVolumes", region, Filters=asked)
    if not found or found[0]["State"] in ("deleting", "deleted"):
        message = f"The volume {own} is not there."
        raise InstanceNotFound(message, field="--volume", value=own, next="Run the same up again.")
    return found[0]


def holder(found: Raw) -> Raw | None:
    """Return the attachment of a volume to the machine that uses it; None where it is free."""
    return next((one for one in found.get("Attachments", ()) if one["State"] != "detached"), None)


def _attach(aws: Aws, region: str, volume: str, own: str) -> None:
    """Ask for it; whether it is so is seen by the next look, as AWS refuses a volume that it has just attached."""
    try:
        with aws.calling("AttachVolume", region, value=volume):
            aws.ec2(region).attach_volume(VolumeId=volume, InstanceId=own, Device=DEVICE)
    except CloudgpuError as error:
        if code_of(error) != "VolumeInUse":
            raise
