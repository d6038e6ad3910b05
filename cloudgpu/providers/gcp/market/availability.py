"""Finds what could be launched on Google Cloud now, and which regions and zones a request means.

The regions and zones are those that it names, checked, or those of the account where it may be sold. What could be
launched are types that fit, and the zones in which Google has their GPUs. A price proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from cloudgpu.catalog import instance_types, regions
from cloudgpu.core.catalog.catalog import InstanceType
from cloudgpu.core.catalog.matching import allowed_markets
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import Availability, Available, Market, Requirements
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import KIND, Gcp
from cloudgpu.providers.gcp.compute import machine_types
from cloudgpu.providers.gcp.compute.machine_types import NAME, MachineSpec, spec_of
from cloudgpu.providers.gcp.storage.resources import aggregated
from cloudgpu.providers.shared.rules import excluded_place_error, matches_requirements, requested_region

HTTPS, HTTP = 443, 80
SETTINGS = "regions, zones or exclude_regions"  # that leave out places
NO_ZONE, ZONE_LIKE = "not a zone of Google Cloud", "Write it like us-central1-a."


def used_regions(gcp: Gcp) -> tuple[str, ...]:
    """Return the regions that the account uses, by name: those of its settings, else all. A call at most."""
    named = gcp.options.regions or tuple(sorted({str(ids.region_of(zone)) for zone in gcp.options.zones}))
    found = named or tuple(one["name"] for one in gcp.items("compute.regions.list"))
    return tuple(sorted(region for region in found if gcp.options.uses(region)))


def named_region(gcp: Gcp, requirements: Requirements) -> str | None:
    """Return the region that a wish names, by itself or by its zone, None for no wish. Raises InvalidRequest."""
    region = requested_region(requirements, ids.region_of, NO_ZONE, ZONE_LIKE)
    if region is not None:
        check_region(gcp, region)
    if requirements.zone is not None and not gcp.options.uses_zone(requirements.zone):
        raise excluded_place_error(gcp.account, "--zone", requirements.zone, SETTINGS)
    return region


def check_region(gcp: Gcp, region: str) -> None:
    """Raise InvalidRequest, with the near one, for a region that this account does not use.

    What the settings and the catalogue know is not asked.
    """
    chosen, known = gcp.options.regions, regions(KIND)
    if not gcp.options.uses(region) and (region in known or region in gcp.options.exclude_regions):
        raise excluded_place_error(gcp.account, "--region", region, SETTINGS)
    if region in (chosen or known):
        return
    used = used_regions(gcp)
    if region not in used:
        message = f"Google Cloud has no region {region!r}"
        raise unknown_word(message, region, used, field="--region", use="Use {}.")


def endpoints(gcp: Gcp) -> Sequence[Region]:
    """Return the regions of the account, each with a host that answers there. One call at most.

    Compute Engine has one address for all regions; Cloud Storage has one in each, which ends connections there
    (Cloud Storage, "Regional endpoints"; that every region has one is unverified: without it there is no round trip).
    """
    return [_endpoint(region, gcp.endpoint) for region in used_regions(gcp)]


def _endpoint(region: str, own: str | None) -> Region:
    parts = urlsplit(own or f"https://storage.{region}.rep.googleapis.com")
    return Region(region, parts.hostname or "", parts.port or (HTTP if parts.scheme == "http" else HTTPS))


STOPS = "keeps its disk, and a stopped machine costs that disk alone"
_RETIRED_STATES = ("OBSOLETE", "DELETED")
MaxGpus = Mapping[tuple[str, str], int]  # the most of an accelerator on one machine, by its name and zone; 0: not told


def available(gcp: Gcp, requirements: Requirements) -> Availability:
    """Return what Google has of what fits, by zone and market, and the zones that did not answer.

    A call per 500 kinds of GPU and zone, of all regions at once; whether a zone has the very machine type is asked when
    the offer is taken (`resolve`). A type that the catalogue lacks is asked for by its name. Raises InvalidRequest for
    a type, region or zone that does not exist.
    """
    region = named_region(gcp, requirements)
    types = [one for one in instance_types(KIND) if matches_requirements(one, requirements)]
    if not types:
        name = requirements.instance_type
        return Availability(()) if name is None else _unlisted(gcp, name, requirements, region)
    max_gpus, silent = _max_gpus(gcp)
    gaps = tuple(gap for gap in silent if _is_requested(gcp, gap.scope, requirements, region))
    places = sorted(
        {zone for _, zone in max_gpus if ids.region_of(zone) and _is_requested(gcp, zone, requirements, region)}
    )
    items = tuple(item for one in types for zone in places for item in _items(gcp, one, zone, max_gpus, requirements))
    if requirements.zone is not None and not items and not gaps:
        check_zone(gcp, requirements.zone)
    return Availability(items, gaps)


def _unlisted(gcp: Gcp, name: str, requirements: Requirements, region: str | None) -> Availability:
    """Return where Google has a type without GPUs; raise InvalidRequest, with the near one, for one that it has not."""
    known = [one.name for one in instance_types(KIND)]
    if name in known:
        return Availability(())
    found, silent = (
        machine_types.zones_with(gcp, name) if requirements.gpu is None and NAME.fullmatch(name) else ([], ())
    )
    if found or silent:
        here = [one for one in found if _is_requested(gcp, ids.last(one["zone"]), requirements, region)]
        gaps = tuple(one for one in silent if _is_requested(gcp, one.scope, requirements, region))
        return Availability(machine_types.items(gcp.account, here, allowed_markets(requirements), STOPS), gaps)
    raise unknown_word(
        f"Google Cloud has no machine type {name!r}, and the catalogue none with a GPU",
        name,
        known,
        field="--instance-type",
        use="Use {}.",
        next="See those with GPUs: cloudgpu gpus --provider gcp --all",
    )


def _is_requested(gcp: Gcp, zone: str, requirements: Requirements, region: str | None) -> bool:
    if ids.region_of(zone) is None:  # a region, or all of it, that did not answer
        return region in (None, zone) and gcp.options.uses(zone)
    return gcp.options.uses_zone(zone) and region in (None, ids.region_of(zone)) and requirements.zone in (None, zone)


def _max_gpus(gcp: Gcp) -> tuple[MaxGpus, tuple[Unanswered, ...]]:
    found, silent = aggregated(gcp, "acceleratorTypes")
    current = (one for one in found if one.get("deprecated", {}).get("state") not in _RETIRED_STATES)
    most = {(one["name"], ids.last(one["zone"])): int(one.get("maximumCardsPerInstance") or 0) for one in current}
    return most, silent


def _items(
    gcp: Gcp, machine_type: InstanceType, zone: str, max_gpus: MaxGpus, requirements: Requirements
) -> Iterator[Available]:
    spec = spec_of(machine_type)
    most = max_gpus.get((spec.accelerator, zone))
    if most is None or (spec.attached and 0 < most < spec.count):
        return
    for market in allowed_markets(requirements):
        if market is Market.SPOT or not machine_type.spot_only:
            yield Available(
                provider=KIND,
                account=gcp.account,
                region=ids.region_of(zone) or "",
                zone=zone,
                instance_type=machine_type.name,
                market=market,
                accelerators=(machine_type.gpu,),
                vcpus=machine_type.vcpus,
                memory_gib=machine_type.memory_gib,
                stoppable=True,  # a spot machine of Google's too
                stop_effect=erased_by_stop(spec) + STOPS,
            )


def erased_by_stop(spec: MachineSpec) -> str:
    """Return what stopping such a machine erases, as the beginning of what it means; empty for nothing."""
    if not spec.scratch:
        return ""
    much = f"{spec.scratch_gb:,g} GB of " if spec.scratch_gb else ""
    return f"erases its {much}scratch disks (local SSD) and "


def check_zone(gcp: Gcp, zone: str) -> None:
    """Raise InvalidRequest, with those that there are, for a zone that its region does not have. One call."""
    region = ids.region_of(zone)
    zones = sorted(one["name"] for one in gcp.items("compute.zones.list") if ids.region_of(one["name"]) == region)
    if zone not in zones:
        remedy = f"Use one of: {', '.join(zones)}." if zones else "See them: gcloud compute zones list"
        raise InvalidRequest(f"{region} has no zone {zone!r}.", field="--zone", value=zone, next=remedy)
