"""Lists the regions of an account: what a GPU costs in each now, and the round-trip time to each.

That is the time of a TCP handshake with a region's public endpoint. All regions are measured in parallel.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from cloudgpu.catalog import gpus, offers, regions
from cloudgpu.catalog.rules import LISTED_PROVIDERS, PROVIDERS_LISTED_BY_REGION
from cloudgpu.control.session.accounts import provider_with
from cloudgpu.control.session.session import Session
from cloudgpu.core.catalog.catalog import CatalogOffer, by_price, matching_gpus
from cloudgpu.core.catalog.matching import fits, matching_offers, price_offers
from cloudgpu.core.launch.trust import parse_trust
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import DEFAULT_TRUST, Market, Offer, Requirements, Trust
from cloudgpu.core.values.typed import parse_gpu, parse_member
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, ProviderUnavailable
from cloudgpu.parallel import Pool
from cloudgpu.providers.account_abilities import HasRegions
from cloudgpu.providers.attached_costs import discounted_prices
from cloudgpu.providers.base import Provider
from cloudgpu.views.plans import price_document

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.market import Region as RegionValue, RegionsDocument, RegionsHead

TRIES = 3  # connections to each region
CONNECT_TIMEOUT_S = 3.0
MAX_PARALLEL = 32
Ping = float | str  # seconds, or why there is no answer


def measure_pings(regions: Sequence[Region], *, read_timer: Callable[[], float] = time.perf_counter) -> dict[str, Ping]:
    """Return the round-trip time by region name, the median of three connections; or why there is none.

    Opens connections and sends nothing on them. Host names are resolved before the time is taken.
    """
    with Pool(MAX_PARALLEL, "regions") as pool:
        times = pool.map(lambda region: _ping(region, read_timer), regions)
        return dict(zip((region.name for region in regions), times, strict=True))


def _ping(region: Region, read_timer: Callable[[], float]) -> Ping:
    """Return the median round-trip time to a region in seconds, or why there is no answer."""
    try:
        family, _, _, _, address = socket.getaddrinfo(region.host, region.port, type=socket.SOCK_STREAM)[0]
        return median(_round_trip(family, (str(address[0]), region.port), read_timer) for _ in range(TRIES))
    except OSError as error:
        return f"{region.host} port {region.port}: {error.strerror or error}"


def _round_trip(family: int, address: tuple[str, int], read_timer: Callable[[], float]) -> float:
    """Return the seconds of the three-way handshake: one round trip."""
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_TIMEOUT_S)
        started = read_timer()
        connection.connect(address)
        return read_timer() - started


PING_SCOPE_PREFIX = "round trip"  # begins the scope of an Unanswered: a region without a round-trip time


class Order(StrEnum):
    """How the regions are sorted."""

    PRICE = "price"
    PING = "ping"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class RegionsQuery:
    """The options of `regions`. `order` None: by price if `gpu`, else by time if `ping`, else by name."""

    gpu: str | None = None
    market: Market = Market.ON_DEMAND
    ping: bool = False
    order: Order | None = None
    trust: Trust = DEFAULT_TRUST

    @property
    def needs_pings(self) -> bool:
        """Whether round-trip times are measured."""
        return self.ping or self.order is Order.PING

    @property
    def sort_order(self) -> Order:
        """The order in which the regions are sorted."""
        return self.order or (Order.PRICE if self.gpu else Order.PING if self.ping else Order.NAME)


def parse_query(*, gpu: str | None, spot: bool, ping: bool, sort: str | None, trust: str | None = None) -> RegionsQuery:
    """Return the query of these options. Raises InvalidRequest for the first that is invalid."""
    order = None if sort is None else parse_member(Order, sort, "order", "--sort")
    min_trust = parse_trust(trust)
    needing_gpu = (("--sort price", order is Order.PRICE), ("--spot", spot), ("--trust", min_trust is not None))
    for option, is_set in needing_gpu:
        if is_set and gpu is None:
            raise InvalidRequest(
                f"{option} needs a GPU, and none is named.",
                field=option.partition(" ")[0],
                value={"--sort price": sort, "--trust": trust}.get(option),
                next="Add --gpu NAME.",
            )
    market = Market.SPOT if spot else Market.ON_DEMAND
    return RegionsQuery(gpu, market, ping, order, min_trust or DEFAULT_TRUST)


def regions_document(
    session: Session, query: RegionsQuery, *, account: str | None, provider: str | None
) -> RegionsDocument:
    """Return the regions with what was queried about each; what did not answer is named under `unanswered`.

    Asks the provider for its offers and prices, and measures round-trip times if the query says so. Raises
    InvalidRequest for a provider without regions, or an unknown GPU.
    """
    regions_provider = provider_with(session, HasRegions, "regions", account=account, provider=provider)
    model, count = parse_gpu(query.gpu)
    if model is not None:
        matching_gpus(model, gpus())  # raises for an unknown GPU
    requirements = Requirements(gpu=model, gpu_count=count or 1, market=query.market, trust=query.trust)
    try:
        regions: list[Region] = list(regions_provider.regions())
        cheapest, gaps = _cheapest(session, regions_provider, requirements) if model else ({}, [])
    except (AuthFailed, ProviderUnavailable) as error:
        return _from_catalogue(regions_provider, query, requirements, error)
    names = sorted({*(region.name for region in regions), *cheapest})
    times = measure_pings(regions) if query.needs_pings else {}
    gaps += [Unanswered(f"{PING_SCOPE_PREFIX} to {name}", why) for name, why in times.items() if isinstance(why, str)]
    region_documents = [_region_document(name, cheapest.get(name), times.get(name)) for name in names]
    has_one_address = len({(region.host, region.port) for region in regions}) == 1 < len(regions)
    return {
        **_document_without_source(regions_provider, query, region_documents, gaps),
        "live": True,
        "one_address": has_one_address,
    }


def _document_without_source(
    provider: Provider, query: RegionsQuery, regions: Sequence[RegionValue], gaps: Sequence[Unanswered]
) -> RegionsHead:
    return {
        "provider": provider.kind,
        "account": provider.account,
        "gpu": query.gpu,
        "market": str(query.market),
        "regions": sorted(regions, key=lambda region: _sort_key(region, query.sort_order)),
        "unanswered": [{"scope": gap.scope, "why": gap.why} for gap in gaps],
    }


def _from_catalogue(
    provider: Provider, query: RegionsQuery, requirements: Requirements, error: CloudgpuError
) -> RegionsDocument:
    """Return the regions and prices of the dated catalogue, for a provider that did not answer.

    Only for providers with one price in all regions. Raises `error` for all others.
    """
    if provider.kind not in LISTED_PROVIDERS or provider.kind in PROVIDERS_LISTED_BY_REGION:
        raise error
    names, cheapest = sorted(regions(provider.kind)), dict[str, CatalogOffer]()
    if requirements.gpu is not None:
        listed = by_price(offers(provider.kind, None, requirements.market, requirements.gpu, trust=Trust.COMMUNITY))
        for offer in (offer for offer in listed if offer.type.gpu.count == requirements.gpu_count):
            cheapest.setdefault(offer.listed.region, offer)
    region_documents = [_listed_region_document(name, cheapest.get(name)) for name in names]
    gap = Unanswered(provider.account, f"{error.message} {error.next or ''}".rstrip())
    return {**_document_without_source(provider, query, region_documents, [gap]), "live": False, "one_address": False}


def _listed_region_document(name: str, offer: CatalogOffer | None) -> RegionValue:
    price, type_ = (None, None) if offer is None else (price_document(offer.listed.price), offer.type.name)
    return {"region": name, "ping_ms": None, "price": price, "instance_type": type_, "zone": None}


def _cheapest(
    session: Session, provider: Provider, requirements: Requirements
) -> tuple[dict[str, Offer], list[Unanswered]]:
    """Return the cheapest offer of each region, and the regions that did not answer."""
    availability = provider.available(requirements)
    configurations = [configuration for configuration in availability.items if fits(configuration, requirements)]
    prices = discounted_prices(provider, configurations, session.settings.discounts, session.clock())
    cheapest: dict[str, Offer] = {}
    for offer in matching_offers(price_offers(configurations, prices)[0], requirements):
        cheapest.setdefault(offer.configuration.region, offer)
    return cheapest, list(availability.unanswered)


def _region_document(name: str, offer: Offer | None, ping: Ping | None) -> RegionValue:
    return {
        "region": name,
        "ping_ms": round(ping * 1000, 2) if isinstance(ping, float) else None,
        "price": None if offer is None else price_document(offer.price),
        "instance_type": None if offer is None else offer.configuration.instance_type,
        "zone": None if offer is None else offer.configuration.zone,
    }


def _sort_key(region: RegionValue, order: Order) -> tuple[float, float, str]:
    """Return what a region is sorted by; unknown values come last."""
    price = float(region["price"]["usd_per_hour"]) if region["price"] else float("inf")
    ping = float("inf") if region["ping_ms"] is None else region["ping_ms"]
    keys = {Order.PRICE: (price, ping), Order.PING: (ping, price), Order.NAME: (0.0, 0.0)}
    return (*keys[order], region["region"])


def price_sources(regions: Iterable[RegionValue]) -> list[str]:
    """Return the sources of the prices, each once with its oldest date, and whether they are derived or unverified.

    A derived price is computed from others, an unverified one is from memory.
    """
    oldest: dict[tuple[str, str], str] = {}
    for price in (region["price"] for region in regions if region["price"]):
        day, source_and_basis = price["as_of"][:10], (price["source"], price["basis"])
        oldest[source_and_basis] = min(day, oldest.get(source_and_basis, day))
    basis_notes = {"derived": ", derived", "unverified": ", unverified"}
    return [f"{source} ({day}{basis_notes.get(basis, '')})" for (source, basis), day in sorted(oldest.items())]
