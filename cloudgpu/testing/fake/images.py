"""How the fake cloud makes images: of a machine at once, of a disk by way of a snapshot; never two of one name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from cloudgpu.core.model.instances import TAG_IMAGE, State
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import InstanceNotFound
from cloudgpu.testing.fake.cloud import refused
from cloudgpu.testing.fake.disks import DEFAULT_GB, add, system_disk
from cloudgpu.testing.fake.machines import FakeMachine
from cloudgpu.testing.fake.resources import FakeResource
from cloudgpu.testing.fake.store import Cloud


def go_on(cloud: Cloud, source: str, name: str, now: datetime) -> FakeResource | None:
    """Return what there is of the image `name` in the source's region; None for nothing.

    A snapshot that is ready becomes a part of the image, which is there from then on.
    """
    found = cloud.machines.get(source) or cloud.resources.get(source)
    named = (resource for resource in cloud.resources.values() if resource.full_name == name)
    there = next((resource for resource in named if found is None or resource.region == found.region), None)
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
        size, kind = disk.size_gb if disk else DEFAULT_GB, Kind.IMAGE
    made = add(cloud, FakeResource("", kind, source.region, "", name, size, dict(tags), now, ready))
    return _finished(cloud, made, now)


def source_of(cloud: Cloud, source: str, state: State | None) -> FakeMachine | FakeResource:
    """Return the machine, which is in this state, or the disk of this id.

    Raises InstanceNotFound for what is not there, InvalidRequest for what no image can be made of now.
    """
    machine, resource = cloud.machines.get(source), cloud.resources.get(source)
    if machine is not None and state in (State.RUNNING, State.STOPPED):
        return machine
    if resource is not None and resource.kind is Kind.DISK and resource.attached_to is None:
        return resource
    if resource is not None or state in (State.PENDING, State.STOPPING):
        message = f"no image can be made of {source}: it has to be a machine that runs or is stopped, or a free disk"
        raise refused("id", source, message, "try again when it is")
    message = f"the fake cloud has no machine and no disk {source}"
    raise InstanceNotFound(message, field="id", value=source)


def find_image(cloud: Cloud, word: str) -> FakeResource | None:
    """Return the image that a word of the user's means: its id, its own name or its full name."""
    images = [resource for resource in cloud.resources.values() if resource.kind is Kind.IMAGE]
    named = (resource for resource in images if word in (resource.id, resource.tags.get(TAG_IMAGE), resource.full_name))
    return next(named, None)


def _finished(cloud: Cloud, resource: FakeResource, now: datetime) -> FakeResource:
    if resource.kind is not Kind.SNAPSHOT or now < resource.ready_at:
        return resource
    del cloud.resources[resource.id]
    return add(cloud, replace(resource, kind=Kind.IMAGE, made_at=now))
