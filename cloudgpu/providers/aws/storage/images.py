"""Which image a machine is launched from: the newest public one that fits its GPU and processor, or the one named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cloudgpu.catalog import instance_type
from cloudgpu.core.catalog.gpus import PublicImage
from cloudgpu.core.model.instances import TAG_IMAGE, TAG_LEDGER
from cloudgpu.core.model.offers import MachineConfiguration
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.aws.client import PROVIDER, Aws, describe
from cloudgpu.providers.aws.compute.request import boot_tag
from cloudgpu.providers.aws.compute.translate import tags_of
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.shared.rules import (
    check_processor,
    driver_install,
    driver_remarks,
    wanted_images,
    wants_driver_image,
)

AMI = re.compile(r"(?:(?P<region>[a-z]{2,3}(?:-[a-z]+)+-\d{1,2})/)?(?P<id>ami-[0-9a-f]{8,17})")
_ARCHITECTURES = {"x86_64", "arm64"}
_LICENCES = {
    "SUSE Linux": "suse",
    "Red Hat Enterprise Linux": "rhel",
}
_UNLICENSED = ("", "Linux/UNIX", "Red Hat BYOL Linux")  # the licence of the last is the user's own


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a region.

    `size_gb` is the smallest system disk that it fits on, `boot_tag` the value of its TAG_BOOT: how it boots.
    """

    id: str
    name: str
    architecture: str
    root_device: str
    size_gb: int
    state: str
    boot_tag: str
    tags: Mapping[str, str]
    platform: str = ""  # PlatformDetails: the operating system that AWS bills

    @property
    def licence(self) -> str:
        """The operating system's licence, where it changes the started hours that are billed; else empty.

        By the names in the EC2 user guide, AMI billing information fields.
        """
        return next((licence for name, licence in _LICENCES.items() if self.platform.startswith(name)), "")


@dataclass(frozen=True, slots=True)
class ImageChoice:
    """An image and what follows from it: `driver` are settings of the template that installs one (None: not needed)."""

    image: Image
    driver: Mapping[str, str] | None = None
    remarks: tuple[str, ...] = ()


def choose_image(aws: Aws, configuration: MachineConfiguration, name_or_id: str | None, template: str) -> ImageChoice:
    """Return the image for an offer. Reads only: two calls, one more for a type that the catalogue lacks.

    Raises InvalidRequest for a named image that is not there, not ready, or for another processor; and where no
    public image can be found.
    """
    architecture = architecture_of(aws, configuration)
    if name_or_id is not None:
        return _requested_image(aws, configuration, name_or_id, architecture)
    image = _newest(aws, configuration.region, wanted_images(PROVIDER, configuration, architecture, template))
    return (
        ImageChoice(image)
        if wants_driver_image(configuration, template)
        else ImageChoice(image, *driver_install(configuration, image.name, template))
    )


def architecture_of(aws: Aws, configuration: MachineConfiguration) -> str:
    """Return the processor architecture of a type, x86_64 or arm64: by the catalogue, else by one call."""
    name = configuration.instance_type
    with suppress(InvalidRequest):
        return instance_type(PROVIDER, name).arch
    found = describe(aws, "DescribeInstanceTypes", configuration.region, value=name, InstanceTypes=[name])
    return next((one for one in found[0]["ProcessorInfo"]["SupportedArchitectures"] if one in _ARCHITECTURES), "x86_64")


def _newest(aws: Aws, region: str, images: Sequence[PublicImage]) -> Image:
    """Return the first of these images that there is: by its public parameter, else by its name and owner."""
    image_ids = _ids_by_parameter(aws, region, images)
    queries: list[dict[str, Any]] = [
        {"ImageIds": [image_ids[one.parameter]]} for one in images if one.parameter in image_ids
    ]
    for one in images:
        filters = [{"Name": "name", "Values": [one.pattern]}, {"Name": "state", "Values": ["available"]}]
        queries.append({"Owners": [one.owner], "Filters": filters})
    for query in queries:
        matches = describe_images(aws, region, **query)
        if matches:
            return matches[0]
    names_text = " or ".join(one.parameter for one in images) or "any"
    raise InvalidRequest(
        f"No public image was found in {region} (looked for {names_text}, and by name).",
        field="--image",
        value=None,
        next="Name one: --image ami-...",
    )


def _ids_by_parameter(aws: Aws, region: str, images: Sequence[PublicImage]) -> dict[str, str]:
    """Return the image that each public parameter names, in one call; those that are not there are left out."""
    names = [one.parameter for one in images]
    if not names:
        return {}
    with aws.calling("ssm:GetParameters", region):
        answer = aws.client("ssm", region).get_parameters(Names=names)
    return {one["Name"]: one["Value"] for one in answer["Parameters"]}


def describe_images(aws: Aws, region: str, **query: Any) -> list[Image]:
    """Return the images of DescribeImages, the newest first; none for an unknown id."""
    try:
        raw_images = describe(aws, "DescribeImages", region, **query)
    except InvalidRequest as error:
        if code_of(error).startswith("InvalidAMIID"):
            return []
        raise
    newest = sorted(raw_images, key=lambda one: str(one.get("CreationDate", "")), reverse=True)
    return [_image(one) for one in newest]


def _image(raw: Mapping[str, Any]) -> Image:
    root_device = raw.get("RootDeviceName") or "/dev/sda1"
    disks = {one.get("DeviceName"): one.get("Ebs", {}) for one in raw.get("BlockDeviceMappings", ())}
    return Image(
        id=raw["ImageId"],
        name=raw.get("Name") or raw["ImageId"],
        architecture=raw["Architecture"],
        root_device=root_device,
        size_gb=int(disks.get(root_device, {}).get("VolumeSize") or 1),
        state=raw.get("State", ""),
        boot_tag=boot_tag(raw),
        tags=tags_of(raw),
        platform=raw.get("PlatformDetails", ""),
    )


def _requested_image(aws: Aws, configuration: MachineConfiguration, name_or_id: str, architecture: str) -> ImageChoice:
    """Return the image that the user named, by AWS's id or by the name of an own one. Raises InvalidRequest."""
    image = _image_named(aws, configuration.region, name_or_id)
    if image is None:
        raise InvalidRequest(
            f"There is no image {name_or_id!r} in {configuration.region}; an image exists in one region only.",
            field="--image",
            value=name_or_id,
            next="See your own: cloudgpu image ls; or name its --region.",
        )
    if image.state != "available":
        raise InvalidRequest(
            f"The image {name_or_id} is {image.state or 'not available'}, so nothing can be launched from it yet.",
            field="--image",
            value=name_or_id,
            next="Wait until it is available: cloudgpu image ls",
        )
    check_processor(name_or_id, image.architecture, configuration, architecture)
    remarks = (*driver_remarks(configuration, image.id, image.tags), *_licence_remarks(image))
    return ImageChoice(image, remarks=remarks)


def _licence_remarks(image: Image) -> tuple[str, ...]:
    """Return a remark for a system with a paid licence: the prices in the catalogue are those without one."""
    if image.platform in _UNLICENSED:
        return ()
    billing_notes = {
        "suse": "; it is billed by the started hour",
        "rhel": "; AWS's pages disagree whether it is billed by the started hour, so its cost is a range",
    }
    unknown_cost = "what that costs above plain Linux is not known here, and in no amount"
    return (
        f"AWS bills the image {image.id} as {image.platform}: {unknown_cost}{billing_notes.get(image.licence, '')}",
    )


def _image_named(aws: Aws, region: str, name_or_id: str) -> Image | None:
    id_match = AMI.fullmatch(name_or_id)
    if id_match is None:
        images = own_images(aws, region, {"Name": f"tag:{TAG_IMAGE}", "Values": [name_or_id]})
    elif id_match["region"] in (None, region):
        images = describe_images(aws, region, ImageIds=[id_match["id"]])
    else:
        return None
    return images[0] if images else None


def own_images(aws: Aws, region: str, name_filter: Mapping[str, Any]) -> list[Image]:
    """Return the saved images of a region that match a filter, the newest first, without those of another ledger.

    One that somebody has tagged by hand, with a name alone, is anybody's.
    """
    images = describe_images(aws, region, Owners=["self"], Filters=[name_filter])
    return [one for one in images if aws.ledger in ("", one.tags.get(TAG_LEDGER, aws.ledger))]
