"""What RunPod offers, with its own prices: its catalogue, one call for each cloud and number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from cloudgpu.core.catalog.matching import allowed_markets, fits
from cloudgpu.core.catalog.pricelist import PER_HOUR, PartBuilder, PriceList, PricePart, RowKey
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.offers import Availability, Available, Basis, Market, Price, Requirements, Trust
from cloudgpu.core.values.money import Money
from cloudgpu.errors import NoCapacity
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.runpod import gpus
from cloudgpu.providers.runpod.client import Runpod
from cloudgpu.providers.runpod.options import CLOUD, COMMUNITY, KIND

SECURE = "SECURE"
OWN_SOURCE = "RunPod's own word of this pod (cost)"
SOURCE = "RunPod catalogue (GET /v2/catalog/gpus)"
MAX = 8  # GPUs of one pod
HTTPS = 443
STOP_MEANS = (
    "a stop releases the GPU and erases all but /workspace, whose disk then costs 0.20 instead of 0.10 USD a GB-month; "
    "a start needs a free GPU on that very host, so it may fail, then or for good"
)


def available(runpod: Runpod, requirements: Requirements) -> Availability:
    """Return what could be launched: SECURE by data centre, and the community's computers where they are accepted.

    SECURE is shown to whoever accepts a cloud's own computers alone, too: control says then that it is not trusted.
    """
    if Market.ON_DEMAND not in allowed_markets(requirements):
        return Availability(())
    least = max(requirements.trust, Trust.DATACENTER, key=lambda trust: trust.position)
    found = [
        item
        for cloud in _clouds(requirements)
        for count in _counts(requirements)
        for item in _items(runpod, cloud, count)
        if fits(item, replace(requirements, trust=least))
    ]
    return Availability(tuple(found))


def regions(runpod: Runpod) -> list[Region]:
    """Return the data centres that RunPod's catalogue names, of those that this account uses. One address for all."""
    wanted, host = runpod.options.data_centers, str(urlsplit(CLOUD).hostname)
    found = {str(one["id"]) for gpu in runpod.stock(SECURE, 1) for one in gpu.get("dataCenters") or ()}
    return [Region(name, host, HTTPS) for name in sorted(found) if not wanted or name in wanted]


def price_list(settings: ProviderSettings) -> PriceList:
    """Return RunPod's prices of now for pods with one GPU, on both of its clouds: one has one price everywhere."""
    runpod = Runpod(settings)
    return PriceList(KIND, tuple(_prices_of(runpod, cloud) for cloud in (SECURE, COMMUNITY)))


def _prices_of(runpod: Runpod, cloud: str) -> PricePart:
    stock = runpod.stock(cloud, 1)
    rows = PartBuilder(cloud, runpod.stocked_at(cloud, 1))
    for gpu in stock:
        usd, name = (gpu.get("price") or {}).get(cloud.lower()), gpus.type_name(gpu["id"], 1)
        if usd and gpu.get("manufacturer") == "NVIDIA":  # 0 is the price of what that cloud does not have
            rows.add(RowKey(name, cloud, Market.ON_DEMAND), PER_HOUR, usd, source=SOURCE, name=f"{name} {cloud}")
    return rows.part()


def _clouds(requirements: Requirements) -> tuple[str, ...]:
    return (SECURE, COMMUNITY) if requirements.trust.accepts(Trust.COMMUNITY) else (SECURE,)


def _counts(requirements: Requirements) -> tuple[int, ...]:
    """Return for how many GPUs the catalogue is asked: by the type's name, else as many as are wanted."""
    if requirements.instance_type is not None:
        found = gpus.count_in(requirements.instance_type)
        return () if found is None or found > MAX else (found,)
    wanted = requirements.gpu_count if requirements.gpu is not None else 1
    return (wanted,) if 1 <= wanted <= MAX else ()


def _items(runpod: Runpod, cloud: str, count: int) -> Iterator[Available]:
    for gpu in runpod.stock(cloud, count):
        for where in _data_centres(runpod, cloud, gpu):
            yield _item(runpod, cloud, count, gpu, where)


def _data_centres(runpod: Runpod, cloud: str, gpu: Mapping[str, Any]) -> Sequence[str]:
    """Return the data centres that have it now. The image is NVIDIA's, so is the GPU."""
    if gpu.get("manufacturer") != "NVIDIA" or gpu.get("availability", "NONE") == "NONE":
        return ()
    if cloud == COMMUNITY:
        return (COMMUNITY,)
    wanted = runpod.options.data_centers
    stocked = [one["id"] for one in gpu.get("dataCenters") or () if one.get("availability") != "NONE"]
    return [one for one in stocked if not wanted or one in wanted]


def _item(runpod: Runpod, cloud: str, count: int, gpu: Mapping[str, Any], where: str) -> Available:
    return Available(
        provider=KIND,
        account=runpod.account,
        region=where,
        zone=where,
        instance_type=gpus.type_name(gpu["id"], count),
        market=Market.ON_DEMAND,
        accelerators=(gpus.accelerator(gpu["id"], gpu.get("memory"), count),),
        stop_effect=STOP_MEANS,
        trust=Trust.COMMUNITY if cloud == COMMUNITY else Trust.DATACENTER,
    )


def prices(runpod: Runpod, offers: Sequence[Available]) -> list[Price | None]:
    """Return one price per item, in order: of a pod that runs its own, else the list price of a GPU times their number.

    None where there is none. One call for the pods that were not looked at yet.
    """
    if any(item.machine is not None and item.machine not in runpod.paid for item in offers):
        runpod.paid |= {pod["id"]: Decimal(str(pod["cost"] or 0)) for pod in runpod.pods()}
    return [_own_price(runpod, item) or _price(runpod, item) for item in offers]


def _own_price(runpod: Runpod, item: Available) -> Price | None:
    """Return what a pod was seen to cost; None for an offer, and for a pod that costs nothing now."""
    usd = runpod.paid.get(item.machine or "")
    return Price(Money.usd(usd), OWN_SOURCE, runpod.clock(), Basis.ASKED) if usd else None


def _price(runpod: Runpod, item: Available) -> Price | None:
    count = gpus.count_in(item.instance_type)
    if item.provider != KIND or count is None or count > MAX:
        return None
    cloud = COMMUNITY if item.zone == COMMUNITY else SECURE
    gpu = _of_type(runpod.stock(cloud, count), item.instance_type, count)
    usd = None if gpu is None else gpu["price"].get(cloud.lower())
    if not usd:  # 0 is the price of what that cloud does not have
        return None
    per_hour = Money.usd(str(Decimal(str(usd)) * count))
    return Price(per_hour, SOURCE, runpod.stocked_at(cloud, count), Basis.ASKED)


def _of_type(stock: Sequence[Mapping[str, Any]], type_: str, count: int) -> Mapping[str, Any] | None:
    return next((gpu for gpu in stock if gpus.type_name(gpu["id"], count) == type_), None)


def sold(runpod: Runpod, item: Available) -> Mapping[str, Any]:
    """Return what the catalogue says of an offer's GPU. Raises NoCapacity where it does not have it there now."""
    count = gpus.count_in(item.instance_type)
    cloud = COMMUNITY if item.zone == COMMUNITY else SECURE
    stock = runpod.stock(cloud, count) if count is not None and count <= MAX else ()
    gpu = _of_type(stock, item.instance_type, count or 0)
    if gpu is not None and item.zone in _data_centres(runpod, cloud, gpu):
        return gpu
    message = f"RunPod has no {item.instance_type} in {item.zone} now."
    raise NoCapacity(message, field="offer", value=item.instance_type, next="cloudgpu gpus shows what there is.")
