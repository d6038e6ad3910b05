"""The offers of the catalogue, filtered and sorted: the document of `gpus`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.catalog.location import use_directory
from cloudgpu.catalog.rules import LISTED_PROVIDERS
from cloudgpu.config.files.user_files import find_home
from cloudgpu.config.settings import ANY_PROVIDER
from cloudgpu.core.catalog.catalog import (
    OLD_PRICE_AGE,
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
from cloudgpu.core.values.typed import parse_gpu, parse_member, parse_memory, parse_price
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.catalog import offer_document
from cloudgpu.views.plans import price_document

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.catalog import GpusDocument, OfferObstacle


class Order(StrEnum):
    """How the offers are sorted: the cheapest first, or the most speed per dollar."""

    PRICE = "price"
    SPEED_PER_DOLLAR = "speed-per-dollar"


@dataclass(frozen=True, slots=True)
class Filters:
    """Requirements on offers; None: no requirement. `min_memory_gib` is per GPU, or per share of one.

    `max_price` is per hour. `with_legacy` includes types that can probably not be launched any more. `trust` is the
    lowest trust level of marketplace hosts that is accepted.
    """

    gpu: str | None = None
    gpu_count: int | None = None
    min_memory_gib: float | None = None
    max_price: Money | None = None
    provider: str | None = None
    region: str | None = None
    market: Market = Market.ON_DEMAND
    with_legacy: bool = False
    trust: Trust = DEFAULT_TRUST


def use_refreshed_prices(environ: Mapping[str, str]) -> None:
    """Make the catalogue read the prices that were refreshed in this home, if any."""
    use_directory(find_home(environ).price_lists)


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
    """Return the filters of these options, as typed. Raises InvalidRequest for the first that is invalid."""
    check_listed(provider)
    model, count = parse_gpu(gpu)
    return Filters(
        gpu=model,
        gpu_count=count,
        min_memory_gib=parse_memory(min_memory),
        max_price=parse_price(max_price),
        provider=None if provider == ANY_PROVIDER else provider,
        region=region,
        market=Market.SPOT if spot else Market.ON_DEMAND,
        with_legacy=with_legacy,
        trust=parse_trust(trust) or DEFAULT_TRUST,
    )


def check_listed(provider: str | None) -> None:
    """Raise InvalidRequest for an installed provider that is not in the catalogue: its offers have to be queried.

    A name that no provider has is accepted here; the catalogue refuses it.
    """
    if provider is None or provider in (ANY_PROVIDER, *LISTED_PROVIDERS):
        return
    from cloudgpu.control.session.accounts import provider_kinds
    from cloudgpu.core.model.machine import ON_PREMISES_PROVIDERS

    if provider not in provider_kinds():
        return
    why = (
        "is a machine that is there already"
        if provider in ON_PREMISES_PROVIDERS
        else "tells its offers and prices itself"
    )
    raise InvalidRequest(
        f"The catalogue lists only {', '.join(sorted(LISTED_PROVIDERS))}: {provider} {why}.",
        field="--provider",
        value=provider,
        next=f"Run: cloudgpu up --provider {provider} --dry-run",
    )


def parse_order(text: str) -> Order:
    """Return the order of `--sort`. Raises InvalidRequest for an unknown one."""
    return parse_member(Order, text, "order", "--sort")


def gpus_document(filters: Filters, order: Order, now: datetime) -> GpusDocument:
    """Return the document of `gpus`: one offer per type, that of its cheapest region.

    Without offers, `without` says which option to leave out. Raises InvalidRequest for an unknown GPU, provider or
    region.
    """
    offers = matching_offers(filters)
    sorted_offers = by_price(offers) if order is Order.PRICE else by_speed_per_dollar(offers, speed_of)
    gpus = [] if filters.gpu is None else [spec.name for spec in matching_gpus(filters.gpu, catalog.gpus())]
    return {
        "offers": [offer_document(offer, speed_of(offer), now) for offer in sorted_offers],
        "matching_gpus": gpus,
        "without": [] if offers else list(_obstacles(filters)),
        "marketplaces": marketplace_notes(sorted_offers),
        "compiled": f"{catalog.compiled_on():%Y-%m-%d}",
        "old_after_days": OLD_PRICE_AGE.days,
        "withheld": _legacy_types(filters, offers),
        "left_out": catalog.omitted_types(filters.provider) if filters.with_legacy and filters.gpu is None else {},
    }


def matching_offers(filters: Filters) -> list[CatalogOffer]:
    """Return the cheapest offer of every type that meets the filters."""
    offer_filters = (filters.provider, filters.region, filters.market, filters.gpu)
    offers = catalog.offers(*offer_filters, with_legacy=filters.with_legacy, trust=filters.trust)
    return [offer for offer in cheapest_per_type(offers) if _meets(offer, filters)]


def _legacy_types(filters: Filters, offers: list[CatalogOffer]) -> list[str]:
    """Return the types of a named GPU that are not shown because they can probably not be launched any more."""
    if filters.gpu is None or filters.with_legacy:
        return []
    shown = {(offer.type.provider, offer.type.name) for offer in offers}
    with_legacy = {
        (offer.type.provider, offer.type.name) for offer in matching_offers(replace(filters, with_legacy=True))
    }
    return sorted(f"{provider} {name}" for provider, name in with_legacy - shown)


def _meets(offer: CatalogOffer, filters: Filters) -> bool:
    gpu = offer.type.gpu
    return (
        filters.gpu_count in (None, gpu.count)
        and (filters.min_memory_gib is None or (gpu.memory_gib or 0) >= filters.min_memory_gib)
        and (filters.max_price is None or offer.listed.price.per_hour <= filters.max_price)
    )


def speed_of(offer: CatalogOffer) -> Speed | None:
    """Return the training speed of one of an offer's GPUs; None if it is not known."""
    spec = catalog.gpu_by_name(offer.type.gpu.name)
    return None if spec is None else speed(spec)


def _obstacles(filters: Filters) -> Iterable[OfferObstacle]:
    """Yield each option without which there are offers, with the number of their types and the lowest price."""
    for name in (field.name for field in fields(Filters)):
        unset_value = getattr(_NO_FILTERS, name)
        if getattr(filters, name) == unset_value:
            continue
        offers = matching_offers(replace(filters, **{name: unset_value}))
        if offers:
            yield {
                "requirement": name,
                "types": len(offers),
                "from": price_document(by_price(offers)[0].listed.price),
            }


_NO_FILTERS = Filters(with_legacy=True, trust=Trust.COMMUNITY)
