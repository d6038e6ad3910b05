"""Reads catalog.json with refreshed prices over it, and answers from it and the embedded facts with typed values.

The file is read once, at the first question. The embedded facts say which driver a GPU needs and which public images
there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from cloudgpu.catalog.location import catalogue
from cloudgpu.catalog.refreshed import Index, index
from cloudgpu.catalog.rules import BY_REGION, LISTED, quota_families
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
    """Return the day on which the figures were compiled, as aware UTC."""
    return earliest_time(catalogue()["compiled"])


@cache
def gpus() -> tuple[GpuSpec, ...]:
    """Return every GPU model that the catalogue knows."""
    return tuple(_spec(name, row) for name, row in catalogue()["gpus"].items())


def gpu(name: str) -> GpuSpec:
    """Return the one GPU that a spelling means; raise InvalidRequest when it means none, or several (`v100`)."""
    specs = matching_gpus(name, gpus())
    if len(specs) == 1:
        return specs[0]
    names = " or ".join(spec.name for spec in specs)
    raise InvalidRequest(f"{name!r} means {names}; say which.", field="gpu", value=name, next=f"Use {names}.")


def named_gpu(listed: str) -> GpuSpec | None:
    """Return the specification of a GPU by the name it has in the catalogue; None for one it does not know."""
    return next((spec for spec in gpus() if spec.name == listed), None)


@cache
def spec_of(name: str, memory_gib: float | None = None) -> GpuSpec | None:
    """Return the figures of a GPU as a provider or a driver names it; None for one that the catalogue lacks."""
    exact = named_gpu(name)
    if exact is not None:
        return exact
    for spelling in (name, _driver_words(name)):
        try:
            specs = matching_gpus(spelling, gpus())
        except InvalidRequest:
            continue
        return next((spec for spec in specs if spec.memory_gib == memory_gib), specs[0])
    return None


def _driver_words(name: str) -> str:
    """Return a driver's name without the words that no model has: a board with HBM in its name is an SXM."""
    return re.sub(r"[ -](Generation|PCIE)(?=[ -]|$)", "", re.sub(r"\bHBM\w+", "SXM", name), flags=re.IGNORECASE)


def types(provider: str | None = None) -> tuple[InstanceType, ...]:
    """Return every type with GPUs, of one provider or of all."""
    return tuple(instance_type(one, name) for one in providers_of(provider) for name in catalogue()["types"][one])


@cache
def instance_type(provider: str, name: str) -> InstanceType:
    """Return one type; raise InvalidRequest, with the near one, for a name that the catalogue does not have."""
    (provider,) = providers_of(provider)
    known = catalogue()["types"][provider]
    if name not in known:
        raise unknown("instance type", name, known, "instance_type", see="cloudgpu gpus --all")
    return _type(provider, name, known[name])


def offers(
    provider: str | None = None,
    region: str | None = None,
    market: Market | None = None,
    gpu: str | None = None,
    *,
    with_legacy: bool = False,
    trust: Trust = DEFAULT_TRUST,
) -> list[CatalogOffer]:
    """Return what has a listed price, by type, region and market, for the filters that are not None.

    `with_legacy`: also types that can probably not be launched any more, and those that are not sold on demand.
    Offers with less than this trust are left out.

    Raises InvalidRequest for an unknown provider, region or GPU, with the near one.
    """
    gpu_names = None if gpu is None else {spec.name for spec in matching_gpus(gpu, gpus())}
    if region is not None:
        check_region(region, provider)
    shapes = (shape for shape in types(provider) if gpu_names is None or shape.gpu.name in gpu_names)
    found = (CatalogOffer(shape, price) for shape in shapes for price in _listed_prices(shape, region, market))
    return [offer for offer in found if trust.accepts(offer.trust) and (with_legacy or _is_sold(offer))]


def _is_sold(offer: CatalogOffer) -> bool:
    return not offer.type.legacy_reason and (offer.listed.market is Market.SPOT or not offer.type.spot_only)


def listed_price(provider: str, name: str, region: str, market: Market) -> Price | None:
    """Return the listed price of a type in a region on a market; None where there is none: never free."""
    if name not in catalogue()["types"].get(provider, {}):
        return None
    prices = _listed_prices(instance_type(provider, name), region, market)
    return next((price.price for price in prices), None)


def on_demand_price(provider: str, name: str, region: str) -> Price | None:
    """Return what a type costs on demand in a region, whatever it was bought for; None where that is not known."""
    return listed_price(provider, name, region, Market.ON_DEMAND)


def priced_regions(provider: str) -> dict[str, frozenset[str]]:
    """Return the regions in which each type of a provider has a listed price, on any market, by the type's name."""
    (provider,) = providers_of(provider)
    return _priced_regions(provider, index(provider))


@lru_cache(maxsize=8)
def _priced_regions(provider: str, fresh: Index) -> dict[str, frozenset[str]]:
    found = {name: {price[0] for price in listed} for name, listed in catalogue()["prices"][provider].items()}
    for name, rows in fresh.machines.items():
        if name in catalogue()["types"][provider]:
            found.setdefault(name, set()).update(region for region, _ in rows)
    return {name: frozenset(places) for name, places in found.items()}


def omitted_types(provider: str | None = None) -> dict[str, str]:
    """Return the names that have a price but are not offered, each with the reason."""
    return {name: why for one in providers_of(provider) for name, why in catalogue()["left_out"][one].items()}


def regions(provider: str | None = None) -> dict[str, str]:
    """Return every region with a price, with its provider."""
    return {
        region: one
        for one in providers_of(provider)
        for places in priced_regions(one).values()
        for region in sorted(places)
    }


def check_region(region: str, provider: str | None = None) -> None:
    """Raise InvalidRequest, with the near one, for a region that has no prices, or is another provider's."""
    here = regions(provider)
    if region in here:
        return
    owner = regions().get(region)
    if owner is None:
        raise unknown("region", region, here, "--region", see="cloudgpu gpus -o json")
    raise InvalidRequest(
        f"{region!r} is a region of {owner}, not of {provider}.",
        field="--region",
        value=region,
        next=f"Run: cloudgpu gpus --provider {owner} --region {region}",
    )


@cache
def listed_quotas(provider: str) -> tuple[ListedQuota, ...]:
    """Return the quotas of a provider that the catalogue knows; none where nobody has listed them."""
    rows = (row for row in catalogue()["quotas"] if row["provider"] == provider)
    return tuple(
        ListedQuota(**{**row, "market": Market(row["market"]), "families": tuple(row["families"])}) for row in rows
    )


def network_of(provider: str, name: str) -> TypeNetwork | None:
    """Return what one machine of a type can send; None where no list says so."""
    row = catalogue()["networks"].get(provider, {}).get(name)
    if row is None:
        return None
    from cloudgpu.core.clusters.scaling import TypeNetwork  # most questions need none

    gbit, up_to, fabric, note, source, as_of = row
    return TypeNetwork(gbit, up_to, fabric, note, catalogue()["sources"][source], as_of)


def monthly_interruption(provider: str, name: str, region: str) -> tuple[tuple[float, float], str] | None:
    """Return which part of a type's spot machines a region takes in a month, as (least, most), and its source.

    None where no list says so: AWS publishes that, Google does not.
    """
    row = catalogue()["spot_interruption"].get(provider, {}).get(name, {}).get(region)
    return None if row is None else ((row[0], row[1]), f"{catalogue()['sources'][row[2]]}, {row[3]}")


def quota_of(provider: str, name: str, market: Market) -> ListedQuota | None:
    """Return the regional quota that a type counts against; None where the catalogue does not know."""
    return next((quota for quota in quotas_of(provider, name, market) if not quota.is_overall), None)


def quotas_of(provider: str, name: str, market: Market) -> list[ListedQuota]:
    """Return every quota that a type with GPUs counts against on a market, that of a region before one of them all."""
    shape = catalogue()["types"].get(provider, {}).get(name, {})
    meant = quota_families(provider, name, shape.get("gpu"))
    known = [quota for quota in listed_quotas(provider) if quota.market is market]
    quotas = [one for one in known if any(family in one.families for family in meant)]
    return quotas[:1] + [one for one in known if one.is_overall and shape]


def _listed_prices(shape: InstanceType, region: str | None, market: Market | None) -> Iterator[ListedPrice]:
    fresh = index(shape.provider).machines.get(shape.name, {})
    for one in embedded(shape.provider, shape.name):
        if region in (None, one.region) and market in (None, one.market) and (one.region, one.market) not in fresh:
            yield one
    for (where, on), row in fresh.items():
        if region in (None, where) and market in (None, on):
            yield ListedPrice(where, on, row.per_hour(), row.note or "as the price list says", f"{row.as_of:%Y-%m-%d}")


@cache
def embedded(provider: str, name: str) -> tuple[ListedPrice, ...]:
    """Return the prices of a type that come with cloudgpu, whatever was refreshed."""
    found = catalogue()
    sources, checks = found["sources"], found["checks"]
    return tuple(
        ListedPrice(
            region,
            Market(on),
            Price(Money.usd(usd), sources[source], earliest_time(dated), Basis(basis)),
            checks[check],
            dated,
        )
        for region, on, usd, dated, basis, source, check in found["prices"][provider].get(name, ())
    )


@cache
def earliest_time(dated: str) -> datetime:
    """Return the first moment that a date of the facts can mean; `checks` has seen that each is a date."""
    return earliest_moment(dated) or datetime.fromisoformat(dated)


def _spec(name: str, row: dict[str, Any]) -> GpuSpec:
    texts = {key: row.get(key, "") for key in ("architecture", "compute_capability", "notes", "source")}
    figures: dict[str, Any] = {key: row.get(key) for key in GPU_FIGURES}
    figures["year"] = None if figures["year"] is None else int(figures["year"])
    return GpuSpec(name=name, **figures, **texts, card=_card(row["card"]) if "card" in row else None)


def _card(row: dict[str, str]) -> CardPrices:
    launch, new, used = (Money.usd(row[key]) if key in row else None for key in ("launch_usd", "new_usd", "used_usd"))
    return CardPrices(
        launch, new, used, dated=row["dated"], as_of=earliest_time(row["dated"]), note=row.get("note", "")
    )


def _type(provider: str, name: str, row: dict[str, Any]) -> InstanceType:
    return InstanceType(
        provider=provider,
        name=name,
        gpu=Accelerator(row["gpu"], row["count"], row["gpu_memory_gib"], row["share"]),
        vcpus=row["vcpus"],
        memory_gib=row["memory_gib"],
        local_ssd_gb=row.get("local_ssd_gb"),
        arch=row["arch"],
        spot_only=row.get("spot_only", False),
        legacy_reason=row.get("legacy", ""),
        recalled=tuple(row.get("recalled", ())),
        notes=row.get("notes", ""),
        source=catalogue()["sources"][row["source"]],
        as_of=row["as_of"],
    )


def providers_of(provider: str | None) -> tuple[str, ...]:
    """Return the one that is named; for None those whose lists were read region by region.

    The others have few prices, of one source, and not the regions that sell a type: they are shown where they are
    named. Raises InvalidRequest for one that the catalogue lacks.
    """
    if provider is None:
        return BY_REGION
    if provider in LISTED:
        return (provider,)
    raise unknown("provider", provider, LISTED, "--provider")


def unknown(what: str, value: str, known: Iterable[str], field: str, *, see: str = "") -> InvalidRequest:
    """Return the error for a name that the catalogue does not have, with the near one."""
    way = f"Run: {see}" if see else ""
    return unknown_word(
        f"The catalogue has no {what} {value!r}", value, sorted(known), field=field, use="Use {}.", next=way
    )


def driver_for(gpu: str) -> GpuDriver | None:
    """Return what drives a GPU, by its name in the catalogue; None for one whose generation is not known."""
    spec = named_gpu(gpu)
    family = "" if spec is None else spec.architecture
    drivers = catalogue()["drivers"]
    return next((GpuDriver(**row) for row in drivers if family and family.startswith(row["family"])), None)


def public_images(provider: str, use: str, machine: str) -> tuple[PublicImage, ...]:
    """Return the images of a provider for `use` (`cuda` or `plain`) on a kind of processor, the preferred one first."""
    images = (PublicImage(**row) for row in catalogue()["images"])
    return tuple(image for image in images if (image.provider, image.use, image.machine) == (provider, use, machine))


def gpu_named(name: str) -> GpuSpec | None:
    """Return what the catalogue knows of the one GPU that a desktop's file means; None where it knows none."""
    try:
        return gpu(name)
    except InvalidRequest:
        return None


def gpu_of(machine: Machine) -> Accelerator | None:
    """Return the GPUs of a machine, None for none, or where nobody knows; `knows_gpus` tells which."""
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


def speeds(desktop: Desktop, work: Workload) -> Callable[[Accelerator], SpeedRatio]:
    """Return what says how many hours of a GPU an hour of one of the desktop's does: the same where nobody knows."""
    its = gpu_named(desktop.gpu)

    @cache
    def speed(name: str, memory_gib: float | None) -> SpeedRatio:
        other = spec_of(name, memory_gib)
        found = speed_ratio(its, other, work) if its and other else None
        return found or EQUAL_SPEED

    return lambda gpu: speed(gpu.name, gpu.memory_gib)
