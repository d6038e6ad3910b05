"""Reads catalog.json, replaces embedded prices by refreshed ones, and returns typed values.

The file is read once, at the first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from cloudgpu.catalog.location import catalogue
from cloudgpu.catalog.refreshed import PriceIndex, price_index
from cloudgpu.catalog.rules import LISTED_PROVIDERS, PROVIDERS_LISTED_BY_REGION, quota_families
from cloudgpu.core.catalog.catalog import (
    CardPrices,
    CatalogOffer,
    GpuSpec,
    InstanceType,
    ListedPrice,
    ListedQuota,
    matching_gpus,
)
from cloudgpu.core.catalog.gpus import EQUAL_SPEED, GpuDriver, PublicImage, SpeedRatio, Workload, speed_ratio
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import DEFAULT_TRUST, Accelerator, Basis, Market, Price, Trust
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.times import earliest_moment
from cloudgpu.errors import InvalidRequest

__all__ = ["catalogue"]  # beside what is defined here

if TYPE_CHECKING:
    from cloudgpu.core.advice.desktop import Desktop
    from cloudgpu.core.clusters.scaling import TypeNetwork


GPU_FIGURES = "memory_gib year bandwidth_gbs fp32_tflops tensor_tflops fp8_tflops watts trains_vs_h100".split()


def compiled_on() -> datetime:
    """Return the day on which the catalogue's facts were compiled, as aware UTC."""
    return earliest_time(catalogue()["compiled"])


@cache
def gpus() -> tuple[GpuSpec, ...]:
    """Return every GPU model that the catalogue knows."""
    return tuple(_gpu_spec(name, row) for name, row in catalogue()["gpus"].items())


def gpu(name: str) -> GpuSpec:
    """Return the one GPU that a spelling matches; raise InvalidRequest when it matches none, or several (`v100`)."""
    specs = matching_gpus(name, gpus())
    if len(specs) == 1:
        return specs[0]
    names = " or ".join(spec.name for spec in specs)
    raise InvalidRequest(f"{name!r} means {names}; say which.", field="gpu", value=name, next=f"Use {names}.")


def gpu_by_name(name: str) -> GpuSpec | None:
    """Return a GPU's specification by its exact name in the catalogue; None for one that is not there."""
    return next((spec for spec in gpus() if spec.name == name), None)


@cache
def spec_of(name: str, memory_gib: float | None = None) -> GpuSpec | None:
    """Return a GPU's specification by the name that a provider or a driver gives it; None for an unknown one."""
    exact = gpu_by_name(name)
    if exact is not None:
        return exact
    for spelling in (name, _without_driver_words(name)):
        try:
            specs = matching_gpus(spelling, gpus())
        except InvalidRequest:
            continue
        return next((spec for spec in specs if spec.memory_gib == memory_gib), specs[0])
    return None


def _without_driver_words(name: str) -> str:
    """Return a driver's name of a GPU without words that no catalogue name has; HBM2, HBM3 become SXM."""
    return re.sub(r"[ -](Generation|PCIE)(?=[ -]|$)", "", re.sub(r"\bHBM\w+", "SXM", name), flags=re.IGNORECASE)


def instance_types(provider: str | None = None) -> tuple[InstanceType, ...]:
    """Return every type with GPUs, of one provider or of all."""
    return tuple(instance_type(one, name) for one in providers_of(provider) for name in catalogue()["types"][one])


@cache
def instance_type(provider: str, name: str) -> InstanceType:
    """Return one type; raise InvalidRequest, with the nearest name, for one that the catalogue does not have."""
    (provider,) = providers_of(provider)
    known = catalogue()["types"][provider]
    if name not in known:
        raise unknown_name("instance type", name, known, "instance_type", see="cloudgpu gpus --all")
    return _instance_type(provider, name, known[name])


def offers(
    provider: str | None = None,
    region: str | None = None,
    market: Market | None = None,
    gpu: str | None = None,
    *,
    with_legacy: bool = False,
    trust: Trust = DEFAULT_TRUST,
) -> list[CatalogOffer]:
    """Return an offer for each listed price (of a type, region and market) that matches the filters that are not None.

    `with_legacy`: also types that can probably not be launched any more, and those that are not sold on demand.
    Offers below the `trust` that is given are left out.

    Raises InvalidRequest for an unknown provider, region or GPU, with the nearest name.
    """
    gpu_names = None if gpu is None else {spec.name for spec in matching_gpus(gpu, gpus())}
    if region is not None:
        check_region(region, provider)
    machine_types = (
        machine_type
        for machine_type in instance_types(provider)
        if gpu_names is None or machine_type.gpu.name in gpu_names
    )
    listed = (
        CatalogOffer(machine_type, price)
        for machine_type in machine_types
        for price in _listed_prices(machine_type, region, market)
    )
    return [offer for offer in listed if trust.accepts(offer.trust) and (with_legacy or _is_sold(offer))]


def _is_sold(offer: CatalogOffer) -> bool:
    return not offer.type.legacy_reason and (offer.listed.market is Market.SPOT or not offer.type.spot_only)


def listed_price(provider: str, name: str, region: str, market: Market) -> Price | None:
    """Return the listed price of a type in a region on a market; None where none is known (never zero)."""
    if name not in catalogue()["types"].get(provider, {}):
        return None
    return next((listed.price for listed in _listed_prices(instance_type(provider, name), region, market)), None)


def on_demand_price(provider: str, name: str, region: str) -> Price | None:
    """Return the list price on demand of a type in a region; None where none is known."""
    return listed_price(provider, name, region, Market.ON_DEMAND)


def priced_regions(provider: str) -> dict[str, frozenset[str]]:
    """Return the regions in which each type of a provider has a listed price, on any market, by the type's name."""
    (provider,) = providers_of(provider)
    return _priced_regions(provider, price_index(provider))


@lru_cache(maxsize=8)
def _priced_regions(provider: str, refreshed: PriceIndex) -> dict[str, frozenset[str]]:
    regions_of = {name: {price[0] for price in listed} for name, listed in catalogue()["prices"][provider].items()}
    for name, rows in refreshed.machines.items():
        if name in catalogue()["types"][provider]:
            regions_of.setdefault(name, set()).update(region for region, _ in rows)
    return {name: frozenset(names_of_regions) for name, names_of_regions in regions_of.items()}


def omitted_types(provider: str | None = None) -> dict[str, str]:
    """Return the types that have a price in the facts but are not offered, each with the reason."""
    return {name: why for one in providers_of(provider) for name, why in catalogue()["left_out"][one].items()}


def regions(provider: str | None = None) -> dict[str, str]:
    """Return every region with a price, with its provider."""
    return {
        region: one
        for one in providers_of(provider)
        for type_regions in priced_regions(one).values()
        for region in sorted(type_regions)
    }


def check_region(region: str, provider: str | None = None) -> None:
    """Raise InvalidRequest, with the nearest name, for a region that has no prices, or is another provider's."""
    known = regions(provider)
    if region in known:
        return
    region_provider = regions().get(region)
    if region_provider is None:
        raise unknown_name("region", region, known, "--region", see="cloudgpu gpus -o json")
    raise InvalidRequest(
        f"{region!r} is a region of {region_provider}, not of {provider}.",
        field="--region",
        value=region,
        next=f"Run: cloudgpu gpus --provider {region_provider} --region {region}",
    )


@cache
def listed_quotas(provider: str) -> tuple[ListedQuota, ...]:
    """Return the quotas of a provider that the catalogue knows."""
    rows = (row for row in catalogue()["quotas"] if row["provider"] == provider)
    return tuple(
        ListedQuota(**{**row, "market": Market(row["market"]), "families": tuple(row["families"])}) for row in rows
    )


def network_of(provider: str, name: str) -> TypeNetwork | None:
    """Return the network speed of a machine type; None where it is not known."""
    row = catalogue()["networks"].get(provider, {}).get(name)
    if row is None:
        return None
    from cloudgpu.core.clusters.scaling import TypeNetwork  # few callers need it

    gbit, up_to, fabric, note, source, as_of = row
    return TypeNetwork(gbit, up_to, fabric, note, catalogue()["sources"][source], as_of)


def monthly_interruption(provider: str, name: str, region: str) -> tuple[tuple[float, float], str] | None:
    """Return the share of a type's spot machines interrupted a month, as (lowest, highest), and its source.

    None where it is not known: AWS publishes it, Google does not.
    """
    row = catalogue()["spot_interruption"].get(provider, {}).get(name, {}).get(region)
    return None if row is None else ((row[0], row[1]), f"{catalogue()['sources'][row[2]]}, {row[3]}")


def quota_of(provider: str, name: str, market: Market) -> ListedQuota | None:
    """Return the regional quota that a type counts against; None where none is known."""
    return next((quota for quota in quotas_of(provider, name, market) if not quota.is_overall), None)


def quotas_of(provider: str, name: str, market: Market) -> list[ListedQuota]:
    """Return every quota that a type with GPUs counts against on a market: that of the region, then global ones."""
    type_entry = catalogue()["types"].get(provider, {}).get(name, {})
    families = quota_families(provider, name, type_entry.get("gpu"))
    known = [quota for quota in listed_quotas(provider) if quota.market is market]
    quotas = [candidate for candidate in known if any(family in candidate.families for family in families)]
    return quotas[:1] + [candidate for candidate in known if candidate.is_overall and type_entry]


def _listed_prices(machine_type: InstanceType, region: str | None, market: Market | None) -> Iterator[ListedPrice]:
    refreshed = price_index(machine_type.provider).machines.get(machine_type.name, {})
    for price in embedded_prices(machine_type.provider, machine_type.name):
        if (
            region in (None, price.region)
            and market in (None, price.market)
            and (price.region, price.market) not in refreshed
        ):
            yield price
    for (row_region, row_market), row in refreshed.items():
        if region in (None, row_region) and market in (None, row_market):
            yield ListedPrice(
                row_region,
                row_market,
                row.hourly_price(),
                row.note or "as the price list says",
                f"{row.as_of:%Y-%m-%d}",
            )


@cache
def embedded_prices(provider: str, name: str) -> tuple[ListedPrice, ...]:
    """Return the prices of a type that come with cloudgpu, whatever was refreshed."""
    facts = catalogue()
    sources, checks = facts["sources"], facts["checks"]
    return tuple(
        ListedPrice(
            region,
            Market(market),
            Price(Money.usd(usd), sources[source_index], earliest_time(date_text), Basis(basis)),
            checks[check_index],
            date_text,
        )
        for region, market, usd, date_text, basis, source_index, check_index in facts["prices"][provider].get(name, ())
    )


@cache
def earliest_time(date_text: str) -> datetime:
    """Return the first moment of a date in the facts (a day, month or year), whose format `checks` has verified."""
    return earliest_moment(date_text) or datetime.fromisoformat(date_text)


def _gpu_spec(name: str, row: dict[str, Any]) -> GpuSpec:
    texts = {key: row.get(key, "") for key in ("architecture", "compute_capability", "notes", "source")}
    numbers: dict[str, Any] = {key: row.get(key) for key in GPU_FIGURES}
    numbers["year"] = None if numbers["year"] is None else int(numbers["year"])
    return GpuSpec(name=name, **numbers, **texts, card_prices=_card_prices(row["card"]) if "card" in row else None)


def _card_prices(row: dict[str, str]) -> CardPrices:
    launch, new, used = (Money.usd(row[key]) if key in row else None for key in ("launch_usd", "new_usd", "used_usd"))
    return CardPrices(
        launch, new, used, dated=row["dated"], as_of=earliest_time(row["dated"]), note=row.get("note", "")
    )


def _instance_type(provider: str, name: str, entry: dict[str, Any]) -> InstanceType:
    return InstanceType(
        provider=provider,
        name=name,
        gpu=Accelerator(entry["gpu"], entry["count"], entry["gpu_memory_gib"], entry["share"]),
        vcpus=entry["vcpus"],
        memory_gib=entry["memory_gib"],
        local_ssd_gb=entry.get("local_ssd_gb"),
        arch=entry["arch"],
        spot_only=entry.get("spot_only", False),
        legacy_reason=entry.get("legacy", ""),
        unverified=tuple(entry.get("unverified", ())),
        notes=entry.get("notes", ""),
        source=catalogue()["sources"][entry["source"]],
        as_of=entry["as_of"],
    )


def providers_of(provider: str | None) -> tuple[str, ...]:
    """Return the provider that is named; for None, all whose lists were read region by region.

    The others have few prices, of one source, without the regions that sell a type: they are used only where they are
    named. Raises InvalidRequest for one that the catalogue does not have.
    """
    if provider is None:
        return PROVIDERS_LISTED_BY_REGION
    if provider in LISTED_PROVIDERS:
        return (provider,)
    raise unknown_name("provider", provider, LISTED_PROVIDERS, "--provider")


def unknown_name(what: str, value: str, known: Iterable[str], field: str, *, see: str = "") -> InvalidRequest:
    """Return the error for a name that the catalogue does not have, with the nearest one."""
    remedy = f"Run: {see}" if see else ""
    return unknown_word(
        f"The catalogue has no {what} {value!r}", value, sorted(known), field=field, use="Use {}.", next=remedy
    )


def driver_for(gpu: str) -> GpuDriver | None:
    """Return the driver for a GPU, by its name in the catalogue; None for one whose architecture is not known."""
    spec = gpu_by_name(gpu)
    family = "" if spec is None else spec.architecture
    drivers = catalogue()["drivers"]
    return next((GpuDriver(**row) for row in drivers if family and family.startswith(row["family"])), None)


def public_images(provider: str, use: str, architecture: str) -> tuple[PublicImage, ...]:
    """Return the images of a provider for `use` (`cuda` or `plain`) on a kind of processor, the preferred one first."""
    images = (PublicImage(**row) for row in catalogue()["images"])
    return tuple(
        image for image in images if (image.provider, image.use, image.machine) == (provider, use, architecture)
    )


def find_gpu(name: str) -> GpuSpec | None:
    """Return the one GPU that a spelling matches, as `gpu` does; None where it matches none, or several."""
    try:
        return gpu(name)
    except InvalidRequest:
        return None


def gpu_of(machine: Machine) -> Accelerator | None:
    """Return the GPUs of a machine; None if it has none, or they are not known: `knows_gpus` says which."""
    if machine.accelerators:
        return Accelerator(*machine.accelerators[0])
    if machine.accelerators is not None:
        return None
    try:
        return instance_type(machine.provider, machine.instance_type or "").gpu
    except InvalidRequest:
        return None


def knows_gpus(machine: Machine) -> bool:
    """Say whether it is known what GPUs a machine has."""
    return machine.accelerators is not None or gpu_of(machine) is not None


def speed_ratios(desktop: Desktop, work: Workload) -> Callable[[Accelerator], SpeedRatio]:
    """Return a function that gives a GPU's speed ratio to the desktop's GPU; `EQUAL_SPEED` where it is not known."""
    desktop_gpu = find_gpu(desktop.gpu)

    @cache
    def cached_ratio(name: str, memory_gib: float | None) -> SpeedRatio:
        other_gpu = spec_of(name, memory_gib)
        ratio = speed_ratio(desktop_gpu, other_gpu, work) if desktop_gpu and other_gpu else None
        return ratio or EQUAL_SPEED

    return lambda gpu: cached_ratio(gpu.name, gpu.memory_gib)
