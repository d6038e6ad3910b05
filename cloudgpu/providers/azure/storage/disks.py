"""Lists and removes our disks, snapshots and images on Azure, and attaches data volumes.

The call that makes a machine's system disk cannot tag it: it is in its launch's group, and counts as having that
group's tags. Volumes and images are in the group `cloudgpu`, with tags of their own.

A volume's name at Azure is a hash of the ledger, its own name and its zone, and a PUT of a disk that exists makes no
second one: no token is needed. A volume is in its machine's zone, or in none where the machine is in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from cloudgpu.catalog.disktypes import billed_tier
from cloudgpu.core.model.instances import TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import CloudgpuError, InvalidRequest, ProviderUnavailable
from cloudgpu.parallel import Pool
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.calls import call_or_none, invoke, properties_of, provisioning_state, read_list
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.compute import machine
from cloudgpu.providers.azure.compute.request import is_system_disk
from cloudgpu.providers.azure.storage import gallery, resources as refs
from cloudgpu.providers.shared.named_volumes import pick_in_zone, size_to_make, volume_in_use_error
from cloudgpu.providers.shared.rules import time_of_tag

TagsByGroup = Mapping[str, Mapping[str, str]]  # of groups, by their names
LARGEST_GB = 32_767  # of a Standard or Premium SSD: "Azure managed disk types"
SNAPSHOT = "snapshot"  # the catalogue's name for what snapshots and images are billed as
TAG_PREFIX = "cloudgpu-"
TAG_MADE_AT = "cloudgpu-made"  # on an image: when it was made, in seconds since 1970
_ACTION = "Microsoft.Compute"
_SUCCEEDED, _DELETING = "succeeded", ("deleting", "failed deletion")


def resources(azure: Azure, region: str | None) -> ResourceListing:
    """Return the disks, snapshots and images of ours, by four calls for the whole subscription and their pages.

    Where there is a gallery, one more, and one for each image in it. Raises the error of a call that failed: an
    incomplete listing would look complete.
    """
    compute = azure.compute
    with Pool(4) as pool:
        tags = pool.submit(groups.tags_by_group, azure)
        disks, snapshots, images = (
            pool.submit(_listed, azure, kind, operations)
            for kind, operations in (
                ("disks", compute.disks),
                ("snapshots", compute.snapshots),
                ("images", compute.images),
            )
        )
        gallery_images = gallery.listed(azure) if gallery.TAG_GALLERY in tags.result().get(ids.SHARED_GROUP, {}) else []
        our_images = [one for one in (*images.result(), *gallery_images) if _is_ours(one)]
        image_snapshots = {
            (group_of(one), plain_name(one)) for one in our_images
        }  # an image and its snapshot have one name
        snapshots_without_image = (
            one for one in snapshots.result() if (group_of(one), str(one["name"])) not in image_snapshots
        )
        our_resources = [
            *_ours(azure, disks.result(), tags.result()),
            *(snapshot(azure, one) for one in snapshots_without_image if _is_ours(one)),
            *(image(azure, one) for one in our_images),
        ]
    in_region = tuple(one for one in our_resources if region in (None, one.region))
    return ResourceListing(in_region, regions=None if region is None else frozenset({region}))


def _listed(azure: Azure, kind: str, operations: Any) -> list[Raw]:
    found = read_list(azure, f"{_ACTION}/{kind}/read", operations.list)
    return [one for one in found if provisioning_state(one) not in _DELETING]


def _ours(azure: Azure, raw_disks: Iterable[Raw], tags: TagsByGroup) -> list[ProviderResource]:
    """Return the disks with our tags, and system disks of launches, which get their group's tags.

    Any other disk in such a group is somebody else's.
    """
    with_group_tags = (
        (one, tags.get(group_of(one), {}) if is_system_disk(str(one["name"]), group_of(one)) else {})
        for one in raw_disks
    )
    tagged = ((one, {**group_tags, **(one.get("tags") or {})}) for one, group_tags in with_group_tags)
    return [disk(azure, one, merged) for one, merged in tagged if TAG_LEDGER in merged]


def _is_ours(raw: Raw) -> bool:
    return TAG_LEDGER in (raw.get("tags") or {})


def disk(azure: Azure, raw: Raw, tags: Mapping[str, str]) -> ProviderResource:
    """Return a disk: a volume where the user named it, else a machine's system disk."""
    size, name = int(properties_of(raw).get("diskSizeGB") or 0), tags.get(TAG_VOLUME, "")
    return _resource(
        azure,
        raw,
        tags,
        kind=Kind.VOLUME if name else Kind.DISK,
        zone=machine.zone_of(raw),
        name=name,
        size_gb=size,
        stored_as=billed_tier(str((raw.get("sku") or {}).get("name") or ""), size),
        attached_to=machine_using(raw),
    )


def snapshot(azure: Azure, raw: Raw) -> ProviderResource:
    """Return a snapshot that is no image yet; it is billed for the data in it, for its size at most."""
    size, tags = int(properties_of(raw).get("diskSizeGB") or 0), raw.get("tags") or {}
    return _resource(
        azure, raw, tags, kind=Kind.SNAPSHOT, name=tags.get(TAG_IMAGE, ""), size_gb=size, stored_as=SNAPSHOT
    )


def image(azure: Azure, raw: Raw) -> ProviderResource:
    """Return an image, which is billed as a snapshot of its disk is."""
    os_disk = (properties_of(raw).get("storageProfile") or {}).get("osDisk") or {}
    size, tags = int(os_disk.get("diskSizeGB") or 0), raw.get("tags") or {}
    return _resource(azure, raw, tags, kind=Kind.IMAGE, name=tags.get(TAG_IMAGE, ""), size_gb=size, stored_as=SNAPSHOT)


def plain_name(raw: Raw) -> str:
    """Return the name under which an image was saved."""
    name = str(raw["name"])
    return name.removesuffix(f".{raw['location']}") if is_in_gallery(raw) else name


def is_in_gallery(raw: Raw) -> bool:
    """Say whether an image is one of the gallery."""
    return "/galleries/" in str(raw["id"]).lower()


def _resource(azure: Azure, raw: Raw, tags: Mapping[str, str], **known_fields: Any) -> ProviderResource:
    region = str(raw["location"])
    ref = refs.from_azure_id(region, str(raw["id"]))
    if is_in_gallery(raw):
        ref = refs.ResourceRef(region, ids.SHARED_GROUP, gallery.GALLERY_IMAGE_TYPE, str(raw["name"]))
    fields = {"zone": "", "attached_to": None, **known_fields}
    return ProviderResource(
        provider="azure",
        account=azure.account,
        region=region,
        id=str(raw["id"]) if ref is None else ref.id,
        tags={key: value for key, value in tags.items() if key.startswith(TAG_PREFIX) and key != TAG_MADE_AT},
        made_at=_made_at(raw),
        ready=provisioning_state(raw) in (_SUCCEEDED, ""),
        **fields,
    )


def machine_using(raw: Raw) -> str | None:
    """Return our id of the machine that uses a disk, Azure's for somebody else's machine; None for no machine."""
    azure_id = str(raw.get("managedBy") or "")
    user_id = ids.resource(azure_id)
    if user_id is None or not ids.GROUP.fullmatch(user_id.group):
        return azure_id or None
    return ids.join_id(str(raw["location"]), user_id.group)


def group_of(raw: Raw) -> str:
    """Return the resource group of something, in small letters; empty for what is in none."""
    found = ids.resource(str(raw.get("id") or ""))
    return "" if found is None else found.group


def _made_at(raw: Raw) -> datetime | None:
    """Return when a resource was made, aware UTC; for an image by our tag, where Azure does not say it."""
    text = properties_of(raw).get("timeCreated") or (raw.get("systemData") or {}).get("createdAt")
    if text:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    return time_of_tag(str((raw.get("tags") or {}).get(TAG_MADE_AT, "")))


def remove(azure: Azure, resource: ProviderResource) -> None:
    """Delete it, an image with the snapshot it was made of; what is gone already is no error.

    A launch's group is deleted with its last disk. Raises InvalidRequest while a machine uses it. Two calls; up to two
    more for the last disk of a launch.
    """
    ref = refs.parse_or_raise(resource.id, resource.kind)
    if ref.azure_type == gallery.GALLERY_IMAGE_TYPE:
        gallery.delete(azure, ref.name)
        return
    if ref.azure_type == "disks":
        _raise_if_used(azure, ref, resource.id)
    delete(azure, ref)
    if ref.azure_type == "images":
        delete(azure, refs.ResourceRef(ref.region, ref.group, "snapshots", ref.name))
    if ref.azure_type == "disks" and ids.GROUP.fullmatch(ref.group):
        groups.delete_if_empty(azure, ref.region, ref.group, deleted_disk=ref.name)


def delete(azure: Azure, ref: refs.ResourceRef) -> None:
    """Ask to delete a disk, a snapshot or an image; one that is gone is no error. One call, not waited for."""
    refs.delete(azure, getattr(azure.compute, ref.azure_type), ref)


def _raise_if_used(azure: Azure, ref: refs.ResourceRef, id: str) -> None:  # noqa: A002
    found = read(azure, ref)
    user_id = None if found is None else machine_using(found)
    if user_id is not None:
        message = f"{id} is in use by {user_id}."
        raise InvalidRequest(message, field="id", value=id, next="End that machine first.")


def read(azure: Azure, ref: refs.ResourceRef) -> Raw | None:
    """Return what Azure says of a disk, a snapshot or an image; None where it has none. One call."""
    return refs.read(azure, getattr(azure.compute, ref.azure_type), ref)


VOLUME_LUN = 0  # on the machine it is /dev/disk/azure/scsi1/lun0 (udev rules of Azure's images)
VOLUME_SKU = "StandardSSD_LRS"  # every size takes it; Premium SSDs only those that say so
POLL_PAUSE_S, MAX_POLLS = 2.0, 120  # until a volume is attached
_READ, _WRITE = "Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write"
_NO_SUCH_CALL_STATUSES = (404, 405, 501)
_ATTACH = "Microsoft.Compute/virtualMachines/attachDetachDataDisks/action"


def attach(azure: Azure, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
    """Find or make the volume in the machine's zone, and attach it; return it as it is afterwards.

    Raises InvalidRequest where another machine uses it, it lies in another zone, or its size has to be named.
    """
    raw = machine.read(azure, id)
    tags = {**tags, TAG_VOLUME: volume.name}
    raw_disk = _find_volume(azure, machine.zone_of(raw), volume, tags) or _create_volume(azure, raw, volume, tags)
    is_requested = False
    for _ in range(MAX_POLLS):
        user_id = machine_using(raw_disk)
        if user_id == id:
            return disk(azure, raw_disk, raw_disk.get("tags") or {})
        if user_id is not None:
            raise volume_in_use_error(volume, user_id)
        if provisioning_state(raw_disk) == _SUCCEEDED and not is_requested:
            _attach(azure, id, str(raw_disk["id"]))
            is_requested = True
        else:
            azure.pause(POLL_PAUSE_S)
        raw_disk = _read_disk(azure, raw_disk, volume)
    message = f"The volume {volume.name} is not attached after {MAX_POLLS * POLL_PAUSE_S:.0f} seconds."
    raise ProviderUnavailable(message, field="--volume", value=volume.name, next="Run the same up again.")


def named_disks(azure: Azure, ledger: str) -> list[Raw]:
    """Return the data volumes of this ledger; empty: of any ledger. A call per page."""
    listed = azure.compute.disks.list_by_resource_group
    found = call_or_none(
        azure, _READ, lambda: [one.as_dict() for one in listed(ids.SHARED_GROUP)], value=ids.SHARED_GROUP
    )
    volumes = (one for one in found or () if TAG_VOLUME in (one.get("tags") or {}))
    ledger_volumes = (one for one in volumes if ledger in ("", one["tags"].get(TAG_LEDGER)))
    return [one for one in ledger_volumes if provisioning_state(one) != "deleting"]


def volume_resource_name(volume: str, ledger: str, zone: str) -> str:
    """Return a volume's name at Azure: a hash of its name, ledger and zone."""
    return f"volume-{digest('volume', ledger, volume, zone)[:20]}"


def _find_volume(azure: Azure, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw | None:
    """Return the ledger's volume of this name; raise InvalidRequest where it exists only in another zone."""
    found = [one for one in named_disks(azure, "") if _is_volume(one, volume.name, tags)]
    return pick_in_zone(zone, found, machine.zone_of, "name", volume)


def _is_volume(raw: Raw, name: str, tags: Mapping[str, str]) -> bool:
    disk_tags = raw["tags"]
    return (disk_tags.get(TAG_VOLUME), disk_tags.get(TAG_LEDGER, "")) == (name, tags.get(TAG_LEDGER, ""))


def _create_volume(azure: Azure, machine_raw: Raw, volume: Volume, tags: Mapping[str, str]) -> Raw:
    """Create the volume in a machine's zone, and return it. It is encrypted, as every managed disk is."""
    zone, region = machine.zone_of(machine_raw), str(machine_raw["location"])
    size_gb = size_to_make(volume, zone)
    groups.ensure_shared_group(azure, region)
    body: dict[str, Any] = {
        "location": region,
        "tags": dict(tags),
        "sku": {"name": VOLUME_SKU},
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": size_gb},
    }
    body |= {"zones": list(machine_raw["zones"])} if machine_raw.get("zones") else {}
    name, disks = volume_resource_name(volume.name, tags.get(TAG_LEDGER, ""), zone), azure.compute.disks
    invoke(
        azure,
        _WRITE,
        lambda: disks.begin_create_or_update(ids.SHARED_GROUP, name, body, polling=False),
        region=region,
        value=volume.name,
    )
    return _read_volume(azure, refs.ResourceRef(region, ids.SHARED_GROUP, "disks", name), volume)


def _read_disk(azure: Azure, disk: Raw, volume: Volume) -> Raw:
    ref = refs.from_azure_id(str(disk["location"]), str(disk["id"]))
    return disk if ref is None else _read_volume(azure, ref, volume)


def _read_volume(azure: Azure, ref: refs.ResourceRef, volume: Volume) -> Raw:
    found = read(azure, ref)
    if found is None or provisioning_state(found) == "failed":
        message = f"Azure {ref.region} did not make the volume {volume.name}."
        raise ProviderUnavailable(message, field="--volume", value=volume.name, next="Run the same up again.")
    return found


def _attach(azure: Azure, id: str, disk: str) -> None:  # noqa: A002
    """Request the attachment beside the machine's other disks. Not waited for: the disk says when it is done.

    A cloud of Azure's kind without this call (it is of 2024) gets a change of the machine's list of disks instead.
    """
    region, group = ids.split_machine_id(id)
    send = azure.compute.virtual_machines.begin_attach_detach_data_disks
    body = {"dataDisksToAttach": [{"diskId": disk, "lun": VOLUME_LUN, "deleteOption": "Detach"}]}
    try:
        invoke(azure, _ATTACH, lambda: send(group, group, body, polling=False), region=region, value=id)
    except CloudgpuError as error:
        if getattr(error.__cause__, "status_code", None) not in _NO_SUCH_CALL_STATUSES:
            raise
        _attach_by_update(azure, id, disk)


def _attach_by_update(azure: Azure, id: str, disk: str) -> None:  # noqa: A002
    """Write the disk into the machine's list of data disks: a change of it has to name all of them."""
    profile = properties_of(machine.read(azure, id)).get("storageProfile") or {}
    other_disks = [_attached_disk_request(one) for one in profile.get("dataDisks") or ()]
    new_disk = {"lun": VOLUME_LUN, "createOption": "Attach", "deleteOption": "Detach", "managedDisk": {"id": disk}}
    machine.change(azure, id, {"storageProfile": {"dataDisks": [*other_disks, new_disk]}})


def _attached_disk_request(raw: Raw) -> Raw:
    """Return a data disk that is attached already as a change of the list has to name it."""
    fields_kept = {key: raw[key] for key in ("lun", "name", "createOption", "caching", "deleteOption") if key in raw}
    return {**fields_kept, "managedDisk": {"id": (raw.get("managedDisk") or {}).get("id")}}
