"""Chooses the image of a launch: one with the GPU's driver, a plain Ubuntu that gets the driver, or the requested one.

`microsoft-dsvm:ubuntu-hpc` has NVIDIA's data centre driver and CUDA (AMD's ROCm: its sku `2204-rocm`). Shares of an A10
(NVadsA10_v5) need the GRID driver instead ("NVadsA10 v5 series": "NVIDIA GRID drivers only"): a plain Ubuntu gets it by
Azure's extension NvidiaGpuDriverLinux. The choice is by public lists and pages, and unverified on Azure itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.instances import TAG_IMAGE, TAG_LEDGER
from cloudgpu.core.model.offers import MachineConfiguration
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import call_or_none, properties_of
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.ids import Sku
from cloudgpu.providers.azure.storage import disks, gallery, resources as refs
from cloudgpu.providers.shared.named_volumes import ambiguous_name, not_found_error
from cloudgpu.providers.shared.rules import (
    DRIVER_TEMPLATE,
    check_processor,
    driver_install,
    driver_remarks,
    wants_driver_image,
)

_READ_IMAGES = "Microsoft.Compute/images/read"
_READ_VERSIONS = "Microsoft.Compute/locations/publishers/artifacttypes/vmimage/offers/skus/versions/read"
HPC_URNS = ("microsoft-dsvm:ubuntu-hpc:2204", "microsoft-dsvm:ubuntu-hpc:2404")
ROCM_URNS = ("microsoft-dsvm:ubuntu-hpc:2204-rocm",)
UBUNTU_URNS = ("Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2", "Canonical:ubuntu-24_04-lts:server")
UBUNTU_GEN1_URNS = ("Canonical:0001-com-ubuntu-server-jammy:22_04-lts", "Canonical:ubuntu-24_04-lts:server-gen1")
GRID_SIZES = re.compile(r"Standard_NV\d+[a-z]*_A10_v5", re.IGNORECASE)
AMD_GPUS = ("MI300X",)
DRIVER_EXTENSION = {  # source: Terraform and ARM templates in public use
    "name": "NvidiaGpuDriverLinux",
    "publisher": "Microsoft.HpcCompute",
    "type": "NvidiaGpuDriverLinux",
    "typeHandlerVersion": "1.9",
}
_URN = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)(?::([\w.-]+))?")
_GALLERY_IMAGE_ID = re.compile(
    r"(/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/galleries/[^/]+/images/[^/]+"
    r"|/(?P<kind>CommunityGalleries|SharedGalleries)/[^/]+/Images/[^/]+)(/versions/[^/]+)?",
    re.IGNORECASE,
)
_LICENCE_BY_PUBLISHER = {"redhat": "rhel", "suse": "suse"}
V1, V2 = "V1", "V2"
_ARCHITECTURES = {"x64": "x86_64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its imageReference in a machine's body, and what is known of it. `size_gb` 0: not known.

    `generation` is that of the machines that boot it (V1, V2), empty: not known. `trusted`: it supports Trusted Launch.
    `plan` is its purchase plan, `licence` that of its operating system where it changes how the machine is billed.
    """

    reference: Mapping[str, str]
    name: str
    generation: str = ""
    size_gb: int = 0
    trusted: bool = False
    plan: Mapping[str, str] | None = None
    architecture: str = ""
    licence: str = ""


@dataclass(frozen=True, slots=True)
class ImageChoice:
    """An image and what follows from it.

    `driver` are settings of the template that installs a driver, `extension` is Azure's that does so; None: not needed.
    """

    image: Image
    driver: Mapping[str, str] | None = None
    extension: Mapping[str, str] | None = None
    remarks: tuple[str, ...] = ()


def choose_image(
    azure: Azure, configuration: MachineConfiguration, sku: Sku, name_or_id: str | None, template: str
) -> ImageChoice:
    """Return the image for an offer. Reads only: two calls for one of the marketplace, one for the user's own.

    Raises InvalidRequest for a named image that is not there, not ready, or that the size cannot boot.
    """
    if name_or_id is not None:
        return _requested_image(azure, configuration, sku, name_or_id)
    gpu = configuration.accelerators[0].name if configuration.accelerators else ""
    if GRID_SIZES.fullmatch(configuration.instance_type) and template != DRIVER_TEMPLATE:
        image = _newest(azure, configuration.region, _ubuntu_urns(sku))
        return ImageChoice(image, extension=DRIVER_EXTENSION, remarks=(_grid_remark(configuration, image),))
    if gpu in AMD_GPUS:
        return ImageChoice(_newest(azure, configuration.region, ROCM_URNS))
    if wants_driver_image(configuration, template) and V2 in sku.generations:
        return ImageChoice(_newest(azure, configuration.region, HPC_URNS))
    image = _newest(azure, configuration.region, _ubuntu_urns(sku))
    driver, remarks = driver_install(configuration, image.name, template)
    return ImageChoice(image, driver=driver, remarks=remarks)


def _ubuntu_urns(sku: Sku) -> Sequence[str]:
    return UBUNTU_URNS if V2 in sku.generations else UBUNTU_GEN1_URNS


def _grid_remark(configuration: MachineConfiguration, image: Image) -> str:
    return (
        f"{configuration.instance_type} needs NVIDIA's GRID driver: {image.name} is used, and Azure's extension "
        f"{DRIVER_EXTENSION['name']} installs that driver in the machine's first quarter of an hour (unverified)"
    )


# The marketplace


def _newest(azure: Azure, region: str, urns: Sequence[str]) -> Image:
    """Return the first of these images that the region has, in its newest version.

    Where Azure lists none of them, return the first with the version `latest`: the launch fails if it does not exist.
    """
    for urn in urns:
        image = _find_urn(azure, region, *urn.split(":"))
        if image is not None:
            return image
    publisher, offer, sku = urns[0].split(":")
    return _image_of({}, publisher, offer, sku, "latest")


def _find_urn(azure: Azure, region: str, publisher: str, offer: str, sku: str, version: str = "latest") -> Image | None:
    """Return an image of the marketplace in a version, None where the region has none. Two calls, one for a version.

    The exact version is saved with the attempt, so that a replay sends the same one.
    """
    images = azure.compute.virtual_machine_images
    listed: Any = None
    if version == "latest":
        listed = call_or_none(
            azure,
            _READ_VERSIONS,
            lambda: images.list(region, publisher, offer, sku, top=1, orderby="name desc"),
            region=region,
            value=f"{publisher}:{offer}:{sku}",
        )
        if not listed:
            return None
        version = str(listed[0].name)
    raw = call_or_none(
        azure,
        _READ_VERSIONS,
        lambda: images.get(region, publisher, offer, sku, version).as_dict(),
        region=region,
        value=version,
    )
    if raw is None and not listed:
        return None
    return _image_of(raw or {}, publisher, offer, sku, version)


def _image_of(raw: Raw, publisher: str, offer: str, sku: str, version: str) -> Image:
    properties = properties_of(raw)
    features = {str(one.get("name")): str(one.get("value")) for one in properties.get("features") or ()}
    plan = properties.get("plan") or {}
    return Image(
        reference={"publisher": publisher, "offer": offer, "sku": sku, "version": version},
        name=f"{publisher}:{offer}:{sku}:{version}",
        generation=str(properties.get("hyperVGeneration") or ""),
        size_gb=int((properties.get("osDiskImage") or {}).get("sizeInGb") or 0),
        trusted="TrustedLaunch" in features.get("SecurityType", ""),
        plan={key: str(plan[key]) for key in ("name", "publisher", "product") if key in plan} if plan else None,
        architecture=_ARCHITECTURES.get(str(properties.get("architecture") or "").lower(), ""),
        licence=_LICENCE_BY_PUBLISHER.get(publisher.lower(), ""),
    )


# The requested image


def _requested_image(azure: Azure, configuration: MachineConfiguration, sku: Sku, name_or_id: str) -> ImageChoice:
    """Return the requested image: of the marketplace, of a gallery by its id, or one of the user's own."""
    image, remarks = _find_named(azure, configuration, name_or_id)
    if image.generation and image.generation not in sku.generations:
        bootable = " and ".join(sorted(sku.generations))
        raise InvalidRequest(
            f"The image {name_or_id} is of generation {image.generation}, and {configuration.instance_type} boots "
            f"{bootable}.",
            field="--image",
            value=name_or_id,
            next="Name another image, or another size.",
        )
    check_processor(name_or_id, image.architecture or sku.architecture, configuration, sku.architecture)
    return ImageChoice(image, remarks=remarks)


def _find_named(azure: Azure, configuration: MachineConfiguration, name_or_id: str) -> tuple[Image, tuple[str, ...]]:
    urn, gallery_id = _URN.fullmatch(name_or_id), _GALLERY_IMAGE_ID.fullmatch(name_or_id)
    unknown_driver_remarks = driver_remarks(configuration, name_or_id, {})
    if urn is not None:
        image = _find_urn(azure, configuration.region, *filter(None, urn.groups()))
        if image is None:
            raise _not_in_region(name_or_id, configuration.region)
        return image, (*unknown_driver_remarks, *_plan_remarks(image))
    if gallery_id is not None:
        reference_key_by_kind = {
            "communitygalleries": "communityGalleryImageId",
            "sharedgalleries": "sharedGalleryImageId",
        }
        reference_key = reference_key_by_kind.get(str(gallery_id["kind"] or "").lower(), "id")
        return Image({reference_key: name_or_id}, name_or_id), (
            *unknown_driver_remarks,
            f"the image {name_or_id} was not looked into before the launch",
        )
    return _own_image(azure, configuration, name_or_id)


def _own_image(azure: Azure, configuration: MachineConfiguration, name_or_id: str) -> tuple[Image, tuple[str, ...]]:
    ref = refs.parse(name_or_id, "images")  # an id as cloudgpu writes it
    raw = own_image(azure, name_or_id if ref is None else refs.azure_id(azure.subscription, ref))
    if raw is None or str(raw.get("location") or "").lower() != configuration.region:
        raise _not_in_region(name_or_id, configuration.region)
    properties = properties_of(raw)
    state = str(properties.get("provisioningState") or "Succeeded")
    if state.lower() != "succeeded":
        message = f"The image {name_or_id} is {state.lower()}, so nothing can be launched from it yet."
        raise InvalidRequest(
            message, field="--image", value=name_or_id, next="Wait until it is there: cloudgpu image ls"
        )
    disk = (properties.get("storageProfile") or {}).get("osDisk") or {}
    image = Image(
        {"id": str(raw["id"])},
        name_or_id,
        generation=str(properties.get("hyperVGeneration") or V1),
        size_gb=int(disk.get("diskSizeGB") or 0),
        trusted=bool(properties.get("trusted")),
    )
    return image, driver_remarks(configuration, name_or_id, raw.get("tags") or {})


def _not_in_region(name_or_id: str, region: str) -> InvalidRequest:
    return InvalidRequest(
        f"There is no image {name_or_id!r} in {region}.",
        field="--image",
        value=name_or_id,
        next="See your own: cloudgpu image ls; or name one as publisher:offer:sku:version.",
    )


def _plan_remarks(image: Image) -> tuple[str, ...]:
    """Return a remark for an image with a purchase plan: its terms have to be accepted, and it may cost."""
    if image.plan is None:
        return ()
    terms = f"az vm image terms accept --urn {image.name}"
    return (
        f"the image {image.name} is sold under a plan of its own: accept it once ({terms}); what it costs is not known",
    )


def own_image(azure: Azure, name_or_id: str) -> Raw | None:
    """Return the own image that the user named by its id, its name at Azure, or the name it was saved under.

    An image of the gallery is returned in the form of a managed one. None for another Azure id. Raises InvalidRequest
    where there is none, or several, of that name. One call; for what is not there two, and those of the gallery.
    """
    azure_resource = ids.resource(name_or_id)
    if azure_resource is not None and azure_resource.kind != "microsoft.compute/images":
        return None
    ref = refs.parse(name_or_id) or azure_resource
    group, name = (ids.SHARED_GROUP, name_or_id) if ref is None else (ref.group, ref.name)
    images = _managed_images(azure, group, name_or_id)
    matches = [one for one in images if _has_name(one, name, azure.ledger)]
    if not matches and azure_resource is None and gallery.gallery_exists(azure):
        images += gallery.listed(azure)
        matches = [one for one in images if _has_name(one, name, azure.ledger)]
    regions = sorted(str(one["location"]) for one in matches)
    if len(set(regions)) > 1:
        raise ambiguous_name(f"Images called {name_or_id!r}", regions, "--region")
    if not matches:
        known_names = {str((one.get("tags") or {}).get(TAG_IMAGE, "")) for one in images} - {""}
        raise not_found_error("image", "--image", name_or_id, known_names, (), "See them: cloudgpu image ls")
    return matches[0]


def _managed_images(azure: Azure, group: str, name_or_id: str) -> list[Raw]:
    listed = azure.compute.images.list_by_resource_group
    return call_or_none(azure, _READ_IMAGES, lambda: [one.as_dict() for one in listed(group)], value=name_or_id) or []


def _has_name(raw: Raw, name: str, ledger: str) -> bool:
    tags = raw.get("tags") or {}
    is_of_ledger = ledger in ("", tags.get(TAG_LEDGER, ledger))
    azure_names = {str(raw["name"]).lower(), disks.plain_name(raw).lower()}
    return name.lower() in azure_names or (is_of_ledger and tags.get(TAG_IMAGE) == name)
