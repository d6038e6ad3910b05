"""Joins what is available with its prices, and orders what satisfies a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cloudgpu.core.model.offers import Available, Market, Offer, Price, Requirements, same_gpu
from cloudgpu.core.values.money import Money


def join(available: Sequence[Available], prices: Sequence[Price | None]) -> tuple[list[Offer], list[Available]]:
    """Return the priced offers, and apart from them what has no price: that is never counted as free."""
    pairs = list(zip(available, prices, strict=True))
    priced = [Offer(item, price) for item, price in pairs if price is not None]
    return priced, [item for item, price in pairs if price is None]


def ranked(offers: Iterable[Offer], needs: Requirements) -> list[Offer]:
    """Return the offers that satisfy `needs`, cheapest first; equal prices in the order of place and type.

    Those of the market that is wanted come before those that are only allowed, and what nobody uses and has a known
    draw before what says why it comes `after` others.
    """
    return in_order((offer for offer in offers if satisfies(offer, needs)), needs.market)


def in_order(offers: Iterable[Offer], market: Market) -> list[Offer]:
    """Return these offers in the order of trying, as `ranked` says; `market` is the one that is wanted."""

    def rank(offer: Offer) -> tuple[bool, bool, Money, tuple[str, str, str, str]]:
        item = offer.available
        return item.market != market, bool(item.after), offer.price.per_hour, _place(item)

    return sorted(offers, key=rank)


def satisfies(offer: Offer, needs: Requirements) -> bool:
    """Say whether an offer is what was wanted, its price included."""
    if needs.max_price is not None and offer.price.per_hour > needs.max_price:
        return False
    return fits(offer.available, needs)


def fits(item: Available, needs: Requirements) -> bool:
    """Say whether something available is what was wanted, whatever it costs."""
    wishes = (
        (needs.region, item.region),
        (needs.zone, item.zone),
        (needs.instance_type, item.instance_type),
    )
    if any(request is not None and request != fact for request, fact in wishes) or item.market not in markets(needs):
        return False
    if not needs.trust.accepts(item.trust):
        return False
    # The very count: a machine with more GPUs than asked for would be a more expensive one than was agreed to.
    return needs.gpu is None or any(
        same_gpu(gpu.name, needs.gpu) and gpu.count == needs.gpu_count for gpu in item.accelerators
    )


def markets(needs: Requirements) -> tuple[Market, ...]:
    """Return the markets on which to buy, the wanted one first."""
    return (needs.market, Market.ON_DEMAND) if needs.or_on_demand else (needs.market,)


def _place(item: Available) -> tuple[str, str, str, str]:
    return item.account, item.region, item.zone, item.instance_type
