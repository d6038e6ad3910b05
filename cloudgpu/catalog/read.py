"""Reads catalog.json, once and when it is first asked, and answers with typed values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from cloudgpu.catalog.rules import PROVIDERS, day, families
from cloudgpu.core.catalog import CatalogOffer, DiskPrice, GpuSpec, InstanceType, ListedPrice, ListedQuota, meant_by
from cloudgpu.core.facts import Accelerator, Basis, Market, Price
from cloudgpu.core.money import Money
from cloudgpu.core.names import near
from cloudgpu.errors import InvalidRequest

GPU_FIGURES = "memory_gib year bandwidth_gbs fp32_tflops tensor_tflops watts trains_vs_h100".split()


@cache
def catalogue() -> dict[str, Any]:
    """Return the whole catalogue as plain values, for this package alone."""
    found: dict[str, Any] = json.loads((files("cloudgpu.catalog") / "catalog.json").read_text(encoding="utf-8"))
    return found


def compiled_on() -> datetime:
    """Return the day on which the figures were compiled, as aware UTC."""
    return _at(catalogue()["compiled"])


@cache
def gpus() -> tuple[GpuSpec, ...]:
    """Return every GPU model that the catalogue knows."""
    return tuple(_spec(name, row) for name, row in catalogue()["gpus"].items())


def gpu(name: str) -> GpuSpec:
    """Return the one GPU that a spelling means; raise InvalidRequest when it means none, or several (`v100`)."""
    found = meant_by(name, gpus())
    if len(found) == 1:
        return found[0]
    names = " or ".join(spec.name for spec in found)
    raise InvalidRequest(f"{name!r} means {names}; say which.", field="gpu", value=name, next=f"Use {names}.")


def named_gpu(listed: str) -> GpuSpec | None:
    """Return the specification of a GPU by the name it has in the catalogue; None for one it does not know."""
    return next((spec for spec in gpus() if spec.name == listed), None)


def types(provider: str | None = None) -> tuple[InstanceType, ...]:
    """Return every type with GPUs, of one provider or of all."""
    return tuple(instance_type(one, name) for one in _providers(provider) for name in catalogue()["types"][one])


@cache
def instance_type(provider: str, name: str) -> InstanceType:
    """Return one type; raise InvalidRequest, with the near one, for a name that the catalogue does not have."""
    (provider,) = _providers(provider)
    known = catalogue()["types"][provider]
    if name not in known:
        raise _unknown("instance type", name, known, "instance_type", see="cloudgpu gpus --all")
    return _type(provider, name, known[name])


def offers(
    provider: str | None = None,
    region: str | None = None,
    market: Market | None = None,
    gpu: str | None = None,
    *,
    legacy: bool = False,
) -> list[CatalogOffer]:
    """Return what has a listed price, by type, region and market, for the wishes that are not None.

    Without `legacy`, types that can probably not be launched any more are left out, and what is not sold on demand.
    Raises InvalidRequest for an unknown provider, region or GPU, with the near one.
    """
    wanted = None if gpu is None else {spec.name for spec in meant_by(gpu, gpus())}
    if region is not None:
        check_region(region, provider)
    shapes = (shape for shape in types(provider) if wanted is None or shape.gpu.name in wanted)
    found = (CatalogOffer(shape, one) for shape in shapes for one in _listed(shape, region, market))
    return [offer for offer in found if legacy or _is_sold(offer)]


def _is_sold(offer: CatalogOffer) -> bool:
    return not offer.type.legacy and (offer.listed.market is Market.SPOT or not offer.type.spot_only)


def listed_price(provider: str, name: str, region: str, market: Market) -> Price | None:
    """Return the listed price of a type in a region on a market; None where there is none: never free."""
    if name not in catalogue()["types"].get(provider, {}):
        return None
    found = _listed(instance_type(provider, name), region, market)
    return next((one.price for one in found), None)


@cache
def priced_in(provider: str) -> dict[str, frozenset[str]]:
    """Return the regions in which each type of a provider has a listed price, on any market, by the type's name."""
    prices = catalogue()["prices"][_providers(provider)[0]]
    return {name: frozenset(price[0] for price in listed) for name, listed in prices.items()}


def left_out(provider: str | None = None) -> dict[str, str]:
    """Return the names that have a price but are not offered, each with the reason."""
    return {name: why for one in _providers(provider) for name, why in catalogue()["left_out"][one].items()}


def regions(provider: str | None = None) -> dict[str, str]:
    """Return every region with a price, with its provider."""
    return {
        price[0]: one
        for one in _providers(provider)
        for prices in catalogue()["prices"][one].values()
        for price in prices
    }


def check_region(region: str, provider: str | None = None) -> None:
    """Raise InvalidRequest, with the near one, for a region that has no prices, or is another provider's."""
    here = regions(provider)
    if region in here:
        return
    owner = regions().get(region)
    if owner is None:
        raise _unknown("region", region, here, "--region", see="cloudgpu gpus -o json")
    raise InvalidRequest(
        f"{region!r} is a region of {owner}, not of {provider}.",
        field="--region",
        value=region,
        next=f"Run: cloudgpu gpus --provider {owner} --region {region}",
    )


def disk_price(provider: str, region: str, kind: str) -> DiskPrice:
    """Return what a kind of disk, snapshot or address costs in a region, per its unit.

    Where the region has no price, it is the dearest known of that kind, with `upper_bound` set. Raises
    InvalidRequest for a kind or a provider without any.
    """
    (provider,) = _providers(provider)
    rows = [row for row in catalogue()["disks"] if row["provider"] == provider]
    of_kind = [row for row in rows if row["kind"] == kind]
    if not of_kind:
        raise _unknown("kind of storage", kind, {row["kind"] for row in rows}, "kind")
    here = [row for row in of_kind if _is_of(row["region"], region)]
    row = max(here or of_kind, key=lambda row: float(row["usd"]))
    return DiskPrice(
        provider=provider,
        region=region,
        kind=kind,
        unit=row["unit"],
        price=Money.usd(row["usd"]),
        upper_bound=not here,
        source=row["source"],
        as_of=_at(row["as_of"]) if day(row["as_of"]) else None,
        basis=Basis(row["basis"]),
    )


@cache
def listed_quotas(provider: str) -> tuple[ListedQuota, ...]:
    """Return the quotas of a provider that the catalogue knows; none where nobody has listed them."""
    rows = (row for row in catalogue()["quotas"] if row["provider"] == provider)
    return tuple(
        ListedQuota(**{**row, "market": Market(row["market"]), "families": tuple(row["families"])}) for row in rows
    )


def quota_of(provider: str, name: str, market: Market) -> ListedQuota | None:
    """Return the quota that a type counts against on a market; None where the catalogue does not know."""
    meant = families(name)
    known = (one for one in listed_quotas(provider) if one.market is market)
    return next((one for one in known if any(family in one.families for family in meant)), None)


def _is_of(listed: str, region: str) -> bool:
    """Say whether a region is meant by the facts' `*`, `us-*`, `westeurope/eastus-class` or its own name."""
    if listed.endswith("*"):
        return region.startswith(listed[:-1])
    return region in listed.removesuffix("-class").split("/")


def _listed(shape: InstanceType, region: str | None, market: Market | None) -> Iterator[ListedPrice]:
    found = catalogue()
    for place, on, usd, dated, basis, source, check in found["prices"][shape.provider].get(shape.name, ()):
        if region in (None, place) and market in (None, on):
            price = Price(Money.usd(usd), found["sources"][source], _at(dated), Basis(basis))
            yield ListedPrice(place, Market(on), price, found["checks"][check], dated)


@cache
def _at(dated: str) -> datetime:
    return datetime.fromisoformat(day(dated) or "").replace(tzinfo=UTC)


def _spec(name: str, row: dict[str, Any]) -> GpuSpec:
    texts = {key: row.get(key, "") for key in ("architecture", "compute_capability", "notes", "source")}
    figures: dict[str, Any] = {key: row.get(key) for key in GPU_FIGURES}
    figures["year"] = None if figures["year"] is None else int(figures["year"])
    return GpuSpec(name=name, **figures, **texts)


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
        legacy=row.get("legacy", ""),
        recalled=tuple(row.get("recalled", ())),
        notes=row.get("notes", ""),
        source=catalogue()["sources"][row["source"]],
        as_of=row["as_of"],
    )


def _providers(provider: str | None) -> tuple[str, ...]:
    if provider is None:
        return PROVIDERS
    if provider in PROVIDERS:
        return (provider,)
    raise _unknown("provider", provider, PROVIDERS, "--provider")


def _unknown(what: str, value: str, known: Iterable[str], field: str, *, see: str = "") -> InvalidRequest:
    names = sorted(known)
    meant = near(value, names)
    return InvalidRequest(
        f"The catalogue has no {what} {value!r}" + (f"; did you mean {meant!r}?" if meant else "."),
        field=field,
        value=value,
        next=f"Run: {see}" if see and not meant else f"Use {meant}." if meant else f"Use one of: {', '.join(names)}.",
    )
