"""Looks up the image and volume of a launch in the fake cloud, and stores the orphans that launches leave.

A launch needs to know the zone of its image and volume, and whether the image can be used. Launches leave one key pair
per ledger and region. Addresses, interfaces, groups and spot requests exist only if a test has added them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from cloudgpu.core.model.instances import TAG_LEDGER, TAG_OWNER, TAG_VOLUME
from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import MachineConfiguration, Requirements
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest, NoCapacity
from cloudgpu.providers.abilities import AttachedResource, PlacementConstraint, Resolved
from cloudgpu.testing.fake.cloud import invalid_request
from cloudgpu.testing.fake.disks import add_resource, find_image, volumes_named
from cloudgpu.testing.fake.market import is_sold
from cloudgpu.testing.fake.store import Cloud, FakeMachine, FakeResource


def placement_constraint(cloud: Cloud, setup: Setup, requirements: Requirements, ledger: str) -> PlacementConstraint:
    """Return the region and zone to which image and volume tie a launch.

    Raises InvalidRequest if one does not exist, or is elsewhere than requested. An empty `ledger` means any ledger.
    """
    image = _find_image_or_refuse(cloud, setup.image) if setup.image else None
    volume = _find_volume_or_refuse(cloud, setup.volume, ledger) if setup.volume else None
    if volume is not None:
        name = volume.tags[TAG_VOLUME]
        _check_place("--volume", name, volume.zone, requirements.zone)
        _check_place("--volume", name, volume.region, requirements.region)
        if image is not None and image.region != volume.region:
            raise InvalidRequest(
                f"The image {setup.image} is in {image.region}, and the volume {name} is in {volume.zone}.",
                field="--volume",
                value=name,
                next="Leave one of them out, or make the image in the volume's region.",
            )
        return PlacementConstraint(volume.region, volume.zone, f"the volume {name} is in {volume.zone}")
    if image is not None:
        _check_place("--image", str(setup.image), image.region, requirements.region)
        return PlacementConstraint(image.region, None, f"the image is in {image.region}")
    return PlacementConstraint()


def resolve(cloud: Cloud, request: LaunchRequest, configuration: MachineConfiguration, now: datetime) -> Resolved:
    """Return what the launch call needs; raise NoCapacity for a type not sold there, InvalidRequest for an image."""
    if not is_sold(configuration):
        raise NoCapacity(
            f"{configuration.instance_type} is not sold in {configuration.zone}",
            field="zone",
            value=configuration.zone,
            next="leave --zone out",
        )
    setup = request.setup
    image = _find_image_or_refuse(cloud, setup.image) if setup.image else None
    if image is not None and now < image.ready_at:
        raise invalid_request(
            "--image", str(setup.image), f"the image {setup.image} is not ready yet", "try again later"
        )
    attached = tuple(_attached_resources(setup))
    remarks = [f"the volume {setup.volume.name} is bound to {configuration.zone}"] if setup.volume else []
    return Resolved({"image": image.id if image else None}, attached=attached, remarks=tuple(remarks))


def check_call(cloud: Cloud, attempt: Attempt, now: datetime) -> None:
    """Raise InvalidRequest for a launch from an image that is not there, not ready, or in another region."""
    image_id = attempt.call.get("image")
    if image_id is None:
        return
    image = cloud.resources.get(image_id)
    if image is None or image.region != attempt.offer.configuration.region or now < image.ready_at:
        raise invalid_request("--image", str(image_id), f"there is no image {image_id} that could be launched here")


def _attached_resources(setup: Setup) -> list[AttachedResource]:
    attached = []
    if setup.disk_gb:
        attached.append(
            AttachedResource(f"system disk of {setup.disk_gb} GB", "fake_disk", setup.disk_gb, while_stopped=True)
        )
    if setup.volume:
        size = setup.volume.size_gb or 0
        attached.append(
            AttachedResource(f"volume {setup.volume.name}", "fake_disk", size, while_stopped=True, named=True)
        )
    return attached


def _find_image_or_refuse(cloud: Cloud, name_or_id: str) -> FakeResource:
    image = find_image(cloud, name_or_id)
    if image is None:
        names = [resource.full_name for resource in cloud.resources.values() if resource.kind is Kind.IMAGE]
        raise invalid_request(
            "--image",
            name_or_id,
            f"there is no image {name_or_id}{did_you_mean(closest_match(name_or_id, names))}",
            None,
        )
    return image


def _find_volume_or_refuse(cloud: Cloud, volume: Volume, ledger: str) -> FakeResource | None:
    found = volumes_named(cloud, volume.name, ledger or None)
    if not found and volume.size_gb is None:
        message = f"there is no volume {volume.name}"
        raise invalid_request(
            "--volume", volume.name, message, f"give its size and it is made: --volume {volume.name}:200"
        )
    return found[0] if found else None


def _check_place(option: str, name: str, actual: str, requested: str | None) -> None:
    if requested not in (None, actual):
        raise InvalidRequest(
            f"{name} is in {actual}, not in {requested}", field=option, value=name, next=f"launch in {actual}"
        )


_NOT_ORPHANS = (Kind.DISK, Kind.VOLUME, Kind.SNAPSHOT, Kind.IMAGE)  # what `resources` lists


def is_orphan(resource: FakeResource) -> bool:
    """Say whether `orphans` lists this resource, rather than `resources`."""
    return resource.kind not in _NOT_ORPHANS


def add_orphan(
    cloud: Cloud, kind: Kind, region: str, tags: Mapping[str, str], now: datetime, attached_to: str | None = None
) -> FakeResource:
    """Store a new resource of this kind, as a launch would have left it."""
    return add_resource(
        cloud, FakeResource("", kind, region, "", "", int(kind is Kind.ADDRESS), dict(tags), now, now, attached_to)
    )


def need_key_pair(cloud: Cloud, machine: FakeMachine, tags: Mapping[str, str], now: datetime) -> None:
    """Create the key pair of the launch's ledger in its region, unless it exists."""
    ledger = tags.get(TAG_LEDGER, "")
    existing = (
        (resource.kind, resource.region, resource.tags.get(TAG_LEDGER)) for resource in cloud.resources.values()
    )
    if (Kind.KEY_PAIR, machine.region, ledger) not in existing:
        add_orphan(cloud, Kind.KEY_PAIR, machine.region, {TAG_LEDGER: ledger, TAG_OWNER: tags.get(TAG_OWNER, "")}, now)
