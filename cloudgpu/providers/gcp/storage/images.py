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
from cloudgpu.core.model.offers import Available
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import KIND, Gcp
from cloudgpu.providers.gcp.compute.machine_types import architecture
from cloudgpu.providers.gcp.storage.create_image import google_name
from cloudgpu.providers.gcp.storage.disks import OURS
from cloudgpu.providers.gcp.storage.resources import if_found, our_tags
from cloudgpu.providers.shared.rules import driver_install, wanted_images, wants_driver_image

DEEP_LEARNING = "deeplearning-platform-release"
_WHOLE = re.compile(
    r"(?:projects/(?P<project>[a-z0-9.:-]+)/)?(?:global/)?images/(?P<family>family/)?(?P<name>[a-z](?:[-a-z0-9]*[a-z0-9])?)"
)
_ARCHITECTURES = {"X86_64": "x86_64", "ARM64": "arm64"}
_HAS_DRIVER = re.compile(r"-nvidia-\d{3}\b")
_LICENCES = {"sles": "suse", "suse": "suse", "rhel": "rhel"}


@dataclass(frozen=True, slots=True)
class Image:
    """An image. `id` is its whole name (`projects/P/global/images/N`); `size_gb` the least that a disk of it can have.

    `words` is what its name, family and licences say, for what Google does not tell otherwise. `cloud_init` None: not
    known. `shielded`: it boots by UEFI, as a shielded VM has to.
    """

    id: str
    name: str
    machine: str
    size_gb: int
    status: str
    words: str
    shielded: bool
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def project(self) -> str:
        """Whose image it is."""
        return self.id.split("/")[1]

    @property
    def cloud_init(self) -> bool | None:
        """Whether it runs cloud-init: Ubuntu does, Google's Debian does not, of any other nobody knows."""
        if "ubuntu" in self.words:
            return True
        return False if "debian" in self.words else None

    @property
    def installs_driver(self) -> bool:
        """Whether it is a Deep Learning image that installs NVIDIA's driver at its first boot, when it is told to."""
        return self.project == DEEP_LEARNING and not _HAS_DRIVER.search(self.words)

    @property
    def licence(self) -> str:
        """The system's, where that is paid for by the hour; else empty. Own licences (`-byos`) are one's own."""
        if "byos" in self.words or "ubuntu" in self.words:
            return ""
        return next((licence for word, licence in _LICENCES.items() if word in self.words), "")


@dataclass(frozen=True, slots=True)
class ImageChoice:
    """An image and what follows from it: settings of the template that installs a driver (None: none is needed)."""

    image: Image
    driver: Mapping[str, str] | None = None
    remarks: tuple[str, ...] = ()


def choose_image(gcp: Gcp, item: Available, named: str | None, template: str) -> ImageChoice:
    """Return the image for an offer. Reads only: a call, one more for each family that is gone.

    Raises InvalidRequest for a named image that is not there, not ready, or for another processor; and where no public
    image can be found.
    """
    machine = instance_type(KIND, item.instance_type).arch if item.accelerators else architecture(item.instance_type)
    if named is not None:
        return _requested_image(gcp, item, named, machine)
    wanted = wanted_images(KIND, item, machine, template)
    found = _newest(gcp, wanted)
    if wants_driver_image(item, template):
        return ImageChoice(found) if found else _driver_by_cloud_init(gcp, item, machine, wanted)
    if found is None:
        raise _no_image_error(wanted)
    return ImageChoice(found, *driver_install(item, found.name, template))


def _driver_by_cloud_init(gcp: Gcp, item: Available, machine: str, images: Sequence[PublicImage]) -> ImageChoice:
    """Return a plain image where Google has none of those with a driver any more: then cloud-init installs it."""
    plain = public_images(KIND, "plain", machine)
    found = _newest(gcp, plain)
    if found is None:
        raise _no_image_error([*images, *plain])
    families = ", ".join(ids.last(one.parameter) for one in images)
    message = (
        f"Google has none of the images with a driver that are known here ({families}): {found.name} is used, and "
        "cloud-init installs the driver and CUDA in the machine's first minutes"
    )
    return ImageChoice(found, {} if item.accelerators else None, (message,))


def _newest(gcp: Gcp, images: Sequence[PublicImage]) -> Image | None:
    """Return the newest image of the first of these families that there is."""
    found = (_of_family(gcp, one.owner, ids.last(one.parameter)) for one in images)
    return next((one for one in found if one is not None), None)


def _no_image_error(images: Sequence[PublicImage]) -> InvalidRequest:
    looked = " or ".join(one.parameter for one in images) or "any"
    message = f"No public image was found (looked for {looked})."
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
    words = [raw["name"], raw.get("family", ""), *map(ids.last, raw.get("licenses", ()))]
    return Image(
        id=f"projects/{project}/global/images/{raw['name']}",
        name=raw["name"],
        machine=_ARCHITECTURES.get(raw.get("architecture", ""), ""),
        size_gb=int(raw.get("diskSizeGb") or 10),
        status=raw.get("status", "READY"),
        words=" ".join(words).lower(),
        shielded=any(one.get("type") == "UEFI_COMPATIBLE" for one in raw.get("guestOsFeatures", ())),
        tags=our_tags(raw),
    )


def _requested_image(gcp: Gcp, item: Available, named: str, machine: str) -> ImageChoice:
    """Return the image that was named."""
    found = find_image(gcp, named)
    if found.status != "READY":
        raise InvalidRequest(
            f"The image {named} is {found.status}, so nothing can be launched from it yet.",
            field="--image",
            value=named,
            next="Wait until it is ready: cloudgpu image ls",
        )
    if found.machine not in ("", machine):
        raise InvalidRequest(
            f"The image {named} is for {found.machine}, and {item.instance_type} has {machine}.",
            field="--image",
            value=named,
            next=f"Name an image for {machine}, or leave --image out.",
        )
    return ImageChoice(found, None, (*_about_driver(item, found), *_about_boot(found), *_about_licence(found)))


def find_image(gcp: Gcp, named: str) -> Image:
    """Return the image that a word means: an own one by any of its names or its family, any by its whole name.

    Raises InvalidRequest where there is none.
    """
    found = _find_or_none(gcp, named)
    if found is not None:
        return found
    raise InvalidRequest(
        f"There is no image and no family {named!r}.",
        field="--image",
        value=named,
        next="See your own: cloudgpu image ls; write another's as projects/PROJECT/global/images/NAME.",
    )


def _find_or_none(gcp: Gcp, named: str) -> Image | None:
    whole = _WHOLE.fullmatch(named)
    if whole is None:
        return _by_name(gcp, gcp.project, google_name(named)) or _find_saved(gcp, named) or _own_family(gcp, named)
    project = whole["project"] or gcp.project
    return _of_family(gcp, project, whole["name"]) if whole["family"] else _by_name(gcp, project, whole["name"])


def _find_saved(gcp: Gcp, named: str) -> Image | None:
    """Return the newest image that was saved under this name: its label has it, for Google it is longer."""
    saved = [one for one in gcp.items("compute.images.list", filter=OURS) if our_tags(one).get(TAG_IMAGE) == named]
    ours = [one for one in saved if gcp.ledger in ("", our_tags(one).get(TAG_LEDGER))]
    return _to_image(max(ours, key=lambda one: str(one.get("creationTimestamp")), default=None), gcp.project)


def _own_family(gcp: Gcp, named: str) -> Image | None:
    return _of_family(gcp, gcp.project, named) if google_name(named) == named else None


def _about_driver(item: Available, image: Image) -> tuple[str, ...]:
    if not item.accelerators or TAG_ID in image.tags or TAG_IMAGE in image.tags or _HAS_DRIVER.search(image.words):
        return ()  # ours has what its machine had
    return (f"whether the image {image.name} has a driver for {item.accelerators[0].name} is not known",)


def _about_boot(image: Image) -> tuple[str, ...]:
    if image.cloud_init is False:
        message = (
            f"the image {image.name} has no cloud-init: it is set up by a startup script, and its host key is read "
            "through Google's API before the first connection"
        )
        return (message,)
    if image.cloud_init is None and TAG_ID not in image.tags and TAG_IMAGE not in image.tags:
        return (f"whether the image {image.name} runs cloud-init is not known: without it, nobody can log in",)
    return ()


def _about_licence(image: Image) -> tuple[str, ...]:
    if not image.licence:
        return ()
    above = "what that costs above a free system is not known here, and in no amount"
    return (f"Google bills the licence of the system of {image.name}: {above}",)
