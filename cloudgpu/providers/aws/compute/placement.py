"""Where an own image, a data volume or a subnet ties a launch to: its region or its zone. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudgpu.core.model.instances import TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.offers import Available, Requirements
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import PlacementConstraint
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import Aws, describe, describe_all
from cloudgpu.providers.aws.compute.translate import tags_of
from cloudgpu.providers.aws.market.availability import named_region
from cloudgpu.providers.aws.storage.disks import LARGEST_GB
from cloudgpu.providers.aws.storage.images import AMI, described
from cloudgpu.providers.aws.storage.volumes import holder
from cloudgpu.providers.shared.named_volumes import (
    Data,
    ambiguous_name,
    check_location,
    check_volume_size,
    not_found_error,
    volume_in_use_error,
    volume_named,
)

_STATES = {"Name": "status", "Values": ["creating", "available", "in-use"]}
_NAMED = {"Name": "tag-key", "Values": [TAG_VOLUME]}


def constraint(aws: Aws, setup: Setup, requirements: Requirements) -> PlacementConstraint:
    """Return the region of an own image, the zone of a volume or a subnet of `setup`; none of them: nothing is asked.

    One call per region for a volume, and for an image or a subnet that is not named in a known region. Raises
    InvalidRequest for one that does not exist, or that lies elsewhere than `requirements` or another of them says.
    """
    region = _image_region(aws, setup.image, requirements) if setup.image is not None else None
    volume = _volume(aws, setup.volume, requirements) if setup.volume is not None else None
    if volume is not None:
        _check_one_region(setup.image, region, volume)
        return PlacementConstraint(
            ids.region_of(volume.zone), volume.zone, why=f"the volume {volume.name} is in {volume.zone}"
        )
    subnet = setup.network.subnet
    zone = _subnet_zone(aws, subnet, requirements, region) if subnet is not None and requirements.zone is None else None
    if zone is not None:
        return PlacementConstraint(ids.region_of(zone), zone, why=f"the subnet {subnet} is in {zone}")
    return PlacementConstraint(region=region, why=f"the image {setup.image} is in {region}" if region else "")


def _check_one_region(image: str | None, region: str | None, volume: Data) -> None:
    if region not in (None, ids.region_of(volume.zone)):
        raise InvalidRequest(
            f"The image {image} is in {region}, and the volume {volume.name} is in {volume.zone}.",
            field="--volume",
            value=volume.name,
            next="Leave one of them out, or make the image in the volume's region.",
        )


def data_volume(aws: Aws, item: Available, wanted: Volume | None) -> Data | None:
    """Return the data volume of this name in the offer's zone; None where it is still to be made, or none is wanted.

    Raises InvalidRequest where another machine uses it: launched, this one would run without it.
    """
    if wanted is None:
        return None
    volumes = _volumes(aws, item.region)
    found = next((one for one in volumes if one.name == wanted.name and one.zone == item.zone), None)
    if found is not None and found.holder is not None:
        raise volume_in_use_error(wanted, ids.joined(item.region, found.holder))
    return found


# Images


def _image_region(aws: Aws, named: str, requirements: Requirements) -> str | None:
    """Return the one region of an image; None for an id that the wanted region has to have: resolving looks there."""
    requested_region, by_id = named_region(aws, requirements), AMI.fullmatch(named)
    if by_id and by_id["region"]:
        return check_location("image", named, by_id["region"], requested_region, "--region")
    if by_id and requested_region:
        return requested_region
    answers, silent = aws.each(aws.regions(), lambda region: _image_names(aws, region, by_id["id"] if by_id else None))
    wanted = by_id["id"] if by_id else named
    places = [region for region, names in answers.items() if wanted in names]
    if not places:
        known = {name for names in answers.values() for name in names}
        raise not_found_error("image", "--image", named, known, silent, "See them: cloudgpu image ls")
    if requested_region is None and len(places) > 1:
        raise ambiguous_name(f"Images called {named!r}", sorted(places), "--region")
    return (
        requested_region
        if requested_region in places
        else check_location("image", named, places[0], requested_region, "--region")
    )


def _image_names(aws: Aws, region: str, id_: str | None) -> Sequence[str]:
    """Return the names of our images in a region, or this id where the region has it."""
    if id_ is not None:
        return [one.id for one in described(aws, region, ImageIds=[id_])]
    mine = [{"Name": "tag-key", "Values": [TAG_IMAGE]}]
    return [one.tags[TAG_IMAGE] for one in described(aws, region, Owners=["self"], Filters=mine)]


# Volumes


def _volume(aws: Aws, wanted: Volume, requirements: Requirements) -> Data | None:
    requested_region = named_region(aws, requirements)
    answers, silent = aws.each(aws.regions(), lambda region: _volumes(aws, region))
    volumes = [one for region in sorted(answers) for one in answers[region]]
    return volume_named(
        wanted, volumes, requirements, requested_region, region_of=ids.region_of, check_size=_check_size, silent=silent
    )


def _check_size(wanted: Volume) -> None:
    check_volume_size(wanted, 1, LARGEST_GB, f"gp3 has {LARGEST_GB:,} GB at most")


def _volumes(aws: Aws, region: str) -> list[Data]:
    """Return the data volumes of a region: those of this ledger, since another's are not attached either."""
    mine = [{"Name": f"tag:{TAG_LEDGER}", "Values": [aws.ledger]}] if aws.ledger else []
    return [_data(one) for one in describe_all(aws, "DescribeVolumes", region, Filters=[_STATES, _NAMED, *mine])]


def _data(found: Mapping[str, Any]) -> Data:
    attachment = holder(found)
    name, machine = (
        tags_of(found)[TAG_VOLUME],
        attachment["InstanceId"] if attachment and attachment["State"] != "detaching" else None,
    )
    return Data(name, found["VolumeId"], found["AvailabilityZone"], found["Size"], machine)


# Subnets


def _subnet_zone(aws: Aws, id_: str, requirements: Requirements, region: str | None) -> str | None:
    """Return the zone of a subnet; None where the region that is meant does not have it: resolving says so."""
    region = region or named_region(aws, requirements)
    if region is not None:
        return _zone_in(aws, region, id_)
    answers, silent = aws.each(aws.regions(), lambda name: _zone_in(aws, name, id_))
    zones = [zone for zone in answers.values() if zone is not None]
    if not zones:
        way = "See what there is: aws ec2 describe-subnets --region REGION"
        raise not_found_error("subnet", "--subnet", id_, set(), silent, way)
    return zones[0]


def _zone_in(aws: Aws, region: str, id_: str) -> str | None:
    parameters = [{"Name": "subnet-id", "Values": [id_]}]  # by a filter one that is not there is no error
    found = describe(aws, "DescribeSubnets", region, value=id_, Filters=parameters)
    return str(found[0]["AvailabilityZone"]) if found else None


def is_placeable(aws: Aws, region: str, name: str) -> bool:
    """Say whether machines of a type can be in a cluster placement group. One call."""
    found = describe(aws, "DescribeInstanceTypes", region, value=name, InstanceTypes=[name])
    return any("cluster" in one.get("PlacementGroupInfo", {}).get("SupportedStrategies", ()) for one in found)
