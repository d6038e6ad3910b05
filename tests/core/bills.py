"""Uses as tests write them, and what they cost: short words for worked bills."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from cloudgpu.core.billing.charges import Charge, charge, money
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage
from cloudgpu.core.values.times import from_iso, iso

NANO = 10**9


def moment(text: str) -> str:
    """Return `2026-11-20 11:00[:07]`, UTC, as a ledger time."""
    return iso(datetime.fromisoformat(text).replace(tzinfo=UTC))


def segment(at: str, usd: str, maybe_from: str | None = None) -> PriceInterval:
    nanos = Decimal(usd) * NANO
    assert nanos == int(nanos)
    since = None if maybe_from is None else moment(maybe_from)
    return PriceInterval(moment(at), int(nanos), "this test", moment(at), "setting", since)


def use(provider: str, begin: str, end: str | None, *prices: Any, **facts: Any) -> Usage:
    """Return a use; a price is a text that held from the begin on, or (since when, text[, maybe from])."""
    usual = {"resource": Resource.INSTANCE, "id": "i-1", "what": "it", "market": "on_demand", "kind": "kind"}
    usual |= {"quantity": 1, "per": Per.HOUR} | facts
    for name in ("sure_from", "maybe_until"):
        if usual.get(name):
            usual[name] = moment(usual[name])
    segments = tuple(segment(begin, one) if isinstance(one, str) else segment(*one) for one in prices)
    until = None if end is None else moment(end)
    return Usage(provider=provider, begin=moment(begin), end=until, segments=segments, **usual)


def monthly(provider: str, begin: str, end: str | None, size: int, *prices: Any, **facts: Any) -> Usage:
    """Return a disk, or what else is paid by the month."""
    return use(provider, begin, end, *prices, **{"resource": Resource.DISK, "quantity": size, "per": Per.MONTH} | facts)


def charged(one: Usage, now: str | None = None, since: str | None = None, until: str | None = None) -> Charge:
    moments = [None if text is None else from_iso(moment(text)) for text in (since, until)]
    return charge(one, from_iso(one.end or moment(now or "")), since=moments[0], until=moments[1])


def usd(exact: int) -> Decimal:
    """Return exact parts in dollars, to the nano-dollar."""
    return money(exact).dollars


def cost(one: Usage, now: str | None = None) -> Decimal:
    """Return what a use costs for sure: the range has to be none."""
    found = charged(one, now)
    assert found.low == found.amount == found.high, found
    assert not found.unpriced_us
    return usd(found.amount)


def spread(one: Usage, now: str | None = None) -> tuple[Decimal, Decimal, Decimal]:
    found = charged(one, now)
    assert found.reasons
    return usd(found.low), usd(found.amount), usd(found.high)
