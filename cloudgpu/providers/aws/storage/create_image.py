"""Makes an image of a machine or of a disk on EC2, one step a call, from what exists by then: never two of one name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import Aws, Raw, describe, describe_instances
from cloudgpu.providers.aws.compute.request import TAG_BOOT, boot_tag, registration_parameters
from cloudgpu.providers.aws.compute.translate import tags_of
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.aws.storage.disks import image, remove, snapshot, tag_specifications
from cloudgpu.providers.shared.errors import Tolerating
from cloudgpu.providers.shared.rules import check_is_system_disk, check_saved_image, source_not_found_error

_NAME_EXISTS = "InvalidAMIName.Duplicate"


def save_image(aws: Aws, source_id: str, name: str, tags: Mapping[str, str], *, restart: bool) -> ProviderResource:
    """Take the next step to the image `name` and return what there is: a snapshot, or the image, `ready` at the end.

    No call here has a client token: what an earlier call made is found by its name. Raises InstanceNotFound for
    a source that is not there, InvalidRequest for a name that is taken.
    """
    region = source_id.partition("/")[0]
    if not ids.REGION.fullmatch(region):
        raise source_not_found_error("AWS", source_id)
    existing = _image_named(aws, region, name)
    if existing is not None:
        return _check_image(aws, region, existing, name, tags)
    machine = ids.split_id(source_id, "i")
    if machine is not None:
        return _image_machine(aws, region, machine[1], name, tags, restart=restart)
    raw = _snapshot_named(aws, region, name) or _begin_snapshot(aws, region, source_id, name, tags)
    check_saved_image(name, tags_of(raw), tags, region)
    if raw["State"] == "completed":
        return _register(aws, region, raw, name, tags)
    resource = snapshot(aws, region, raw)
    if raw["State"] == "error":  # it failed: no image uses it
        remove(aws, resource)
    return resource


def _image_named(aws: Aws, region: str, name: str) -> Raw | None:
    images = describe(
        aws, "DescribeImages", region, value=name, Owners=["self"], Filters=[{"Name": "name", "Values": [name]}]
    )
    return images[0] if images else None


def _check_image(aws: Aws, region: str, raw: Raw, name: str, tags: Mapping[str, str]) -> ProviderResource:
    check_saved_image(name, tags_of(raw), tags, region)
    created = image(aws, region, raw)
    if raw["State"] not in ("failed", "error", "invalid"):
        return created
    remove(aws, created)
    why = raw.get("StateReason", {}).get("Message", "AWS gave no reason")
    message = f"The image {name} in {region} failed and was removed: {why}."
    raise InvalidRequest(message, field="image", value=name, next="Run it again.")


def _image_machine(
    aws: Aws, region: str, native_id: str, name: str, tags: Mapping[str, str], *, restart: bool
) -> ProviderResource:
    """Image a machine's system disk. Its data volumes are left out: they outlive it."""
    id_ = ids.join_id(region, native_id)
    machines = describe_instances(aws, region, value=id_, InstanceIds=[native_id])
    if not machines:
        raise source_not_found_error("AWS", id_)
    devices = [one["DeviceName"] for one in machines[0].get("BlockDeviceMappings", ())]
    data_devices = [device for device in devices if device != machines[0]["RootDeviceName"]]
    parameters: dict[str, Any] = {
        "InstanceId": native_id,
        "Name": name,
        "NoReboot": not restart,
        "TagSpecifications": tag_specifications(("image", "snapshot"), tags, name),
    }
    if data_devices:
        parameters["BlockDeviceMappings"] = [{"DeviceName": device, "NoDevice": ""} for device in data_devices]
    _send_create(aws, region, "CreateImage", name, lambda client: client.create_image(**parameters))
    return _read_image(aws, region, name, tags)


def _send_create(aws: Aws, region: str, action: str, name: str, call: Callable[[Any], object]) -> None:
    """Send a call that makes an image; a name that is taken is an earlier call's image, whose reply was lost."""
    with Tolerating(code_of, _NAME_EXISTS), aws.calling(action, region, value=name):
        call(aws.ec2(region))


def _read_image(aws: Aws, region: str, name: str, tags: Mapping[str, str]) -> ProviderResource:
    found = _image_named(aws, region, name)
    if found is None:  # AWS shows what it has just made a moment later
        message = f"The image {name} in {region} is being made and cannot be seen yet."
        raise ProviderUnavailable(message, field="image", value=name, next="Run: cloudgpu ls --refresh")
    return _check_image(aws, region, found, name, tags)


def _snapshot_named(aws: Aws, region: str, name: str) -> Raw | None:
    """Return the first snapshot that was begun under this name, if there is one."""
    snapshots = describe(
        aws,
        "DescribeSnapshots",
        region,
        value=name,
        OwnerIds=["self"],
        Filters=[{"Name": "tag:Name", "Values": [name]}],
    )
    return min(snapshots, key=lambda one: (one["StartTime"], one["SnapshotId"]), default=None)


def _begin_snapshot(aws: Aws, region: str, source_id: str, name: str, tags: Mapping[str, str]) -> Raw:
    """Begin a snapshot of a disk. It is sent once: a second sending would make a second snapshot."""
    region_and_volume_id = ids.split_id(source_id, "vol")
    if region_and_volume_id is None:
        raise source_not_found_error("AWS", source_id)
    disk = _disk(aws, region, region_and_volume_id[1])
    boot_tag_value = {TAG_BOOT: _boot_tag(aws, region, disk)}
    with aws.calling("CreateSnapshot", region, value=source_id):
        raw: Raw = aws.client("ec2", region, sends=1).create_snapshot(
            VolumeId=region_and_volume_id[1],
            Description=name,
            TagSpecifications=tag_specifications(("snapshot",), {**tags, **boot_tag_value}, name),
        )
    return raw


def _disk(aws: Aws, region: str, native_id: str) -> Raw:
    found = describe(aws, "DescribeVolumes", region, Filters=[{"Name": "volume-id", "Values": [native_id]}])
    if not found:
        raise source_not_found_error("AWS", ids.join_id(region, native_id))
    check_is_system_disk(native_id, tags_of(found[0]))
    return found[0]


def _boot_tag(aws: Aws, region: str, disk: Raw) -> str:
    """Return how the disk boots: its tag says so, else the image that it was made from, while that is there."""
    tag = tags_of(disk).get(TAG_BOOT, "")
    if registration_parameters(tag) is not None:
        return tag
    filters = [{"Name": "block-device-mapping.snapshot-id", "Values": [disk.get("SnapshotId") or "snap-none"]}]
    images = describe(aws, "DescribeImages", region, Filters=filters)
    if images:
        return boot_tag(images[0])
    native_id = disk["VolumeId"]
    message = f"It is not known how the disk {native_id} boots: it has no tag {TAG_BOOT}, and its image is gone."
    remedy = f"Tag it, for example {TAG_BOOT}=x86_64_sda1_uefi-preferred, and run it again."
    raise InvalidRequest(message, field=TAG_BOOT, value=native_id, next=remedy)


def _register(aws: Aws, region: str, raw: Raw, name: str, tags: Mapping[str, str]) -> ProviderResource:
    """Make the image of a completed snapshot."""
    boot_tag_value = tags_of(raw).get(TAG_BOOT, "")
    registration = registration_parameters(boot_tag_value)
    if registration is None:
        message = (
            f"The snapshot {raw['SnapshotId']} does not say how it boots (its tag {TAG_BOOT} is {boot_tag_value!r})."
        )
        remedy = f"Correct that tag, for example {TAG_BOOT}=x86_64_sda1_uefi-preferred, and run it again."
        raise InvalidRequest(message, field=TAG_BOOT, value=boot_tag_value, next=remedy)
    disk = {"SnapshotId": raw["SnapshotId"], "VolumeType": "gp3", "DeleteOnTermination": True}
    parameters = {
        "Name": name,
        "BlockDeviceMappings": [{"DeviceName": registration["RootDeviceName"], "Ebs": disk}],
        "TagSpecifications": tag_specifications(("image",), {**tags, TAG_BOOT: boot_tag_value}, name),
        **registration,
    }
    _send_create(aws, region, "RegisterImage", name, lambda client: client.register_image(**parameters))
    return _read_image(aws, region, name, tags)
