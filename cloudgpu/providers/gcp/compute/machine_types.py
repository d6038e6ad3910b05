"""Translates the catalogue's types to Google's machine types and accelerators, and finds types that it lacks.

GPUs of V100's time and before are attached to N1 machines: the catalogue calls such a machine `n1-standard-4+v100:1`.
Newer ones come with machine types of their own ("GPU machine types", Compute Engine's guide). Types that the catalogue
lacks, those without a GPU above all, are found where they are named, by one call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from cloudgpu.catalog import instance_type
from cloudgpu.core.catalog.catalog import InstanceType
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute.translate import OLD_GPU_PREFIX
from cloudgpu.providers.gcp.storage.resources import list_all_scopes

NAME_PATTERN = re.compile(r"[a-z][-a-z0-9]{0,62}")
_ACCELERATORS = {  # by the prefix of a machine type's name
    "a2-highgpu-": "nvidia-tesla-a100",
    "a2-megagpu-": "nvidia-tesla-a100",
    "a2-ultragpu-": "nvidia-a100-80gb",
    "a3-edgegpu-": "nvidia-h100-80gb",
    "a3-highgpu-": "nvidia-h100-80gb",
    "a3-megagpu-": "nvidia-h100-mega-80gb",
    "a3-ultragpu-": "nvidia-h200-141gb",
    "a4-": "nvidia-b200",
    "a4x-": "nvidia-gb200",
    "g2-": "nvidia-l4",
    "g4-": "nvidia-rtx-pro-6000",
}
# "For these machine series, every machine type comes with Local SSD storage" (add-local-ssd).
_WITH_LOCAL_SSD = ("a2-ultragpu-", "a3-", "a4-", "a4x-")


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A type of the catalogue as Google's API names it. `name` is the catalogue's (`n1-standard-4+v100:1`).

    `accelerator` is empty where none is known. `is_attached`: it is a parameter beside the machine type (N1). The data
    on a local SSD are lost by a stop; `local_ssd_gb` None: its size is not known.
    """

    name: str
    machine_type: str
    accelerator: str
    gpu_count: int
    is_attached: bool
    has_local_ssd: bool
    local_ssd_gb: float | None


def spec_of_name(name: str) -> MachineSpec:
    """Return the spec of a type by its name; one that the catalogue lacks has no GPU.

    Raises InvalidRequest for what cannot be the name of a type.
    """
    try:
        return spec_of(instance_type("gcp", name))
    except InvalidRequest:
        if not NAME_PATTERN.fullmatch(name):
            raise
        return MachineSpec(name, name, "", 0, is_attached=False, has_local_ssd=False, local_ssd_gb=None)


def spec_of(catalogue_type: InstanceType) -> MachineSpec:
    """Return the spec of a type of the catalogue."""
    machine_type, _, attached = catalogue_type.name.partition("+")
    if attached:
        accelerator = f"{OLD_GPU_PREFIX}{attached.partition(':')[0]}"
    else:
        accelerator = next(
            (accelerator_name for prefix, accelerator_name in _ACCELERATORS.items() if machine_type.startswith(prefix)),
            "",
        )
    has_local_ssd = machine_type.startswith(_WITH_LOCAL_SSD) and not machine_type.endswith("-nolssd")
    return MachineSpec(
        name=catalogue_type.name,
        machine_type=machine_type,
        accelerator=accelerator,
        gpu_count=catalogue_type.gpu.count,
        is_attached=bool(attached),
        has_local_ssd=has_local_ssd or bool(catalogue_type.local_ssd_gb),
        local_ssd_gb=catalogue_type.local_ssd_gb,
    )


_ARM_PREFIXES = ("a4x-", "c4a-", "n4a-", "t2a-")  # "Arm-based machine types"
# Prices of the smallest machines on demand, for a check of an account: from memory, and marked so where they are shown.
_UNVERIFIED_REGIONS = ("us-central1", "us-east1", "us-west1")
_UNVERIFIED_USD_PER_HOUR = {"e2-micro": "0.008376", "e2-small": "0.016751", "e2-medium": "0.033503"}
_AS_OF = datetime(2025, 1, 1, tzinfo=UTC)


def types_by_zone(gcp: Gcp, name: str) -> tuple[list[Mapping[str, Any]], tuple[Unanswered, ...]]:
    """Return a machine type in Google's format for each zone that has it, and the zones without an answer.

    Types with GPUs are left out: only the catalogue names those GPUs.
    """
    types, unanswered = list_all_scopes(gcp, "machineTypes", filter=f"name={name}")
    return [type_ for type_ in types if type_["name"] == name and not type_.get("accelerators")], unanswered


def offers(
    account: str, types: Sequence[Mapping[str, Any]], markets: Sequence[Market], stop_effect: str
) -> tuple[MachineConfiguration, ...]:
    """Return these as offers, one for each zone and market."""
    return tuple(
        MachineConfiguration(
            provider="gcp",
            account=account,
            region=ids.region_of(zone) or "",
            zone=zone,
            instance_type=type_["name"],
            market=market,
            vcpus=type_.get("guestCpus"),
            memory_gib=type_["memoryMb"] / 1024 if type_.get("memoryMb") else None,
            stop_effect=stop_effect,
        )
        for type_ in types
        for zone in [ids.last_part(type_["zone"])]
        for market in markets
    )


def architecture(name: str) -> str:
    """Return the processor architecture of a machine type that the catalogue lacks, by its series."""
    return "arm64" if name.startswith(_ARM_PREFIXES) else "x86_64"


def unverified_price(offer: MachineConfiguration) -> Price | None:
    """Return what a small machine costs on demand, unverified; None for any other."""
    amount = _UNVERIFIED_USD_PER_HOUR.get(offer.instance_type) if offer.market is Market.ON_DEMAND else None
    if amount is None or offer.region not in _UNVERIFIED_REGIONS:
        return None
    return Price(Money.usd(Decimal(amount)), "Compute Engine pricing, from memory", _AS_OF, Basis.UNVERIFIED)
