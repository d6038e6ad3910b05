"""Disks, snapshots and images on Azure that go on costing money: all of ours, how they are removed, and volumes.

A machine's system disk takes no tags in the call that makes it: it lies in its launch's group, whose name follows from
the token, and has that group's tags. Volumes and images lie in the group `cloudgpu`, with tags of their own.

Data disks on Azure that outlive machines: found by name in the group `cloudgpu`, made once, attached.

A disk's name follows from the ledger, the volume's name and the place, and a PUT of what is there makes no second one:
no token is needed. A disk lies in a zone as its machine does, or in none where that lies in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from cloudgpu.catalog.disktypes import tier
from cloudgpu.core.model.instances import TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import CloudgpuError, InvalidRequest, ProviderUnavailable
from cloudgpu.parallel import Pool
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.calls import find, invoke, properties_of, provisioning_state
from cloudgpu.providers.azure.client import Azure
from cloudgpu.providers.azure.compute import machine
from cloudgpu.providers.azure.compute.request import is_system_disk
from cloudgpu.providers.azure.storage import gallery, resources as refs
from cloudgpu.providers.shared.named_volumes import pick_in_zone, size_to_make, volume_in_use_error
from cloudgpu.providers.shared.rules import time_of_tag

Raw = Mapping[str, Any]
Tags = Mapping[str, Mapping[str, str]]  # of groups, by their names
LARGEST_GB = 32_767  # of a Standard or Premium SSD: "Azure managed disk types"
SNAPSHOT = "snapshot"  # the catalogue's name for what snapshots and images are billed as
TAG_PREFIX = "cloudgpu-"
TAG_MADE = "cloudgpu-made"  # on an image: the epoch second of its making
_ACTION = "Microsoft.Compute"
_SUCCEEDED, _DELETING = "succeeded", ("deleting", "failed deletion")


def resources(azure: Azure, region: str | None) -> ResourceListing:
    """Return the disks, snapshots and images of ours, by four calls for the whole subscription and their pages.

    Where there is a gallery, one more, and one for each image in it. Raises the error of whichever did not answer: a
    part would look like the whole.
    """
    compute = azure.compute
    with Pool(4) as pool:
        tags = pool.submit(groups.tags_of_all, azure)
        disks, snapshots, images = (
            pool.submit(_listed, azure, kind, operations)
            for kind, operations in (
                ("disks", compute.disks),
                ("snapshots", compute.snapshots),
                ("images", compute.images),
            )
        )
        shared = gallery.listed(azure) if gallery.TAG in tags.result().get(ids.SHARED_GROUP, {}) else []
        kept = [one for one in (*images.result(), *shared) if _is_ours(one)]
        parts = {(group_of(one), plain_name(one)) for one in kept}  # an image and its snapshot bear one name
        copies = (one for one in snapshots.result() if (group_of(one), str(one["name"])) not in parts)
        found = [
            *_ours(azure, disks.result(), tags.result()),
            *(snapshot(azure, one) for one in copies if _is_ours(one)),
            *(image(azure, one) for one in kept),
        ]
    here = tuple(one for one in found if region in (None, one.region))
    return ResourceListing(here, regions=None if region is None else frozenset({region}))


def _listed(azure: Azure, kind: str, operations: Any) -> list[Raw]:
    found = invoke(azure, f"{_ACTION}/{kind}/read", lambda: [one.as_dict() for one in operations.list()])
    return [one for one in found if provisioning_state(one) not in _DELETING]


def _ours(azure: Azure, raws: Iterable[Raw], tags: Tags) -> list[ProviderResource]:
    """Return the disks that bear our tags, or are called after the launch's group they lie in: its tags are theirs.

    What else somebody has put into such a group is theirs.
    """
    whose = ((one, tags.get(group_of(one), {}) if _is_system(one) else {}) for one in raws)
    tagged = ((one, {**of, **(one.get("tags") or {})}) for one, of in whose)
    return [disk(azure, one, merged) for one, merged in tagged if TAG_LEDGER in merged]


def _is_system(raw: Raw) -> bool:
    """Say whether a disk is that of a launch's machine: it is called after the group."""
    return is_system_disk(str(raw["name"]), group_of(raw))


def _is_ours(raw: Raw) -> bool:
    return TAG_LEDGER in (raw.get("tags") or {})


def disk(azure: Azure, raw: Raw, tags: Mapping[str, str]) -> ProviderResource:
    """Return a disk: a volume where it bears a name of the user's, else a machine's system disk."""
    size, name = int(properties_of(raw).get("diskSizeGB") or 0), tags.get(TAG_VOLUME, "")
    return _resource(
        azure,
        raw,
        tags,
        kind=Kind.VOLUME if name else Kind.DISK,
        zone=machine.zone_of(raw),
        name=name,
        size_gb=size,
        stored_as=tier(str((raw.get("sku") or {}).get("name") or ""), size),
        attached_to=holder(raw),
    )


def snapshot(azure: Azure, raw: Raw) -> ProviderResource:
    """Return a snapshot that is no image yet; it is billed by what is written in it, its size at most."""
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


def _resource(azure: Azure, raw: Raw, tags: Mapping[str, str], **facts: Any) -> ProviderResource:
    region = str(raw["location"])
    ref = refs.from_azure_id(region, str(raw["id"]))
    if is_in_gallery(raw):
        ref = refs.ResourceRef(region, ids.SHARED_GROUP, gallery.KIND, str(raw["name"]))
    known = {"zone": "", "attached_to": None, **facts}
    return ProviderResource(
        provider="azure",
        account=azure.account,
        region=region,
        id=str(raw["id"]) if ref is None else ref.id,
        tags={key: value for key, value in tags.items() if key.startswith(TAG_PREFIX) and key != TAG_MADE},
        made_at=_made_at(raw),
        ready=provisioning_state(raw) in (_SUCCEEDED, ""),
        **known,
    )


def holder(raw: Raw) -> str | None:
    """Return our id of the machine that uses a disk, Azure's own where that is none of ours; None where it is free."""
    azure_id = str(raw.get("managedBy") or "")
    user = ids.resource(azure_id)
    if user is None or not ids.GROUP.fullmatch(user.group):
        return azure_id or None
    return ids.joined(str(raw["location"]), user.group)


def group_of(raw: Raw) -> str:
    """Return the resource group of something, in small letters; empty for what lies in none."""
    found = ids.resource(str(raw.get("id") or ""))
    return "" if found is None else found.group


def _made_at(raw: Raw) -> datetime | None:
    """Return when it was made, aware UTC: of an image Azure may say so in `systemData`, or not at all; our tag does."""
    text = properties_of(raw).get("timeCreated") or (raw.get("systemData") or {}).get("createdAt")
    if text:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    return time_of_tag(str((raw.get("tags") or {}).get(TAG_MADE, "")))


def remove(azure: Azure, resource: ProviderResource) -> None:
    """Delete it, an image with the snapshot it was made of; what is gone already is no error.

    The group of a launch goes with its last disk. Raises InvalidRequest while a machine uses it. Two calls; up to two
    more for the last disk of a launch.
    """
    ref = refs.parse_leftover(resource.id, resource.kind)
    if ref.kind == gallery.KIND:
        gallery.delete(azure, ref.name)
        return
    if ref.kind == "disks":
        _refuse_used(azure, ref, resource.id)
    delete(azure, ref)
    if ref.kind == "images":
        delete(azure, refs.ResourceRef(ref.region, ref.group, "snapshots", ref.name))
    if ref.kind == "disks" and ids.GROUP.fullmatch(ref.group):
        groups.delete_if_empty(azure, ref.region, ref.group, deleted_disk=ref.name)


def delete(azure: Azure, ref: refs.ResourceRef) -> None:
    """Ask to delete a disk, a snapshot or an image; one that is gone is no error. One call, not waited for."""
    refs.delete(azure, getattr(azure.compute, ref.kind), ref)


def _refuse_used(azure: Azure, ref: refs.ResourceRef, id: str) -> None:  # noqa: A002
    found = read(azure, ref)
    user = None if found is None else holder(found)
    if user is not None:
        message = f"{id} is in use by {user}."
        raise InvalidRequest(message, field="id", value=id, next="End that machine first.")


def read(azure: Azure, ref: refs.ResourceRef) -> Raw | None:
    """Return what Azure says of a disk, a snapshot or an image; None where it has none. One call."""
    return refs.read(azure, getattr(azure.compute, ref.kind), ref)


LUN = 0  # on the machine it is /dev/disk/azure/scsi1/lun0 (udev rules of Azure's images)
SKU = "StandardSSD_LRS"  # what every size takes; Premium SSD needs one that says so
POLL_PAUSE_S, MAX_POLLS = 2.0, 120  # until a volume is attached
_READ, _WRITE = "Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write"
_UNSUPPORTED_STATUSES = (404, 405, 501)
_ATTACH = "Microsoft.Compute/virtualMachines/attachDetachDataDisks/action"


def attach(azure: Azure, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
    """Find or make the volume where the machine lies, and attach it; return it as it is then.

    Raises InvalidRequest where another machine uses it, it lies in another zone, or its size has to be said.
    """
    raw = machine.read(azure, id)
    tags = {**tags, TAG_VOLUME: volume.name}
    found = _find_volume(azure, machine.zone_of(raw), volume, tags) or _create_volume(azure, raw, volume, tags)
    is_requested = False
    for _ in range(MAX_POLLS):
        user = holder(found)
        if user == id:
            return disk(azure, found, found.get("tags") or {})
        if user is not None:
            raise volume_in_use_error(volume, user)
        if provisioning_state(found) == _SUCCEEDED and not is_requested:
            _attach(azure, id, str(found["id"]))
            is_requested = True
        else:
            azure.pause(POLL_PAUSE_S)
        found = _read_disk(azure, found, volume)
    message = f"The volume {volume.name} is not attached after {MAX_POLLS * POLL_PAUSE_S:.0f} seconds."
    raise ProviderUnavailable(message, field="--volume", value=volume.name, next="Run the same up again.")


def named_disks(azure: Azure, ledger: str) -> list[Raw]:
    """Return the data disks with a name of the user's, of this ledger; empty: of any. A call per page."""
    listed = azure.compute.disks.list_by_resource_group
    found = find(azure, _READ, lambda: [one.as_dict() for one in listed(ids.SHARED_GROUP)], value=ids.SHARED_GROUP)
    named = (one for one in found or () if TAG_VOLUME in (one.get("tags") or {}))
    ours = (one for one in named if ledger in ("", one["tags"].get(TAG_LEDGER)))
    return [one for one in ours if provisioning_state(one) != "deleting"]


def name_of(volume: str, ledger: str, zone: str) -> str:
    """Return what Azure calls a volume: the same for the same name of a ledger in a place."""
    return f"volume-{digest('volume', ledger, volume, zone)[:20]}"


def _find_volume(azure: Azure, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw | None:
    """Return the ledger's volume of this name; one that lies elsewhere alone is refused."""
    found = [one for one in named_disks(azure, "") if _is_named(one, volume.name, tags)]
    return pick_in_zone(zone, found, machine.zone_of, "name", volume)


def _is_named(raw: Raw, name: str, tags: Mapping[str, str]) -> bool:
    disk_tags = raw["tags"]
    return (disk_tags.get(TAG_VOLUME), disk_tags.get(TAG_LEDGER, "")) == (name, tags.get(TAG_LEDGER, ""))


def _create_volume(azure: Azure, machine_raw: Raw, volume: Volume, tags: Mapping[str, str]) -> Raw:
    """Make the volume where a machine lies, and return what there is of it. Encrypted, as every managed disk is."""
    zone, region = machine.zone_of(machine_raw), str(machine_raw["location"])
    size_gb = size_to_make(volume, zone)
    groups.need_shared(azure, region)
    body: dict[str, Any] = {
        "location": region,
        "tags": dict(tags),
        "sku": {"name": SKU},
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": size_gb},
    }
    body |= {"zones": list(machine_raw["zones"])} if machine_raw.get("zones") else {}
    name, disks = name_of(volume.name, tags.get(TAG_LEDGER, ""), zone), azure.compute.disks
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
    """Ask for it, and leave what else hangs on the machine alone. Not waited for: the disk says when it is so.

    A cloud of Azure's kind that does not know this call (it is of 2024) is asked to change the machine's list of disks.
    """
    region, group = ids.machine(id)
    send = azure.compute.virtual_machines.begin_attach_detach_data_disks
    body = {"dataDisksToAttach": [{"diskId": disk, "lun": LUN, "deleteOption": "Detach"}]}
    try:
        invoke(azure, _ATTACH, lambda: send(group, group, body, polling=False), region=region, value=id)
    except CloudgpuError as error:
        if getattr(error.__cause__, "status_code", None) not in _UNSUPPORTED_STATUSES:
            raise
        _attach_by_update(azure, id, disk)


def _attach_by_update(azure: Azure, id: str, disk: str) -> None:  # noqa: A002
    """Write the disk into the machine's list of data disks: a change of it names all that are to hang there."""
    profile = properties_of(machine.read(azure, id)).get("storageProfile") or {}
    others = [_as_request(one) for one in profile.get("dataDisks") or ()]
    new = {"lun": LUN, "createOption": "Attach", "deleteOption": "Detach", "managedDisk": {"id": disk}}
    machine.change(azure, id, {"storageProfile": {"dataDisks": [*others, new]}})


def _as_request(raw: Raw) -> Raw:
    """Return a data disk that hangs on a machine already as a change has to name it."""
    kept = {key: raw[key] for key in ("lun", "name", "createOption", "caching", "deleteOption") if key in raw}
    return {**kept, "managedDisk": {"id": (raw.get("managedDisk") or {}).get("id")}}
