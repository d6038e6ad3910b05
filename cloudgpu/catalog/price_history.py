"""Gives the age of each provider's prices, the prices of the past, and those of GPUs sold apart from their machine.

Prices of the past and of GPUs alone price nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.catalog.read import catalogue, earliest_time
from cloudgpu.catalog.refreshed import index, stored
from cloudgpu.core.catalog.catalog import PastPrice, is_old_price
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class PriceAges:
    """The dates of a provider's prices of machines: how many `items`, and how many of them are `old` by now.

    `refreshed_at` is when its price list last answered, in this home; None where it was never asked, or cannot be read.
    """

    provider: str
    newest: datetime
    oldest: datetime
    refreshed_at: datetime | None
    items: int
    old: int


def price_ages(provider: str, now: datetime) -> PriceAges | None:
    """Return how old a provider's prices are, a refreshed one in place of the embedded one; None where it has none."""
    fresh = index(provider).machines
    dates = [row.as_of for rows in fresh.values() for row in rows.values()]
    for name, listed in catalogue()["prices"].get(provider, {}).items():
        known = {(region, str(market)) for region, market in fresh.get(name, {})}
        dates += [earliest_time(one[3]) for one in listed if (one[0], one[1]) not in known]
    if not dates:
        return None
    return PriceAges(
        provider=provider,
        newest=max(dates),
        oldest=min(dates),
        refreshed_at=_refreshed_at(provider),
        items=len(dates),
        old=sum(is_old_price(date, now) for date in dates),
    )


def _refreshed_at(provider: str) -> datetime | None:
    try:
        return max((part.asked_at for part in stored(provider).parts.values()), default=None)
    except InvalidRequest:  # `catalog` says what is wrong with the file
        return None


def past_prices(provider: str | None = None, item: str | None = None) -> tuple[PastPrice, ...]:
    """Return prices as they were quoted in the past, the oldest first; of one provider or item, or of all.

    A machine that is sold apart from its GPU (`n1-standard-4+k80:1`) has the past of that GPU.
    """
    return tuple(sorted(_past_prices("history", provider, item), key=lambda price: price.as_of))


def component_prices(provider: str | None = None, item: str | None = None) -> tuple[PastPrice, ...]:
    """Return what GPUs that are sold apart from their machine cost by themselves, dated."""
    return tuple(_past_prices("parts", provider, item))


def component_of(name: str) -> str:
    """Return the part that a machine's name contains: that of `n1-standard-4+k80:1`; empty for none."""
    _, _, gpu = name.partition("+")
    return f"accelerator:nvidia-tesla-{gpu.partition(':')[0]}" if gpu else ""


def _past_prices(table: str, provider: str | None, item: str | None) -> Iterator[PastPrice]:
    names = None if item is None else {item, component_of(item)}
    for row in catalogue()[table]:
        if provider in (None, row["provider"]) and (names is None or row["item"] in names):
            yield _past(row)


def _past(row: dict[str, Any]) -> PastPrice:
    return PastPrice(
        provider=row["provider"],
        region=row["region"],
        item=row["item"],
        market=Market(row["market"]),
        unit=row["unit"],
        price=Money.usd(row["usd"]),
        source=row["source"],
        as_of=earliest_time(row["as_of"]),
        dated=row["as_of"],
        basis=Basis(row["basis"]),
        check=row["check"],
    )
