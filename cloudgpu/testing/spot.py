"""What spot machines of the fake cloud cost, and have cost: as a test tells it, else always the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from cloudgpu.core.model.offers import Available, Basis, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.testing.shelf import usd_per_hour
from cloudgpu.testing.store import Cloud

SINCE_EVER = datetime(2020, 1, 1, tzinfo=UTC)
_SOURCE = "the fake cloud's made-up spot prices"


def set_price(cloud: Cloud, instance_type: str, zone: str, usd: str, at: datetime) -> None:
    """Keep a price with the time from which it holds."""
    cloud.spot.setdefault(f"{instance_type}/{zone}", []).append([iso(at), usd])


def is_told(cloud: Cloud, item: Available) -> bool:
    """Say whether a test has told what this costs."""
    return item.market is Market.SPOT and _key(item) in cloud.spot


def history(cloud: Cloud, item: Available, prices: Mapping[str, Decimal], now: datetime) -> list[Price]:
    """Return all prices of a spot item until now, oldest first; none for what is no spot item, or not sold here."""
    usual = usd_per_hour(item, prices) if item.market is Market.SPOT else None
    if usual is None:
        return []
    told = sorted((from_iso(at), usd) for at, usd in cloud.spot.get(_key(item), ()))
    every = [(SINCE_EVER, usual), *((at, Money.usd(usd)) for at, usd in told if at <= now)]
    return [Price(amount, _SOURCE, at, Basis.ASKED) for at, amount in every]


def since(prices: Sequence[Price], moment: datetime) -> list[Price]:
    """Return those from the one that held at `moment` on."""
    before = [price for price in prices if price.as_of <= moment][-1:]
    return [*before, *(price for price in prices if price.as_of > moment)]


def _key(item: Available) -> str:
    return f"{item.instance_type}/{item.zone}"
