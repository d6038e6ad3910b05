"""Finds what could be launched on Google Cloud now, and which regions and zones match a request.

The regions and zones are those that it names, checked, else the account's. What could be launched are types that fit,
in the zones where Google has their GPUs. A listed price does not prove that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from cloudgpu.catalog import instance_types, regions
from cloudgpu.core.catalog.catalog import InstanceType
from cloudgpu.core.catalog.matching import allowed_markets
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import Availability, MachineConfiguration, Market, Requirements
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import PROVIDER, Gcp
from cloudgpu.providers.gcp.compute import machine_types
from cloudgpu.providers.gcp.compute.machine_types import NAME_PATTERN, MachineSpec, spec_of
from cloudgpu.providers.gcp.storage.resources import list_all_scopes
from cloudgpu.providers.shared.rules import (
    check_region_exists,
    excluded_place_error,
    matches_requirements,
    region_at,
    requested_region,
)

PLACE_SETTINGS = "regions, zones or exclude_regions"  # the keys of the settings that leave out regions and zones
NOT_A_ZONE, ZONE_REMEDY = "not a zone of Google Cloud", "Write it like us-central1-a."


def used_regions(gcp: Gcp) -> tuple[str, ...]:
    """Return the regions that the account uses, by name: those of its settings, else all. A call at most."""
    chosen = gcp.options.regions or tuple(sorted({str(ids.region_of(zone)) for zone in gcp.options.zones}))
    regions_of_account = chosen or tuple(item["name"] for item in gcp.items("compute.regions.list"))
    return tuple(sorted(region for region in regions_of_account if gcp.options.uses(region)))


def named_region(gcp: Gcp, requirements: Requirements) -> str | None:
    """Return the region that a request names, or that of its zone; None for neither. Raises InvalidRequest."""
    region = requested_region(requirements, ids.region_of, NOT_A_ZONE, ZONE_REMEDY, check=partial(check_region, gcp))
    if requirements.zone is not None and not gcp.options.uses_zone(requirements.zone):
        raise excluded_place_error(gcp.account, "--zone", requirements.zone, PLACE_SETTINGS)
    return region


def check_region(gcp: Gcp, region: str) -> None:
    """Raise InvalidRequest, with the closest name, for a region that this account does not use.

    No call for a region in the settings or the catalogue.
    """
    chosen_regions, catalogue_regions = gcp.options.regions, regions(PROVIDER)
    if not gcp.options.uses(region) and (region in catalogue_regions or region in gcp.options.exclude_regions):
        raise excluded_place_error(gcp.account, "--region", region, PLACE_SETTINGS)
    message = f"Google Cloud has no region {region!r}"
    check_region_exists(region, chosen_regions or catalogue_regions, lambda: used_regions(gcp), message)


def endpoints(gcp: Gcp) -> Sequence[Region]:
    """Return the regions of the account, each with a host that answers there. One call at most.

    Compute Engine has one address for all regions; Cloud Storage has one in each, which ends connections there
    (Cloud Storage, "Regional endpoints"; that every region has one is unverified: without it there is no round trip).
    """
    return [
        region_at(region, gcp.endpoint or f"https://storage.{region}.rep.googleapis.com")
        for region in used_regions(gcp)
    ]


STOP_EFFECT = "keeps its disk, and a stopped machine costs that disk alone"
_RETIRED_STATES = ("OBSOLETE", "DELETED")
MaxGpus = Mapping[tuple[str, str], int]  # on one machine, by the accelerator's name and zone; 0: not known


def available(gcp: Gcp, requirements: Requirements) -> Availability:
    """Return the fitting offers, by zone and market, and the zones that did not answer.

    A call per 500 kinds of GPU and zone, for all regions; whether a zone has the exact machine type is checked by
    `resolve`. A type that the catalogue lacks is looked up by its name. Raises InvalidRequest for
    a type, region or zone that does not exist.
    """
    region = named_region(gcp, requirements)
    types = [
        catalogue_type
        for catalogue_type in instance_types(PROVIDER)
        if matches_requirements(catalogue_type, requirements)
    ]
    if not types:
        name = requirements.instance_type
        return Availability(()) if name is None else _uncatalogued(gcp, name, requirements, region)
    max_gpus, unanswered = _max_gpus(gcp)
    gaps = tuple(gap for gap in unanswered if _is_requested(gcp, gap.scope, requirements, region))
    zones = sorted(
        {zone for _, zone in max_gpus if ids.region_of(zone) and _is_requested(gcp, zone, requirements, region)}
    )
    offers = tuple(
        offer for type_ in types for zone in zones for offer in _offers(gcp, type_, zone, max_gpus, requirements)
    )
    if requirements.zone is not None and not offers and not gaps:
        check_zone(gcp, requirements.zone)
    return Availability(offers, gaps)


def _uncatalogued(gcp: Gcp, name: str, requirements: Requirements, region: str | None) -> Availability:
    """Return the zones that have a type without GPUs; raise InvalidRequest, with the closest name, for no such type."""
    type_names = [catalogue_type.name for catalogue_type in instance_types(PROVIDER)]
    if name in type_names:
        return Availability(())
    types, unanswered = (
        machine_types.types_by_zone(gcp, name)
        if requirements.gpu is None and NAME_PATTERN.fullmatch(name)
        else ([], ())
    )
    if types or unanswered:
        requested = [type_ for type_ in types if _is_requested(gcp, ids.last_part(type_["zone"]), requirements, region)]
        gaps = tuple(gap for gap in unanswered if _is_requested(gcp, gap.scope, requirements, region))
        return Availability(
            machine_types.offers(gcp.account, requested, allowed_markets(requirements), STOP_EFFECT), gaps
        )
    raise unknown_word(
        f"Google Cloud has no machine type {name!r}, and the catalogue none with a GPU",
        name,
        type_names,
        field="--instance-type",
        use="Use {}.",
        next="See those with GPUs: cloudgpu gpus --provider gcp --all",
    )


def _is_requested(gcp: Gcp, zone: str, requirements: Requirements, region: str | None) -> bool:
    """Say whether a zone is one that was asked for, or what did not answer (an `Unanswered.scope`) may have one."""
    if zone == gcp.account:  # the list as a whole
        return True
    if ids.region_of(zone) is None:  # a region that did not answer
        return region in (None, zone) and gcp.options.uses(zone)
    return gcp.options.uses_zone(zone) and region in (None, ids.region_of(zone)) and requirements.zone in (None, zone)


def _max_gpus(gcp: Gcp) -> tuple[MaxGpus, tuple[Unanswered, ...]]:
    accelerator_types, unanswered = list_all_scopes(gcp, "acceleratorTypes")
    current_types = (
        accelerator_type
        for accelerator_type in accelerator_types
        if accelerator_type.get("deprecated", {}).get("state") not in _RETIRED_STATES
    )
    max_count = {
        (raw["name"], ids.last_part(raw["zone"])): int(raw.get("maximumCardsPerInstance") or 0) for raw in current_types
    }
    return max_count, unanswered


def _offers(
    gcp: Gcp, machine_type: InstanceType, zone: str, max_gpus: MaxGpus, requirements: Requirements
) -> Iterator[MachineConfiguration]:
    spec = spec_of(machine_type)
    max_count = max_gpus.get((spec.accelerator, zone))
    if max_count is None or (spec.is_attached and 0 < max_count < spec.gpu_count):
        return
    for market in allowed_markets(requirements):
        if market is Market.SPOT or not machine_type.spot_only:
            yield MachineConfiguration(
                provider=PROVIDER,
                account=gcp.account,
                region=ids.region_of(zone) or "",
                zone=zone,
                instance_type=machine_type.name,
                market=market,
                accelerators=(machine_type.gpu,),
                vcpus=machine_type.vcpus,
                memory_gib=machine_type.memory_gib,
                stoppable=True,  # a spot machine of Google's too
                stop_effect=erased_by_stop(spec) + STOP_EFFECT,
            )


def erased_by_stop(spec: MachineSpec) -> str:
    """Return what a stop of such a machine erases, as the beginning of its `stop_effect`; empty for nothing."""
    if not spec.has_local_ssd:
        return ""
    size_text = f"{spec.local_ssd_gb:,g} GB of " if spec.local_ssd_gb else ""
    return f"erases its {size_text}scratch disks (local SSD) and "


def check_zone(gcp: Gcp, zone: str) -> None:
    """Raise InvalidRequest, with the region's zones, for a zone that its region does not have. One call."""
    region = ids.region_of(zone)
    zones = sorted(item["name"] for item in gcp.items("compute.zones.list") if ids.region_of(item["name"]) == region)
    if zone not in zones:
        remedy = f"Use one of: {', '.join(zones)}." if zones else "See them: gcloud compute zones list"
        raise InvalidRequest(f"{region} has no zone {zone!r}.", field="--zone", value=zone, next=remedy)
