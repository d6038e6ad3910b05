"""Gives the age of each provider's prices, the prices of the past, and those of GPUs sold apart from their machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.catalog.read import catalogue, earliest_time
from cloudgpu.catalog.refreshed import price_index, readable_prices
from cloudgpu.core.catalog.catalog import DatedPrice, is_old_price
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money


@dataclass(frozen=True, slots=True)
class PriceAges:
    """The dates of a provider's prices of machines: of how many prices, and how many of them are old by now.

    `refreshed_at` is when this home last refreshed the price list; None where it never did, or the file is damaged.
    """

    provider: str
    newest: datetime
    oldest: datetime
    refreshed_at: datetime | None
    price_count: int
    old_count: int


def price_ages(provider: str, now: datetime) -> PriceAges | None:
    """Return how old a provider's prices in use are, refreshed or embedded; None where it has none."""
    refreshed_rows = price_index(provider).machines
    dates = [row.as_of for rows in refreshed_rows.values() for row in rows.values()]
    for name, listed in catalogue()["prices"].get(provider, {}).items():
        refreshed = {(region, str(market)) for region, market in refreshed_rows.get(name, {})}
        dates += [earliest_time(price[3]) for price in listed if (price[0], price[1]) not in refreshed]
    if not dates:
        return None
    parts = readable_prices(provider)[0].parts  # `catalog` says what is wrong with a damaged file
    return PriceAges(
        provider=provider,
        newest=max(dates),
        oldest=min(dates),
        refreshed_at=max((part.asked_at for part in parts.values()), default=None),
        price_count=len(dates),
        old_count=sum(is_old_price(date, now) for date in dates),
    )


def past_prices(provider: str | None = None, item: str | None = None) -> tuple[DatedPrice, ...]:
    """Return prices as they were listed in the past, oldest first; of one provider or item, or of all.

    A machine type with an attached GPU (`n1-standard-4+k80:1`) has the prices of that GPU.
    """
    return tuple(sorted(_table_prices("history", provider, item), key=lambda price: price.as_of))


def component_prices(provider: str | None = None, item: str | None = None) -> tuple[DatedPrice, ...]:
    """Return the prices of GPUs that are sold apart from their machine."""
    return tuple(_table_prices("parts", provider, item))


def component_name(name: str) -> str:
    """Return the price list's name of the GPU in a machine type like `n1-standard-4+k80:1`; empty for none."""
    _, _, gpu = name.partition("+")
    return f"accelerator:nvidia-tesla-{gpu.partition(':')[0]}" if gpu else ""


def _table_prices(table: str, provider: str | None, item: str | None) -> Iterator[DatedPrice]:
    names = None if item is None else {item, component_name(item)}
    for row in catalogue()[table]:
        if provider in (None, row["provider"]) and (names is None or row["item"] in names):
            yield _dated_price(row)


def _dated_price(row: dict[str, Any]) -> DatedPrice:
    return DatedPrice(
        provider=row["provider"],
        region=row["region"],
        item=row["item"],
        market=Market(row["market"]),
        unit=row["unit"],
        price=Money.usd(row["usd"]),
        source=row["source"],
        as_of=earliest_time(row["as_of"]),
        as_of_text=row["as_of"],
        basis=Basis(row["basis"]),
        corroboration=row["check"],
    )
