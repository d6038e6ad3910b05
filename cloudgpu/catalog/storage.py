"""What disks, snapshots, images, addresses and traffic cost, refreshed before embedded; never nothing for a budget."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

from cloudgpu.catalog.read import catalogue, providers_of, unknown
from cloudgpu.catalog.refreshed import Index, index
from cloudgpu.catalog.rules import PROVIDERS
from cloudgpu.core.catalog.catalog import DiskPrice
from cloudgpu.core.catalog.pricelist import PriceRow
from cloudgpu.core.model.offers import Basis
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import earliest_moment

_CLASS = re.compile(r"([A-Z])\d+ (\d+) GiB")  # a disk is billed as one of its size class: `P10 128 GiB`
MARGIN = Fraction(3, 2)  # on the most expensive known, for a price that nobody knows


class PriceClass(StrEnum):
    """A group of storage kinds: a kind without a price counts as the most expensive of its class."""

    DISK = "disk"
    SNAPSHOT = "snapshot"
    IMAGE = "image"
    ADDRESS = "address"
    TRAFFIC = "traffic"
    GATEWAY = "gateway"


_PRICE_CLASSES = (  # the first that is found in a kind's name
    (r"snapshot", PriceClass.SNAPSHOT),
    (r"image", PriceClass.IMAGE),
    (r"egress", PriceClass.TRAFFIC),
    (r"gateway", PriceClass.GATEWAY),
    (r"(?:^|_)ip(?:v4)?(?:_|$)", PriceClass.ADDRESS),
)


def disk_price(provider: str, region: str, kind: str) -> DiskPrice:
    """Return what a kind of disk, snapshot or address costs in a region, per its unit.

    Where the region has no price, it is the most expensive known of that kind, with `upper_bound` set; for a size class
    without any (`P6 64 GiB`), the next larger one that has. Raises InvalidRequest for a kind or a provider without any.
    """
    (provider,) = providers_of(provider)
    prices = _of_kind(provider, kind)
    larger = None if prices else _next_larger(provider, kind)
    if larger is not None:
        return replace(disk_price(provider, region, larger), kind=kind, upper_bound=True)
    if not prices:
        raise unknown("kind of storage", kind, storage_kinds(provider), "kind")
    refreshed = [row for row in prices if row.region in index(provider).storage.get(kind, {})]
    listed = [row for row in refreshed if covers(row.region, region)] or [
        row for row in prices if covers(row.region, region)
    ]
    chosen = max(listed or prices, key=lambda row: row.price)
    return replace(chosen, region=region, upper_bound=not listed)


def counted_price(provider: str, region: str, kind: str, price_class: PriceClass | None = None) -> DiskPrice:
    """Return what a budget counts for a kind of storage: its price, or the most expensive known times 1.5, marked.

    Without a price in the region: the most expensive known of the kind; for a kind without any, the most expensive of
    its class at the provider, else at any; each by gigabyte or by hour, times 1.5, with `upper_bound` and `derived`
    set. `price_class` is for a kind whose name does not tell its class (default: a disk).
    """
    prices = _of_kind(provider, kind) if provider in PROVIDERS else []
    larger = None if prices or provider not in PROVIDERS else _next_larger(provider, kind)
    if larger is not None or any(covers(row.region, region) for row in prices):
        return disk_price(provider, region, kind)
    price_class = price_class or price_class_of(kind)
    most_expensive = max(prices, key=lambda row: row.price) if prices else _most_expensive(provider, price_class)
    message = (
        "the most expensive one known of its kind"
        if prices
        else f"the most expensive {price_class} known, {most_expensive.provider} {most_expensive.kind},"
    )
    return replace(
        most_expensive,
        provider=provider,
        region=region,
        kind=kind,
        price=most_expensive.price.scaled(MARGIN),
        upper_bound=True,
        source=f"no price is known: {message} times 1.5 ({most_expensive.source})",
        basis=Basis.DERIVED,
    )


def storage_kinds(provider: str) -> tuple[str, ...]:
    """Return the kinds of storage, addresses and traffic that have a price at a provider."""
    return tuple(dict.fromkeys([*catalogue()["disks"].get(provider, {}), *index(provider).storage]))


def storage_prices(provider: str, kind: str) -> list[DiskPrice]:
    """Return every price of a kind, each with the region, or the pattern of regions, that it is listed for."""
    return _of_kind(provider, kind)


def price_class_of(kind: str) -> PriceClass:
    """Return what a kind of storage is; a disk, where its name does not say."""
    return next((price_class for pattern, price_class in _PRICE_CLASSES if re.search(pattern, kind)), PriceClass.DISK)


def covers(listed: str, region: str) -> bool:
    """Say whether a region is meant by the facts' `*`, `us-*` or its own name."""
    return region.startswith(listed[:-1]) if listed.endswith("*") else region == listed


@cache
def embedded_storage(provider: str, kind: str) -> tuple[DiskPrice, ...]:
    """Return the prices of a kind that come with cloudgpu, whatever was refreshed."""
    found = catalogue()["disks"].get(provider, {}).get(kind, {"prices": []})
    rows = ((region, row) for row in found["prices"] for region in row[0].split("/"))
    return tuple(_embedded(provider, kind, found["unit"], region, row) for region, row in rows)


def _of_kind(provider: str, kind: str) -> list[DiskPrice]:
    fresh = index(provider).storage.get(kind, {})
    embedded = [row for row in embedded_storage(provider, kind) if row.region not in fresh]
    return [*embedded, *(_refreshed(provider, row) for row in fresh.values())]


def _next_larger(provider: str, kind: str) -> str | None:
    """Return the smallest size class above this one that has a price, of the same kind of disk; None for none."""
    wanted = _CLASS.fullmatch(kind)
    if wanted is None:
        return None
    matches = [match for one in storage_kinds(provider) if (match := _CLASS.fullmatch(one)) and match[1] == wanted[1]]
    above = [found for found in matches if int(found[2]) > int(wanted[2])]
    return min(above, key=lambda found: int(found[2]))[0] if above else None


def _most_expensive(provider: str, price_class: PriceClass) -> DiskPrice:
    """Return the most expensive price of a price class at a provider, else at any, by gigabyte or by hour."""
    own_price = _most_expensive_at(provider, price_class, index(provider)) if provider in PROVIDERS else None
    others = (_most_expensive_at(one, price_class, index(one)) for one in PROVIDERS)
    return own_price or max(filter(None, others), key=lambda row: row.price)


@lru_cache(maxsize=64)
def _most_expensive_at(provider: str, price_class: PriceClass, _fresh: Index) -> DiskPrice | None:
    kinds = [kind for kind in storage_kinds(provider) if price_class_of(kind) is price_class]
    prices = (per_gigabyte(row) for kind in kinds for row in _of_kind(provider, kind))
    return max(prices, key=lambda row: row.price, default=None)


def per_gigabyte(row: DiskPrice) -> DiskPrice:
    """Return a price per disk of a size that its kind names (`P10 128 GiB`) as one per gigabyte; others as they are."""
    size = re.search(r"(\d+) GiB$", row.kind)
    if row.unit != "usd_per_disk_month" or size is None:
        return row
    return replace(row, unit="usd_per_gb_month", price=row.price.scaled(Fraction(1, int(size[1]))))


def _embedded(provider: str, kind: str, unit: str, region: str, row: list[Any]) -> DiskPrice:
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


def _refreshed(provider: str, row: PriceRow) -> DiskPrice:
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
