"""Finds offers on vast.ai's market, and their prices. Each search is one call with a limit.

Only hosts that can be reached directly (`direct_port_count`), have a driver for CUDA 12.4, and whose contract with
vast.ai lasts an hour or more are returned. Field names are those of vast.ai's OpenAPI files. In vast.ai's words, an
offer is an `ask`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from cloudgpu.core.catalog.matching import allowed_markets, fits
from cloudgpu.core.catalog.pricelist import PER_HOUR, PartBuilder, PriceList, RowKey
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.offers import (
    Availability,
    Basis,
    MachineConfiguration,
    Market,
    Requirements,
    TrafficPrices,
    Trust,
)
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.vast.client import CLOUD, PROVIDER, PriceKey, Vast, unreadable_error
from cloudgpu.providers.vast.gpus import accelerator, names_of, type_name
from cloudgpu.providers.vast.options import API_URL, COUNTRY_PATTERN

Ask = Mapping[str, Any]  # an offer in vast.ai's format
MAX_OFFERS = 1000  # offers of one search: the market has a few thousand
HTTPS_PORT = 443
VERIFIED, DATACENTER = "VERIFIED", "DATACENTER"  # regions in the catalogue: hosts in all countries
LIST_SOURCE = "vast.ai's offers (POST /api/v0/bundles/, dph_base), the median"
MIN_CUDA = 12.4
MIN_REMAINING = timedelta(hours=1)  # of an offer, to be listed; a launch requires its whole lease
BID_FACTOR = Decimal("1.25")  # times the minimum bid, so that the next bidder does not win at once; our choice
STOP_EFFECT = "keeps its disk on the host, whose storage is billed further; its GPUs go to whoever rents them next"
SPOT_STOP_EFFECT = f"{STOP_EFFECT}; a higher bid stops it, too, without notice"
UNKNOWN_COUNTRY = "??"  # the country of a host that does not report it
_SEARCH_TYPES = {Market.ON_DEMAND: "ondemand", Market.SPOT: "bid"}
_LAST_EPOCH = datetime.max.replace(tzinfo=UTC).timestamp() - 1  # seconds; rounded, it would be in the year after
ZONE_REMEDY = "It looks like m40001: the number of a machine on vast.ai."


def available(vast: Vast, requirements: Requirements) -> Availability:
    """Return the fitting offers: the cheapest for each machine and number of GPUs. One call per market."""
    machine = None if requirements.zone is None else machine_number(requirements.zone)
    if requirements.region is not None and not COUNTRY_PATTERN.fullmatch(requirements.region):
        message = f"{requirements.region!r} is not a region of {CLOUD}: a region is a country's code."
        raise InvalidRequest(message, field="--region", value=requirements.region, next="Write it like NO.")
    offers = []
    for market in allowed_markets(requirements):
        filters = _search_filters(vast, requirements)
        if machine is not None:
            filters["machine_id"] = {"eq": machine}
        offers += [offer_of(vast, ask, market) for ask in search(vast, market, filters)]
    return Availability(tuple(offer for offer in _cheapest_of_each(offers) if _is_suitable(vast, offer, requirements)))


def regions(vast: Vast) -> list[Region]:
    """Return the countries with offers now that this account uses; all have one address. One call.

    Of more than `MAX_OFFERS` offers, only the cheapest count.
    """
    url = urlsplit(API_URL)
    countries = {country_of(ask) for ask in search(vast, Market.ON_DEMAND, _rentable_filter(vast))}
    return [Region(name, str(url.hostname), HTTPS_PORT) for name in sorted(countries) if vast.options.uses(name)]


def price_list(settings: ProviderSettings) -> PriceList:
    """Return the median price of verified hosts now, for each type of the catalogue. One call per GPU.

    One price for all hosts, and one for those in data centres. Raises as the calls.
    """
    from cloudgpu.catalog import instance_types

    vast, types = Vast(settings), instance_types(PROVIDER)
    prices: dict[RowKey, list[Decimal]] = {}
    for gpu in dict.fromkeys(machine_type.gpu.name for machine_type in types):
        filters = _rentable_filter(vast) | {"verification": {"eq": "verified"}, "gpu_name": {"in": list(names_of(gpu))}}
        for ask in search(vast, Market.ON_DEMAND, filters):
            for zone in (VERIFIED, *([DATACENTER] if trust_of(ask) is Trust.DATACENTER else [])):
                zone_prices = prices.setdefault(RowKey(type_name(ask), zone, Market.ON_DEMAND), [])
                zone_prices.append(per_hour(ask, Market.ON_DEMAND))
    builder = PartBuilder("offers", vast.clock())
    for key, zone_prices in prices.items():
        note = f"the median of {len(zone_prices)} offers" if len(zone_prices) > 1 else "one offer"
        price, name = median(zone_prices), f"{key.item} {key.region}"
        builder.add(key, PER_HOUR, price, source=LIST_SOURCE, name=name, basis=Basis.DERIVED, note=note)
    return PriceList(PROVIDER, (builder.part(),))


def search(vast: Vast, market: Market, filters: Mapping[str, Any], storage_gb: int = 0) -> list[Ask]:
    """Return the offers of a market, the cheapest first, and cache their prices. One call. Raises as `Vast.call`."""
    body = {**filters, "type": _SEARCH_TYPES[market], "order": [["dph_total", "asc"]], "limit": MAX_OFFERS}
    body["allocated_storage"] = storage_gb
    answer = vast.call("POST", "/api/v0/bundles/", "search", body=body, idempotent=True)
    offers = answer.get("offers")
    if not isinstance(offers, list):
        raise unreadable_error("answered a search without offers in it")
    asks = [ask for ask in offers if _is_complete(ask)]
    for ask in reversed(asks):  # the cheapest last, so that its price is cached
        vast.offer_prices[key_of(ask, market)] = str(per_hour(ask, market))
    return asks


def find_ask(vast: Vast, offer: MachineConfiguration, storage_gb: int) -> Ask | None:
    """Return the cheapest ask now for the machine and type of an offer; None if it is gone. One call."""
    filters = {**_rentable_filter(vast), "machine_id": {"eq": machine_number(offer.zone)}}
    asks = search(vast, offer.market, filters, storage_gb)
    return next((ask for ask in asks if (type_name(ask), country_of(ask)) == (offer.instance_type, offer.region)), None)


def per_hour(ask: Ask, market: Market) -> Decimal:
    """Return an offer's hourly price in USD: its on-demand price, or our bid, which is never higher."""
    on_demand = Decimal(str(ask["dph_base"]))
    if market is Market.ON_DEMAND:
        return on_demand
    bid = (Decimal(str(ask["min_bid"])) * BID_FACTOR).quantize(Decimal("0.0001"))
    return max(min(bid, on_demand), Decimal(str(ask["min_bid"])))


def key_of(ask: Ask, market: Market) -> PriceKey:
    """Return the key of an offer's cached price."""
    return zone_of(ask), type_name(ask), str(market)


def offer_of(vast: Vast, ask: Ask, market: Market) -> MachineConfiguration:
    """Return an ask of vast.ai as a machine configuration without a price."""
    memory_mib = ask.get("cpu_ram")
    cores = ask.get("cpu_cores_effective")
    return MachineConfiguration(
        provider=PROVIDER,
        account=vast.account,
        region=country_of(ask),
        zone=zone_of(ask),
        instance_type=type_name(ask),
        market=market,
        accelerators=(accelerator(ask),),
        vcpus=None if not cores else max(1, int(cores)),
        memory_gib=None if not memory_mib else round(float(memory_mib) / 1024, 1),
        stop_effect=SPOT_STOP_EFFECT if market is Market.SPOT else STOP_EFFECT,
        parkable=False,
        trust=trust_of(ask),
        traffic=traffic_of(ask),
    )


def traffic_of(ask: Ask) -> TrafficPrices | None:
    """Return the host's price of a GB sent and received; None if it is not known."""
    upload_usd, download_usd = (ask.get(name) for name in ("inet_up_cost", "inet_down_cost"))
    if not isinstance(upload_usd, int | float) or not isinstance(download_usd, int | float):
        return None
    return TrafficPrices(Money.usd(Decimal(str(upload_usd))), Money.usd(Decimal(str(download_usd))))


def trust_of(ask: Ask) -> Trust:
    """Return how far the host is trusted: a verified data centre, else community.

    `hosting_type` 1 is what vast.ai's console calls secure cloud (field of the OpenAPI files; its meaning is
    unverified).
    """
    is_verified = ask.get("verification") == "verified"
    return Trust.DATACENTER if is_verified and ask.get("hosting_type") == 1 else Trust.COMMUNITY


def zone_of(raw: Ask) -> str:
    """Return the zone of an offer or a contract: its machine."""
    return f"m{raw['machine_id']}"


def machine_number(zone: str) -> int:
    """Return the number of a machine; raise InvalidRequest for an invalid zone."""
    digits = zone.removeprefix("m")
    if zone.startswith("m") and digits.isdecimal() and digits.isascii() and len(digits) < 19:  # noqa: PLR2004  (64 bits)
        return int(digits)
    raise InvalidRequest(f"{zone!r} is not a zone of {CLOUD}.", field="--zone", value=zone, next=ZONE_REMEDY)


def country_of(raw: Ask) -> str:
    """Return the country code that a host reports; `??` for none."""
    code = str(raw.get("geolocation") or "").rpartition(",")[2].strip().upper()
    return code if COUNTRY_PATTERN.fullmatch(code) else UNKNOWN_COUNTRY


def host_end(raw: Ask) -> datetime | None:
    """Return when the host's contract with vast.ai ends, aware UTC; None if not known."""
    return utc_time(raw.get("end_date"))


def utc_time(epoch: object) -> datetime | None:
    """Return the time at these epoch seconds, aware UTC; None for 0, a number beyond all dates, and anything else."""
    if not isinstance(epoch, int | float) or not 0 < epoch <= _LAST_EPOCH:
        return None
    return datetime.fromtimestamp(float(epoch), UTC)


def _rentable_filter(vast: Vast) -> dict[str, Any]:
    """Return the search filter for offers that can be rented."""
    filters: dict[str, Any] = {
        "rentable": {"eq": True},
        "direct_port_count": {"gte": 1},
        "cuda_max_good": {"gte": MIN_CUDA},
        "reliability2": {"gte": vast.options.reliability},
        "end_date": {"gt": (vast.clock() + MIN_REMAINING).timestamp()},
    }
    if not vast.options.unverified:
        filters["verification"] = {"eq": "verified"}
    return filters


def _search_filters(vast: Vast, requirements: Requirements) -> dict[str, Any]:
    filters = _rentable_filter(vast)
    if requirements.gpu is not None:
        filters["num_gpus"] = {"eq": requirements.gpu_count}
        names = names_of(requirements.gpu)
        if names:  # an unknown GPU is matched by its name in the answer
            filters["gpu_name"] = {"in": list(names)}
    return filters


def _cheapest_of_each(offers: Sequence[MachineConfiguration]) -> Iterator[MachineConfiguration]:
    """Yield the first, which is the cheapest, of each machine, type and market."""
    seen_keys = set()
    for offer in offers:
        key = (offer.zone, offer.instance_type, offer.market)
        if key not in seen_keys:
            seen_keys.add(key)
            yield offer


def _is_suitable(vast: Vast, offer: MachineConfiguration, requirements: Requirements) -> bool:
    """Tell whether an offer fits, whatever its trust, which control checks."""
    return vast.options.uses(offer.region) and fits(offer, replace(requirements, trust=Trust.COMMUNITY))


def _is_complete(ask: Any) -> bool:
    """Tell whether an offer has all fields that renting needs."""
    number_fields = ("id", "machine_id", "dph_base", "min_bid", "storage_cost")
    has_numbers = isinstance(ask, dict) and all(isinstance(ask.get(name), int | float) for name in number_fields)
    return has_numbers and bool(ask.get("gpu_name"))
