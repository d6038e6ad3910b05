"""How the fake cloud makes images: of a machine at once, of a disk by way of a snapshot; never two of one name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from cloudgpu.core.model.instances import TAG_IMAGE, State
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import InstanceNotFound
from cloudgpu.testing.fake.cloud import refused
from cloudgpu.testing.fake.disks import USUAL_GB, add, system_disk
from cloudgpu.testing.fake.machines import FakeMachine
from cloudgpu.testing.fake.resources import FakeResource
from cloudgpu.testing.fake.store import Cloud


def go_on(cloud: Cloud, source: str, name: str, now: datetime) -> FakeResource | None:
    """Return what there is of the image `name` in the source's region; None for nothing.

    A snapshot that is ready becomes a part of the image, which is there from then on.
    """
    found = cloud.machines.get(source) or cloud.things.get(source)
    named = (thing for thing in cloud.things.values() if thing.full_name == name)
    there = next((thing for thing in named if found is None or thing.region == found.region), None)
    return None if there is None else _finished(cloud, there, now)


def begin(
    cloud: Cloud, source: FakeMachine | FakeResource, name: str, tags: Mapping[str, str], now: datetime, seconds: float
) -> FakeResource:
    """Begin the image of a machine or a disk; return what there is of it."""
    ready = now + timedelta(seconds=seconds)
    if isinstance(source, FakeResource):
        size, kind = source.size_gb, Kind.SNAPSHOT
    else:
        disk = system_disk(cloud, source.id)
        size, kind = disk.size_gb if disk else USUAL_GB, Kind.IMAGE
    made = add(cloud, FakeResource("", kind, source.region, "", name, size, dict(tags), now, ready))
    return _finished(cloud, made, now)


def source_of(cloud: Cloud, source: str, state: State | None) -> FakeMachine | FakeResource:
    """Return the machine, which is in this state, or the disk of this id.

    Raises InstanceNotFound for what is not there, InvalidRequest for what no image can be made of now.
    """
    machine, thing = cloud.machines.get(source), cloud.things.get(source)
    if machine is not None and state in (State.RUNNING, State.STOPPED):
        return machine
    if thing is not None and thing.kind is Kind.DISK and thing.attached_to is None:
        return thing
    if thing is not None or state in (State.PENDING, State.STOPPING):
        message = f"no image can be made of {source}: it has to be a machine that runs or is stopped, or a free disk"
        raise refused("id", source, message, "try again when it is")
    message = f"the fake cloud has no machine and no disk {source}"
    raise InstanceNotFound(message, field="id", value=source)


def find_image(cloud: Cloud, word: str) -> FakeResource | None:
    """Return the image that a word of the user's means: its id, its own name or its full name."""
    images = [thing for thing in cloud.things.values() if thing.kind is Kind.IMAGE]
    named = (thing for thing in images if word in (thing.id, thing.tags.get(TAG_IMAGE), thing.full_name))
    return next(named, None)


def _finished(cloud: Cloud, thing: FakeResource, now: datetime) -> FakeResource:
    if thing.kind is not Kind.SNAPSHOT or now < thing.ready_at:
        return thing
    del cloud.things[thing.id]
    return add(cloud, replace(thing, kind=Kind.IMAGE, made_at=now))
