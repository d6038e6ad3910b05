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

USUAL_GB = 64


def add(cloud: Cloud, thing: FakeResource) -> FakeResource:
    """Keep a new thing under an id of its own and return it."""
    cloud.made += 1
    thing = replace(thing, id=f"{thing.kind}-{digest('fake', thing.kind, str(cloud.made))[:16]}")
    cloud.things[thing.id] = thing
    return thing


def add_system_disk(cloud: Cloud, machine: FakeMachine, attempt: Attempt, *, stays: bool) -> None:
    """Give a new machine its system disk, which is at least as large as its image."""
    image = cloud.things.get(str(attempt.call.get("image")))
    size = max(attempt.request.setup.disk_gb or USUAL_GB, image.size_gb if image else 0)
    made = machine.made_at
    disk = FakeResource(
        "", Kind.DISK, machine.region, machine.zone, "", size, machine.tags, made, made, machine.id, stays
    )
    add(cloud, disk)


def system_disk(cloud: Cloud, machine: str) -> FakeResource | None:
    """Return the system disk that a machine uses."""
    found = (thing for thing in cloud.things.values() if thing.kind is Kind.DISK and thing.attached_to == machine)
    return next(found, None)


def set_system_disk(cloud: Cloud, machine: str, *, stays: bool) -> None:
    """Let a machine's system disk go with it, or stay."""
    disk = system_disk(cloud, machine)
    if disk is not None:
        cloud.things[disk.id] = replace(disk, stays=stays)


def let_go(cloud: Cloud, has_ended: Callable[[str], bool]) -> None:
    """Detach what machines used that have ended, and delete the disks that went with them."""
    for thing in list(cloud.things.values()):
        if thing.attached_to is not None and has_ended(thing.attached_to):
            cloud.things[thing.id] = replace(thing, attached_to=None)
            if not thing.stays:
                del cloud.things[thing.id]


def remove(cloud: Cloud, resource: ProviderResource) -> None:
    """Delete a thing; what is not there is deleted already. Raises InvalidRequest while a machine uses it."""
    thing = cloud.things.get(resource.id)
    if thing is None:
        return
    if thing.attached_to is not None:
        message = f"the {thing.kind} {thing.id} is in use by {thing.attached_to}"
        raise refused("id", thing.id, message, "end that machine first")
    del cloud.things[thing.id]


def attach(cloud: Cloud, machine: FakeMachine, volume: Volume, tags: Mapping[str, str], now: datetime) -> FakeResource:
    """Return the volume, made if it was not there, attached to the machine. Raises InvalidRequest."""
    thing = _volume_near(cloud, machine, volume.name, tags.get(TAG_LEDGER))
    if thing is None:
        return _made(cloud, machine, volume, tags, now)
    if thing.zone != machine.zone:
        message = f"the volume {volume.name} lies in {thing.zone}, and the machine in {machine.zone}"
        raise refused("--volume", volume.name, message, f"launch in its zone: --zone {thing.zone}")
    if thing.attached_to not in (None, machine.id):
        message = f"the volume {volume.name} is used by {thing.attached_to}"
        raise refused("--volume", volume.name, message, "end that machine first, or use another volume")
    cloud.things[thing.id] = replace(thing, attached_to=machine.id)
    return cloud.things[thing.id]


def volumes_named(cloud: Cloud, name: str, ledger: str | None = None) -> list[FakeResource]:
    """Return the volumes of this name: of one ledger, or of any."""
    named = (thing for thing in cloud.things.values() if thing.tags.get(TAG_VOLUME) == name)
    return [thing for thing in named if ledger in (None, thing.tags.get(TAG_LEDGER))]


def _volume_near(cloud: Cloud, machine: FakeMachine, name: str, ledger: str | None) -> FakeResource | None:
    found = volumes_named(cloud, name, ledger)
    return min(found, key=lambda thing: thing.zone != machine.zone, default=None)


def _made(cloud: Cloud, machine: FakeMachine, volume: Volume, tags: Mapping[str, str], now: datetime) -> FakeResource:
    if volume.size_gb is None:
        raise refused("--volume", volume.name, f"there is no volume {volume.name}", "give its size: NAME:GB")
    named = {**tags, TAG_VOLUME: volume.name}
    where = (machine.region, machine.zone)
    return add(cloud, FakeResource("", Kind.VOLUME, *where, "", volume.size_gb, named, now, now, machine.id))
