"""Adds prices to what is available, and orders the offers that satisfy a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cloudgpu.core.model.offers import MachineConfiguration, Market, Offer, Price, Requirements, same_gpu
from cloudgpu.core.values.money import Money


def price_offers(
    available: Sequence[MachineConfiguration], prices: Sequence[Price | None]
) -> tuple[list[Offer], list[MachineConfiguration]]:
    """Return the offers, and separately what has no price, which never counts as free. `prices` has the same order."""
    pairs = list(zip(available, prices, strict=True))
    priced = [Offer(configuration, price) for configuration, price in pairs if price is not None]
    return priced, [configuration for configuration, price in pairs if price is None]


def matching_offers(offers: Iterable[Offer], needs: Requirements) -> list[Offer]:
    """Return the offers that satisfy `needs`, cheapest first; equal prices in the order of place and type.

    The requested market comes before one that is only allowed, and offers without reasons to come last (`after`) before
    those with some.
    """
    return by_preference((offer for offer in offers if satisfies(offer, needs)), needs.market)


def by_preference(offers: Iterable[Offer], market: Market) -> list[Offer]:
    """Return offers in the order in which they are tried, as in `matching_offers`; `market` is the requested one."""

    def rank(offer: Offer) -> tuple[bool, bool, Money, str, str, str, str]:
        configuration = offer.configuration
        place = configuration.account, configuration.region, configuration.zone, configuration.instance_type
        return configuration.market != market, bool(configuration.after), offer.price.per_hour, *place

    return sorted(offers, key=rank)


def satisfies(offer: Offer, needs: Requirements) -> bool:
    """Say whether an offer satisfies `needs`, also by its price."""
    if needs.max_price is not None and offer.price.per_hour > needs.max_price:
        return False
    return fits(offer.configuration, needs)


def fits(configuration: MachineConfiguration, needs: Requirements) -> bool:
    """Say whether something available satisfies `needs`, whatever it costs."""
    constraints = (
        (needs.region, configuration.region),
        (needs.zone, configuration.zone),
        (needs.instance_type, configuration.instance_type),
    )
    if any(required not in (None, actual) for required, actual in constraints):
        return False
    if configuration.market not in allowed_markets(needs) or not needs.trust.accepts(configuration.trust):
        return False
    # The exact count: a machine with more GPUs would be more expensive than the user agreed to.
    return needs.gpu is None or any(
        same_gpu(gpu.name, needs.gpu) and gpu.count == needs.gpu_count for gpu in configuration.accelerators
    )


def allowed_markets(needs: Requirements) -> tuple[Market, ...]:
    """Return the markets on which to buy, the requested one first."""
    return (needs.market, Market.ON_DEMAND) if needs.or_on_demand else (needs.market,)
