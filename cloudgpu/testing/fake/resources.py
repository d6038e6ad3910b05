"""The resources of the fake cloud that are not machines: disks, volumes, snapshots, images and orphans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from cloudgpu.core.model.instances import TAG_IMAGE, TAG_VOLUME
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.core.values.times import from_iso, iso

_PRICED_AS = {  # the storage class by which it is priced; other kinds cost nothing
    Kind.DISK: "fake_disk",
    Kind.VOLUME: "fake_disk",
    Kind.SNAPSHOT: "fake_snapshot",
    Kind.IMAGE: "fake_snapshot",
    Kind.ADDRESS: "fake_address",
}


@dataclass(frozen=True, slots=True)
class FakeResource:
    """A disk, a volume, a snapshot, an image, or an orphan, as the fake cloud stores it.

    `full_name` is the name of the image that it is or will become; empty for others. `ready_at` is when it can be used.
    `attached_to` is the id of a machine. With `stays` it is not deleted with that machine.
    """

    id: str
    kind: Kind
    region: str
    zone: str
    full_name: str
    size_gb: int
    tags: Mapping[str, str]
    made_at: datetime
    ready_at: datetime
    attached_to: str | None = None
    stays: bool = True


_FIELD_NAMES = tuple(field.name for field in fields(FakeResource))  # asdict would copy each value of each


def as_provider_resource(resource: FakeResource, account: str, now: datetime) -> ProviderResource:
    """Return the resource as the provider lists it at `now`."""
    name = resource.tags.get(TAG_VOLUME if resource.kind is Kind.VOLUME else TAG_IMAGE, "")
    return ProviderResource(
        provider="fake",
        account=account,
        region=resource.region,
        zone=resource.zone,
        id=resource.id,
        kind=resource.kind,
        name=name if resource.kind in (Kind.VOLUME, Kind.IMAGE) else "",
        size_gb=resource.size_gb,
        stored_as=_PRICED_AS.get(resource.kind, ""),
        tags=dict(resource.tags),
        made_at=resource.made_at,
        ready=now >= resource.ready_at,
        attached_to=resource.attached_to,
    )


def resource_to_json(resource: FakeResource) -> dict[str, Any]:
    """Return the resource as plain JSON values."""
    times = {"made_at": iso(resource.made_at), "ready_at": iso(resource.ready_at)}
    return {**{name: getattr(resource, name) for name in _FIELD_NAMES}, "kind": str(resource.kind), **times}


def resource_from_json(data: Mapping[str, Any]) -> FakeResource:
    """Return the resource that `resource_to_json` wrote."""
    times = {name: from_iso(data[name]) for name in ("made_at", "ready_at")}
    return FakeResource(**{**data, "kind": Kind(data["kind"]), **times})
