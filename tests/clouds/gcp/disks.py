"""Disks, snapshots and images: what goes on costing money when the machine is gone.

A disk in use cannot be deleted, nor attached to a second machine for writing; an image is made of a disk that no
running machine has, or by force (Compute Engine API, images.insert: forceCreate).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.clouds.gcp import operations, resources
from tests.clouds.gcp.handlers import Asked, answers
from tests.clouds.gcp.model import ROOT, Key, Model, Thing, key_of, linked, not_found, with_labels
from tests.clouds.rest import Refusal

GIB = 1024**3
SMALLEST_GB = 10
COPIED = ("guestOsFeatures", "licenses", "architecture")


def source_of(model: Model, given: Mapping[str, Any]) -> tuple[Thing | None, dict[str, str]]:
    """Return the image, snapshot or disk that a disk is made of, and the fields that say so; None for an empty disk."""
    for name, collection in (("sourceImage", "images"), ("sourceSnapshot", "snapshots"), ("sourceDisk", "disks")):
        if given.get(name):
            key = image_key(model, given[name]) if collection == "images" else linked(given[name], collection)
            found = model.get(key)
            if found.get("status") != "READY":
                raise Refusal("resourceNotReady", f"The resource '{key.path}' is not ready")
            return found, {name: key.link, f"{name}Id": found["id"]}
    return None, {}


def image_key(model: Model, text: str) -> Key:
    """Return the key of an image, of the newest of a family where a family is named."""
    key = linked(text, "images")
    if not key.name.startswith("family/"):
        return key
    family = key.name.removeprefix("family/")
    found = newest(model, key.project, family)
    if found is None:
        raise not_found(key)
    return found


def newest(model: Model, project: str, family: str) -> Key | None:
    """Return the newest image of a family that is not deprecated."""
    every = [(one["creationTimestamp"], key) for key, one in model.of("images", project).items()]
    return max(
        (pair for pair in every if model.resources[pair[1]].get("family") == family), default=(None, None), key=_first
    )[1]


def _first(pair: Any) -> str:
    return str(pair[0])


def add(model: Model, key: Key, given: Mapping[str, Any], labels: Mapping[str, str] | None) -> Thing:
    """Keep a new disk; it is as large as its source unless told more."""
    source, said = source_of(model, given)
    least = int((source or {}).get("diskSizeGb") or (source or {}).get("sizeGb") or SMALLEST_GB)
    size = int(given.get("diskSizeGb") or given.get("sizeGb") or least)
    if size < least:
        raise Refusal("invalid", f"Requested disk size cannot be smaller than the image size ({least} GB)")
    kind = linked(given.get("diskType") or given.get("type") or "pd-standard", "diskTypes", key.project, key.scope)
    if kind.name not in DISK_TYPES:
        raise not_found(Key("diskTypes", key.project, key.scope, kind.name))
    made: Thing = {"sizeGb": str(size), "status": "READY", "type": kind.link, "physicalBlockSizeBytes": "4096", **said}
    made |= {name: source[name] for name in COPIED if source and name in source}
    disk = model.add(key, made)
    with_labels(disk, labels)
    return disk


DISK_TYPES = {"pd-standard", "pd-balanced", "pd-ssd", "pd-extreme", "hyperdisk-balanced", "hyperdisk-extreme"}


@answers("compute.disks.insert")
def insert(asked: Asked) -> Thing:
    """Make a disk."""
    resources.check_scope(f"zones/{asked.where['zone']}", asked.where["project"])
    key = key_of(asked.call, "disks", asked.body["name"])
    disk = add(asked.model, key, asked.body, asked.body.get("labels"))
    disk["status"] = "CREATING"
    return operations.begin(asked.model, asked.call, key, "insert", lambda: disk.update(status="READY"))


@answers("compute.disks.delete")
def delete(asked: Asked) -> Thing:
    """Delete a disk that nothing uses."""
    key, disk = resources.own(asked, "disks")
    if disk.get("users"):
        said = f"The disk resource '{key.path}' is already being used by '{disk['users'][0].removeprefix(ROOT + '/')}'"
        raise Refusal("resourceInUseByAnotherResource", said)
    disk["status"] = "DELETING"
    return operations.begin(asked.model, asked.call, key, "delete", lambda: resources.delete(asked.model, key))


@answers("compute.disks.resize")
def resize(asked: Asked) -> Thing:
    """Make a disk larger."""
    key, disk = resources.own(asked, "disks")
    if int(asked.body["sizeGb"]) < int(disk["sizeGb"]):
        raise Refusal("invalid", f"Invalid value for field 'sizeGb': '{asked.body['sizeGb']}'. It cannot be smaller.")
    disk["sizeGb"] = str(asked.body["sizeGb"])
    return operations.begin(asked.model, asked.call, key, "resizeDisk")


@answers("compute.disks.createSnapshot")
def create_snapshot(asked: Asked) -> Thing:
    """Make a snapshot of the disk that the path names."""
    source, _ = resources.own(asked, "disks")
    return _snapshot(asked, source, "createSnapshot")


@answers("compute.snapshots.insert")
def insert_snapshot(asked: Asked) -> Thing:
    """Make a snapshot of the disk that the body names."""
    return _snapshot(asked, linked(asked.body["sourceDisk"], "disks"), "insert")


def _snapshot(asked: Asked, source: Key, kind: str) -> Thing:
    disk = asked.model.get(source)
    key = Key("snapshots", asked.where["project"], "global", asked.body["name"])
    made = {"status": "CREATING", "diskSizeGb": disk["sizeGb"], "sourceDisk": source.link, "sourceDiskId": disk["id"]}
    made |= {name: disk[name] for name in COPIED if name in disk}
    if "description" in asked.body:
        made["description"] = asked.body["description"]
    snapshot = asked.model.add(key, made)
    with_labels(snapshot, asked.body.get("labels"))
    ready = {"status": "READY", "storageBytes": str(int(disk["sizeGb"]) * GIB // 2), "storageBytesStatus": "UP_TO_DATE"}
    asked.model.clock.later(f"snapshot {key.name}", "snapshot", lambda: snapshot.update(ready))
    return operations.begin(asked.model, asked.call, key, kind)


@answers("compute.images.insert")
def insert_image(asked: Asked) -> Thing:
    """Make an image of a disk, a snapshot or another image."""
    source, said = source_of(asked.model, asked.body)
    if source is None:
        raise Refusal("required", "A source disk, image or snapshot is needed")
    if "sourceDisk" in said and asked.call.query.get("forceCreate") != "true":
        _check_at_rest(asked.model, source)
    key = Key("images", asked.where["project"], "global", asked.body["name"])
    size = source.get("sizeGb") or source["diskSizeGb"]
    made = {name: asked.body[name] for name in ("family", "description", "storageLocations") if name in asked.body}
    made |= {"status": "PENDING", "diskSizeGb": size, "sourceType": "RAW", "archiveSizeBytes": "0", **said}
    made |= {name: source[name] for name in COPIED if name in source}
    image = asked.model.add(key, made)
    with_labels(image, asked.body.get("labels"))
    ready = {"status": "READY", "archiveSizeBytes": str(int(size) * GIB // 4)}
    asked.model.clock.later(f"image {key.name}", "image", lambda: image.update(ready))
    return operations.begin(asked.model, asked.call, key, "insert")


def _check_at_rest(model: Model, disk: Thing) -> None:
    for user in disk.get("users", []):
        if model.get(linked(user, "instances"))["status"] != "TERMINATED":
            path = disk["selfLink"].removeprefix(f"{ROOT}/")
            said = f"The disk resource '{path}' is already being used by '{user.removeprefix(ROOT + '/')}'"
            raise Refusal("resourceInUseByAnotherResource", said)


@answers("compute.images.delete", "compute.snapshots.delete", "compute.machineImages.delete")
def delete_copy(asked: Asked) -> Thing:
    """Delete an image or a snapshot; disks made of it stay."""
    key, thing = resources.own(asked, asked.call.action.split(".")[1])
    thing["status"] = "DELETING"
    return operations.begin(asked.model, asked.call, key, "delete", lambda: resources.delete(asked.model, key))


@answers("compute.images.getFromFamily")
def get_from_family(asked: Asked) -> Thing:
    """Return the newest image of a family."""
    found = newest(asked.model, asked.where["project"], asked.where["family"])
    if found is None:
        raise not_found(Key("images", asked.where["project"], "global", f"family/{asked.where['family']}"))
    return asked.model.resources[found]


def furnish(model: Model, project: str, family: str, size_gb: int) -> None:
    """Put a public image into a project."""
    key = Key("images", project, "global", f"{family}-v20261101")
    arm = "arm64" in family
    image = model.add(key, {"family": family, "status": "READY", "diskSizeGb": str(size_gb), "sourceType": "RAW"})
    features = [{"type": one} for one in ("UEFI_COMPATIBLE", "VIRTIO_SCSI_MULTIQUEUE", "GVNIC")]
    image |= {"architecture": "ARM64" if arm else "X86_64", "guestOsFeatures": features}
    image |= {"archiveSizeBytes": str(size_gb * GIB // 4), "creationTimestamp": "2026-11-01T00:00:00.000-07:00"}
    system = "ubuntu" if "ubuntu" in family else "debian"
    image["licenses"] = [f"{ROOT}/projects/{system}-os-cloud/global/licenses/{system}"]
    with_labels(image, None)
