"""Looks up in the fake cloud what a launch needs, and what launches leave beside machines and disks.

A launch needs to know where image and volume lie, and whether the image can be used. Launches leave a key pair per
ledger and region. An address, an interface, a group or a request is there only where a test has left it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from cloudgpu.core.model.instances import TAG_LEDGER, TAG_OWNER, TAG_VOLUME
from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import Available, Requirements
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest, NoCapacity
from cloudgpu.providers.abilities import AttachedResource, PlacementConstraint, Resolved
from cloudgpu.testing.fake.cloud import refused
from cloudgpu.testing.fake.disks import add, find_image, volumes_named
from cloudgpu.testing.fake.machines import FakeMachine
from cloudgpu.testing.fake.market import offered
from cloudgpu.testing.fake.resources import FakeResource
from cloudgpu.testing.fake.store import Cloud


def placement_constraint(cloud: Cloud, setup: Setup, requirements: Requirements, ledger: str) -> PlacementConstraint:
    """Return where a launch is tied to; raise InvalidRequest for what is not there, or lies where nobody asked.

    Volumes are those of this ledger; of any, where it is empty.
    """
    image = _image(cloud, setup.image) if setup.image else None
    volume = _volume(cloud, setup.volume, ledger) if setup.volume else None
    if volume is not None:
        name = volume.tags[TAG_VOLUME]
        _check_place("--volume", name, volume.zone, requirements.zone)
        _check_place("--volume", name, volume.region, requirements.region)
        if image is not None:
            _check_place("--image", image.full_name, image.region, volume.region)
        return PlacementConstraint(volume.region, volume.zone, f"the volume is in {volume.zone}")
    if image is not None:
        _check_place("--image", str(setup.image), image.region, requirements.region)
        return PlacementConstraint(image.region, None, f"the image is in {image.region}")
    return PlacementConstraint()


def resolved(cloud: Cloud, request: LaunchRequest, item: Available, now: datetime) -> Resolved:
    """Return what the launch call says; raise NoCapacity for what is not sold there, InvalidRequest."""
    sold = offered(item.account, Requirements(instance_type=item.instance_type, zone=item.zone, market=item.market))
    if not sold:
        message = f"{item.instance_type} is not sold in {item.zone}"
        raise NoCapacity(message, field="zone", value=item.zone, next="leave --zone out")
    setup = request.setup
    image = _image(cloud, setup.image) if setup.image else None
    if image is not None and now < image.ready_at:
        raise refused("--image", str(setup.image), f"the image {setup.image} is not ready yet", "try again later")
    attached = tuple(_attached(setup))
    remarks = [f"the volume {setup.volume.name} is bound to {item.zone}"] if setup.volume else []
    return Resolved({"image": image.id if image else None}, attached=attached, remarks=tuple(remarks))


def check_call(cloud: Cloud, attempt: Attempt, now: datetime) -> None:
    """Raise InvalidRequest for a launch from an image that is not there, not ready, or in another region."""
    wanted = attempt.call.get("image")
    if wanted is None:
        return
    image = cloud.resources.get(wanted)
    if image is None or image.region != attempt.offer.available.region or now < image.ready_at:
        raise refused("--image", str(wanted), f"there is no image {wanted} that could be launched here")


def _attached(setup: Setup) -> list[AttachedResource]:
    found = []
    if setup.disk_gb:
        found.append(
            AttachedResource(f"system disk of {setup.disk_gb} GB", "fake_disk", setup.disk_gb, while_stopped=True)
        )
    if setup.volume:
        size = setup.volume.size_gb or 0
        found.append(AttachedResource(f"volume {setup.volume.name}", "fake_disk", size, while_stopped=True, named=True))
    return found


def _image(cloud: Cloud, word: str) -> FakeResource:
    found = find_image(cloud, word)
    if found is None:
        names = [resource.full_name for resource in cloud.resources.values()]
        raise refused("--image", word, f"there is no image {word}{did_you_mean(closest_match(word, names))}", None)
    return found


def _volume(cloud: Cloud, volume: Volume, ledger: str) -> FakeResource | None:
    found = volumes_named(cloud, volume.name, ledger or None)
    if not found and volume.size_gb is None:
        message = f"there is no volume {volume.name}"
        raise refused("--volume", volume.name, message, f"give its size and it is made: --volume {volume.name}:200")
    return found[0] if found else None


def _check_place(option: str, name: str, lies: str, asked: str | None) -> None:
    if asked not in (None, lies):
        raise InvalidRequest(f"{name} is in {lies}, not in {asked}", field=option, value=name, next=f"launch in {lies}")


_KEPT = (Kind.DISK, Kind.VOLUME, Kind.SNAPSHOT, Kind.IMAGE)  # what `resources` lists


def is_one(resource: FakeResource) -> bool:
    """Say whether this is told as an orphan, and not as a disk or an image."""
    return resource.kind not in _KEPT


def leave(
    cloud: Cloud, kind: Kind, region: str, tags: Mapping[str, str], now: datetime, attached_to: str | None = None
) -> FakeResource:
    """Keep a new thing of this kind."""
    return add(
        cloud, FakeResource("", kind, region, "", "", int(kind is Kind.ADDRESS), dict(tags), now, now, attached_to)
    )


def need_key_pair(cloud: Cloud, machine: FakeMachine, tags: Mapping[str, str], now: datetime) -> None:
    """Make the key pair of a launch's ledger in its region, where it is not."""
    ledger = tags.get(TAG_LEDGER, "")
    kinds = ((one.kind, one.region, one.tags.get(TAG_LEDGER)) for one in cloud.resources.values())
    if (Kind.KEY_PAIR, machine.region, ledger) not in kinds:
        leave(cloud, Kind.KEY_PAIR, machine.region, {TAG_LEDGER: ledger, TAG_OWNER: tags.get(TAG_OWNER, "")}, now)
