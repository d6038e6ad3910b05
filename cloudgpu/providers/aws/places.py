"""Which regions a wish means: the one that it names, checked, or those of the account where it may be sold."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from cloudgpu.catalog import priced_in, regions
from cloudgpu.core.catalog.matching import markets
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.offers import Market, Want
from cloudgpu.core.values.naming import near
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import Aws
from cloudgpu.providers.wishes import region as wished_region

NO_ZONE = "no availability zone of AWS (local zones are not used)"
ZONE_LIKE = "Write it like us-east-1a."


def wanted_regions(aws: Aws, want: Want, names: Sequence[str]) -> tuple[str, ...]:
    """Return the regions in which to look for the types `names`.

    Raises InvalidRequest for a region that the account does not use, a zone that is none, or one of another region.
    """
    named = named_region(aws, want)
    if named is not None:
        return (named,)
    priced = priced_in("aws")
    sold = frozenset[str]().union(*(priced.get(name, ()) for name in names))
    unlisted = any(name not in priced for name in names)
    asked = Market.SPOT in markets(want)  # spot prices are asked: they are there where the catalogue knows none
    known = regions("aws")
    return tuple(one for one in aws.regions() if one in sold or unlisted or (asked and one not in known))


def named_region(aws: Aws, want: Want) -> str | None:
    """Return the region that a wish names, by itself or by its zone, None for no wish. Raises InvalidRequest."""
    region = wished_region(want, ids.region_of, NO_ZONE, ZONE_LIKE)
    if region is not None:
        check_region(aws, region)
    return region


def check_region(aws: Aws, region: str) -> None:
    """Raise InvalidRequest, with the near one, for a region that this account does not use.

    What the settings and the catalogue know is not asked; a region that is known and not enabled, AWS refuses itself.
    """
    chosen = aws.options.regions
    if region in aws.options.exclude_regions or (chosen and region not in chosen and region in regions("aws")):
        message = f"Account {aws.account} does not use {region}: so its settings say, and ls would not look there."
        way = f"Change regions or exclude_regions of accounts.{aws.account} in config.toml."
        raise InvalidRequest(message, field="--region", value=region, next=way)
    if region in (chosen or regions("aws")):
        return
    enabled = aws.regions()
    if region not in enabled:
        meant = near(region, enabled)
        message = f"AWS account {aws.account} has no region {region!r}" + (
            f"; did you mean {meant!r}?" if meant else "."
        )
        way = f"Use {meant}." if meant else f"Use one of: {', '.join(enabled)}."
        raise InvalidRequest(message, field="--region", value=region, next=way)


def check_zone(aws: Aws, zone: str) -> None:
    """Raise InvalidRequest, with those that there are, for a zone that its region does not have. One call."""
    region = ids.region_of(zone) or aws.options.home_region
    with aws.said("DescribeAvailabilityZones", region, value=zone):
        answer = aws.ec2(region).describe_availability_zones()
    there = sorted(one["ZoneName"] for one in answer["AvailabilityZones"])
    if zone not in there:
        message = f"{region} has no zone {zone!r}."
        raise InvalidRequest(message, field="--zone", value=zone, next=f"Use one of: {', '.join(there)}.")


def endpoints(aws: Aws) -> list[Region]:
    """Return the regions of the account with the host of each one's EC2 endpoint. One call at most."""
    return [_endpoint(region, aws.ec2(region).meta.endpoint_url) for region in aws.regions()]


def _endpoint(region: str, url: str) -> Region:
    parts = urlsplit(url)
    return Region(region, parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443))
