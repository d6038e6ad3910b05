"""What the fake cloud does with disks and volumes; all of it on one open `Cloud`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from cloudgpu.core.model.instances import TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Attempt, Volume
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.core.values.naming import digest
from cloudgpu.testing.fake.cloud import refused
from cloudgpu.testing.fake.machines import FakeMachine
from cloudgpu.testing.fake.resources import FakeResource
from cloudgpu.testing.fake.store import Cloud

DEFAULT_GB = 64


def add(cloud: Cloud, resource: FakeResource) -> FakeResource:
    """Keep a new thing under an id of its own and return it."""
    cloud.made += 1
    resource = replace(resource, id=f"{resource.kind}-{digest('fake', resource.kind, str(cloud.made))[:16]}")
    cloud.resources[resource.id] = resource
    return resource


def add_system_disk(cloud: Cloud, machine: FakeMachine, attempt: Attempt, *, stays: bool) -> None:
    """Give a new machine its system disk, which is at least as large as its image."""
    image = cloud.resources.get(str(attempt.call.get("image")))
    size = max(attempt.request.setup.disk_gb or DEFAULT_GB, image.size_gb if image else 0)
    made = machine.made_at
    disk = FakeResource(
        "", Kind.DISK, machine.region, machine.zone, "", size, machine.tags, made, made, machine.id, stays
    )
    add(cloud, disk)


def system_disk(cloud: Cloud, machine: str) -> FakeResource | None:
    """Return the system disk that a machine uses."""
    found = (
        resource
        for resource in cloud.resources.values()
        if resource.kind is Kind.DISK and resource.attached_to == machine
    )
    return next(found, None)


def set_system_disk(cloud: Cloud, machine: str, *, stays: bool) -> None:
    """Let a machine's system disk go with it, or stay."""
    disk = system_disk(cloud, machine)
    if disk is not None:
        cloud.resources[disk.id] = replace(disk, stays=stays)


def detach_from_ended(cloud: Cloud, has_ended: Callable[[str], bool]) -> None:
    """Detach what machines used that have ended, and delete the disks that went with them."""
    for resource in list(cloud.resources.values()):
        if resource.attached_to is not None and has_ended(resource.attached_to):
            cloud.resources[resource.id] = replace(resource, attached_to=None)
            if not resource.stays:
                del cloud.resources[resource.id]


def remove(cloud: Cloud, resource: ProviderResource) -> None:
    """Delete a resource; one that is gone is no error. Raises InvalidRequest while a machine uses it."""
    found = cloud.resources.get(resource.id)
    if found is None:
        return
    if found.attached_to is not None:
        message = f"the {found.kind} {found.id} is in use by {found.attached_to}"
        raise refused("id", found.id, message, "end that machine first")
    del cloud.resources[found.id]


def attach(cloud: Cloud, machine: FakeMachine, volume: Volume, tags: Mapping[str, str], now: datetime) -> FakeResource:
    """Return the volume, made if it was not there, attached to the machine. Raises InvalidRequest."""
    resource = _volume_near(cloud, machine, volume.name, tags.get(TAG_LEDGER))
    if resource is None:
        return _made(cloud, machine, volume, tags, now)
    if resource.zone != machine.zone:
        message = f"the volume {volume.name} is in {resource.zone}, and the machine in {machine.zone}"
        raise refused("--volume", volume.name, message, f"launch in its zone: --zone {resource.zone}")
    if resource.attached_to not in (None, machine.id):
        message = f"the volume {volume.name} is used by {resource.attached_to}"
        raise refused("--volume", volume.name, message, "end that machine first, or use another volume")
    cloud.resources[resource.id] = replace(resource, attached_to=machine.id)
    return cloud.resources[resource.id]


def volumes_named(cloud: Cloud, name: str, ledger: str | None = None) -> list[FakeResource]:
    """Return the volumes of this name: of one ledger, or of any."""
    named = (resource for resource in cloud.resources.values() if resource.tags.get(TAG_VOLUME) == name)
    return [resource for resource in named if ledger in (None, resource.tags.get(TAG_LEDGER))]


def _volume_near(cloud: Cloud, machine: FakeMachine, name: str, ledger: str | None) -> FakeResource | None:
    found = volumes_named(cloud, name, ledger)
    return min(found, key=lambda resource: resource.zone != machine.zone, default=None)


def _made(cloud: Cloud, machine: FakeMachine, volume: Volume, tags: Mapping[str, str], now: datetime) -> FakeResource:
    if volume.size_gb is None:
        raise refused("--volume", volume.name, f"there is no volume {volume.name}", "give its size: NAME:GB")
    named = {**tags, TAG_VOLUME: volume.name}
    where = (machine.region, machine.zone)
    return add(cloud, FakeResource("", Kind.VOLUME, *where, "", volume.size_gb, named, now, now, machine.id))
