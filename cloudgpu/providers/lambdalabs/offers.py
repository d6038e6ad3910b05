"""What Lambda offers now: instance types, prices and regions from one answer, with GPUs as the catalogue names them.

`type_data` is an instance type as Lambda's API describes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from cloudgpu.core.catalog.matching import fits
from cloudgpu.core.catalog.pricelist import PER_HOUR, PartBuilder, PriceList, RowKey
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.offers import Accelerator, Availability, MachineConfiguration, Market, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.lambdalabs.client import Lambda
from cloudgpu.providers.lambdalabs.options import PROVIDER

SOURCE = "Lambda Cloud's own answer, GET /instance-types"
HOST, PORT = "cloud.lambda.ai", 443  # of the API, for all regions
# Regions that Lambda's description names; one that is not here and has machines is taken from the answer.
REGIONS = (
    "asia-northeast-1 asia-northeast-2 asia-south-1 australia-east-1 europe-central-1 me-west-1 us-east-1 us-east-2 "
    "us-east-3 us-midwest-1 us-midwest-2 us-south-1 us-south-2 us-south-3 us-west-1 us-west-2 us-west-3"
).split()
STOP_EFFECT = "Lambda has no stop: a machine runs and costs until it is ended, and its disk goes with it"
_GPU_PATTERN = re.compile(
    r"(?:(\d+)x )?(?:NVIDIA )?(?:Tesla |Quadro )?(?P<name>[A-Z]+ ?[A-Z]*\d+\w*)(?: \((?P<more>[^)]*)\))?"
)
_GB_PATTERN = re.compile(r"(\d+) ?GB")


def available(lam: Lambda, requirements: Requirements) -> Availability:
    """Return what fits and is in stock, by region. Raises AuthFailed, ProviderUnavailable."""
    offers = (offer for name, type_entry in lam.types().items() for offer in _offers(lam, name, type_entry or {}))
    return Availability(tuple(offer for offer in offers if fits(offer, requirements)))


def _offers(lam: Lambda, name: str, raw: Mapping[str, Any]) -> list[MachineConfiguration]:
    type_data = raw.get("instance_type") or {}
    specs = type_data.get("specs") or {}
    gpus = accelerators(type_data)
    regions = [str(region.get("name")) for region in raw.get("regions_with_capacity_available") or ()]
    return [
        MachineConfiguration(
            provider=PROVIDER,
            account=lam.account,
            region=region,
            zone=region,
            instance_type=name,
            market=Market.ON_DEMAND,
            accelerators=gpus,
            vcpus=specs.get("vcpus"),
            memory_gib=specs.get("memory_gib"),
            stoppable=False,
            stop_effect=STOP_EFFECT,
            parkable=False,
        )
        for region in regions
        if lam.options.uses(region)
    ]


def per_hour(type_data: Mapping[str, Any]) -> Money | None:
    """Return the hourly price of an instance type, as Lambda reports it; None where it does not."""
    cents = type_data.get("price_cents_per_hour")
    if not isinstance(cents, int) or isinstance(cents, bool) or cents <= 0:
        return None
    return Money.usd(Decimal(cents) / 100)


def price_list(settings: ProviderSettings) -> PriceList:
    """Return Lambda's prices of now: each type has one, the same in all regions. One call."""
    lam = Lambda(settings)
    types, builder, used_regions = lam.types(), PartBuilder("instance types", lam.clock()), regions(lam)
    for name, type_entry in types.items():
        type_data = (type_entry or {}).get("instance_type") or {}
        price = per_hour(type_data)
        # what is no price is shown as it is: it must not be taken for dollars
        amount = f"{type_data.get('price_cents_per_hour')} cents" if price is None else price.dollars
        for region in used_regions:
            key = RowKey(name, region.name, Market.ON_DEMAND)
            builder.add(key, PER_HOUR, amount, source=SOURCE, name=f"{name} {region.name}")
    return PriceList(PROVIDER, (builder.part(),))


def regions(lam: Lambda) -> list[Region]:
    """Return the regions that this account uses: Lambda has one address for all of them."""
    regions_with_stock = (
        region.get("name")
        for type_entry in lam.types().values()
        for region in (type_entry or {}).get("regions_with_capacity_available") or ()
    )
    names = sorted({*REGIONS, *map(str, regions_with_stock)})
    return [Region(name, HOST, PORT) for name in names if lam.options.uses(name)]


def accelerators(type_data: Mapping[str, Any]) -> tuple[Accelerator, ...]:
    """Return the GPUs of an instance type as the catalogue calls them, by Lambda's description; none for no GPU."""
    count = (type_data.get("specs") or {}).get("gpus")
    match = _GPU_PATTERN.search(str(type_data.get("gpu_description") or type_data.get("description") or ""))
    if not isinstance(count, int) or count < 1 or match is None:
        return ()
    details = match["more"] or ""
    memory_match = _GB_PATTERN.search(details)
    memory_gb = int(memory_match[1]) if memory_match else None
    return (Accelerator(gpu_name(match["name"], memory_gb, details), count, memory_gb),)


def gpu_name(name: str, memory_gb: int | None, details: str) -> str:
    """Return a GPU's name in the catalogue; where there are variants, with its memory or bus."""
    model = name.replace(" ", "").removeprefix("NVIDIA")
    is_pcie = "PCIe" in details
    if model == "A100":
        return f"A100-{memory_gb or 40}GB" + ("-PCIe" if is_pcie and memory_gb == 80 else "")  # noqa: PLR2004
    if model == "V100":
        return f"V100-{memory_gb or 16}GB"
    if model == "H100" and is_pcie:
        return "H100-PCIe"
    return {"RTXA6000": "A6000", "RTX6000": "QuadroRTX6000"}.get(model, model)
