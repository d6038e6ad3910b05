"""Which sizes a subscription may use where: Azure's list of resource SKUs, with its restrictions.

Fields and their meaning are from the REST reference, "Resource Skus - List". Its one filter is a location; the answer
has everything else that is sold there, too: more than a thousand sizes, which the SDK's models would take a second of
processor time to parse. So it is read as plain JSON, and cached for some minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from cloudgpu.providers.azure.client import Azure, Raw, get_values
from cloudgpu.providers.azure.ids import Sku

VALID_FOR = timedelta(minutes=10)
VERSION = "2021-07-01"  # of Microsoft.Compute/skus
MACHINE_RESOURCE_TYPE = "virtualmachines"
_READ = "Microsoft.Compute/skus/read"
_TRUE = "true"


def skus(azure: Azure, region: str) -> Mapping[str, Sku]:
    """Return the sizes of machines in a region by name in small letters. One call per page; cached for VALID_FOR."""
    read_at, cached = azure.sku_cache.get(region) or (None, {})
    if read_at is not None and azure.clock() - read_at < VALID_FOR:
        return cached
    path = f"/subscriptions/{azure.subscription}/providers/Microsoft.Compute/skus"
    raw_skus = get_values(azure, _READ, path, VERSION, **{"$filter": f"location eq '{region}'"})
    sizes_here = (_sku(one, region) for one in raw_skus if _is_machine(one) and _is_sold_in(one, region))
    sizes = {one.name.lower(): one for one in sizes_here}
    azure.sku_cache[region] = (azure.clock(), sizes)
    return sizes


def _is_machine(raw: Raw) -> bool:
    return str(raw.get("resourceType") or "").lower() == MACHINE_RESOURCE_TYPE


def _is_sold_in(raw: Raw, region: str) -> bool:
    return region in [str(one).lower() for one in raw.get("locations") or (region,)]


def _sku(raw: Raw, region: str) -> Sku:
    capabilities = {str(one.get("name")): str(one.get("value")) for one in raw.get("capabilities") or ()}
    locations = [one for one in raw.get("locationInfo") or () if str(one.get("location", "")).lower() == region]
    restrictions = list(raw.get("restrictions") or ())
    zones = {str(zone) for one in locations for zone in one.get("zones") or ()} - _restricted_zones(restrictions)
    return Sku(
        name=str(raw["name"]),
        family=str(raw.get("family") or ""),
        vcpus=_integer(capabilities.get("vCPUsAvailable") or capabilities.get("vCPUs")),
        memory_gib=_number(capabilities.get("MemoryGB")),
        gpus=_integer(capabilities.get("GPUs")) or 0,
        zones=tuple(sorted(zones)),
        restriction=_region_restriction(restrictions, region),
        generations=frozenset(part.strip() for part in capabilities.get("HyperVGenerations", "V1,V2").split(",")),
        temp_disk_gb=(_number(capabilities.get("MaxResourceVolumeMB")) or 0.0) / 1024,
        architecture="arm64" if capabilities.get("CpuArchitectureType", "x64").lower() == "arm64" else "x86_64",
        premium=capabilities.get("PremiumIO", "").lower() == _TRUE,
        trusted=capabilities.get("TrustedLaunchDisabled", "").lower() != _TRUE,
        spot=capabilities.get("LowPriorityCapable", _TRUE).lower() == _TRUE,
        encrypts_at_host=capabilities.get("EncryptionAtHostSupported", "").lower() == _TRUE,
    )


def _region_restriction(restrictions: Iterable[Raw], region: str) -> str:
    """Return why a size is withheld in the whole region; empty where it is not, or in single zones only."""
    for one in restrictions:
        if str(one.get("type") or "").lower() == "location":
            locations = one.get("restrictionInfo") or {}
            restricted_regions = [
                str(location).lower() for location in (*(locations.get("locations") or ()), *(one.get("values") or ()))
            ]
            if not restricted_regions or region in restricted_regions:
                return str(one.get("reasonCode") or "NotAvailableForSubscription")
    return ""


def _restricted_zones(restrictions: Iterable[Raw]) -> set[str]:
    of_zones = (one for one in restrictions if str(one.get("type") or "").lower() == "zone")
    return {str(zone) for one in of_zones for zone in (one.get("restrictionInfo") or {}).get("zones") or ()}


def _integer(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else int(number)


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
