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
from cloudgpu.core.model.offers import Available, Basis, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute.translate import OLD_GPU
from cloudgpu.providers.gcp.storage.resources import aggregated

NAME = re.compile(r"[a-z][-a-z0-9]{0,62}")
_ACCELERATORS = {  # by the longest beginning of a machine type's name
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
    """A type of the catalogue in Google's words. `accelerator` is empty where none is known.

    `attached`: it has to be named beside the machine type. `scratch`: a stop loses what is on its local SSD;
    `scratch_gb` None: how much that is, is not known.
    """

    name: str
    machine_type: str
    accelerator: str
    count: int
    attached: bool
    scratch: bool
    scratch_gb: float | None


def spec_of_name(name: str) -> MachineSpec:
    """Return a type in Google's words by its name; one that the catalogue lacks has no GPU.

    Raises InvalidRequest for what cannot be the name of one.
    """
    try:
        return spec_of(instance_type("gcp", name))
    except InvalidRequest:
        if not NAME.fullmatch(name):
            raise
        return MachineSpec(name, name, "", 0, attached=False, scratch=False, scratch_gb=None)


def spec_of(one: InstanceType) -> MachineSpec:
    """Return a type of the catalogue in Google's words."""
    machine_type, _, attached = one.name.partition("+")
    if attached:
        accelerator = f"{OLD_GPU}{attached.partition(':')[0]}"
    else:
        accelerator = next((gpu for begin, gpu in _ACCELERATORS.items() if machine_type.startswith(begin)), "")
    scratch = machine_type.startswith(_WITH_LOCAL_SSD) and not machine_type.endswith("-nolssd")
    return MachineSpec(
        name=one.name,
        machine_type=machine_type,
        accelerator=accelerator,
        count=one.gpu.count,
        attached=bool(attached),
        scratch=scratch or bool(one.local_ssd_gb),
        scratch_gb=one.local_ssd_gb,
    )


_ARM = ("a4x-", "c4a-", "n4a-", "t2a-")  # "Arm-based machine types"
# What the smallest machines cost on demand, for a check of an account: from memory, and marked so where it is shown.
_UNVERIFIED_REGIONS = ("us-central1", "us-east1", "us-west1")
_UNVERIFIED = {"e2-micro": "0.008376", "e2-small": "0.016751", "e2-medium": "0.033503"}
_AS_OF = datetime(2025, 1, 1, tzinfo=UTC)


def zones_with(gcp: Gcp, name: str) -> tuple[list[Mapping[str, Any]], tuple[Unanswered, ...]]:
    """Return what Google says of a machine type in each zone that has it, and who did not answer. A call per page.

    One that has GPUs is left out: what they are called is the catalogue's to say.
    """
    found, silent = aggregated(gcp, "machineTypes", filter=f"name={name}")
    return [one for one in found if one["name"] == name and not one.get("accelerators")], silent


def items(
    account: str, found: Sequence[Mapping[str, Any]], markets: Sequence[Market], stop_effect: str
) -> tuple[Available, ...]:
    """Return these as offers, one for each zone and market."""
    return tuple(
        Available(
            provider="gcp",
            account=account,
            region=ids.region_of(zone) or "",
            zone=zone,
            instance_type=one["name"],
            market=market,
            vcpus=one.get("guestCpus"),
            memory_gib=one["memoryMb"] / 1024 if one.get("memoryMb") else None,
            stop_effect=stop_effect,
        )
        for one in found
        for zone in [ids.last(one["zone"])]
        for market in markets
    )


def architecture(name: str) -> str:
    """Return the processor of a machine type that the catalogue lacks, by its series."""
    return "arm64" if name.startswith(_ARM) else "x86_64"


def unverified_price(item: Available) -> Price | None:
    """Return what a small machine costs on demand, unverified; None for any other."""
    amount = _UNVERIFIED.get(item.instance_type) if item.market is Market.ON_DEMAND else None
    if amount is None or item.region not in _UNVERIFIED_REGIONS:
        return None
    return Price(Money.usd(Decimal(amount)), "Compute Engine pricing, from memory", _AS_OF, Basis.UNVERIFIED)
