"""Which sizes a subscription may use where: Azure's list of resource SKUs, with its restrictions.

Fields and their meaning are from the REST reference, "Resource Skus - List". Its one filter is a location; the answer
has everything else that is sold there, too: more than a thousand sizes, which the SDK's models would take a second of
this machine's time to read. So it is read as plain JSON, and kept for some minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from cloudgpu.providers.azure.client import Azure, get_values
from cloudgpu.providers.azure.ids import Sku

VALID_FOR = timedelta(minutes=10)
VERSION = "2021-07-01"  # of Microsoft.Compute/skus
MACHINES = "virtualmachines"
_READ = "Microsoft.Compute/skus/read"
_TRUE = "true"
Raw = Mapping[str, Any]


def skus(azure: Azure, region: str) -> Mapping[str, Sku]:
    """Return the sizes of machines in a region by their names in small letters. One call per page, kept a while."""
    at, known = azure.sku_cache.get(region) or (None, {})
    if at is not None and azure.clock() - at < VALID_FOR:
        return known
    path = f"/subscriptions/{azure.subscription}/providers/Microsoft.Compute/skus"
    found = get_values(azure, _READ, path, VERSION, **{"$filter": f"location eq '{region}'"})
    here = (_sku(one, region) for one in found if _is_machine(one) and _lies_in(one, region))
    read = {one.name.lower(): one for one in here}
    azure.sku_cache[region] = (azure.clock(), read)
    return read


def _is_machine(raw: Raw) -> bool:
    return str(raw.get("resourceType") or "").lower() == MACHINES


def _lies_in(raw: Raw, region: str) -> bool:
    return region in [str(one).lower() for one in raw.get("locations") or (region,)]


def _sku(raw: Raw, region: str) -> Sku:
    capabilities = {str(one.get("name")): str(one.get("value")) for one in raw.get("capabilities") or ()}
    info = [one for one in raw.get("locationInfo") or () if str(one.get("location", "")).lower() == region]
    restrictions = list(raw.get("restrictions") or ())
    zones = {str(zone) for one in info for zone in one.get("zones") or ()} - _closed_zones(restrictions)
    return Sku(
        name=str(raw["name"]),
        family=str(raw.get("family") or ""),
        vcpus=_whole(capabilities.get("vCPUsAvailable") or capabilities.get("vCPUs")),
        memory_gib=_number(capabilities.get("MemoryGB")),
        gpus=_whole(capabilities.get("GPUs")) or 0,
        zones=tuple(sorted(zones)),
        withheld=_withheld(restrictions, region),
        generations=frozenset(part.strip() for part in capabilities.get("HyperVGenerations", "V1,V2").split(",")),
        temp_gb=(_number(capabilities.get("MaxResourceVolumeMB")) or 0.0) / 1024,
        machine="arm64" if capabilities.get("CpuArchitectureType", "x64").lower() == "arm64" else "x86_64",
        premium=capabilities.get("PremiumIO", "").lower() == _TRUE,
        trusted=capabilities.get("TrustedLaunchDisabled", "").lower() != _TRUE,
        spot=capabilities.get("LowPriorityCapable", _TRUE).lower() == _TRUE,
        encrypts_at_host=capabilities.get("EncryptionAtHostSupported", "").lower() == _TRUE,
    )


def _withheld(restrictions: Iterable[Raw], region: str) -> str:
    """Return why a size is withheld in the whole region; empty where it is not, or in single zones only."""
    for one in restrictions:
        if str(one.get("type") or "").lower() == "location":
            info = one.get("restrictionInfo") or {}
            named = [str(location).lower() for location in (*(info.get("locations") or ()), *(one.get("values") or ()))]
            if not named or region in named:
                return str(one.get("reasonCode") or "NotAvailableForSubscription")
    return ""


def _closed_zones(restrictions: Iterable[Raw]) -> set[str]:
    of_zones = (one for one in restrictions if str(one.get("type") or "").lower() == "zone")
    return {str(zone) for one in of_zones for zone in (one.get("restrictionInfo") or {}).get("zones") or ()}


def _whole(text: str | None) -> int | None:
    found = _number(text)
    return None if found is None else int(found)


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
