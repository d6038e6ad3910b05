"""Disks, snapshots and images at Google, which cost without a machine: listing, removal, and data volumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cloudgpu.catalog.disktypes import disk_type
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.values.naming import digest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import PROVIDER, Gcp, Raw
from cloudgpu.providers.gcp.compute import listing
from cloudgpu.providers.gcp.error_codes import ALREADY_EXISTS
from cloudgpu.providers.gcp.errors import code_of
from cloudgpu.providers.gcp.storage.resources import (
    GLOBAL,
    PartialListing,
    change_and_wait,
    if_found,
    list_all_scopes,
    machine_of,
    missing_parts,
    our_tags,
    parse_resource_id,
    parse_time,
    read_lists,
    relevant_gaps,
    resource_id,
    scope_parameter,
)
from cloudgpu.providers.shared.calls import check_all_answered
from cloudgpu.providers.shared.errors import Tolerating
from cloudgpu.providers.shared.named_volumes import pick_in_zone, size_to_make, volume_in_use_error

DISKS, IMAGES, SNAPSHOTS, MACHINE_IMAGES = "disks", "images", "snapshots", "machineImages"
OUR_RESOURCES_FILTER = f"labels.{TAG_LEDGER}:*"
STORED_AS_IMAGE, STORED_AS_SNAPSHOT = "custom_image", "snapshot(standard)"  # the catalogue's names
# The collections of Google's API that may have a resource of each kind.
_COLLECTIONS = {
    Kind.DISK: (DISKS,),
    Kind.VOLUME: (DISKS,),
    Kind.SNAPSHOT: (SNAPSHOTS,),
    Kind.IMAGE: (IMAGES, MACHINE_IMAGES),
}
# The parameter of a call for the name of a resource, by its collection.
_NAME_PARAMETERS = {DISKS: "disk", IMAGES: "image", SNAPSHOTS: "snapshot", MACHINE_IMAGES: "machineImage"}
_GIB = 1024**3


def resources(gcp: Gcp, region: str | None) -> ResourceListing:
    """Return the disks, snapshots and images with our labels, by four lists in parallel, and what did not answer.

    Raises an error where neither disks nor images answered. cloudgpu makes no snapshots or machine images: those that
    somebody gave its labels are listed where Google answers.
    """
    found = read_lists(
        gcp,
        region,
        [lambda: _disks(gcp), lambda: _list_global(gcp, IMAGES, image)],
        optional=[
            lambda: _list_global(gcp, SNAPSHOTS, snapshot),
            lambda: _list_global(gcp, MACHINE_IMAGES, machine_image),
        ],
    )
    if region is not None:
        return found
    if not found.unanswered and not any(gcp.ledger in ("", item.tags.get(TAG_LEDGER)) for item in found.items):
        listing.forget_project(gcp)  # no machine either: each has a disk
    return replace(found, unanswered=(*found.unanswered, *listing.other_projects(gcp)))


def _disks(gcp: Gcp) -> PartialListing:
    disks, unanswered = list_all_scopes(gcp, DISKS, filter=OUR_RESOURCES_FILTER)
    return [disk(gcp, raw) for raw in disks if _exists(raw)], unanswered


def _list_global(gcp: Gcp, collection: str, to_resource: Callable[[Gcp, Raw], ProviderResource]) -> PartialListing:
    pages = list(gcp.pages(f"compute.{collection}.list", filter=OUR_RESOURCES_FILTER))
    unanswered = {scope: why for page in pages for scope, why in missing_parts(gcp.account, page).items()}
    resources = [to_resource(gcp, item) for page in pages for item in page.get("items", ()) if _exists(item)]
    return resources, tuple(Unanswered(scope, why) for scope, why in unanswered.items())


def _exists(raw: Raw) -> bool:
    return TAG_LEDGER in our_tags(raw) and raw.get("status") != "DELETING"


def disk(gcp: Gcp, raw: Raw) -> ProviderResource:
    """Return a disk: a data volume where it has the user's name for it as a label, else a machine's system disk."""
    tags, zone = our_tags(raw), ids.last_part(raw.get("zone", ""))
    return _resource(
        gcp,
        raw,
        id=resource_id(zone, DISKS, raw["name"]),
        kind=Kind.VOLUME if TAG_VOLUME in tags else Kind.DISK,
        region=ids.region_of(zone) or "",
        zone=zone,
        name=tags.get(TAG_VOLUME, ""),
        size_gb=int(raw.get("sizeGb", 0)),
        stored_as=ids.last_part(raw.get("type", "")) or "pd-standard",
        ready=raw.get("status", "READY") == "READY",
        attached_to=machine_of(raw.get("users", ())),
    )


def image(gcp: Gcp, raw: Raw) -> ProviderResource:
    """Return an image; what is billed is its archive, at most the size of its disk."""
    size = _gib(raw.get("archiveSizeBytes", 0)) or int(raw.get("diskSizeGb", 0))
    return _image_or_snapshot(gcp, raw, IMAGES, Kind.IMAGE, size_gb=size, stored_as=STORED_AS_IMAGE)


def snapshot(gcp: Gcp, raw: Raw) -> ProviderResource:
    """Return a snapshot; what is billed is what it stores, at most the size of its disk."""
    size = _gib(raw.get("storageBytes", 0)) or int(raw.get("diskSizeGb", 0))
    return _image_or_snapshot(gcp, raw, SNAPSHOTS, Kind.SNAPSHOT, size_gb=size, stored_as=STORED_AS_SNAPSHOT)


def machine_image(gcp: Gcp, raw: Raw) -> ProviderResource:
    """Return an image of a whole machine: cloudgpu makes none, and lists those with its labels."""
    size = _gib(raw.get("totalStorageBytes", 0))
    return _image_or_snapshot(gcp, raw, MACHINE_IMAGES, Kind.IMAGE, size_gb=size, stored_as=STORED_AS_SNAPSHOT)


def _gib(size_bytes: str | int) -> int:
    """Return a size in whole GiB, rounded up."""
    return -(-int(size_bytes) // _GIB)


def region_of(raw: Raw) -> str:
    """Return the region of an image or a snapshot: where it is stored, else that of its source disk.

    It can be used everywhere. One that is stored in a multi-region (`us`) counts as in its source disk's.
    """
    storage_regions = [region for region in raw.get("storageLocations", ()) if ids.REGION.fullmatch(region)]
    source = raw.get("sourceDisk") or raw.get("sourceInstance") or ""
    zone = source.partition("/zones/")[2].partition("/")[0]
    return (
        next(iter(storage_regions), None) or ids.region_of(zone) or next(iter(raw.get("storageLocations", ())), GLOBAL)
    )


def _image_or_snapshot(gcp: Gcp, raw: Raw, collection: str, kind: Kind, **fields: Any) -> ProviderResource:
    identity_fields = {
        "id": resource_id(GLOBAL, collection, raw["name"]),
        "kind": kind,
        "name": our_tags(raw).get(TAG_IMAGE, ""),
    }
    return _resource(
        gcp, raw, **identity_fields, region=region_of(raw), ready=raw.get("status", "READY") == "READY", **fields
    )


def _resource(gcp: Gcp, raw: Raw, **fields: Any) -> ProviderResource:
    all_fields = {"zone": "", "made_at": parse_time(raw.get("creationTimestamp")), "tags": our_tags(raw), **fields}
    return ProviderResource(provider=PROVIDER, account=gcp.account, **all_fields)


def remove(gcp: Gcp, resource: ProviderResource) -> None:
    """Delete it; what is gone already is no error. Raises InvalidRequest while a machine uses it."""
    scope, collection, name = parse_resource_id(resource, _COLLECTIONS, "cloudgpu ls --refresh")
    parameters = {**scope_parameter(scope), _NAME_PARAMETERS[collection]: name}
    if_found(lambda: change_and_wait(gcp, f"compute.{collection}.delete", scope, value=resource.id, **parameters))


DEVICE_NAME = "cloudgpu-data"  # on the machine: /dev/disk/by-id/google-cloudgpu-data
MIN_VOLUME_GB, MAX_DISK_GB = 10, 65_536  # of a balanced persistent disk (Compute Engine's guide, "Persistent Disk")


def attach(gcp: Gcp, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
    """Find or make the volume in the machine's zone, and attach it; return it as it is then.

    Raises InstanceNotFound, and InvalidRequest where another machine uses it, it is in another zone, or it has to be
    made and no size was given.
    """
    zone, machine = ids.zone_and_name(id)[0], listing.fetch_machine(gcp, id)
    tags = {**tags, TAG_VOLUME: volume.name}
    volume_disk = _find_volume(gcp, zone, volume, tags) or _create_volume(
        gcp, zone, volume, tags, disk_type(ids.last_part(machine["machineType"]))
    )
    used_by = machine_of(volume_disk.get("users", ()))
    if used_by not in (None, id):
        raise volume_in_use_error(volume, str(used_by))
    if used_by is None:
        _attach(gcp, id, volume_disk, volume)
        volume_disk = _read_disk(gcp, zone, volume_disk["name"])
    return disk(gcp, volume_disk)


def data_disks(gcp: Gcp, ledger: str) -> list[Raw]:
    """Return the data disks of a ledger (empty: of all) in all zones, in Google's format.

    Raises ProviderUnavailable for a zone that did not answer, so that no second volume of a name is made.
    """
    disks, unanswered = list_all_scopes(gcp, DISKS, filter=OUR_RESOURCES_FILTER)
    sentence = "{scope} did not say which volumes it has"
    check_all_answered(relevant_gaps(gcp, unanswered), sentence, field="--volume", remedy="Run it again.")
    volumes = (raw for raw in disks if TAG_VOLUME in our_tags(raw) and raw.get("status") not in ("DELETING", "FAILED"))
    return [volume for volume in volumes if ledger in ("", our_tags(volume).get(TAG_LEDGER))]


def _find_volume(gcp: Gcp, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw | None:
    """Return the ledger's volume of this name; one that lies in another zone alone is refused."""
    volumes = [
        data_disk
        for data_disk in data_disks(gcp, tags.get(TAG_LEDGER, ""))
        if our_tags(data_disk)[TAG_VOLUME] == volume.name
    ]
    return pick_in_zone(zone, volumes, lambda raw: ids.last_part(raw["zone"]), "name", volume)


def _create_volume(gcp: Gcp, zone: str, volume: Volume, tags: Mapping[str, str], kind: str) -> Raw:
    """Make the disk of a volume; its name at Google follows from the volume's: a zone has one disk of a name."""
    name = disk_name(tags.get(TAG_LEDGER, ""), volume.name)
    request = {
        "name": name,
        "sizeGb": str(size_to_make(volume, zone)),
        "type": f"projects/{gcp.project}/zones/{zone}/diskTypes/{kind}",
        "labels": dict(tags),
    }
    with Tolerating(code_of, *ALREADY_EXISTS):
        change_and_wait(gcp, "compute.disks.insert", zone, value=volume.name, zone=zone, diskResource=request)
    return _read_disk(gcp, zone, name)


def disk_name(ledger: str, volume: str) -> str:
    """Return the name of a volume's disk at Google: the volume's name, and a digest of it and the ledger."""
    return f"cg-{volume}-{digest('volume', ledger, volume)[:12]}"


def _read_disk(gcp: Gcp, zone: str, name: str) -> Raw:
    return gcp.call("compute.disks.get", zone, value=name, zone=zone, disk=name)


def _attach(gcp: Gcp, id: str, raw: Raw, volume: Volume) -> None:  # noqa: A002
    """Attach a disk with the device name that the machine looks for; it stays when the machine is deleted."""
    zone, name = ids.zone_and_name(id)
    source = f"projects/{gcp.project}/zones/{zone}/disks/{raw['name']}"
    parameters = {
        "source": source,
        "deviceName": DEVICE_NAME,
        "mode": "READ_WRITE",
        "type": "PERSISTENT",
        "autoDelete": False,
    }
    fields = {"zone": zone, "instance": name, "attachedDiskResource": parameters}
    change_and_wait(gcp, "compute.instances.attachDisk", zone, value=volume.name, **fields)
