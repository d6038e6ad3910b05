"""What disks, snapshots, images, addresses, gateways and traffic cost: all are "storage" here, and have a DiskPrice.

A budget counts an upper bound where no price is known.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

from cloudgpu.catalog.read import catalogue, providers_of, unknown_name
from cloudgpu.catalog.refreshed import PriceIndex, price_index
from cloudgpu.catalog.rules import PROVIDERS
from cloudgpu.core.catalog.catalog import DiskPrice
from cloudgpu.core.catalog.pricelist import PriceRow
from cloudgpu.core.model.offers import Basis
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import earliest_moment

_SIZE_CLASS = re.compile(r"([A-Z])\d+ (\d+) GiB")  # a disk is billed as one of its size class: `P10 128 GiB`
FLAT_PRICE_UNIT = "usd_per_disk_month"  # one price for a disk of a size class
BUDGET_MARGIN = Fraction(3, 2)  # multiplies the most expensive known price, where a price is not known


class PriceClass(StrEnum):
    """A group of storage kinds: a kind without a price counts as the most expensive of its class."""

    DISK = "disk"
    SNAPSHOT = "snapshot"
    IMAGE = "image"
    ADDRESS = "address"
    TRAFFIC = "traffic"
    GATEWAY = "gateway"


_PRICE_CLASSES = (  # the first pattern found in a kind's name counts
    (r"snapshot", PriceClass.SNAPSHOT),
    (r"image", PriceClass.IMAGE),
    (r"egress", PriceClass.TRAFFIC),
    (r"gateway", PriceClass.GATEWAY),
    (r"(?:^|_)ip(?:v4)?(?:_|$)", PriceClass.ADDRESS),
)


def disk_price(provider: str, region: str, kind: str) -> DiskPrice:
    """Return what a kind of disk, snapshot or address costs in a region, per its unit.

    Where the region has no price, it is the most expensive known of that kind, with `upper_bound` set. A disk of a size
    class without any (`P6 64 GiB`) has the price of the next larger class that has one, also with `upper_bound` set.
    Raises InvalidRequest for a kind or a provider without any.
    """
    (provider,) = providers_of(provider)
    prices = storage_prices(provider, kind)
    larger_kind = None if prices else _next_larger_kind(provider, kind)
    if larger_kind is not None:
        return replace(disk_price(provider, region, larger_kind), kind=kind, upper_bound=True)
    if not prices:
        raise unknown_name("kind of storage", kind, storage_kinds(provider), "kind")
    refreshed = [row for row in prices if row.region in price_index(provider).storage.get(kind, {})]
    listed = [row for row in refreshed if covers_region(row.region, region)] or [
        row for row in prices if covers_region(row.region, region)
    ]
    chosen = max(listed or prices, key=lambda row: row.price)
    return replace(chosen, region=region, upper_bound=not listed)


def counted_price(provider: str, region: str, kind: str, price_class: PriceClass | None = None) -> DiskPrice:
    """Return what a budget counts for a kind of storage: its price, else 1.5 times the most expensive known price.

    Without a price in the region, that is the most expensive of the kind, with `upper_bound` set and the basis
    `derived`. A disk of a size class without any price (`P6 64 GiB`) counts as one of the next larger class, with
    `upper_bound` set; any other kind without a price as the most expensive of its price class at the provider, else at
    any provider, by gigabyte or by hour.
    `price_class` is the class of a kind whose name does not tell it (default: a disk).
    """
    prices: list[DiskPrice] = []
    priced_kind = "its kind"
    if provider in PROVIDERS:
        prices = storage_prices(provider, kind)
        larger_kind = None if prices else _next_larger_kind(provider, kind)
        if larger_kind is not None:
            prices, priced_kind = storage_prices(provider, larger_kind), f"the next larger one, {larger_kind},"
        if any(covers_region(row.region, region) for row in prices):
            return disk_price(provider, region, kind)
    price_class = price_class or price_class_of(kind)
    most_expensive = max(prices, key=lambda row: row.price) if prices else _most_expensive(provider, price_class)
    explanation = (
        f"the most expensive one known of {priced_kind}"
        if prices
        else f"the most expensive {price_class} known, {most_expensive.provider} {most_expensive.kind},"
    )
    return replace(
        most_expensive,
        provider=provider,
        region=region,
        kind=kind,
        price=most_expensive.price.scaled(BUDGET_MARGIN),
        upper_bound=True,
        source=f"no price is known: {explanation} times 1.5 ({most_expensive.source})",
        basis=Basis.DERIVED,
    )


def storage_kinds(provider: str) -> tuple[str, ...]:
    """Return the kinds of storage, addresses and traffic that have a price at a provider."""
    return tuple(dict.fromkeys([*catalogue()["disks"].get(provider, {}), *price_index(provider).storage]))


def storage_prices(provider: str, kind: str) -> list[DiskPrice]:
    """Return every price of a kind, refreshed or embedded, each with the region, or region pattern, of its list."""
    refreshed = price_index(provider).storage.get(kind, {})
    embedded = [row for row in embedded_storage(provider, kind) if row.region not in refreshed]
    return [*embedded, *(_refreshed_price(provider, row) for row in refreshed.values())]


def price_class_of(kind: str) -> PriceClass:
    """Return the price class of a kind of storage by its name; a disk, where the name does not say."""
    return next((price_class for pattern, price_class in _PRICE_CLASSES if re.search(pattern, kind)), PriceClass.DISK)


def covers_region(pattern: str, region: str) -> bool:
    """Say whether a region matches a pattern of the facts: `*`, `us-*` or its own name."""
    return region.startswith(pattern[:-1]) if pattern.endswith("*") else region == pattern


@cache
def embedded_storage(provider: str, kind: str) -> tuple[DiskPrice, ...]:
    """Return the prices of a kind that come with cloudgpu, whatever was refreshed."""
    entry = catalogue()["disks"].get(provider, {}).get(kind, {"prices": []})
    rows = ((region, row) for row in entry["prices"] for region in row[0].split("/"))
    return tuple(_embedded_price(provider, kind, entry["unit"], region, row) for region, row in rows)


def _next_larger_kind(provider: str, kind: str) -> str | None:
    """Return the smallest larger size class with a price (`P10 128 GiB` for `P6 64 GiB`); None for none."""
    size_class = _SIZE_CLASS.fullmatch(kind)
    if size_class is None:
        return None
    matches = [
        match
        for other_kind in storage_kinds(provider)
        if (match := _SIZE_CLASS.fullmatch(other_kind)) and match[1] == size_class[1]
    ]
    larger = [match for match in matches if int(match[2]) > int(size_class[2])]
    return min(larger, key=lambda match: int(match[2]))[0] if larger else None


def _most_expensive(provider: str, price_class: PriceClass) -> DiskPrice:
    """Return the most expensive price of a price class at a provider, else at any, by gigabyte or by hour."""
    own_price = (
        _most_expensive_of_provider(provider, price_class, price_index(provider)) if provider in PROVIDERS else None
    )
    others = (
        _most_expensive_of_provider(other_provider, price_class, price_index(other_provider))
        for other_provider in PROVIDERS
    )
    return own_price or max(filter(None, others), key=lambda row: row.price)


@lru_cache(maxsize=64)
def _most_expensive_of_provider(provider: str, price_class: PriceClass, _index: PriceIndex) -> DiskPrice | None:
    """Return the most expensive price of a price class at a provider, by gigabyte or by hour; None where it has none.

    `_index` is only a part of the cache's key: after a refresh of the prices it is another one.
    """
    kinds = [kind for kind in storage_kinds(provider) if price_class_of(kind) is price_class]
    prices = (per_gigabyte(row) for kind in kinds for row in storage_prices(provider, kind))
    return max(prices, key=lambda row: row.price, default=None)


def per_gigabyte(row: DiskPrice) -> DiskPrice:
    """Return the price of a disk of a size class (`P10 128 GiB`) as a price per gigabyte; any other price as it is."""
    size = re.search(r"(\d+) GiB$", row.kind)
    if row.unit != FLAT_PRICE_UNIT or size is None:
        return row
    return replace(row, unit="usd_per_gb_month", price=row.price.scaled(Fraction(1, int(size[1]))))


def _embedded_price(provider: str, kind: str, unit: str, region: str, row: list[Any]) -> DiskPrice:
    _, usd, low, as_of, basis, source, note = row
    return DiskPrice(
        provider=provider,
        region=region,
        kind=kind,
        unit=unit,
        price=Money.usd(usd),
        upper_bound=False,
        source=catalogue()["sources"][source],
        as_of=earliest_moment(as_of),
        basis=Basis(basis),
        note=catalogue()["notes"][note],
        low=Money.usd(low) if low else None,
    )


def _refreshed_price(provider: str, row: PriceRow) -> DiskPrice:
    return DiskPrice(
        provider=provider,
        region=row.key.region,
        kind=row.key.item,
        unit=row.unit,
        price=row.price,
        upper_bound=False,
        source=row.source,
        as_of=row.as_of,
        basis=row.basis,
        note=row.note,
    )
