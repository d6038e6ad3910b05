"""RunPod's offers and prices from its catalogue: one call for each cloud and number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from cloudgpu.core.catalog.matching import allowed_markets, fits
from cloudgpu.core.catalog.pricelist import PER_HOUR, PartBuilder, PriceList, PricePart, RowKey
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.offers import Availability, Basis, MachineConfiguration, Market, Price, Requirements, Trust
from cloudgpu.core.values.money import Money
from cloudgpu.errors import NoCapacity
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.runpod import gpus
from cloudgpu.providers.runpod.client import Runpod
from cloudgpu.providers.runpod.options import API_URL, COMMUNITY, PROVIDER

SECURE = "SECURE"  # RunPod's cloud in data centres; the other is COMMUNITY
POD_PRICE_SOURCE = "RunPod, price of this pod (cost)"
SOURCE = "RunPod catalogue (GET /v2/catalog/gpus)"
MAX_GPUS = 8  # GPUs of one pod
HTTPS_PORT = 443
STOP_EFFECT = (
    "a stop releases the GPU and erases all but /workspace, whose disk then costs 0.20 instead of 0.10 USD a GB-month; "
    "a start needs a free GPU on that very host, so it may fail, then or for good"
)


def available(runpod: Runpod, requirements: Requirements) -> Availability:
    """Return what can be launched now: SECURE by data centre, and community computers if they are accepted.

    SECURE is also returned if only a cloud's own computers are accepted: control then says that it is not trusted.
    """
    if Market.ON_DEMAND not in allowed_markets(requirements):
        return Availability(())
    min_trust = max(requirements.trust, Trust.DATACENTER, key=lambda trust: trust.position)
    fitting = [
        offer
        for cloud in _clouds(requirements)
        for count in _gpu_counts(requirements)
        for offer in _offers(runpod, cloud, count)
        if fits(offer, replace(requirements, trust=min_trust))
    ]
    return Availability(tuple(fitting))


def regions(runpod: Runpod) -> list[Region]:
    """Return the data centres in RunPod's catalogue that this account uses; all have one address."""
    data_centers, host = runpod.options.data_centers, str(urlsplit(API_URL).hostname)
    names = {
        str(data_center["id"])
        for gpu in runpod.cached_catalogue(SECURE, 1)
        for data_center in gpu.get("dataCenters") or ()
    }
    return [Region(name, host, HTTPS_PORT) for name in sorted(names) if not data_centers or name in data_centers]


def price_list(settings: ProviderSettings) -> PriceList:
    """Return RunPod's current prices for pods with one GPU, in both of its clouds; the same in all data centres."""
    runpod = Runpod(settings)
    return PriceList(PROVIDER, tuple(_prices_of(runpod, cloud) for cloud in (SECURE, COMMUNITY)))


def _prices_of(runpod: Runpod, cloud: str) -> PricePart:
    catalogue = runpod.cached_catalogue(cloud, 1)
    builder = PartBuilder(cloud, runpod.catalogue_time(cloud, 1))
    for gpu in catalogue:
        usd, name = (gpu.get("price") or {}).get(cloud.lower()), gpus.type_name(gpu["id"], 1)
        if usd and gpu.get("manufacturer") == "NVIDIA":  # 0: the cloud does not have it
            builder.add(RowKey(name, cloud, Market.ON_DEMAND), PER_HOUR, usd, source=SOURCE, name=f"{name} {cloud}")
    return builder.part()


def _clouds(requirements: Requirements) -> tuple[str, ...]:
    return (SECURE, COMMUNITY) if requirements.trust.accepts(Trust.COMMUNITY) else (SECURE,)


def _gpu_counts(requirements: Requirements) -> tuple[int, ...]:
    """Return the number of GPUs to query the catalogue for: by the type's name, else as required."""
    if requirements.instance_type is not None:
        count = gpus.gpu_count_of(requirements.instance_type)
        return () if count is None or count > MAX_GPUS else (count,)
    gpu_count = requirements.gpu_count if requirements.gpu is not None else 1
    return (gpu_count,) if 1 <= gpu_count <= MAX_GPUS else ()


def _offers(runpod: Runpod, cloud: str, count: int) -> Iterator[MachineConfiguration]:
    for gpu in runpod.cached_catalogue(cloud, count):
        for region in _data_centres(runpod, cloud, gpu):
            yield _offer(runpod, cloud, count, gpu, region)


def _data_centres(runpod: Runpod, cloud: str, gpu: Mapping[str, Any]) -> Sequence[str]:
    """Return the data centres that have the GPU now; none for other than NVIDIA's, because the image is NVIDIA's."""
    if gpu.get("manufacturer") != "NVIDIA" or gpu.get("availability", "NONE") == "NONE":
        return ()
    if cloud == COMMUNITY:
        return (COMMUNITY,)
    chosen = runpod.options.data_centers
    in_stock = [
        data_center["id"] for data_center in gpu.get("dataCenters") or () if data_center.get("availability") != "NONE"
    ]
    return [data_center for data_center in in_stock if not chosen or data_center in chosen]


def _offer(runpod: Runpod, cloud: str, count: int, gpu: Mapping[str, Any], region: str) -> MachineConfiguration:
    return MachineConfiguration(
        provider=PROVIDER,
        account=runpod.account,
        region=region,
        zone=region,
        instance_type=gpus.type_name(gpu["id"], count),
        market=Market.ON_DEMAND,
        accelerators=(gpus.accelerator(gpu["id"], gpu.get("memory"), count),),
        stop_effect=STOP_EFFECT,
        trust=Trust.COMMUNITY if cloud == COMMUNITY else Trust.DATACENTER,
    )


def prices(runpod: Runpod, offers: Sequence[MachineConfiguration]) -> list[Price | None]:
    """Return one price per offer, in order: a running pod's own price, else the list price of its GPUs; None: no price.

    One call if a pod's price is not known yet.
    """
    if any(offer.machine is not None and offer.machine not in runpod.hourly_costs for offer in offers):
        runpod.hourly_costs |= {pod["id"]: Decimal(str(pod["cost"] or 0)) for pod in runpod.pods()}
    return [_pod_price(runpod, offer) or _list_price(runpod, offer) for offer in offers]


def _pod_price(runpod: Runpod, offer: MachineConfiguration) -> Price | None:
    """Return a pod's own price; None for an offer, and for a pod that costs nothing now."""
    usd = runpod.hourly_costs.get(offer.machine or "")
    return Price(Money.usd(usd), POD_PRICE_SOURCE, runpod.clock(), Basis.QUOTED) if usd else None


def _list_price(runpod: Runpod, offer: MachineConfiguration) -> Price | None:
    count = gpus.gpu_count_of(offer.instance_type)
    if offer.provider != PROVIDER or count is None or count > MAX_GPUS:
        return None
    cloud = COMMUNITY if offer.zone == COMMUNITY else SECURE
    gpu = _gpu_of_type(runpod.cached_catalogue(cloud, count), offer.instance_type, count)
    usd = None if gpu is None else (gpu.get("price") or {}).get(cloud.lower())
    if not usd:  # 0: the cloud does not have it
        return None
    per_hour = Money.usd(str(Decimal(str(usd)) * count))
    return Price(per_hour, SOURCE, runpod.catalogue_time(cloud, count), Basis.QUOTED)


def _gpu_of_type(catalogue: Sequence[Mapping[str, Any]], type_: str, count: int) -> Mapping[str, Any] | None:
    return next((gpu for gpu in catalogue if gpus.type_name(gpu["id"], count) == type_), None)


def gpu_of_offer(runpod: Runpod, offer: MachineConfiguration) -> Mapping[str, Any]:
    """Return the catalogue's entry of an offer's GPU. Raises NoCapacity if it is not available now."""
    count = gpus.gpu_count_of(offer.instance_type)
    cloud = COMMUNITY if offer.zone == COMMUNITY else SECURE
    catalogue = runpod.cached_catalogue(cloud, count) if count is not None and count <= MAX_GPUS else ()
    gpu = _gpu_of_type(catalogue, offer.instance_type, count or 0)
    if gpu is not None and offer.zone in _data_centres(runpod, cloud, gpu):
        return gpu
    message = f"RunPod has no {offer.instance_type} in {offer.zone} now."
    raise NoCapacity(message, field="offer", value=offer.instance_type, next="cloudgpu gpus shows what there is.")
