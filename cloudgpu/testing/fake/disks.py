"""Disks, volumes and images of the fake cloud, as functions on an open `Cloud`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from cloudgpu.core.model.instances import TAG_IMAGE, TAG_LEDGER, TAG_VOLUME, State
from cloudgpu.core.model.launch import Attempt, Volume
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import InstanceNotFound
from cloudgpu.testing.fake.cloud import invalid_request
from cloudgpu.testing.fake.store import Cloud, FakeMachine, FakeResource

DEFAULT_GB = 64


def add_resource(cloud: Cloud, resource: FakeResource) -> FakeResource:
    """Store a new resource under a new id, and return it with that id."""
    cloud.made += 1
    resource = replace(resource, id=f"{resource.kind}-{digest('fake', resource.kind, str(cloud.made))[:16]}")
    cloud.resources[resource.id] = resource
    return resource


def add_system_disk(cloud: Cloud, machine: FakeMachine, attempt: Attempt, *, stays: bool) -> None:
    """Give a new machine its system disk, which is at least as large as its image."""
    image = cloud.resources.get(str(attempt.call.get("image")))
    size = max(attempt.request.setup.disk_gb or DEFAULT_GB, image.size_gb if image else 0)
    made_at = machine.made_at
    disk = FakeResource(
        "", Kind.DISK, machine.region, machine.zone, "", size, machine.tags, made_at, made_at, machine.id, stays
    )
    add_resource(cloud, disk)


def system_disk(cloud: Cloud, machine: str) -> FakeResource | None:
    """Return the system disk that a machine uses."""
    disks_in_use = (
        resource
        for resource in cloud.resources.values()
        if resource.kind is Kind.DISK and resource.attached_to == machine
    )
    return next(disks_in_use, None)


def set_system_disk(cloud: Cloud, machine: str, *, stays: bool) -> None:
    """Set whether a machine's system disk stays when the machine ends."""
    disk = system_disk(cloud, machine)
    if disk is not None:
        cloud.resources[disk.id] = replace(disk, stays=stays)


def detach_from_ended(cloud: Cloud, has_ended: Callable[[str], bool]) -> None:
    """Detach the resources of machines that have ended, and delete those that do not stay."""
    for resource in list(cloud.resources.values()):
        if resource.attached_to is not None and has_ended(resource.attached_to):
            cloud.resources[resource.id] = replace(resource, attached_to=None)
            if not resource.stays:
                del cloud.resources[resource.id]


def remove_resource(cloud: Cloud, resource: ProviderResource) -> None:
    """Delete a resource; one that is gone is no error. Raises InvalidRequest while a machine uses it."""
    stored = cloud.resources.get(resource.id)
    if stored is None:
        return
    if stored.attached_to is not None:
        raise invalid_request(
            "id",
            stored.id,
            f"the {stored.kind} {stored.id} is in use by {stored.attached_to}",
            "end that machine first",
        )
    del cloud.resources[stored.id]


def attach_volume(
    cloud: Cloud, machine: FakeMachine, volume: Volume, tags: Mapping[str, str], now: datetime
) -> FakeResource:
    """Return the volume, made if it was not there, attached to the machine. Raises InvalidRequest."""
    resource = _nearest_volume(cloud, machine, volume.name, tags.get(TAG_LEDGER))
    if resource is None:
        return _make_volume(cloud, machine, volume, tags, now)
    if resource.zone != machine.zone:
        message = f"the volume {volume.name} is in {resource.zone}, and the machine in {machine.zone}"
        raise invalid_request("--volume", volume.name, message, f"launch in its zone: --zone {resource.zone}")
    if resource.attached_to not in (None, machine.id):
        message = f"the volume {volume.name} is used by {resource.attached_to}"
        raise invalid_request("--volume", volume.name, message, "end that machine first, or use another volume")
    cloud.resources[resource.id] = replace(resource, attached_to=machine.id)
    return cloud.resources[resource.id]


def volumes_named(cloud: Cloud, name: str, ledger: str | None = None) -> list[FakeResource]:
    """Return the volumes of this name: of one ledger, or of any."""
    named = (resource for resource in cloud.resources.values() if resource.tags.get(TAG_VOLUME) == name)
    return [resource for resource in named if ledger in (None, resource.tags.get(TAG_LEDGER))]


def _nearest_volume(cloud: Cloud, machine: FakeMachine, name: str, ledger: str | None) -> FakeResource | None:
    found = volumes_named(cloud, name, ledger)
    return min(found, key=lambda resource: resource.zone != machine.zone, default=None)


def _make_volume(
    cloud: Cloud, machine: FakeMachine, volume: Volume, tags: Mapping[str, str], now: datetime
) -> FakeResource:
    if volume.size_gb is None:
        raise invalid_request("--volume", volume.name, f"there is no volume {volume.name}", "give its size: NAME:GB")
    volume_tags = {**tags, TAG_VOLUME: volume.name}
    region_and_zone = (machine.region, machine.zone)
    return add_resource(
        cloud, FakeResource("", Kind.VOLUME, *region_and_zone, "", volume.size_gb, volume_tags, now, now, machine.id)
    )


def continue_image(cloud: Cloud, source: str, name: str, now: datetime) -> FakeResource | None:
    """Return the image `name`, or its snapshot, in the region of `source`; None if there is neither.

    A snapshot that is ready is replaced by the image.
    """
    found = cloud.machines.get(source) or cloud.resources.get(source)
    named = (resource for resource in cloud.resources.values() if resource.full_name == name)
    image = next((resource for resource in named if found is None or resource.region == found.region), None)
    return None if image is None else _turn_ready_snapshot_into_image(cloud, image, now)


def begin_image(
    cloud: Cloud, source: FakeMachine | FakeResource, name: str, tags: Mapping[str, str], now: datetime, seconds: float
) -> FakeResource:
    """Start making the image of a machine, or the snapshot of a disk; return it as it is now."""
    ready_at = now + timedelta(seconds=seconds)
    if isinstance(source, FakeResource):
        size, kind = source.size_gb, Kind.SNAPSHOT
    else:
        disk = system_disk(cloud, source.id)
        size, kind = disk.size_gb if disk else DEFAULT_GB, Kind.IMAGE
    image = add_resource(cloud, FakeResource("", kind, source.region, "", name, size, dict(tags), now, ready_at))
    return _turn_ready_snapshot_into_image(cloud, image, now)


def image_source(cloud: Cloud, source: str, state: State | None) -> FakeMachine | FakeResource:
    """Return the machine (which is in `state`) or the disk with the id `source`.

    Raises InstanceNotFound if there is none, InvalidRequest if no image can be made of it now.
    """
    machine, resource = cloud.machines.get(source), cloud.resources.get(source)
    if machine is not None and state in (State.RUNNING, State.STOPPED):
        return machine
    if resource is not None and resource.kind is Kind.DISK and resource.attached_to is None:
        return resource
    if resource is not None or state in (State.PENDING, State.STOPPING):
        message = f"no image can be made of {source}: it has to be a machine that runs or is stopped, or a free disk"
        raise invalid_request("id", source, message, "try again when it is")
    raise InstanceNotFound(f"the fake cloud has no machine and no disk {source}", field="id", value=source)


def find_image(cloud: Cloud, name_or_id: str) -> FakeResource | None:
    """Return the image with this id, short name or full name."""
    images = [resource for resource in cloud.resources.values() if resource.kind is Kind.IMAGE]
    named = (
        resource for resource in images if name_or_id in (resource.id, resource.tags.get(TAG_IMAGE), resource.full_name)
    )
    return next(named, None)


def _turn_ready_snapshot_into_image(cloud: Cloud, resource: FakeResource, now: datetime) -> FakeResource:
    if resource.kind is not Kind.SNAPSHOT or now < resource.ready_at:
        return resource
    del cloud.resources[resource.id]
    return add_resource(cloud, replace(resource, kind=Kind.IMAGE, made_at=now))
