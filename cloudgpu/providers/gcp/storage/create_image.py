"""Makes an image of a machine's system disk, or of an unattached disk, at Google: never two of one name.

An image (`images.insert`), not a machine image: that one holds every disk, the data volumes too, and the metadata with
the old boot data; and not a snapshot: a launch names its image. The image of a disk that is being written is made by
force, as if the power had gone: to stop the machine for it may end in having none, as GPUs are scarce.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import CloudgpuError, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp, Raw
from cloudgpu.providers.gcp.compute.listing import fetch_machine
from cloudgpu.providers.gcp.compute.translate import boot_disk
from cloudgpu.providers.gcp.error_codes import ALREADY_EXISTS
from cloudgpu.providers.gcp.errors import code_of
from cloudgpu.providers.gcp.operations import wait_for
from cloudgpu.providers.gcp.storage.disks import DISKS, image, remove
from cloudgpu.providers.gcp.storage.resources import if_found, our_tags, parse_id
from cloudgpu.providers.shared.rules import check_is_system_disk, check_saved_image, source_not_found_error

MAX_NAME_LENGTH = 63  # characters of a name at Google
_GET_ACTION, _INSERT_ACTION = "compute.images.get", "compute.images.insert"


def save_image(gcp: Gcp, source: str, name: str, tags: Mapping[str, str], *, restart: bool = True) -> ProviderResource:  # noqa: ARG001
    """Take the next step to the image `name` and return it, `ready` once it is there.

    A machine goes on running meanwhile, whatever `restart` says.
    What an earlier call made is found by its name, also when the source has gone meanwhile. Raises InstanceNotFound for
    a source that is not there, InvalidRequest for a name that another image has, or an image that failed.
    """
    image_name = google_name(name)
    existing = _get_image(gcp, image_name)
    if existing is None:
        _start_image(gcp, source, image_name, tags)
        existing = _get_image(gcp, image_name)
    if existing is None:  # somebody else has deleted it meanwhile
        message = f"The image {name} is being made and cannot be seen yet."
        raise ProviderUnavailable(message, field="image", value=name, next="Run: cloudgpu ls --refresh")
    return _image_resource(gcp, existing, name, tags)


def google_name(name: str) -> str:
    """Return the image's name at Google: `name` itself, or where Google does not accept it, one derived from it."""
    if ids.NAME.fullmatch(name):
        return name
    prefix = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[: MAX_NAME_LENGTH - 21]
    return f"{prefix}-{digest('image', name)[:20]}"


def _get_image(gcp: Gcp, image_name: str) -> Raw | None:
    return if_found(lambda: gcp.call(_GET_ACTION, image=image_name, value=image_name))


def _image_resource(gcp: Gcp, raw: Raw, name: str, tags: Mapping[str, str]) -> ProviderResource:
    check_saved_image(name, our_tags(raw), tags, f"the project {gcp.project}")
    resource = image(gcp, raw)
    if raw.get("status") != "FAILED":
        return resource
    remove(gcp, resource)
    message = f"The image {name} failed at Google and was removed."
    raise InvalidRequest(message, field="image", value=name, next="Run it again.")


def _start_image(gcp: Gcp, source: str, image_name: str, tags: Mapping[str, str]) -> None:
    """Start making the image. A name is unique at Google: an earlier call without an answer may have made it."""
    disk, zone = _source_disk(gcp, source)
    request = {
        "name": image_name,
        "sourceDisk": f"projects/{gcp.project}/zones/{zone}/disks/{disk}",
        "labels": dict(tags),
        "storageLocations": [ids.region_of(zone) or ""],
    }
    try:
        operation = gcp.call(_INSERT_ACTION, value=source, imageResource=request, forceCreate=True)
    except CloudgpuError as error:
        if code_of(error) not in ALREADY_EXISTS:
            raise
        return
    if _get_image(gcp, image_name) is None:  # it is shown once Google has looked at the disk, or never
        wait_for(gcp, operation, action=_INSERT_ACTION, value=source)


def _source_disk(gcp: Gcp, source: str) -> tuple[str, str]:
    """Return Google's name and the zone of the source disk: a machine's system disk, or an unattached disk."""
    disk_id = parse_id(source, DISKS)
    if disk_id is not None:
        return _check_unattached(gcp, source, disk_id[0], disk_id[2]), disk_id[0]
    zone_and_name = ids.parse(source)
    if zone_and_name is None:
        raise source_not_found_error("Google", source)
    disk = boot_disk(fetch_machine(gcp, source))
    if disk is None:
        raise source_not_found_error("Google", source)
    return ids.last_part(disk["source"]), zone_and_name[0]


def _check_unattached(gcp: Gcp, source: str, zone: str, name: str) -> str:
    """Return the name of a disk; raise InstanceNotFound for none, InvalidRequest for a data volume."""
    raw_disk = if_found(lambda: gcp.call("compute.disks.get", zone, value=source, zone=zone, disk=name))
    if raw_disk is None:
        raise source_not_found_error("Google", source)
    check_is_system_disk(source, our_tags(raw_disk))
    return name
