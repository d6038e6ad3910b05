"""Named volumes on EC2, which outlive machines: find one by name in a zone, or make it once, and attach it."""

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
from cloudgpu.providers.shared.named_volumes import pick_in_zone, size_to_make, volume_in_use_error

Raw = Mapping[str, Any]
DEVICE = "/dev/sdf"  # the first that AWS names for data; on the machine it is an NVMe device with the volume's id
POLL_S, POLLS = 1.0, 120
SHOWN_WITHIN_POLLS = 30  # polls until EC2, which is eventually consistent, surely shows a new disk
_MAX_TOKENS = 100  # a token of a volume that was removed is remembered for a day


def attach(aws: Aws, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
    """Find or make the volume in the machine's zone, attach it, and return it.

    Raises InvalidRequest if another machine uses it, it is in another zone, or a new one has no size.
    """
    region, native_id = ids.machine(id)
    zone = raw(aws, region, native_id)["Placement"]["AvailabilityZone"]
    named_tags = {**tags, TAG_VOLUME: volume.name}
    described = _find(aws, region, zone, volume, named_tags) or _make(aws, region, zone, volume, named_tags)
    for _ in range(POLLS):
        attachment = holder(described)
        if attachment is not None and attachment["InstanceId"] == native_id and attachment["State"] != "detaching":
            return disk(aws, region, described)
        if attachment is not None and attachment["State"] != "detaching":
            raise volume_in_use_error(volume, ids.joined(region, attachment["InstanceId"]))
        if described["State"] == "available":
            _attach(aws, region, described["VolumeId"], native_id)
        else:
            aws.pause(POLL_S)
        described = _read_volume(aws, region, described["VolumeId"])
    message = f"The volume {volume.name} is not ready after {POLLS * POLL_S:.0f} seconds ({described['State']})."
    raise ProviderUnavailable(message, field="--volume", value=volume.name, next="Run the same up again.")


def _find(aws: Aws, region: str, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw | None:
    """Return the ledger's volume of this name, None for none; raise InvalidRequest if it is in another zone only."""
    filters = [{"Name": f"tag:{key}", "Values": [tags.get(key, "")]} for key in (TAG_VOLUME, TAG_LEDGER)]
    found = describe(aws, "DescribeVolumes", region, value=volume.name, Filters=filters)
    existing = [one for one in found if one["State"] not in ("deleting", "deleted", "error")]
    return pick_in_zone(zone, existing, itemgetter("AvailabilityZone"), "VolumeId", volume)


def _make(aws: Aws, region: str, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw:
    """Make the volume with a client token from its name, so that a lost reply makes no second one.

    AWS remembers the token of a volume that was removed: then the next token is used.
    """
    size_gb = size_to_make(volume, zone)
    for generation in range(1, _MAX_TOKENS):
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
    return _wait_until_shown(aws, region, made["VolumeId"])


def _wait_until_shown(aws: Aws, region: str, native_id: str) -> Raw:
    """Return a new disk as soon as AWS shows it."""
    return retry(
        lambda: _read_volume(aws, region, native_id),
        SHOWN_WITHIN_POLLS + 1,
        after=lambda error: isinstance(error, InstanceNotFound),
        pause=lambda _tries: aws.pause(POLL_S),
    )


def _read_volume(aws: Aws, region: str, native_id: str) -> Raw:
    filters = [{"Name": "volume-id", "Values": [native_id]}]
    found = describe(aws, "DescribeVolumes", region, Filters=filters)
    if not found or found[0]["State"] in ("deleting", "deleted"):
        message = f"The volume {native_id} is not there."
        raise InstanceNotFound(message, field="--volume", value=native_id, next="Run the same up again.")
    return found[0]


def holder(found: Raw) -> Raw | None:
    """Return the attachment of a volume to the machine that uses it; None where it is free."""
    return next((one for one in found.get("Attachments", ()) if one["State"] != "detached"), None)


def _attach(aws: Aws, region: str, volume: str, native_id: str) -> None:
    """Request the attachment. VolumeInUse is no error: AWS may have attached it just now; the next poll shows it."""
    try:
        with aws.calling("AttachVolume", region, value=volume):
            aws.ec2(region).attach_volume(VolumeId=volume, InstanceId=native_id, Device=DEVICE)
    except CloudgpuError as error:
        if code_of(error) != "VolumeInUse":
            raise
