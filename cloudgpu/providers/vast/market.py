"""Finds offers on vast.ai's market, and what they cost. Each search is one call, whose limit is always set.

Only offers of hosts that can be reached directly (`direct_port_count`), whose driver has CUDA 12.4 and whose contract
with vast.ai goes on for an hour at least are seen. Names of fields are those of vast.ai's OpenAPI files.
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
from cloudgpu.core.model.offers import Availability, Available, Basis, Market, Requirements, TrafficPrices, Trust
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.vast.client import CLOUD, KIND, Key, Vast
from cloudgpu.providers.vast.gpus import accelerator, names_of, type_name
from cloudgpu.providers.vast.options import API, COUNTRY

Ask = Mapping[str, Any]
LIMIT = 1000  # offers of one search: the market has a few thousand
HTTPS = 443
VERIFIED, DATACENTER = "VERIFIED", "DATACENTER"  # the regions of the catalogue: hosts wherever they are
LIST_SOURCE = "vast.ai's offers (POST /api/v0/bundles/, dph_base), the median"
MIN_CUDA = 12.4
MIN_SPAN = timedelta(hours=1)  # that an offer has to go on for to be shown; a launch asks for its whole lease
BID_OVER_LEAST = Decimal("1.25")  # of the least bid, so that the next bidder does not take it at once; our choice
STOPS = "keeps its disk on the host, which costs its storage on; its GPUs go to whoever rents them next"
SPOT_STOPS = f"{STOPS}; a higher bid stops it, too, without notice"
NOWHERE = "??"  # the country of a host that does not say it
_TYPES = {Market.ON_DEMAND: "ondemand", Market.SPOT: "bid"}
ZONE_LIKE = "It looks like m40001: the number of a machine on vast.ai."


def available(vast: Vast, requirements: Requirements) -> Availability:
    """Return the offers that fit, one for each machine and number of GPUs: the cheapest. A call per market."""
    machine = None if requirements.zone is None else machine_of(requirements.zone)
    if requirements.region is not None and not COUNTRY.fullmatch(requirements.region):
        message = f"{requirements.region!r} is not a region of {CLOUD}: a region is a country's code."
        raise InvalidRequest(message, field="--region", value=requirements.region, next="Write it like NO.")
    found = []
    for market in allowed_markets(requirements):
        filters = _filters(vast, requirements)
        if machine is not None:
            filters["machine_id"] = {"eq": machine}
        found += [item_of(vast, ask, market) for ask in search(vast, market, filters)]
    return Availability(tuple(item for item in _first_of_each(found) if _is_meant(vast, item, requirements)))


def regions(vast: Vast) -> list[Region]:
    """Return the countries in which something is offered now, of those that this account uses. One call.

    vast.ai has one address for all of them. Of more than `LIMIT` offers, the cheapest are seen.
    """
    parts = urlsplit(API)
    found = {country_of(ask) for ask in search(vast, Market.ON_DEMAND, _rentable_filter(vast))}
    return [Region(name, str(parts.hostname), HTTPS) for name in sorted(found) if vast.options.uses(name)]


def price_list(settings: ProviderSettings) -> PriceList:
    """Return the median of what verified hosts ask now, of each type that the catalogue knows. A call for each GPU.

    Apart for all of them, and for those in data centres. Raises what the calls raise.
    """
    from cloudgpu.catalog import types

    vast, known = Vast(settings), types(KIND)
    found: dict[RowKey, list[Decimal]] = {}
    for gpu in dict.fromkeys(shape.gpu.name for shape in known):
        filters = _rentable_filter(vast) | {"verification": {"eq": "verified"}, "gpu_name": {"in": list(names_of(gpu))}}
        for ask in search(vast, Market.ON_DEMAND, filters):
            for zone in (VERIFIED, *([DATACENTER] if trust_of(ask) is Trust.DATACENTER else [])):
                asked = found.setdefault(RowKey(type_name(ask), zone, Market.ON_DEMAND), [])
                asked.append(per_hour(ask, Market.ON_DEMAND))
    rows = PartBuilder("offers", vast.clock())
    for key, asked in found.items():
        note = f"the median of {len(asked)} offers" if len(asked) > 1 else "one offer"
        price, name = median(asked), f"{key.item} {key.region}"
        rows.add(key, PER_HOUR, price, source=LIST_SOURCE, name=name, basis=Basis.DERIVED, note=note)
    return PriceList(KIND, (rows.part(),))


def search(vast: Vast, market: Market, filters: Mapping[str, Any], storage_gb: int = 0) -> list[Ask]:
    """Return the offers of a market, the cheapest first, and remember what each costs. One call."""
    body = {**filters, "type": _TYPES[market], "order": [["dph_total", "asc"]], "limit": LIMIT}
    body["allocated_storage"] = storage_gb
    found = vast.ask("POST", "/api/v0/bundles/", "search", body=body, again=True)
    asks = [ask for ask in found.get("offers") or () if _is_whole(ask)]
    for ask in reversed(asks):  # the cheapest last: that is what is shown
        vast.asked[key_of(ask, market)] = str(per_hour(ask, market))
    return asks


def offer_of(vast: Vast, item: Available, storage_gb: int) -> Ask | None:
    """Return what this item is offered as now: the cheapest of its machine; None where it is gone. One call."""
    filters = {**_rentable_filter(vast), "machine_id": {"eq": machine_of(item.zone)}}
    asks = search(vast, item.market, filters, storage_gb)
    return next((ask for ask in asks if (type_name(ask), country_of(ask)) == (item.instance_type, item.region)), None)


def per_hour(ask: Ask, market: Market) -> Decimal:
    """Return what an offer costs an hour: its GPUs on demand, or what is bid for them, never more than that."""
    full = Decimal(str(ask["dph_base"]))
    if market is Market.ON_DEMAND:
        return full
    bid = (Decimal(str(ask["min_bid"])) * BID_OVER_LEAST).quantize(Decimal("0.0001"))
    return max(min(bid, full), Decimal(str(ask["min_bid"])))


def key_of(ask: Ask, market: Market) -> Key:
    """Return what the price of an offer is remembered under."""
    return zone_of(ask), type_name(ask), str(market)


def item_of(vast: Vast, ask: Ask, market: Market) -> Available:
    """Return an offer as what is available."""
    memory = ask.get("cpu_ram")
    cores = ask.get("cpu_cores_effective")
    return Available(
        provider=KIND,
        account=vast.account,
        region=country_of(ask),
        zone=zone_of(ask),
        instance_type=type_name(ask),
        market=market,
        accelerators=(accelerator(ask),),
        vcpus=None if not cores else max(1, int(cores)),
        memory_gib=None if not memory else round(float(memory) / 1024, 1),
        stop_effect=SPOT_STOPS if market is Market.SPOT else STOPS,
        parkable=False,
        trust=trust_of(ask),
        traffic=traffic_of(ask),
    )


def traffic_of(ask: Ask) -> TrafficPrices | None:
    """Return what an offer's host asks for a GB that the machine sends and receives; None where it does not say."""
    up, down = (ask.get(name) for name in ("inet_up_cost", "inet_down_cost"))
    if not isinstance(up, int | float) or not isinstance(down, int | float):
        return None
    return TrafficPrices(Money.usd(Decimal(str(up))), Money.usd(Decimal(str(down))))


def trust_of(ask: Ask) -> Trust:
    """Return who owns the host: a data centre that vast.ai has examined, else anybody.

    `hosting_type` 1 is what vast.ai's console calls secure cloud (field of the OpenAPI files; that it means so is our
    belief).
    """
    verified = ask.get("verification") == "verified"
    return Trust.DATACENTER if verified and ask.get("hosting_type") == 1 else Trust.COMMUNITY


def zone_of(raw: Ask) -> str:
    """Return the zone of an offer or a contract: its machine."""
    return f"m{raw['machine_id']}"


def machine_of(zone: str) -> int:
    """Return the number of a machine; raise InvalidRequest for what is no zone."""
    digits = zone.removeprefix("m")
    if zone.startswith("m") and digits.isdecimal() and digits.isascii() and len(digits) < 19:  # noqa: PLR2004  (64 bits)
        return int(digits)
    raise InvalidRequest(f"{zone!r} is not a zone of {CLOUD}.", field="--zone", value=zone, next=ZONE_LIKE)


def country_of(raw: Ask) -> str:
    """Return the code of the country that a host says it is in; `??` for none."""
    found = str(raw.get("geolocation") or "").rpartition(",")[2].strip().upper()
    return found if COUNTRY.fullmatch(found) else NOWHERE


def ends(raw: Ask) -> datetime | None:
    """Return when the host's contract with vast.ai ends, aware UTC; None where nobody says."""
    found = raw.get("end_date")
    return datetime.fromtimestamp(float(found), UTC) if isinstance(found, int | float) and found > 0 else None


def _rentable_filter(vast: Vast) -> dict[str, Any]:
    """Return what holds of every offer that is rented."""
    found: dict[str, Any] = {
        "rentable": {"eq": True},
        "direct_port_count": {"gte": 1},
        "cuda_max_good": {"gte": MIN_CUDA},
        "reliability2": {"gte": vast.options.reliability},
        "end_date": {"gt": (vast.clock() + MIN_SPAN).timestamp()},
    }
    if not vast.options.unverified:
        found["verification"] = {"eq": "verified"}
    return found


def _filters(vast: Vast, needs: Requirements) -> dict[str, Any]:
    found = _rentable_filter(vast)
    if needs.gpu is not None:
        found["num_gpus"] = {"eq": needs.gpu_count}
        names = names_of(needs.gpu)
        if names:  # one that we do not know is found by its name in the answer
            found["gpu_name"] = {"in": list(names)}
    return found


def _first_of_each(items: Sequence[Available]) -> Iterator[Available]:
    """Yield the first, the cheapest, of each machine, type and market."""
    seen = set()
    for item in items:
        key = (item.zone, item.instance_type, item.market)
        if key not in seen:
            seen.add(key)
            yield item


def _is_meant(vast: Vast, item: Available, needs: Requirements) -> bool:
    """Say whether an offer fits, whoever owns its host: of less trust than is wanted, control only speaks."""
    return vast.options.uses(item.region) and fits(item, replace(needs, trust=Trust.COMMUNITY))


def _is_whole(ask: Ask) -> bool:
    """Say whether an offer says what is needed to rent it."""
    numbers = ("id", "machine_id", "dph_base", "min_bid", "storage_cost")
    return all(isinstance(ask.get(name), int | float) for name in numbers) and bool(ask.get("gpu_name"))
