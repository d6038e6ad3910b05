"""Lists the regions of an account: what a GPU costs in each now, and how far each is.

Distance is the round trip of a TCP connection to a region's public endpoint. All are measured side by side.
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
from cloudgpu.catalog.rules import BY_REGION, LISTED
from cloudgpu.control.session.accounts import provider_with
from cloudgpu.control.session.session import Session
from cloudgpu.core.catalog.catalog import CatalogOffer, by_price, matching_gpus
from cloudgpu.core.catalog.matching import fits, join, ranked
from cloudgpu.core.launch.trust import parse_trust
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import DEFAULT_TRUST, Market, Offer, Requirements, Trust
from cloudgpu.core.values.typed import parse_gpu
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, ProviderUnavailable
from cloudgpu.parallel import Pool
from cloudgpu.providers.account_abilities import HasRegions
from cloudgpu.providers.attached_costs import discounted_prices
from cloudgpu.providers.base import Provider
from cloudgpu.views.plans import price_value

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.market import Region as RegionValue, RegionsDocument, RegionsHead

TRIES = 3
WAIT_S = 3.0
MAX_PARALLEL = 32
Ping = float | str  # seconds, or why there is no answer


def pings(regions: Sequence[Region], *, now: Callable[[], float] = time.perf_counter) -> dict[str, Ping]:
    """Return by region's name the round trip in seconds, the median of three connections; or why there is none.

    Opens connections and says nothing on them. Every host name is resolved before its time is taken.
    """
    with Pool(MAX_PARALLEL, "regions") as pool:
        found = pool.map(lambda region: _ping(region, now), regions)
        return dict(zip((region.name for region in regions), found, strict=True))


def _ping(region: Region, now: Callable[[], float]) -> Ping:
    try:
        family, _, _, _, address = socket.getaddrinfo(region.host, region.port, type=socket.SOCK_STREAM)[0]
        return median(_round_trip(family, (str(address[0]), region.port), now) for _ in range(TRIES))
    except OSError as error:
        return f"{region.host} port {region.port}: {error.strerror or error}"


def _round_trip(family: int, address: tuple[str, int], now: Callable[[], float]) -> float:
    """Return how long the three-way handshake took: one round trip to that place."""
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(WAIT_S)
        begun = now()
        connection.connect(address)
        return now() - begun


PING_GAP = "round trip"


class Order(StrEnum):
    """What stands first."""

    PRICE = "price"
    PING = "ping"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class RegionsQuery:
    """What is asked about regions. `order` None: by price, else by round trip, else by name, as asked."""

    gpu: str | None = None
    market: Market = Market.ON_DEMAND
    ping: bool = False
    order: Order | None = None
    trust: Trust = DEFAULT_TRUST

    @property
    def pings(self) -> bool:
        """Whether connections are opened."""
        return self.ping or self.order is Order.PING

    @property
    def first(self) -> Order:
        """What stands first."""
        return self.order or (Order.PRICE if self.gpu else Order.PING if self.ping else Order.NAME)


def question_of(*, gpu: str | None, spot: bool, ping: bool, sort: str | None, trust: str | None = None) -> RegionsQuery:
    """Return what these words ask; raise InvalidRequest for the first that cannot be meant."""
    if sort is not None and sort not in set(Order):
        raise InvalidRequest(
            f"{sort!r} is not an order.", field="--sort", value=sort, next=f"Use one of: {', '.join(Order)}."
        )
    least = parse_trust(trust)
    for option, given in (("--sort price", sort == Order.PRICE), ("--spot", spot), ("--trust", least is not None)):
        if given and gpu is None:
            raise InvalidRequest(
                f"{option} needs a GPU, and none is named.",
                field=option.partition(" ")[0],
                value={"--sort price": sort, "--trust": trust}.get(option),
                next="Add --gpu NAME.",
            )
    market = Market.SPOT if spot else Market.ON_DEMAND
    return RegionsQuery(gpu, market, ping, None if sort is None else Order(sort), least or DEFAULT_TRUST)


def regions_value(
    session: Session, question: RegionsQuery, *, account: str | None, provider: str | None
) -> RegionsDocument:
    """Return the regions with what was asked about each; what did not answer is named under `unanswered`.

    Asks the provider what it launches and at which price, and opens connections where `ping` says so. Raises
    InvalidRequest for a provider without regions, or an unknown GPU.
    """
    one = provider_with(session, HasRegions, "regions", account=account, provider=provider)
    model, count = parse_gpu(question.gpu)
    if model is not None:
        matching_gpus(model, gpus())  # raises for one that nobody has
    want = Requirements(gpu=model, gpu_count=count or 1, market=question.market, trust=question.trust)
    try:
        regions: list[Region] = list(one.regions())
        cheapest, gaps = _cheapest(session, one, want) if model else ({}, [])
    except (AuthFailed, ProviderUnavailable) as error:
        return _by_list(one, question, want, error)
    names = sorted({*(region.name for region in regions), *cheapest})
    times = pings(regions) if question.pings else {}
    gaps += [Unanswered(f"{PING_GAP} to {name}", why) for name, why in times.items() if isinstance(why, str)]
    rows = [_row(name, cheapest.get(name), times.get(name)) for name in names]
    alike = len({(region.host, region.port) for region in regions}) == 1 < len(regions)
    return {**_head(one, question, rows, gaps), "live": True, "one_address": alike}


def _head(
    provider: Provider, question: RegionsQuery, rows: Sequence[RegionValue], gaps: Sequence[Unanswered]
) -> RegionsHead:
    return {
        "provider": provider.kind,
        "account": provider.account,
        "gpu": question.gpu,
        "market": str(question.market),
        "regions": sorted(rows, key=lambda row: _key(row, question.first)),
        "unanswered": [{"scope": gap.scope, "why": gap.why} for gap in gaps],
    }


def _by_list(provider: Provider, question: RegionsQuery, needs: Requirements, error: CloudgpuError) -> RegionsDocument:
    """Return the regions and prices of the dated catalogue, where a cloud did not answer whose only price is its own.

    Those are the ones whose catalogue has one price everywhere. Raises the fault for all others.
    """
    if provider.kind not in LISTED or provider.kind in BY_REGION:
        raise error
    names, cheapest = sorted(regions(provider.kind)), dict[str, CatalogOffer]()
    if needs.gpu is not None:
        found = by_price(offers(provider.kind, None, needs.market, needs.gpu, trust=Trust.COMMUNITY))
        for offer in (offer for offer in found if offer.type.gpu.count == needs.gpu_count):
            cheapest.setdefault(offer.listed.region, offer)
    rows = [_listed_row(name, cheapest.get(name)) for name in names]
    way = f" {error.next}" if error.next else ""
    gap = Unanswered(provider.account, f"{error.message}{way}")
    return {**_head(provider, question, rows, [gap]), "live": False, "one_address": False}


def _listed_row(name: str, offer: CatalogOffer | None) -> RegionValue:
    price, type_ = (None, None) if offer is None else (price_value(offer.listed.price), offer.type.name)
    return {"region": name, "ping_ms": None, "price": price, "instance_type": type_, "zone": None}


def _cheapest(session: Session, provider: Provider, needs: Requirements) -> tuple[dict[str, Offer], list[Unanswered]]:
    """Return the cheapest offer of each region, and the regions that did not answer."""
    stock = provider.available(needs)
    items = [item for item in stock.items if fits(item, needs)]
    prices = discounted_prices(provider, items, session.settings.discounts, session.clock())
    found: dict[str, Offer] = {}
    for offer in ranked(join(items, prices)[0], needs):
        found.setdefault(offer.available.region, offer)
    return found, list(stock.unanswered)


def _row(name: str, offer: Offer | None, ping: Ping | None) -> RegionValue:
    return {
        "region": name,
        "ping_ms": round(ping * 1000, 2) if isinstance(ping, float) else None,
        "price": None if offer is None else price_value(offer.price),
        "instance_type": None if offer is None else offer.available.instance_type,
        "zone": None if offer is None else offer.available.zone,
    }


def _key(row: RegionValue, order: Order) -> tuple[float, float, str]:
    """Return what a row is ordered by; what is not known comes last."""
    price = float(row["price"]["usd_per_hour"]) if row["price"] else float("inf")
    ping = float("inf") if row["ping_ms"] is None else row["ping_ms"]
    keys = {Order.PRICE: (price, ping), Order.PING: (ping, price), Order.NAME: (0.0, 0.0)}
    return (*keys[order], row["region"])


def sources(rows: Iterable[RegionValue]) -> list[str]:
    """Return who says the prices, each once with the oldest day on which that was true, and whether it is none's word.

    That is, where a price was computed from others, or is from memory.
    """
    oldest: dict[tuple[str, str], str] = {}
    for price in (row["price"] for row in rows if row["price"]):
        day, by = price["as_of"][:10], (price["source"], price["basis"])
        oldest[by] = min(day, oldest.get(by, day))
    doubt = {"derived": ", derived", "recalled": ", recalled"}
    return [f"{source} ({day}{doubt.get(basis, '')})" for (source, basis), day in sorted(oldest.items())]
