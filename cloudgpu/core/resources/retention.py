"""Retained resources: which disks and images stay when a machine is gone, and what is to be done with them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from cloudgpu.core.model.instances import NEVER_RAN, TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_SEQ, TAG_VOLUME, Instance, State
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.core.values.times import from_iso

IMAGE_AFTER = timedelta(days=14)  # an unused disk costs more than its image: after this time it is replaced by one
DELETE_IMAGE_AFTER = timedelta(minutes=15)  # longer than anybody waits for a machine to come up: then its image can go


class StepKind(StrEnum):
    """What is to be done with a resource."""

    SAVE = "save"  # go on making the image of it
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """One step that can be done now: the action `do` on a resource."""

    do: StepKind
    resource: ProviderResource


def is_on_purpose(resource: ProviderResource) -> bool:
    """Say whether the user keeps this by name: a volume or an image that no `down` touches."""
    return TAG_VOLUME in resource.tags or TAG_IMAGE in resource.tags


def resources_of_machine(resources: Iterable[ProviderResource], machine: str, ledger: str) -> list[ProviderResource]:
    """Return what belongs to this machine of this ledger, without what is kept on purpose."""
    return [
        resource
        for resource in resources
        if (resource.tags.get(TAG_ID), resource.tags.get(TAG_LEDGER)) == (machine, ledger)
        and not is_on_purpose(resource)
    ]


def retained_of(machine: Machine, resources: Sequence[ProviderResource]) -> list[ProviderResource]:
    """Return those of a machine's resources that stay without it, the newest first.

    A disk that another machine uses belongs to that one. A living machine's own disk is no leftover, nor is one
    that was made with it and is not attached yet.
    """
    unattached = [resource for resource in resources if resource.attached_to in (None, machine.provider_id)]
    if machine.terminated_at is None:
        unattached = [  # a free disk of an earlier life is told by its tags, since clouds cut times
            resource
            for resource in unattached
            if resource.kind is not Kind.DISK
            or (resource.attached_to is None and is_of_earlier_life(machine, resource.tags))
        ]
    return sorted(unattached, key=lambda resource: (-_launch_seq(resource), resource.kind, resource.id))


def retention_steps(machine: Machine, resources: Sequence[ProviderResource], now: datetime) -> list[RetentionStep]:
    """Return what can be done now with what stays of this machine; none when it is as it should be.

    Level-triggered: it depends only on what exists now, whatever process was interrupted. An image is made of the
    newest disk before that disk, or anything older, is removed.
    """
    retained = retained_of(machine, resources)
    if machine.terminated_at is None:
        since = machine.since or machine.seen_at
        is_running = machine.launch_status == "made" and machine.state == State.RUNNING
        image_can_go = is_running and since is not None and now - from_iso(since) >= DELETE_IMAGE_AFTER
        return [RetentionStep(StepKind.REMOVE, resource) for resource in retained] if image_can_go else []
    if machine.discard:
        return [RetentionStep(StepKind.REMOVE, resource) for resource in retained if resource.attached_to is None]
    return _parking_steps(retained) if machine.parked else []


def is_forgotten(machine: Machine, now: datetime) -> bool:
    """Say whether a machine that ended by itself has left a disk for so long that it is imaged now."""
    if machine.terminated_at is None or machine.parked or machine.discard:
        return False
    has_disk = any(entry.kind == Kind.DISK for entry in machine.retained)
    return has_disk and now - from_iso(machine.terminated_at) >= IMAGE_AFTER


def is_parking_complete(machine: Machine) -> bool:
    """Say whether parking a machine is complete: one image that is ready is retained of it, and nothing else."""
    kept = machine.retained
    return len(kept) == 1 and kept[0].kind == Kind.IMAGE and kept[0].ready


def image_name(resource: ProviderResource) -> str:
    """Return the full name of the image of a machine's disk: one for each life of each machine."""
    return f"cloudgpu-{resource.tags[TAG_ID]}-{_launch_seq(resource)}"


def _parking_steps(resources: list[ProviderResource]) -> list[RetentionStep]:
    """Return the steps to one ready image of the newest life, and nothing else."""
    newest = (
        [resource for resource in resources if _launch_seq(resource) == _launch_seq(resources[0])] if resources else []
    )
    ready = [resource for resource in newest if resource.kind is Kind.IMAGE and resource.ready]
    if ready:
        superseded = [resource for resource in resources if resource is not ready[0] and resource.attached_to is None]
        return [
            RetentionStep(StepKind.REMOVE, resource)
            for resource in sorted(superseded, key=lambda resource: resource.kind is not Kind.DISK)
        ]
    preference = {Kind.DISK: 0, Kind.IMAGE: 1, Kind.SNAPSHOT: 2}
    unattached = [resource for resource in newest if resource.attached_to is None]
    return [
        RetentionStep(StepKind.SAVE, resource)
        for resource in sorted(unattached, key=lambda resource: preference.get(resource.kind, 3))[:1]
    ]


def is_of_earlier_life(machine: Machine, tags: Mapping[str, str]) -> bool:
    """Say whether something with these tags is of a launch before the machine's latest one: the ledger was shorter."""
    return TAG_SEQ in tags and _seq_of(tags) < machine.seq


def is_remnant(machine: Machine, instance: Instance) -> bool:
    """Say whether this is what a refused launch left, rather than a machine that its user has stopped."""
    return machine.launch_status == "open" and instance.state is State.STOPPED and instance.reason == NEVER_RAN


def _launch_seq(resource: ProviderResource) -> int:
    """Return the number of ledger entries at the launch that this resource is of: a later launch has more."""
    return _seq_of(resource.tags)


def _seq_of(tags: Mapping[str, str]) -> int:
    text = tags.get(TAG_SEQ, "")
    return int(text) if text.isascii() and text.isdecimal() else 0
