"""Images of machines with Trusted Launch: of such a disk Azure makes no managed image, but one of a gallery.

All are in one gallery, `cloudgpu` in the group of that name: an image definition each, named after the image and its
region, with one version. They are generalized and may have Trusted Launch or not ("Trusted Launch for Azure virtual
machines", TrustedLaunchSupported), and are independent copies: "Once the image version is created, you can delete the
source". A version is billed as a snapshot of its size. The group has a tag once there is a gallery: without it, no call
is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.calls import call_or_none, complete, invoke, properties_of
from cloudgpu.providers.azure.client import Azure, Raw

GALLERY_IMAGE_TYPE = "galleryImages"
GALLERY, IMAGE_VERSION = "cloudgpu", "1.0.0"
TAG_GALLERY = "cloudgpu-gallery"
CREATE_WITHIN = timedelta(minutes=5)  # for a gallery and a definition; a version takes longer, and is not waited for
_ACTION = "Microsoft.Compute/galleries"
_GALLERY_PATH = (ids.SHARED_GROUP, GALLERY)


def definition_name(name: str, region: str) -> str:
    """Return the name of an image's definition: the same image name may be in several regions."""
    return f"{name}.{region}"


def read(azure: Azure, name: str) -> Raw | None:
    """Return an image (by its definition's name) as Azure describes a managed one; None for none. One call."""
    versions = azure.compute.gallery_image_versions
    action = f"{_ACTION}/images/versions/read"
    found = call_or_none(azure, action, lambda: versions.get(*_GALLERY_PATH, name, IMAGE_VERSION).as_dict(), value=name)
    return None if found is None else _as_managed(found, name)


def gallery_exists(azure: Azure) -> bool:
    """Say whether there is a gallery. One call."""
    return TAG_GALLERY in groups.tags_of(azure, ids.SHARED_GROUP)


def listed(azure: Azure) -> list[Raw]:
    """Return all images of the gallery, as `read` does. A call per page, and one per image."""
    definitions = azure.compute.gallery_images
    names = call_or_none(
        azure, f"{_ACTION}/images/read", lambda: [str(one.name) for one in definitions.list_by_gallery(*_GALLERY_PATH)]
    )
    found = (read(azure, name) for name in names or ())
    return [one for one in found if one is not None]


def begin_image(azure: Azure, snapshot: str, name: str, region: str, tags: Mapping[str, str]) -> None:
    """Begin the image of a snapshot (Azure's id). Four calls and their polls; the version is not waited for."""
    compute, full_name = azure.compute, definition_name(name, region)
    groups.tag(azure, ids.SHARED_GROUP, {TAG_GALLERY: GALLERY})
    gallery = {"location": region, "properties": {"description": "Images that cloudgpu has saved"}}
    _create(azure, "write", compute.galleries.begin_create_or_update, _GALLERY_PATH, gallery)
    definition = {
        "location": region,
        "tags": dict(tags),
        "properties": {
            "osType": "Linux",
            "osState": "Generalized",
            "hyperVGeneration": "V2",
            "identifier": {"publisher": "cloudgpu", "offer": full_name, "sku": full_name},
            "features": [{"name": "SecurityType", "value": "TrustedLaunchSupported"}],
        },
    }
    _create(
        azure, "images/write", compute.gallery_images.begin_create_or_update, (*_GALLERY_PATH, full_name), definition
    )
    target = {"name": region, "regionalReplicaCount": 1, "storageAccountType": "Standard_LRS"}
    version = {
        "location": region,
        "tags": dict(tags),
        "properties": {
            "publishingProfile": {"targetRegions": [target]},
            "storageProfile": {"osDiskImage": {"source": {"id": snapshot}}},
        },
    }
    versions = compute.gallery_image_versions
    invoke(
        azure,
        f"{_ACTION}/images/versions/write",
        lambda: versions.begin_create_or_update(*_GALLERY_PATH, full_name, IMAGE_VERSION, version, polling=False),
        region=region,
        value=name,
    )


def _create(azure: Azure, action: str, begin_operation: Any, names: tuple[str, ...], body: Raw) -> None:
    deadline = azure.clock() + CREATE_WITHIN
    complete(
        azure, f"{_ACTION}/{action}", lambda polling: begin_operation(*names, body, polling=polling), deadline=deadline
    )


def delete(azure: Azure, name: str) -> None:
    """Delete an image (by its definition's name); one that is gone is no error. Two calls; the first is waited for."""
    compute, deadline = azure.compute, azure.clock() + CREATE_WITHIN
    action, begin_operation = f"{_ACTION}/images/versions/delete", compute.gallery_image_versions.begin_delete
    call_or_none(
        azure,
        action,
        lambda: complete(
            azure,
            action,
            lambda polling: begin_operation(*_GALLERY_PATH, name, IMAGE_VERSION, polling=polling),
            deadline=deadline,
        ),
        value=name,
    )
    call_or_none(
        azure,
        f"{_ACTION}/images/delete",
        lambda: compute.gallery_images.begin_delete(*_GALLERY_PATH, name, polling=False),
        value=name,
    )


def _as_managed(raw: Raw, name: str) -> Raw:
    """Return a version in the form of a managed image, so that both are read alike. `trusted` is added by us."""
    properties = properties_of(raw)
    disk = ((properties.get("storageProfile") or {}).get("osDiskImage")) or {}
    os_disk = {"diskSizeGB": disk.get("sizeInGB") or 0}
    image_fields = {"provisioningState": properties.get("provisioningState"), "hyperVGeneration": "V2", "trusted": True}
    published = (properties.get("publishingProfile") or {}).get("publishedDate")
    return {
        "id": raw["id"],
        "name": name,
        "location": raw["location"],
        "tags": raw.get("tags") or {},
        "properties": {**image_fields, "timeCreated": published, "storageProfile": {"osDisk": os_disk}},
    }
