"""What can be bought according to the catalogue, filtered and ordered, as the plain values that `gpus` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.catalog.location import use
from cloudgpu.catalog.rules import LISTED
from cloudgpu.config.files.user_files import find_home
from cloudgpu.config.settings import ANY
from cloudgpu.core.catalog.catalog import (
    OLD_AFTER,
    CatalogOffer,
    Speed,
    by_price,
    by_speed_per_dollar,
    cheapest_per_type,
    marketplace_notes,
    matching_gpus,
    speed,
)
from cloudgpu.core.launch.trust import parse_trust
from cloudgpu.core.model.offers import DEFAULT_TRUST, Market, Trust
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.typed import parse_gpu, parse_memory, parse_price
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.catalog import offer_value
from cloudgpu.views.plans import price_value

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.catalog import GpusDocument, OfferObstacle


class Order(StrEnum):
    """What stands first."""

    PRICE = "price"
    SPEED_PER_DOLLAR = "speed-per-dollar"


@dataclass(frozen=True, slots=True)
class Filters:
    """What is looked for; None means no requirement. `min_memory_gib` is per GPU, or per share of one."""

    gpu: str | None = None
    gpu_count: int | None = None
    min_memory_gib: float | None = None
    max_price: Money | None = None
    provider: str | None = None
    region: str | None = None
    market: Market = Market.ON_DEMAND
    with_legacy: bool = False
    trust: Trust = DEFAULT_TRUST  # the least that is accepted


def use_refreshed(environ: Mapping[str, str]) -> None:
    """Let prices be those that were last refreshed in this home, where there are any."""
    use(find_home(environ).price_lists)


def parse_filters(
    gpu: str | None,
    min_memory: str | None,
    max_price: str | None,
    provider: str | None,
    region: str | None,
    *,
    spot: bool,
    with_legacy: bool,
    trust: str | None = None,
) -> Filters:
    """Return the filters that were asked for in words; raise InvalidRequest for the first that cannot be meant."""
    check_listed(provider)
    model, count = parse_gpu(gpu)
    return Filters(
        gpu=model,
        gpu_count=count,
        min_memory_gib=parse_memory(min_memory),
        max_price=parse_price(max_price),
        provider=None if provider == ANY else provider,
        region=region,
        market=Market.SPOT if spot else Market.ON_DEMAND,
        with_legacy=with_legacy,
        trust=parse_trust(trust) or DEFAULT_TRUST,
    )


def check_listed(provider: str | None) -> None:
    """Refuse an installed provider of which the catalogue has nothing: what it offers is not known without asking it.

    The catalogue itself refuses a name that no provider has.
    """
    if provider is None or provider in (ANY, *LISTED):
        return
    from cloudgpu.control.session.accounts import provider_kinds
    from cloudgpu.core.model.machine import OWNED_PROVIDERS

    if provider not in provider_kinds():
        return
    here = "is a machine that is there already" if provider in OWNED_PROVIDERS else "tells its offers and prices itself"
    raise InvalidRequest(
        f"The catalogue lists only {', '.join(sorted(LISTED))}: {provider} {here}.",
        field="--provider",
        value=provider,
        next=f"Run: cloudgpu up --provider {provider} --dry-run",
    )


def order_of(word: str) -> Order:
    """Return the order that a word means; raise InvalidRequest for another one."""
    if word not in set(Order):
        raise InvalidRequest(
            f"{word!r} is not an order.", field="--sort", value=word, next=f"Use one of: {', '.join(Order)}."
        )
    return Order(word)


def market_value(filters: Filters, order: Order, now: datetime) -> GpusDocument:
    """Return the offers that pass, with what has to be said of them; an empty answer says what would help.

    One offer per type, that of its cheapest region. Raises InvalidRequest for an unknown GPU, provider or region.
    """
    found = matching(filters)
    in_order = by_price(found) if order is Order.PRICE else by_speed_per_dollar(found, speed_of)
    meant = [] if filters.gpu is None else [spec.name for spec in matching_gpus(filters.gpu, catalog.gpus())]
    return {
        "offers": [offer_value(offer, speed_of(offer), now) for offer in in_order],
        "matching_gpus": meant,
        "without": [] if found else list(_without(filters)),
        "marketplaces": marketplace_notes(in_order),
        "compiled": f"{catalog.compiled_on():%Y-%m-%d}",
        "old_after_days": OLD_AFTER.days,
        "withheld": _withheld(filters, found),
        "left_out": catalog.omitted_types(filters.provider) if filters.with_legacy and filters.gpu is None else {},
    }


def matching(filters: Filters) -> list[CatalogOffer]:
    """Return the cheapest offer of every type that passes."""
    words = (filters.provider, filters.region, filters.market, filters.gpu)
    offers = catalog.offers(*words, with_legacy=filters.with_legacy, trust=filters.trust)
    return [offer for offer in cheapest_per_type(offers) if _passes(offer, filters)]


def _withheld(filters: Filters, offers: list[CatalogOffer]) -> list[str]:
    """Return the types of a named GPU that are listed, and not shown since they can probably not be launched."""
    if filters.gpu is None or filters.with_legacy:
        return []
    there = {(offer.type.provider, offer.type.name) for offer in offers}
    named = {(offer.type.provider, offer.type.name) for offer in matching(replace(filters, with_legacy=True))}
    return sorted(f"{provider} {name}" for provider, name in named - there)


def _passes(offer: CatalogOffer, filters: Filters) -> bool:
    gpu = offer.type.gpu
    return (
        filters.gpu_count in (None, gpu.count)
        and (filters.min_memory_gib is None or (gpu.memory_gib or 0) >= filters.min_memory_gib)
        and (filters.max_price is None or offer.listed.price.per_hour <= filters.max_price)
    )


def speed_of(offer: CatalogOffer) -> Speed | None:
    """Return how fast one of an offer's GPUs trains; None when nothing is known of it."""
    spec = catalog.named_gpu(offer.type.gpu.name)
    return None if spec is None else speed(spec)


def _without(filters: Filters) -> Iterable[OfferObstacle]:
    """Yield every single option that, left out, leaves something to buy, with how much and from what price."""
    for field in (one.name for one in fields(Filters)):
        nothing = getattr(_WITHOUT, field)
        if getattr(filters, field) == nothing:
            continue
        found = matching(replace(filters, **{field: nothing}))
        if found:
            cheapest = by_price(found)[0].listed.price
            yield {"requirement": field, "types": len(found), "from": price_value(cheapest)}


_WITHOUT = Filters(with_legacy=True, trust=Trust.COMMUNITY)  # what each filter is where it is left out
