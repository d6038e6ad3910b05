"""Which image a machine is launched from: the newest public one that fits its GPU and processor, or the one named.

Ubuntu images run cloud-init, Google's Debian images do not: those are given a startup script, and make their own host
key, which is read through the API before the first connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloudgpu.catalog import instance_type, public_images
from cloudgpu.core.catalog.gpus import PublicImage
from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER
from cloudgpu.core.model.offers import MachineConfiguration
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import PROVIDER, Gcp
from cloudgpu.providers.gcp.compute.machine_types import architecture
from cloudgpu.providers.gcp.storage.create_image import google_name
from cloudgpu.providers.gcp.storage.disks import OUR_RESOURCES_FILTER
from cloudgpu.providers.gcp.storage.resources import if_found, our_tags
from cloudgpu.providers.shared.rules import (
    check_processor,
    driver_install,
    driver_remarks,
    wanted_images,
    wants_driver_image,
)

DEEP_LEARNING_PROJECT = "deeplearning-platform-release"
_IMAGE_PATH = re.compile(
    r"(?:projects/(?P<project>[a-z0-9.:-]+)/)?(?:global/)?images/(?P<family>family/)?(?P<name>[a-z](?:[-a-z0-9]*[a-z0-9])?)"
)
_ARCHITECTURES = {"X86_64": "x86_64", "ARM64": "arm64"}
_HAS_DRIVER = re.compile(r"-nvidia-\d{3}\b")
# Whose licence is billed, by a word in the name of an image.
_LICENCES = {"sles": "suse", "suse": "suse", "rhel": "rhel"}


@dataclass(frozen=True, slots=True)
class Image:
    """An image. `id` is its full name (`projects/P/global/images/N`), `size_gb` the minimum size of its disk.

    `processor` is its architecture, empty where Google does not say. `name_text` joins its name, family and licences,
    from which properties are guessed. `boots_uefi`: as a shielded VM has to.
    """

    id: str
    name: str
    processor: str
    size_gb: int
    status: str
    name_text: str
    boots_uefi: bool
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def project(self) -> str:
        """The project that has the image."""
        return self.id.split("/")[1]

    @property
    def runs_cloud_init(self) -> bool | None:
        """Whether it runs cloud-init: Ubuntu does, Google's Debian does not, None for any other: not known."""
        if "ubuntu" in self.name_text:
            return True
        return False if "debian" in self.name_text else None

    @property
    def installs_driver(self) -> bool:
        """Whether it is a Deep Learning image that installs NVIDIA's driver at its first boot, when it is told to."""
        return self.project == DEEP_LEARNING_PROJECT and not _HAS_DRIVER.search(self.name_text)

    @property
    def licence(self) -> str:
        """The operating system's licence where Google bills it by the hour, else empty; `-byos` is bring your own."""
        if "byos" in self.name_text or "ubuntu" in self.name_text:
            return ""
        return next((licence for word, licence in _LICENCES.items() if word in self.name_text), "")


@dataclass(frozen=True, slots=True)
class ImageChoice:
    """An image and what follows from it: `driver` are settings of the template that installs a driver (None: none)."""

    image: Image
    driver: Mapping[str, str] | None = None
    remarks: tuple[str, ...] = ()


def choose_image(gcp: Gcp, offer: MachineConfiguration, requested: str | None, template: str) -> ImageChoice:
    """Return the image for an offer. Reads only: a call, one more for each missing family.

    Raises InvalidRequest for a named image that is not there, not ready, or for another processor; and where no public
    image can be found.
    """
    processor = (
        instance_type(PROVIDER, offer.instance_type).arch if offer.accelerators else architecture(offer.instance_type)
    )
    if requested is not None:
        return _requested_image(gcp, offer, requested, processor)
    candidates = wanted_images(PROVIDER, offer, processor, template)
    newest = _newest(gcp, candidates)
    if wants_driver_image(offer, template):
        return ImageChoice(newest) if newest else _driver_by_cloud_init(gcp, offer, processor, candidates)
    if newest is None:
        raise _no_image_error(candidates)
    return ImageChoice(newest, *driver_install(offer, newest.name, template))


def _driver_by_cloud_init(
    gcp: Gcp, offer: MachineConfiguration, processor: str, images: Sequence[PublicImage]
) -> ImageChoice:
    """Return a plain image where Google has none of `images`, those with a driver: then cloud-init installs it."""
    plain_images = public_images(PROVIDER, "plain", processor)
    newest = _newest(gcp, plain_images)
    if newest is None:
        raise _no_image_error([*images, *plain_images])
    families = ", ".join(ids.last_part(image.parameter) for image in images)
    message = (
        f"Google has none of the images with a driver that are known here ({families}): {newest.name} is used, and "
        "cloud-init installs the driver and CUDA in the machine's first minutes"
    )
    return ImageChoice(newest, {} if offer.accelerators else None, (message,))


def _newest(gcp: Gcp, images: Sequence[PublicImage]) -> Image | None:
    """Return the newest image of the first of these families that exists; None where none does."""
    images_found = (_of_family(gcp, image.owner, ids.last_part(image.parameter)) for image in images)
    return next((found for found in images_found if found is not None), None)


def _no_image_error(images: Sequence[PublicImage]) -> InvalidRequest:
    families = " or ".join(image.parameter for image in images) or "any"
    message = f"No public image was found (looked for {families})."
    remedy = "Name one: --image projects/PROJECT/global/images/family/FAMILY"
    return InvalidRequest(message, field="--image", value=None, next=remedy)


def _of_family(gcp: Gcp, project: str, family: str) -> Image | None:
    return _to_image(
        if_found(lambda: gcp.call("compute.images.getFromFamily", value=family, project=project, family=family)),
        project,
    )


def _by_name(gcp: Gcp, project: str, name: str) -> Image | None:
    return _to_image(if_found(lambda: gcp.call("compute.images.get", value=name, project=project, image=name)), project)


def _to_image(raw: Mapping[str, Any] | None, project: str) -> Image | None:
    if raw is None:
        return None
    name_text = [raw["name"], raw.get("family", ""), *map(ids.last_part, raw.get("licenses", ()))]
    return Image(
        id=f"projects/{project}/global/images/{raw['name']}",
        name=raw["name"],
        processor=_ARCHITECTURES.get(raw.get("architecture", ""), ""),
        size_gb=int(raw.get("diskSizeGb") or 10),
        status=raw.get("status", "READY"),
        name_text=" ".join(name_text).lower(),
        boots_uefi=any(
            guest_os_feature.get("type") == "UEFI_COMPATIBLE" for guest_os_feature in raw.get("guestOsFeatures", ())
        ),
        tags=our_tags(raw),
    )


def _requested_image(gcp: Gcp, offer: MachineConfiguration, requested: str, processor: str) -> ImageChoice:
    """Return the image that was named."""
    image = find_image(gcp, requested)
    if image.status != "READY":
        raise InvalidRequest(
            f"The image {requested} is {image.status}, so nothing can be launched from it yet.",
            field="--image",
            value=requested,
            next="Wait until it is ready: cloudgpu image ls",
        )
    check_processor(requested, image.processor or processor, offer, processor)
    has_driver = _HAS_DRIVER.search(image.name_text) is not None
    unknown_driver_remarks = () if has_driver else driver_remarks(offer, image.name, image.tags)
    remarks = (*unknown_driver_remarks, *_boot_remarks(image), *_licence_remarks(image))
    return ImageChoice(image, remarks=remarks)


def find_image(gcp: Gcp, requested: str) -> Image:
    """Return the image of a name: one of the project by a name of it or its family, any by its full name.

    Raises InvalidRequest where there is none.
    """
    image = _find_or_none(gcp, requested)
    if image is not None:
        return image
    raise InvalidRequest(
        f"There is no image and no family {requested!r}.",
        field="--image",
        value=requested,
        next="See your own: cloudgpu image ls; write another's as projects/PROJECT/global/images/NAME.",
    )


def _find_or_none(gcp: Gcp, requested: str) -> Image | None:
    match = _IMAGE_PATH.fullmatch(requested)
    if match is None:
        return (
            _by_name(gcp, gcp.project, google_name(requested))
            or _find_saved(gcp, requested)
            or _of_own_family(gcp, requested)
        )
    project = match["project"] or gcp.project
    return _of_family(gcp, project, match["name"]) if match["family"] else _by_name(gcp, project, match["name"])


def _find_saved(gcp: Gcp, name: str) -> Image | None:
    """Return the newest image that was saved under this name: its label has the name, which at Google is longer."""
    saved = [
        raw
        for raw in gcp.items("compute.images.list", filter=OUR_RESOURCES_FILTER)
        if our_tags(raw).get(TAG_IMAGE) == name
    ]
    ours = [raw for raw in saved if gcp.ledger in ("", our_tags(raw).get(TAG_LEDGER))]
    return _to_image(max(ours, key=lambda raw: str(raw.get("creationTimestamp")), default=None), gcp.project)


def _of_own_family(gcp: Gcp, family: str) -> Image | None:
    return _of_family(gcp, gcp.project, family) if google_name(family) == family else None


def _boot_remarks(image: Image) -> tuple[str, ...]:
    if image.runs_cloud_init is False:
        message = (
            f"the image {image.name} has no cloud-init: it is set up by a startup script, and its host key is read "
            "through Google's API before the first connection"
        )
        return (message,)
    if image.runs_cloud_init is None and TAG_ID not in image.tags and TAG_IMAGE not in image.tags:
        return (f"whether the image {image.name} runs cloud-init is not known: without it, nobody can log in",)
    return ()


def _licence_remarks(image: Image) -> tuple[str, ...]:
    if not image.licence:
        return ()
    unknown_cost = "what that costs above a free system is not known here, and in no amount"
    return (f"Google bills the licence of the system of {image.name}: {unknown_cost}",)
