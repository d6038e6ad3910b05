"""Disks, snapshots and images on Azure that go on costing money: all of ours, and how they are removed.

A machine's system disk takes no tags in the call that makes it: it lies in its launch's group, whose name follows from
the token, and has that group's tags. Volumes and images lie in the group `cloudgpu`, with tags of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudgpu.catalog.disktypes import tier
from cloudgpu.core.model.instances import TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.calls import invoke
from cloudgpu.providers.azure.compute.request import is_system_disk
from cloudgpu.providers.azure.storage import gallery
from cloudgpu.providers.azure.storage import resources as refs

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

Raw = Mapping[str, Any]
Tags = Mapping[str, Mapping[str, str]]  # of groups, by their names
LARGEST_GB = 32_767  # of a Standard or Premium SSD: "Azure managed disk types"
SNAPSHOT = "snapshot"  # the catalogue's name for what snapshots and images are billed as
TAG_PREFIX = "cloudgpu-"
TAG_MADE = "cloudgpu-made"  # on an image: the epoch second of its making
_ACTION = "Microsoft.Compute"
_MADE, _GOING = "succeeded", ("deleting", "failed deletion")


def resources(azure: Azure, region: str | None) -> ResourceListing:
    """Return the disks, snapshots and images of ours, by four calls for the whole subscription and their pages.

    Where there is a gallery, one more, and one for each image in it. Raises the error of whichever did not answer: a
    part would look like the whole.
    """
    compute = azure.compute
    with Pool(4) as pool:
        tags = pool.submit(groups.tags_of_all, azure)
        disks, snapshots, images = (
            pool.submit(_listed, azure, kind, operations)
            for kind, operations in (
                ("disks", compute.disks),
                ("snapshots", compute.snapshots),
                ("images", compute.images),
            )
        )
        shared = gallery.listed(azure) if gallery.TAG in tags.result().get(ids.SHARED_GROUP, {}) else []
        kept = [one for one in (*images.result(), *shared) if _is_ours(one)]
        parts = {(group_of(one), plain_name(one)) for one in kept}  # an image and its snapshot bear one name
        copies = (one for one in snapshots.result() if (group_of(one), str(one["name"])) not in parts)
        found = [
            *_ours(azure, disks.result(), tags.result()),
            *(snapshot(azure, one) for one in copies if _is_ours(one)),
            *(image(azure, one) for one in kept),
        ]
    here = tuple(one for one in found if region in (None, one.region))
    return ResourceListing(here, regions=None if region is None else frozenset({region}))


def _listed(azure: Azure, kind: str, operations: Any) -> list[Raw]:
    found = invoke(azure, f"{_ACTION}/{kind}/read", lambda: [one.as_dict() for one in operations.list()])
    return [one for one in found if state(one) not in _GOING]


def _ours(azure: Azure, found: Iterable[Raw], tags: Tags) -> list[ProviderResource]:
    """Return the disks that bear our tags, or are called after the launch's group they lie in: its tags are theirs.

    What else somebody has put into such a group is theirs.
    """
    whose = ((one, tags.get(group_of(one), {}) if _is_system(one) else {}) for one in found)
    tagged = ((one, {**of, **(one.get("tags") or {})}) for one, of in whose)
    return [disk(azure, one, merged) for one, merged in tagged if TAG_LEDGER in merged]


def _is_system(found: Raw) -> bool:
    """Say whether a disk is that of a launch's machine: it is called after the group."""
    return is_system_disk(str(found["name"]), group_of(found))


def _is_ours(found: Raw) -> bool:
    return TAG_LEDGER in (found.get("tags") or {})


def disk(azure: Azure, found: Raw, tags: Mapping[str, str]) -> ProviderResource:
    """Return a disk: a volume where it bears a name of the user's, else a machine's system disk."""
    properties, named = _properties(found), tags.get(TAG_VOLUME, "")
    size = int(properties.get("diskSizeGB") or 0)
    zones = found.get("zones") or ()
    return _leftover(
        azure,
        found,
        tags,
        kind=Kind.VOLUME if named else Kind.DISK,
        zone=f"{found['location']}-{zones[0]}" if zones else found["location"],
        name=named,
        size_gb=size,
        stored_as=tier(str((found.get("sku") or {}).get("name") or ""), size),
        attached_to=holder(found),
    )


def snapshot(azure: Azure, found: Raw) -> ProviderResource:
    """Return a snapshot that is no image yet; it is billed by what is written in it, its size at most."""
    size, tags = int(_properties(found).get("diskSizeGB") or 0), found.get("tags") or {}
    return _leftover(
        azure, found, tags, kind=Kind.SNAPSHOT, name=tags.get(TAG_IMAGE, ""), size_gb=size, stored_as=SNAPSHOT
    )


def image(azure: Azure, found: Raw) -> ProviderResource:
    """Return an image, which is billed as a snapshot of its disk is."""
    of, tags = (_properties(found).get("storageProfile") or {}).get("osDisk") or {}, found.get("tags") or {}
    size = int(of.get("diskSizeGB") or 0)
    return _leftover(
        azure, found, tags, kind=Kind.IMAGE, name=tags.get(TAG_IMAGE, ""), size_gb=size, stored_as=SNAPSHOT
    )


def plain_name(found: Raw) -> str:
    """Return the name under which an image was saved."""
    name = str(found["name"])
    return name.removesuffix(f".{found['location']}") if is_in_gallery(found) else name


def is_in_gallery(found: Raw) -> bool:
    """Say whether an image is one of the gallery."""
    return "/galleries/" in str(found["id"]).lower()


def _leftover(azure: Azure, found: Raw, tags: Mapping[str, str], **facts: Any) -> ProviderResource:
    region = str(found["location"])
    ref = refs.of(region, str(found["id"]))
    if is_in_gallery(found):
        ref = refs.ResourceRef(region, ids.SHARED_GROUP, gallery.KIND, str(found["name"]))
    usual = {"zone": "", "attached_to": None, **facts}
    return ProviderResource(
        provider="azure",
        account=azure.account,
        region=region,
        id=str(found["id"]) if ref is None else ref.id,
        tags={key: value for key, value in tags.items() if key.startswith(TAG_PREFIX) and key != TAG_MADE},
        made_at=_made_at(found),
        ready=state(found) in (_MADE, ""),
        **usual,
    )


def holder(found: Raw) -> str | None:
    """Return our id of the machine that uses a disk, Azure's own where that is none of ours; None where it is free."""
    own = str(found.get("managedBy") or "")
    of = ids.resource(own)
    if not own or of is None or not ids.GROUP.fullmatch(of.group):
        return own or None
    return ids.joined(str(found["location"]), of.group)


def state(found: Raw) -> str:
    """Return how far Azure is with making a thing, in small letters: `succeeded`, `creating`, ..."""
    return str(_properties(found).get("provisioningState") or "").lower()


def group_of(found: Raw) -> str:
    """Return the resource group of something, in small letters; empty for what lies in none."""
    of = ids.resource(str(found.get("id") or ""))
    return "" if of is None else of.group


def _properties(found: Raw) -> Raw:
    properties: Raw = found.get("properties") or {}
    return properties


def _made_at(found: Raw) -> datetime | None:
    """Return when it was made, aware UTC: of an image Azure may say so in `systemData`, or not at all; our tag does."""
    text = _properties(found).get("timeCreated") or (found.get("systemData") or {}).get("createdAt")
    if text:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    tag = str((found.get("tags") or {}).get(TAG_MADE, ""))
    return datetime.fromtimestamp(int(tag), UTC) if re.fullmatch(r"[1-9]\d{0,10}", tag) else None


def remove(azure: Azure, resource: ProviderResource) -> None:
    """Delete it, an image with the snapshot it was made of; what is gone already is no error.

    The group of a launch goes with its last disk. Raises InvalidRequest while a machine uses it. Two calls; up to two
    more for the last disk of a launch.
    """
    ref = refs.named(resource.id, resource.kind)
    if ref.kind == gallery.KIND:
        gallery.delete(azure, ref.name)
        return
    if ref.kind == "disks":
        _refuse_used(azure, ref, resource.id)
    delete(azure, ref)
    if ref.kind == "images":
        delete(azure, refs.ResourceRef(ref.region, ref.group, "snapshots", ref.name))
    if ref.kind == "disks" and ids.GROUP.fullmatch(ref.group):
        groups.drop_empty(azure, ref.region, ref.group, but=ref.name)


def delete(azure: Azure, ref: refs.ResourceRef) -> None:
    """Ask to delete a disk, a snapshot or an image; one that is gone is no error. One call, not waited for."""
    refs.delete(azure, getattr(azure.compute, ref.kind), ref)


def _refuse_used(azure: Azure, ref: refs.ResourceRef, id: str) -> None:  # noqa: A002
    found = read(azure, ref)
    user = None if found is None else holder(found)
    if user is not None:
        message = f"{id} is in use by {user}."
        raise InvalidRequest(message, field="id", value=id, next="End that machine first.")


def read(azure: Azure, ref: refs.ResourceRef) -> Raw | None:
    """Return what Azure says of a disk, a snapshot or an image; None where it has none. One call."""
    return refs.read(azure, getattr(azure.compute, ref.kind), ref)
