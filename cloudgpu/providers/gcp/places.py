"""Which regions and zones a wish means: those that it names, checked, or those of the account where it may be sold."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from cloudgpu.catalog import regions
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.offers import Want
from cloudgpu.core.values.naming import near
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import KIND, Gcp
from cloudgpu.providers.wishes import region as wished_region

HTTPS, HTTP = 443, 80
NO_ZONE, ZONE_LIKE = "no zone of Google Cloud", "Write it like us-central1-a."


def used_regions(gcp: Gcp) -> tuple[str, ...]:
    """Return the regions that the account uses, by name: those of its settings, else all. A call at most."""
    named = gcp.options.regions or tuple(sorted({str(ids.region_of(zone)) for zone in gcp.options.zones}))
    found = named or tuple(one["name"] for page in gcp.pages("compute.regions.list") for one in page.get("items", ()))
    return tuple(sorted(region for region in found if gcp.options.uses(region)))


def named_region(gcp: Gcp, want: Want) -> str | None:
    """Return the region that a wish names, by itself or by its zone, None for no wish. Raises InvalidRequest."""
    region = wished_region(want, ids.region_of, NO_ZONE, ZONE_LIKE)
    if region is not None:
        check_region(gcp, region)
    if want.zone is not None and not gcp.options.uses_zone(want.zone):
        raise _unused(gcp, "--zone", want.zone)
    return region


def check_region(gcp: Gcp, region: str) -> None:
    """Raise InvalidRequest, with the near one, for a region that this account does not use.

    What the settings and the catalogue know is not asked.
    """
    chosen, known = gcp.options.regions, regions(KIND)
    if not gcp.options.uses(region) and (region in known or region in gcp.options.exclude_regions):
        raise _unused(gcp, "--region", region)
    if region in (chosen or known):
        return
    there = used_regions(gcp)
    if region not in there:
        meant = near(region, there)
        message = f"Google Cloud has no region {region!r}" + (f"; did you mean {meant!r}?" if meant else ".")
        way = f"Use {meant}." if meant else f"Use one of: {', '.join(there)}."
        raise InvalidRequest(message, field="--region", value=region, next=way)


def _unused(gcp: Gcp, field: str, place: str) -> InvalidRequest:
    message = f"Account {gcp.account} does not use {place}: so its settings say, and ls would not look there."
    way = f"Change regions, zones or exclude_regions of accounts.{gcp.account} in config.toml."
    return InvalidRequest(message, field=field, value=place, next=way)


def endpoints(gcp: Gcp) -> Sequence[Region]:
    """Return the regions of the account, each with a host that answers there. One call at most.

    Compute Engine has one address for all regions; Cloud Storage has one in each, which ends connections there
    (Cloud Storage, "Regional endpoints"; that every region has one is unverified: without it there is no round trip).
    """
    return [_endpoint(region, gcp.endpoint) for region in used_regions(gcp)]


def _endpoint(region: str, own: str | None) -> Region:
    parts = urlsplit(own or f"https://storage.{region}.rep.googleapis.com")
    return Region(region, parts.hostname or "", parts.port or (HTTP if parts.scheme == "http" else HTTPS))
