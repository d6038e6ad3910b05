"""Where an own image, a data volume or a subnet ties a launch to: its region or its zone. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.instances import TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.offers import Available, Requirements
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import PlacementConstraint
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import find
from cloudgpu.providers.azure.compute import machine
from cloudgpu.providers.azure.market.availability import named_region
from cloudgpu.providers.azure.storage import disks as storage
from cloudgpu.providers.azure.storage import gallery, volumes
from cloudgpu.providers.azure.storage import resources as refs
from cloudgpu.providers.shared.named_volumes import (
    Data,
    ambiguous_name,
    check_location,
    check_volume_size,
    not_found_error,
    volume_in_use_error,
    volume_named,
)

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

Raw = Mapping[str, Any]
_IMAGES, _SUBNETS = "Microsoft.Compute/images/read", "Microsoft.Network/virtualNetworks/read"


def constraint(azure: Azure, setup: Setup, requirements: Requirements) -> PlacementConstraint:
    """Return the region of an own image or a subnet, the zone of a volume of `setup`; none of them: nothing is asked.

    One call each. Raises InvalidRequest for one that does not exist, or that lies elsewhere than the requirements or
    another of them says.
    """
    wished = named_region(azure, requirements)
    volume = _volume(azure, setup.volume, requirements, wished) if setup.volume is not None else None
    tied = [_Tie("volume", volume.name, volume.zone)] if volume is not None else []
    image, subnet = setup.image or "", setup.network.subnet or ""
    tied += [_Tie("image", image, region) for region in _image_region(azure, image)]
    tied += [_Tie("subnet", subnet, region) for region in _subnet_region(azure, subnet)]
    for one in tied:
        check_location(one.what, one.name, one.region, wished, "--region")
        if one.region != tied[0].region:
            raise _different_places(tied[0], one)
    if not tied:
        return PlacementConstraint()
    first = tied[0]
    zone = first.lies if volume is not None else None
    return PlacementConstraint(first.region, zone, why=f"the {first.what} {first.name} is in {first.lies}")


def data_volume(azure: Azure, item: Available, wanted: Volume | None) -> Data | None:
    """Return the ledger's volume of this name in the offer's zone; None where it is to be made, or none is wanted.

    Raises InvalidRequest where another machine uses it: launched, this one would run without it.
    """
    if wanted is None:
        return None
    at = (wanted.name, item.zone or item.region)
    found = next((one for one in _volumes(azure) if (one.name, one.zone) == at), None)
    if found is not None and found.holder is not None:
        raise volume_in_use_error(wanted, found.holder)
    return found


@dataclass(frozen=True, slots=True)
class _Tie:
    """Something that ties a launch: what it is, its name, and the zone or region in which it lies."""

    what: str
    name: str
    lies: str

    @property
    def region(self) -> str:
        return ids.region_of(self.lies) or self.lies


def _different_places(one: _Tie, other: _Tie) -> InvalidRequest:
    message = f"The {one.what} {one.name} is in {one.lies}, and the {other.what} {other.name} in {other.lies}."
    return InvalidRequest(message, field=f"--{other.what}", value=other.name, next="Leave one of them out.")


# Images


def _image_region(azure: Azure, named: str) -> Iterator[str]:
    """Yield where an own image lies; nothing for one that lies everywhere: a public one, or one of a gallery."""
    if not named or named.count(":") in (2, 3) or "galleries/" in named.lower():
        return
    own = refs.split(named)
    if own is not None:
        yield own.region
        return
    found = own_image(azure, named)
    if found is not None:
        yield str(found["location"])


def own_image(azure: Azure, named: str) -> Raw | None:
    """Return the own image that a word of the user's means: its id, its name at Azure, or the one given to it.

    One of the gallery is described as a managed one is. None for Azure's id of something else. Raises InvalidRequest
    where there is none, or several, of that name. One call; for what is not there two, and those of the gallery.
    """
    of, mine = ids.resource(named), refs.split(named)
    if of is not None and of.kind != "microsoft.compute/images":
        return None
    group = mine.group if mine else ids.SHARED_GROUP if of is None else of.group
    wanted = mine.name if mine else named if of is None else of.name
    there = _managed(azure, group, named)
    found = [one for one in there if _bears(one, wanted, azure.ledger)]
    if not found and of is None and gallery.gallery_exists(azure):
        there += gallery.listed(azure)
        found = [one for one in there if _bears(one, wanted, azure.ledger)]
    if len({str(one["location"]) for one in found}) > 1:
        places = sorted(str(one["location"]) for one in found)
        raise ambiguous_name(f"Images called {named!r}", places, "--region")
    if not found:
        known = {str((one.get("tags") or {}).get(TAG_IMAGE, "")) for one in there} - {""}
        raise not_found_error("image", "--image", named, known, (), "See them: cloudgpu image ls")
    return found[0]


def _managed(azure: Azure, group: str, named: str) -> list[Raw]:
    listed = azure.compute.images.list_by_resource_group
    return find(azure, _IMAGES, lambda: [one.as_dict() for one in listed(group)], value=named) or []


def _bears(found: Raw, name: str, ledger: str) -> bool:
    tags = found.get("tags") or {}
    mine = ledger in ("", tags.get(TAG_LEDGER, ledger))
    own = {str(found["name"]).lower(), storage.plain_name(found).lower()}
    return name.lower() in own or (mine and tags.get(TAG_IMAGE) == name)


# Volumes


def _volumes(azure: Azure) -> list[Data]:
    """Return the data volumes of this ledger, since another's are not attached either."""
    return [_data(one) for one in volumes.named_disks(azure, azure.ledger)]


def _data(found: Raw) -> Data:
    size = int((found.get("properties") or {}).get("diskSizeGB") or 0)
    return Data(found["tags"][TAG_VOLUME], str(found["id"]), machine.zone_of(found), size, holder=storage.holder(found))


def _volume(azure: Azure, wanted: Volume, requirements: Requirements, region: str | None) -> Data | None:
    there = _volumes(azure)
    return volume_named(wanted, there, requirements, region, region_of=ids.region_of, check_size=_check_size)


def _check_size(wanted: Volume) -> None:
    most = storage.LARGEST_GB
    check_volume_size(wanted, 1, most, f"a managed disk has {most:,} GB at most")


# Subnets


def _subnet_region(azure: Azure, named: str) -> Iterator[str]:
    """Yield the region of a subnet (Azure's id of it): that of its network. One call; none where none is named."""
    if not named:
        return
    of = ids.resource(named)
    if of is None or of.kind != "microsoft.network/virtualnetworks" or not of.rest.lower().startswith("/subnets/"):
        message = f"{named!r} is not an id of a subnet on Azure."
        remedy = "See yours: az network vnet subnet list --resource-group GROUP --vnet-name NETWORK --query [].id"
        raise InvalidRequest(message, field="--subnet", value=named, next=remedy)
    networks = azure.network.virtual_networks
    found = find(azure, _SUBNETS, lambda: networks.get(of.group, of.name), value=named)
    if found is None:
        raise not_found_error("subnet", "--subnet", named, set(), (), "See what there is: az network vnet list")
    yield str(found.as_dict()["location"])
