"""Makes an image of a machine or a disk on Azure, one step a call, from what exists by then: never two of one name.

The way that Azure recommends (deallocate, generalize, capture) destroys the machine: "After you mark a VM as
generalized, you can't restart it". So the system disk's snapshot is taken while the machine runs, and a managed
image is made of the snapshot, marked `Generalized`: a machine of it takes custom data, a user and keys, as cloud-init
starts anew on a machine with another id. A `Specialized` one would take none of them. That Azure starts such an image
whose system was not deprovisioned is unverified. The snapshot holds what was written to the disk at that moment, as
after a loss of power; nothing is restarted for it.

A disk of a machine with Trusted Launch makes no managed image ("Trusted Launch for Azure virtual machines" has it among
what is not supported): its image is made in a gallery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.calls import invoke, properties_of, provisioning_state
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.compute import machine
from cloudgpu.providers.azure.storage import disks, gallery, resources as refs
from cloudgpu.providers.azure.storage.resources import ResourceRef
from cloudgpu.providers.shared.rules import check_is_system_disk, check_saved_image, source_not_found_error

_TRUSTED_LAUNCH = "trustedlaunch"
TAG_TRUSTED = "cloudgpu-trusted"  # on a snapshot: its machine has Trusted Launch


def save_image(
    azure: Azure,
    source_id: str,
    name: str,
    tags: Mapping[str, str],
    *,
    restart: bool = True,  # noqa: ARG001  (a snapshot is of one moment, whether the machine runs or not)
) -> ProviderResource:
    """Take the next step to the image `name` and return what there is: a snapshot, or the image, `ready` at the end.

    Nothing is restarted, whatever `restart` says. Raises InstanceNotFound for a source that is not there,
    InvalidRequest for a name that is taken.
    """
    region = source_id.partition("/")[0]
    if not ids.LOCATION.fullmatch(region):
        raise source_not_found_error("Azure", source_id)
    snapshot_ref, image_ref = (
        ResourceRef(region, ids.SHARED_GROUP, azure_type, name) for azure_type in ("snapshots", "images")
    )
    snapshot, image = disks.read(azure, snapshot_ref), disks.read(azure, image_ref)
    if (
        image is None
        and (snapshot is None or TAG_TRUSTED in (snapshot.get("tags") or {}))
        and gallery.gallery_exists(azure)
    ):
        image = gallery.read(azure, gallery.definition_name(name, region))
    if image is not None:
        return _finish_image(azure, image, snapshot_ref, tags)
    snapshot = snapshot or _begin_snapshot(azure, source_id, snapshot_ref, tags)
    _check_ours(snapshot, snapshot_ref, tags)
    if provisioning_state(snapshot) == "failed":
        disks.delete(azure, snapshot_ref)
        return _unfinished(azure, snapshot)
    if not _is_copied(snapshot):
        return _unfinished(azure, snapshot)
    image_tags = {**tags, disks.TAG_MADE_AT: str(int(azure.clock().timestamp()))}
    if TAG_TRUSTED not in (snapshot.get("tags") or {}):
        return disks.image(azure, _create_managed_image(azure, snapshot, image_ref, image_tags))
    gallery.begin_image(azure, str(snapshot["id"]), name, region, image_tags)
    gallery_image = gallery.read(azure, gallery.definition_name(name, region))
    return _unfinished(azure, snapshot) if gallery_image is None else disks.image(azure, gallery_image)


def _unfinished(azure: Azure, snapshot: Raw) -> ProviderResource:
    """Return the snapshot of an image that is still to be made: however complete it is, the image is not ready."""
    return replace(disks.snapshot(azure, snapshot), ready=False)


def _finish_image(azure: Azure, image: Raw, snapshot_ref: ResourceRef, tags: Mapping[str, str]) -> ProviderResource:
    """Return the image as it is; once it is ready, delete the snapshot that it was made of.

    A managed image is a copy of its own: tools in wide use delete what they made theirs of (Packer, azure-chroot, does
    so with disks; of snapshots it is unverified).
    """
    _check_ours(image, snapshot_ref, tags)
    resource = disks.image(azure, image)
    if provisioning_state(image) == "failed":
        disks.remove(azure, resource)
        message = f"The image {snapshot_ref.name} in {snapshot_ref.region} failed and was removed."
        raise InvalidRequest(message, field="image", value=snapshot_ref.name, next="Run it again.")
    if resource.ready:
        disks.delete(azure, snapshot_ref)
    return resource


def _begin_snapshot(azure: Azure, source_id: str, snapshot_ref: ResourceRef, tags: Mapping[str, str]) -> Raw:
    """Begin a snapshot of a machine's system disk, or of a disk that no machine uses. Its name makes it idempotent."""
    disk = _disk_of(azure, source_id)
    groups.ensure_shared_group(azure, snapshot_ref.region)
    trusted_tags = {TAG_TRUSTED: "yes"} if _security_type(disk) == _TRUSTED_LAUNCH else {}
    body = {
        "location": snapshot_ref.region,
        "tags": {**tags, **trusted_tags},
        "sku": {"name": "Standard_LRS"},
        "properties": {"creationData": {"createOption": "Copy", "sourceResourceId": disk["id"]}, "incremental": False},
    }
    _send_put(azure, azure.compute.snapshots, snapshot_ref, body)
    return disks.read(azure, snapshot_ref) or {
        **body,
        "id": refs.azure_id(azure.subscription, snapshot_ref),
        "name": snapshot_ref.name,
    }


def _disk_of(azure: Azure, source_id: str) -> Raw:
    """Return the system disk of a machine, or the disk that is named; raise InvalidRequest for a data volume."""
    ref = refs.parse(source_id, "disks")
    if ref is None and source_id.count("/") == 1:
        ref = refs.from_azure_id(source_id.partition("/")[0], machine.system_disk(machine.read(azure, source_id)))
    disk = None if ref is None else disks.read(azure, ref)
    if disk is None:
        raise source_not_found_error("Azure", source_id)
    check_is_system_disk(source_id, disk.get("tags") or {})
    return disk


def _security_type(raw: Raw) -> str:
    profile = properties_of(raw).get("securityProfile") or {}
    return str(profile.get("securityType") or "").lower()


def _is_copied(snapshot: Raw) -> bool:
    """Say whether a snapshot can be used: the copy of a large disk goes on in the background."""
    percent = properties_of(snapshot).get("completionPercent")  # 0 at first; none where nothing goes on
    return provisioning_state(snapshot) == "succeeded" and (percent is None or float(percent) >= 100)  # noqa: PLR2004


def _create_managed_image(azure: Azure, snapshot: Raw, image_ref: ResourceRef, tags: Mapping[str, str]) -> Raw:
    """Create the image of a snapshot that is complete."""
    properties = properties_of(snapshot)
    disk = {
        "osType": "Linux",
        "osState": "Generalized",
        "snapshot": {"id": snapshot["id"]},
        "diskSizeGB": properties.get("diskSizeGB"),
        "storageAccountType": "Standard_LRS",
    }
    body = {
        "location": image_ref.region,
        "tags": dict(tags),
        "properties": {
            "hyperVGeneration": properties.get("hyperVGeneration") or "V1",
            "storageProfile": {"osDisk": {key: value for key, value in disk.items() if value is not None}},
        },
    }
    _send_put(azure, azure.compute.images, image_ref, body)
    created = disks.read(azure, image_ref)
    if created is not None:
        return created
    properties_now = {**properties_of(body), "provisioningState": "Creating"}  # accepted, and not shown yet
    id_ = refs.azure_id(azure.subscription, image_ref)
    return {**body, "id": id_, "name": image_ref.name, "properties": properties_now}


def _send_put(azure: Azure, operations: Any, ref: ResourceRef, body: Raw) -> None:
    send = partial(operations.begin_create_or_update, ref.group, ref.name, body, polling=False)
    invoke(azure, f"Microsoft.Compute/{ref.azure_type}/write", send, region=ref.region, value=ref.name)


def _check_ours(raw: Raw, ref: ResourceRef, tags: Mapping[str, str]) -> None:
    check_saved_image(ref.name, raw.get("tags") or {}, tags, str(raw["location"]))
