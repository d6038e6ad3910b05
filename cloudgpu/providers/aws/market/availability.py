"""Finds what could be launched on AWS now, and which regions a request means.

The regions are the one that it names, checked, or those of the account where it may be sold. What could be launched are
types that fit, and the zones in which AWS offers them. A price is no such proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cloudgpu.catalog import instance_types, priced_regions, regions
from cloudgpu.core.catalog.catalog import InstanceType
from cloudgpu.core.catalog.matching import allowed_markets
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.offers import Accelerator, Availability, Available, Market, Requirements
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import KIND, Aws, describe, describe_all
from cloudgpu.providers.shared.rules import is_meant, region as wished_region

NO_ZONE = "not an availability zone of AWS (local zones are not used)"
ZONE_LIKE = "Write it like us-east-1a."


def wanted_regions(aws: Aws, requirements: Requirements, names: Sequence[str]) -> tuple[str, ...]:
    """Return the regions in which to look for the types `names`.

    Raises InvalidRequest for a region that the account does not use, a zone that is none, or one of another region.
    """
    named = named_region(aws, requirements)
    if named is not None:
        return (named,)
    priced = priced_regions("aws")
    sold = frozenset[str]().union(*(priced.get(name, ()) for name in names))
    unlisted = any(name not in priced for name in names)
    asked = Market.SPOT in allowed_markets(
        requirements
    )  # spot prices are asked: they are there where the catalogue knows none
    known = regions("aws")
    return tuple(one for one in aws.regions() if one in sold or unlisted or (asked and one not in known))


def named_region(aws: Aws, requirements: Requirements) -> str | None:
    """Return the region that a wish names, by itself or by its zone, None for no wish. Raises InvalidRequest."""
    region = wished_region(requirements, ids.region_of, NO_ZONE, ZONE_LIKE)
    if region is not None:
        check_region(aws, region)
    return region


def check_region(aws: Aws, region: str) -> None:
    """Raise InvalidRequest, with the near one, for a region that this account does not use.

    What the settings and the catalogue know is not asked; a region that is known and not enabled, AWS refuses itself.
    """
    chosen = aws.options.regions
    if region in aws.options.exclude_regions or (chosen and region not in chosen and region in regions("aws")):
        message = (
            f"Account {aws.account} does not use {region}: its settings leave it out, so ls would miss the machine."
        )
        remedy = f"Change regions or exclude_regions of accounts.{aws.account} in config.toml."
        raise InvalidRequest(message, field="--region", value=region, next=remedy)
    if region in (chosen or regions("aws")):
        return
    enabled = aws.regions()
    if region not in enabled:
        message = f"AWS account {aws.account} has no region {region!r}"
        raise unknown_word(message, region, enabled, field="--region", use="Use {}.")


def check_zone(aws: Aws, zone: str) -> None:
    """Raise InvalidRequest, with those that there are, for a zone that its region does not have. One call."""
    region = ids.region_of(zone) or aws.options.home_region
    there = sorted(one["ZoneName"] for one in describe(aws, "DescribeAvailabilityZones", region, value=zone))
    if zone not in there:
        message = f"{region} has no zone {zone!r}."
        raise InvalidRequest(message, field="--zone", value=zone, next=f"Use one of: {', '.join(there)}.")


def endpoints(aws: Aws) -> list[Region]:
    """Return the regions of the account with the host of each one's EC2 endpoint. One call at most."""
    return [_endpoint(region, aws.ec2(region).meta.endpoint_url) for region in aws.regions()]


def _endpoint(region: str, url: str) -> Region:
    parts = urlsplit(url)
    return Region(region, parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443))


STOPS = "keeps its disk, and a stopped machine costs that disk alone"
PARKS = (
    "parks it: AWS cannot stop a one-time spot machine, so its disk becomes an image, which is what it costs "
    "meanwhile, and start launches a new machine from that"
)
STOPS_PERSISTENT = "keeps its disk and its spot request, and costs that disk alone; down cancels the request"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a type has. `accelerators` is empty for one without GPUs; `scratch_gb` are on disks that a stop erases."""

    name: str
    accelerators: tuple[Accelerator, ...]
    vcpus: int | None
    memory_gib: float | None
    scratch_gb: float | None = None


def available(aws: Aws, requirements: Requirements) -> Availability:
    """Return what AWS offers of what fits, by zone and market, and the regions that did not answer.

    One call per region, and one more for a type that the catalogue lacks. Raises InvalidRequest for a type, region
    or zone that does not exist.
    """
    shapes = _shapes(aws, requirements)
    if not shapes:
        return Availability(())
    regions = wanted_regions(aws, requirements, list(shapes))
    if not regions:
        return Availability(())
    answers, silent = aws.each(regions, lambda region: _offered(aws, region, sorted(shapes), requirements.zone))
    items = tuple(
        _item(aws, shapes[name], region, zone, market, persistent=requirements.persistent)
        for region in sorted(answers)
        for name, zone in answers[region]
        for market in allowed_markets(requirements)
    )
    if requirements.zone is not None and not items and not silent:
        check_zone(aws, requirements.zone)
    return Availability(items, silent)


def _shapes(aws: Aws, requirements: Requirements) -> dict[str, Shape]:
    """Return the types that fit, by name: from the catalogue, or asked where it lacks the one that was named."""
    known = {one.name: _shape(one) for one in instance_types(KIND) if is_meant(one, requirements)}
    if (
        requirements.instance_type is not None
        and not known
        and requirements.instance_type not in {one.name for one in instance_types(KIND)}
    ):
        return {requirements.instance_type: described(aws, requirements.instance_type, requirements)}
    return known


def _shape(machine_type: InstanceType) -> Shape:
    return Shape(
        machine_type.name, (machine_type.gpu,), machine_type.vcpus, machine_type.memory_gib, machine_type.local_ssd_gb
    )


def described(aws: Aws, name: str, requirements: Requirements) -> Shape:
    """Return what AWS says of a type that the catalogue lacks, asked where it is wanted, else in the home region.

    Raises InvalidRequest, with the near one, for a type that AWS does not have there.
    """
    region = named_region(aws, requirements) or aws.options.home_region
    try:
        (found,) = describe(aws, "DescribeInstanceTypes", region, value=name, InstanceTypes=[name])
    except InvalidRequest as error:
        raise _unknown_type(name, region) from error
    return _of_answer(found)


def _of_answer(raw: Mapping[str, Any]) -> Shape:
    gpus = raw.get("GpuInfo", {}).get("Gpus", ())
    return Shape(
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
        [one.name for one in instance_types(KIND)],
        field="--instance-type",
        use="Use {}, or name the --region that has it.",
        next="See those with GPUs: cloudgpu gpus --all",
    )


def _offered(aws: Aws, region: str, names: Sequence[str], zone: str | None) -> list[tuple[str, str]]:
    """Return each (type, zone) that AWS offers in a region."""
    filters = [{"Name": "instance-type", "Values": list(names)}]
    if zone is not None:
        filters.append({"Name": "location", "Values": [zone]})
    where: dict[str, Any] = {"LocationType": "availability-zone", "Filters": filters}
    found = describe_all(aws, "DescribeInstanceTypeOfferings", region, **where)
    return sorted({(one["InstanceType"], one["Location"]) for one in found})


def _item(aws: Aws, shape: Shape, region: str, zone: str, market: Market, *, persistent: bool) -> Available:
    stoppable, stop_effect = stops(market, persistent=persistent)
    return Available(
        provider=KIND,
        account=aws.account,
        region=region,
        zone=zone,
        instance_type=shape.name,
        market=market,
        accelerators=shape.accelerators,
        vcpus=shape.vcpus,
        memory_gib=shape.memory_gib,
        stoppable=stoppable,
        stop_effect=_erases(shape) + stop_effect,
    )


def _erases(shape: Shape) -> str:
    """Return what stopping a machine of this type erases, as the beginning of what it means; empty for nothing."""
    return f"erases its {shape.scratch_gb:,g} GB of scratch disks (instance store) and " if shape.scratch_gb else ""


def stops(market: Market, *, persistent: bool) -> tuple[bool, str]:
    """Return whether such a machine can be stopped, and the sentence that says what `stop` does to it."""
    if market is Market.ON_DEMAND:
        return True, STOPS
    return (True, STOPS_PERSISTENT) if persistent else (False, PARKS)
