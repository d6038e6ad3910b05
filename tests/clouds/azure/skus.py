"""What is sold where, and how much of it: sizes with their capabilities and restrictions, limits on vCPUs.

Sizes and the names of their families are those of the catalogue's facts (public lists). That a limit counts machines
that are deallocated too is Azure's documentation ("both allocated and deallocated").
"""

from __future__ import annotations

import csv
import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import cloudgpu.catalog
from tests.clouds.azure.groups import REGIONS
from tests.clouds.azure.handlers import answers, pages
from tests.clouds.azure.model import MACHINES, Ask, Model
from tests.clouds.rest import Refusal, Reply, Unmodelled

FACTS = Path(cloudgpu.catalog.__file__).parent / "facts" / "gpu_instances.csv"
LIMIT = 2000  # of every family where a test says nothing
ZONES = ("1", "2", "3")
NOT_HERE = {"Standard_ND96isr_H100_v5": ("koreacentral",), "Standard_NC40ads_H100_v5": ("koreacentral",)}
_LOCATION = re.compile(r"location eq '([^']+)'")
_FAMILY = re.compile(r"quota family: ([^;]+)")


class Size(NamedTuple):
    """One size of machine."""

    name: str
    family: str
    vcpus: int
    memory_gb: str
    gpus: int
    generations: str
    temp_gb: int

    @property
    def zonal(self) -> bool:
        return "v4" in self.name or "v5" in self.name


@functools.cache
def sizes() -> dict[str, Size]:
    """Return every size that is still sold, by its name in small letters, and two without a GPU."""
    found = {
        "standard_b1ms": Size("Standard_B1ms", "standardBSFamily", 1, "2", 0, "V1,V2", 4),
        "standard_d4s_v5": Size("Standard_D4s_v5", "standardDSv5Family", 4, "16", 0, "V1,V2", 0),
    }
    with FACTS.open() as file:
        for row in csv.DictReader(file):
            family = _FAMILY.search(row["notes"])
            if row["cloud"] == "azure" and family and "RETIRED" not in row["notes"]:
                found[row["instance_type"].lower()] = _size(row, family[1].strip())
    return found


def _size(row: dict[str, str], family: str) -> Size:
    name = row["instance_type"]
    gpus = max(1, int(float(row["accel_count"])))  # Azure says 1 of a fraction, too
    generations = "V2" if "H100" in name or "H200" in name or "A100" in name else "V1,V2"
    return Size(name, family, int(row["vcpus"]), row["mem_gib"], gpus, generations, 64 * gpus)


def size_of(name: str) -> Size | None:
    return sizes().get(name.lower())


def offered(model: Model, size: Size, region: str, zone: str = "") -> bool:
    """Say whether the account may have a size in a place."""
    if region not in REGIONS or region in NOT_HERE.get(size.name, ()):
        return False
    if zone and not (size.zonal and zone in ZONES):
        return False
    return not {(size.name, region, ""), (size.name, region, zone)} & set(model.restrictions)


@answers("ResourceSkus.List")
def list_skus(model: Model, ask: Ask) -> Reply:
    """List what is sold; the filter knows a location and nothing else (REST reference)."""
    regions = REGIONS
    if text := ask.query.get("$filter"):
        found = _LOCATION.fullmatch(text)
        if found is None:
            raise Unmodelled(f"the filter {text!r}")
        regions = (found[1].lower(),)
    rows = [_row(model, size, region) for region in regions if region in REGIONS for size in _here(region)]
    return pages(model, ask, [*rows, *(_disk_row(region) for region in regions if region in REGIONS)])


def _here(region: str) -> list[Size]:
    return [size for size in sizes().values() if region not in NOT_HERE.get(size.name, ())]


def _row(model: Model, size: Size, region: str) -> dict[str, Any]:
    zones = list(ZONES) if size.zonal else []
    return {
        "resourceType": "virtualMachines",
        "name": size.name,
        "tier": "Standard",
        "size": size.name.removeprefix("Standard_"),
        "family": size.family,
        "locations": [region],
        "locationInfo": [{"location": region, "zones": zones, "zoneDetails": []}],
        "capabilities": _capabilities(size, spot=size.name not in model.without_spot),
        "restrictions": _restrictions(model, size, region),
    }


def _capabilities(size: Size, *, spot: bool) -> list[dict[str, str]]:
    gpus = {"GPUs": str(size.gpus)} if size.gpus else {}
    found = {
        "MaxResourceVolumeMB": str(size.temp_gb * 1024),
        "OSVhdSizeMB": "1047552",
        "vCPUs": str(size.vcpus),
        "MemoryPreservingMaintenanceSupported": "False",
        "HyperVGenerations": size.generations,
        "MemoryGB": size.memory_gb,
        "MaxDataDiskCount": "8",
        "CpuArchitectureType": "x64",
        "LowPriorityCapable": str(spot),
        "PremiumIO": "True",
        "vCPUsAvailable": str(size.vcpus),
        **gpus,
        "EncryptionAtHostSupported": "True",
        "TrustedLaunchDisabled": "False",
        "AcceleratedNetworkingEnabled": "True",
        "MaxNetworkInterfaces": "2",
    }
    return [{"name": name, "value": text} for name, text in found.items()]


def _restrictions(model: Model, size: Size, region: str) -> list[dict[str, Any]]:
    made = []
    for name, where, zone in model.restrictions:
        if (name, where) == (size.name, region):
            info = {"locations": [region], "zones": [zone]} if zone else {"locations": [region]}
            kind, values = ("Zone", [region]) if zone else ("Location", [region])
            reason = "NotAvailableForSubscription"
            made.append({"type": kind, "values": values, "restrictionInfo": info, "reasonCode": reason})
    return made


def _disk_row(region: str) -> dict[str, Any]:
    info = [{"location": region, "zones": list(ZONES), "zoneDetails": []}]
    row = {"resourceType": "disks", "name": "Premium_LRS", "tier": "Premium", "size": "P10", "locations": [region]}
    return {**row, "locationInfo": info, "capabilities": [], "restrictions": []}


@answers("Usage.List")
def list_usages(model: Model, ask: Ask) -> Reply:
    region = ask.where["location"].lower()
    if region not in REGIONS:
        raise Refusal("NoRegisteredProviderFound", f"No registered resource provider found for location '{region}'.")
    return pages(model, ask, (_usage(model, region, name) for name in _names(region)))


def _names(region: str) -> list[str]:
    return ["cores", "virtualMachines", "lowPriorityCores", *sorted({size.family for size in _here(region)})]


def _usage(model: Model, region: str, name: str) -> dict[str, Any]:
    words = {
        "cores": "Total Regional vCPUs",
        "virtualMachines": "Virtual Machines",
        "lowPriorityCores": "Total Regional Low-priority vCPUs",
    }
    local = words.get(name, f"{name} vCPUs")
    named = {"value": name, "localizedValue": local}
    used, limit = usage(model, region, name), limit_of(model, region, name)
    return {"unit": "Count", "currentValue": used, "limit": limit, "name": named}


def limit_of(model: Model, region: str, name: str) -> int:
    return model.quotas.get((region, name), model.quotas.get(("", name), LIMIT))


def usage(model: Model, region: str, name: str) -> int:
    """Return what of a limit is in use: vCPUs, or machines."""
    total = 0
    for one in model.of_kind(MACHINES):
        size = sizes().get(one.facts["hardwareProfile"]["vmSize"].lower())
        if one.region == region and size is not None:
            spot = one.facts.get("priority") == "Spot"
            counts = {"lowPriorityCores"} if spot else {"cores", size.family}
            total += size.vcpus if name in counts else 1 if name == "virtualMachines" else 0
    return total


def charge(model: Model, size: Size, region: str, *, spot: bool) -> None:
    """Refuse a machine for which a limit has no room, in Azure's words (public reports)."""
    for name in ["lowPriorityCores"] if spot else [size.family, "cores"]:
        used, limit = usage(model, region, name), limit_of(model, region, name)
        if used + size.vcpus > limit:
            quota = {"cores": "Total Regional Cores", "lowPriorityCores": "LowPriorityCores"}.get(name, f"{name} Cores")
            sentence = (
                f"Operation could not be completed as it results in exceeding approved {quota} quota. Additional "
                f"details - Deployment Model: Resource Manager, Location: {region}, Current Limit: {limit}, Current "
                f"Usage: {used}, Additional Required: {size.vcpus}, (Minimum) New Limit Required: {used + size.vcpus}. "
                "Setup Alerts when Quota reaches threshold. Submit a request for Quota increase."
            )
            raise Refusal("OperationNotAllowed", sentence)
