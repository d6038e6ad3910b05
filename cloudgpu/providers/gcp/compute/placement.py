"""Where an own image, a data volume or a subnet ties a launch to: its region or its zone. Reads only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloudgpu.catalog.disktypes import accepts_disk
from cloudgpu.core.model.instances import TAG_VOLUME
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.offers import Available, Requirements
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import PlacementConstraint
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.market.availability import named_region
from cloudgpu.providers.gcp.storage import images
from cloudgpu.providers.gcp.storage.resources import aggregated, machine_of, our_tags
from cloudgpu.providers.gcp.storage.volumes import check_size, listed
from cloudgpu.providers.shared.named_volumes import (
    Data,
    check_location,
    not_found_error,
    volume_in_use_error,
    volume_named,
)

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp

# A subnet as Google writes it: its region is in it, and its project where that is another one.
SUBNET = re.compile(r"(?:projects/[^/]+/)?regions/([a-z]+-[a-z]+\d+)/subnetworks/([a-z][-a-z0-9]{0,62})")


def constraint(gcp: Gcp, setup: Setup, requirements: Requirements) -> PlacementConstraint:
    """Return the zone of a volume, or the region of a subnet, of `setup`; none of them: nothing is asked.

    An image of Google's can be used in every region and ties to none: it only has to be there. One call for a volume,
    and for a subnet that does not name its region; up to three for an image. Raises InvalidRequest for one that does
    not exist, or that lies elsewhere than `requirements` or another of them says.
    """
    if setup.image is not None:
        images.meant(gcp, setup.image)
    volume = _volume(gcp, setup.volume, requirements) if setup.volume is not None else None
    region = _subnet_region(gcp, setup.network.subnet, requirements) if setup.network.subnet is not None else None
    if volume is not None:
        if region not in (None, ids.region_of(volume.zone)):
            raise _different_regions(volume, str(setup.network.subnet), str(region))
        return PlacementConstraint(
            ids.region_of(volume.zone), volume.zone, why=f"the volume {volume.name} is in {volume.zone}"
        )
    return PlacementConstraint(region=region, why=f"the subnet {setup.network.subnet} is in {region}" if region else "")


def _different_regions(volume: Data, subnet: str, region: str) -> InvalidRequest:
    message = f"The subnet {subnet} is in {region}, and the volume {volume.name} is in {volume.zone}."
    remedy = "Leave one of them out, or name a subnet of the volume's region."
    return InvalidRequest(message, field="--volume", value=volume.name, next=remedy)


def data_volume(gcp: Gcp, item: Available, wanted: Volume | None) -> Data | None:
    """Return the data volume of this name in the offer's zone; None where it is still to be made, or none is wanted.

    Raises InvalidRequest where another machine uses it, or where the machine's type does not take such a disk:
    launched, this one would run without it.
    """
    if wanted is None:
        return None
    there = ((one, _data(one)) for one in listed(gcp, gcp.ledger))
    raw, found = next(
        ((raw, one) for raw, one in there if (one.name, one.zone) == (wanted.name, item.zone)), ({}, None)
    )
    if found is not None and found.holder is not None:
        raise volume_in_use_error(wanted, found.holder)
    kind = ids.last(str(raw.get("type", "")))
    if kind and not accepts_disk(item.instance_type, kind):
        message = f"The volume {wanted.name} is a disk of the kind {kind}, which {item.instance_type} does not take."
        remedy = "Name another volume, with a size: one of the right kind is made."
        raise InvalidRequest(message, field="--volume", value=wanted.name, next=remedy)
    return found


def _volumes(gcp: Gcp) -> list[Data]:
    """Return the data volumes of this ledger, since another's are not attached either."""
    return [_data(one) for one in listed(gcp, gcp.ledger)]


def _data(found: Mapping[str, Any]) -> Data:
    size, zone = int(found.get("sizeGb", 0)), ids.last(found["zone"])
    return Data(our_tags(found)[TAG_VOLUME], found["name"], zone, size, machine_of(found.get("users", ())))


def _volume(gcp: Gcp, wanted: Volume, requirements: Requirements) -> Data | None:
    wished, there = named_region(gcp, requirements), _volumes(gcp)
    return volume_named(wanted, there, requirements, wished, region_of=ids.region_of, check_size=check_size)


def _subnet_region(gcp: Gcp, named: str, requirements: Requirements) -> str | None:
    """Return the region of a subnet; None where the region that is meant does not have it: resolving says so."""
    wished, whole = named_region(gcp, requirements), SUBNET.fullmatch(named)
    if whole is not None:
        return check_location("subnet", named, whole[1], wished, "--region")
    if wished is not None:
        return wished
    found, silent = aggregated(gcp, "subnetworks")
    there = [one for one in found if one.get("name") == named]
    places = sorted({ids.last(one["region"]) for one in there})
    if not places:
        raise not_found_error(
            "subnet", "--subnet", named, set(), silent, "See what there is: gcloud compute networks subnets list"
        )
    if len(places) > 1:  # a network in automatic mode has one of its own name in every region: it ties to none
        return None
    return places[0]
