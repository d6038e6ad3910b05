"""Finds what could be launched on AWS now, and in which regions a request is to be satisfied.

These are the region that it names, or those of the account where the types may be sold. What could be launched are the
types that satisfy the request, in the zones in which AWS offers them: that a price is listed does not prove an offer.

How likely a spot launch is to succeed in each zone, AWS says by spot placement scores, from 1 to 10. They name zones by
id, which is the same in all accounts; the names of zones are read once. For fewer than three types the scores are low
(EC2 user guide, Spot placement score), so they only serve to compare zones. AWS limits how many different queries an
account has in a day: an answer is cached for an hour, and so is a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from cloudgpu.catalog import instance_types, priced_regions, regions
from cloudgpu.core.catalog.catalog import InstanceType
from cloudgpu.core.catalog.matching import allowed_markets
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.offers import Accelerator, Availability, MachineConfiguration, Market, Requirements
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import PROVIDER, Aws, describe, describe_all, pages
from cloudgpu.providers.shared.rules import (
    check_region_exists,
    excluded_place_error,
    matches_requirements,
    region_at,
    requested_region,
)

NO_ZONE = "not an availability zone of AWS (local zones are not used)"
ZONE_REMEDY = "Write it like us-east-1a."


def wanted_regions(aws: Aws, requirements: Requirements, names: Sequence[str]) -> tuple[str, ...]:
    """Return the regions in which to look for the types `names`.

    Raises InvalidRequest for a region that the account does not use, an unknown zone, or one of another region.
    """
    requested_region = named_region(aws, requirements)
    if requested_region is not None:
        return (requested_region,)
    priced_regions_by_type = priced_regions("aws")
    regions_with_price = frozenset[str]().union(*(priced_regions_by_type.get(name, ()) for name in names))
    has_unpriced_type = any(name not in priced_regions_by_type for name in names)
    spot_allowed = Market.SPOT in allowed_markets(
        requirements
    )  # spot is sold also in regions that the catalogue does not have
    catalogue_regions = regions("aws")
    return tuple(
        one
        for one in aws.regions()
        if one in regions_with_price or has_unpriced_type or (spot_allowed and one not in catalogue_regions)
    )


def named_region(aws: Aws, requirements: Requirements) -> str | None:
    """Return the region of the requirements, named itself or by its zone; None for none. Raises InvalidRequest."""
    return requested_region(requirements, ids.region_of, NO_ZONE, ZONE_REMEDY, check=partial(check_region, aws))


def check_region(aws: Aws, region: str) -> None:
    """Raise InvalidRequest, which suggests a similar one, for a region that this account does not use.

    No call for a region of the settings or the catalogue: one that is not enabled is refused by AWS later.
    """
    configured_regions = aws.options.regions
    if region in aws.options.exclude_regions or (
        configured_regions and region not in configured_regions and region in regions("aws")
    ):
        raise excluded_place_error(aws.account, "--region", region)
    message = f"AWS account {aws.account} has no region {region!r}"
    check_region_exists(region, configured_regions or regions("aws"), aws.regions, message)


def check_zone(aws: Aws, zone: str) -> None:
    """Raise InvalidRequest, which names the zones that exist, for a zone that its region does not have. One call."""
    region = ids.region_of(zone) or aws.options.home_region
    zones = sorted(one["ZoneName"] for one in describe(aws, "DescribeAvailabilityZones", region, value=zone))
    if zone not in zones:
        message = f"{region} has no zone {zone!r}."
        raise InvalidRequest(message, field="--zone", value=zone, next=f"Use one of: {', '.join(zones)}.")


def endpoints(aws: Aws) -> list[Region]:
    """Return the regions of the account with the host of each one's EC2 endpoint. One call at most."""
    return [region_at(region, aws.ec2(region).meta.endpoint_url) for region in aws.regions()]


# What `stop` does to a machine, as a sentence without its subject.
STOP_EFFECT = "keeps its disk, and a stopped machine costs that disk alone"
PARK_EFFECT = (
    "parks it: AWS cannot stop a one-time spot machine, so its disk becomes an image, which is what it costs "
    "meanwhile, and start launches a new machine from that"
)
PERSISTENT_SPOT_STOP_EFFECT = "keeps its disk and its spot request, and costs that disk alone; down cancels the request"


@dataclass(frozen=True, slots=True)
class InstanceTypeInfo:
    """What an instance type has. `accelerators` is empty for one without GPUs; a stop erases its `scratch_gb`."""

    name: str
    accelerators: tuple[Accelerator, ...]
    vcpus: int | None
    memory_gib: float | None
    scratch_gb: float | None = None


def available(aws: Aws, requirements: Requirements) -> Availability:
    """Return what AWS offers that satisfies the requirements, by zone and market, and the regions that did not answer.

    One call per region, and one more for a type that the catalogue lacks. Raises InvalidRequest for a type, region
    or zone that does not exist.
    """
    types = _matching_types(aws, requirements)
    regions = wanted_regions(aws, requirements, list(types)) if types else ()
    if not regions:
        return Availability(())
    answers, unanswered = aws.ask_each(
        regions, lambda region: _offerings(aws, region, sorted(types), requirements.zone)
    )
    configurations = tuple(
        _configuration(aws, types[name], region, zone, market, persistent=requirements.persistent)
        for region in sorted(answers)
        for name, zone in answers[region]
        for market in allowed_markets(requirements)
    )
    if requirements.zone is not None and not configurations and not unanswered:
        check_zone(aws, requirements.zone)
    return Availability(configurations, unanswered)


def _matching_types(aws: Aws, requirements: Requirements) -> dict[str, InstanceTypeInfo]:
    """Return the types that satisfy the requirements, by name: by the catalogue, or by AWS for one that it lacks."""
    name = requirements.instance_type
    if name is not None and name not in {one.name for one in instance_types(PROVIDER)}:
        return {name: _describe_type(aws, name, requirements)}
    return {
        one.name: _from_catalogue(one) for one in instance_types(PROVIDER) if matches_requirements(one, requirements)
    }


def _from_catalogue(machine_type: InstanceType) -> InstanceTypeInfo:
    return InstanceTypeInfo(
        machine_type.name, (machine_type.gpu,), machine_type.vcpus, machine_type.memory_gib, machine_type.local_ssd_gb
    )


def _describe_type(aws: Aws, name: str, requirements: Requirements) -> InstanceTypeInfo:
    """Return what AWS says of a type that the catalogue lacks, in the requested region, else in the home region.

    Raises InvalidRequest, which suggests a similar one, for a type that AWS does not have there.
    """
    region = named_region(aws, requirements) or aws.options.home_region
    try:
        (found,) = describe(aws, "DescribeInstanceTypes", region, value=name, InstanceTypes=[name])
    except InvalidRequest as error:
        raise _unknown_type(name, region) from error
    return _from_answer(found)


def _from_answer(raw: Mapping[str, Any]) -> InstanceTypeInfo:
    gpus = raw.get("GpuInfo", {}).get("Gpus", ())
    return InstanceTypeInfo(
        raw["InstanceType"],
        tuple(Accelerator(gpu["Name"], gpu["Count"], gpu["MemoryInfo"]["SizeInMiB"] / 1024) for gpu in gpus),
        raw["VCpuInfo"]["DefaultVCpus"],
        raw["MemoryInfo"]["SizeInMiB"] / 1024,
        raw.get("InstanceStorageInfo", {}).get("TotalSizeInGB"),
    )


def _unknown_type(name: str, region: str) -> InvalidRequest:
    return unknown_word(
        f"AWS has no instance type {name!r} in {region}",
        name,
        [one.name for one in instance_types(PROVIDER)],
        field="--instance-type",
        use="Use {}, or name the --region that has it.",
        next="See those with GPUs: cloudgpu gpus --all",
    )


def _offerings(aws: Aws, region: str, names: Sequence[str], zone: str | None) -> list[tuple[str, str]]:
    """Return each (type, zone) that AWS offers in a region."""
    filters = [{"Name": "instance-type", "Values": list(names)}]
    if zone is not None:
        filters.append({"Name": "location", "Values": [zone]})
    found = describe_all(
        aws, "DescribeInstanceTypeOfferings", region, LocationType="availability-zone", Filters=filters
    )
    return sorted({(one["InstanceType"], one["Location"]) for one in found})


def _configuration(
    aws: Aws, info: InstanceTypeInfo, region: str, zone: str, market: Market, *, persistent: bool
) -> MachineConfiguration:
    stoppable, stop_effect = stops(market, persistent=persistent)
    return MachineConfiguration(
        provider=PROVIDER,
        account=aws.account,
        region=region,
        zone=zone,
        instance_type=info.name,
        market=market,
        accelerators=info.accelerators,
        vcpus=info.vcpus,
        memory_gib=info.memory_gib,
        stoppable=stoppable,
        stop_effect=_erased_by_stop(info) + stop_effect,
    )


def _erased_by_stop(info: InstanceTypeInfo) -> str:
    """Return what stopping a machine of this type erases, as the beginning of `stop_effect`; empty for nothing."""
    return f"erases its {info.scratch_gb:,g} GB of scratch disks (instance store) and " if info.scratch_gb else ""


def stops(market: Market, *, persistent: bool) -> tuple[bool, str]:
    """Return whether such a machine can be stopped, and the sentence that says what `stop` does to it."""
    if market is Market.ON_DEMAND:
        return True, STOP_EFFECT
    return (True, PERSISTENT_SPOT_STOP_EFFECT) if persistent else (False, PARK_EFFECT)


SCORES_VALID_FOR = timedelta(hours=1)
MAX_SCORED_REGIONS = 10  # in one query (EC2 API Reference, GetSpotPlacementScores)


def placement_scores(aws: Aws, configurations: Sequence[MachineConfiguration]) -> list[int | None]:
    """Return the score of each spot item of the first one's type; None for others, and where AWS gives none.

    Raises nothing: an account that may not ask has no scores.
    """
    spot_allowed = [configuration for configuration in configurations if configuration.market is Market.SPOT]
    if not spot_allowed:
        return [None for _ in configurations]
    name = spot_allowed[0].instance_type
    regions = tuple(
        sorted({configuration.region for configuration in spot_allowed if configuration.instance_type == name})[
            :MAX_SCORED_REGIONS
        ]
    )
    scores = _cached_scores(aws, name, regions)
    return [
        scores.get(configuration.zone)
        if configuration in spot_allowed and configuration.instance_type == name
        else None
        for configuration in configurations
    ]


def _cached_scores(aws: Aws, name: str, regions: tuple[str, ...]) -> Mapping[str, int]:
    """Return the scores by zone, read anew where the cached ones are too old."""
    cached, now = aws.placement_scores.get((name, regions)), aws.clock()
    if cached is None or now - cached[0] >= SCORES_VALID_FOR:
        found: Mapping[str, int] = {}
        with suppress(CloudgpuError):
            found = _query_scores(aws, name, regions)
        cached = aws.placement_scores[name, regions] = (now, found)
    return cached[1]


def _query_scores(aws: Aws, name: str, regions: tuple[str, ...]) -> dict[str, int]:
    scores_by_zone_id: dict[str, int] = {}
    with aws.calling("GetSpotPlacementScores", regions[0]):
        query = {"InstanceTypes": [name], "TargetCapacity": 1, "SingleAvailabilityZone": True}
        for page in pages(aws.ec2(regions[0]), "get_spot_placement_scores", **query, RegionNames=list(regions)):
            scores_by_zone_id |= {one["AvailabilityZoneId"]: one["Score"] for one in page["SpotPlacementScores"]}
    return {
        zone: scores_by_zone_id[key]
        for region in regions
        for key, zone in _zones(aws, region).items()
        if key in scores_by_zone_id
    }


def _zones(aws: Aws, region: str) -> Mapping[str, str]:
    """Return the names of a region's zones by zone id. Read once."""
    if region not in aws.zone_names:
        zones = describe(aws, "DescribeAvailabilityZones", region)
        aws.zone_names[region] = {one["ZoneId"]: one["ZoneName"] for one in zones}
    return aws.zone_names[region]
