"""The price list of Azure, region by region: machines with GPUs on demand and spot, disks, addresses, traffic.

How the items of the Retail Prices API are read: of type Consumption alone; Windows by the product's name; spot by a
meter or SKU that ends in " Spot"; of a tiered price (tierMinimumUnits) the first paid tier; of several dates
(effectiveStartDate, UTC) the latest that is not in the future.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.catalog import listed_price, regions
from cloudgpu.catalog.disktypes import TIER_SIZES_GIB
from cloudgpu.core.catalog.pricelist import PER_HOUR, PartBuilder, PriceList, PricePart, RowKey
from cloudgpu.core.model.offers import MachineConfiguration, Market, Price
from cloudgpu.core.values.times import iso
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.providers.azure.client import PROVIDER, Azure
from cloudgpu.providers.azure.market.retail import Item, RetailPrices
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.shared.calls import ask_each, by_item

SOURCE = "Azure Retail Prices API"
MAX_PARALLEL = 6  # regions that are read at the same time
PAGE_TIMEOUT_S = 60.0  # a page of prices may take long
_TIER_LETTER_BY_PRODUCT = {"Premium SSD": "P", "Standard SSD": "E", "Standard HDD": "S"}
_FILTERS_BY_SERVICE = (  # serviceName, and the rest of the filter
    ("Virtual Machines", " and contains(armSkuName, 'Standard_N')"),
    ("Storage", " and contains(productName, 'Managed Disks')"),
    ("Virtual Network", " and productName eq 'IP Addresses'"),
    ("Bandwidth", " and meterName eq 'Standard Data Transfer Out'"),
)
_REQUIRED_FIELDS = ("serviceName", "productName", "skuName", "meterName", "type", "unitOfMeasure")


def price_list(settings: ProviderSettings) -> PriceList:
    """Return Azure's price list, a part for each region of the account (else of the catalogue).

    Raises InvalidRequest for `regions` that is no list of names, and what the first region raised when none answered.
    """
    price_api = RetailPrices()
    answers, unanswered = ask_each(
        _regions(settings),
        lambda region: price_part(_items_of(price_api, region), region, settings.clock()),
        MAX_PARALLEL,
        answer_timeout_s=PAGE_TIMEOUT_S,
    )
    return PriceList("azure", tuple(answers.values()), unanswered)


def _regions(settings: ProviderSettings) -> list[str]:
    configured = settings.options.get("regions")
    if not isinstance(configured, list | None) or not all(
        isinstance(one, str) and one.isalnum() for one in configured or ()
    ):
        field = f"config.toml: accounts.{settings.account}.regions"
        remedy = 'Write it like regions = ["koreacentral", "eastus"].'
        raise InvalidRequest(f"{field} has to be a list of regions.", field=field, value=None, next=remedy)
    return sorted(configured or regions("azure"))


def _items_of(price_api: RetailPrices, region: str) -> Iterator[Item]:
    for service, extra_filter in _FILTERS_BY_SERVICE:
        region_filter = f"serviceName eq '{service}' and armRegionName eq '{region}' and priceType eq 'Consumption'"
        yield from price_api.items(region_filter + extra_filter)


def price_part(items: Iterable[Item], region: str, read_at: datetime) -> PricePart:
    """Return the prices that the items of a region stand for."""
    part_builder = PartBuilder(region, read_at, region)
    items_by_key: dict[tuple[RowKey, str], list[Item]] = {}
    now = iso(read_at)
    for item in items:
        missing_fields = [key for key in (*_REQUIRED_FIELDS, "retailPrice") if key not in item]
        if missing_fields:
            part_builder.refuse(_item_name(item), f"has no {' and no '.join(missing_fields)}")
        elif item["type"] != "Consumption":
            continue
        elif (key_and_unit := _key_and_unit(item, region)) is not None:
            items_by_key.setdefault(key_and_unit, []).append(item)
    for (key, unit), items_of_key in items_by_key.items():
        for item in _current_items(items_of_key, now):
            amount, currency = item["retailPrice"], item.get("currencyCode", "no currency")
            free_note = (
                f"first {_tier_start(item):g} {item['unitOfMeasure'].removeprefix('1 ')} a month free"
                if _tier_start(item)
                else ""
            )
            part_builder.add(key, unit, amount, currency=currency, source=SOURCE, name=_item_name(item), note=free_note)
    return part_builder.part()


def _item_name(item: Item) -> str:
    return " ".join(str(item.get(key, "?")) for key in ("meterId", "productName", "meterName"))


def _key_and_unit(item: Item, region: str) -> tuple[RowKey, str] | None:
    """Return what an item is the price of, and its unit; None for what the catalogue does not list."""
    reader = _READERS.get(item["serviceName"])
    kind = reader(item) if reader else None
    if kind is None:
        return None
    name, unit, market = kind
    return RowKey(name, region, market), unit


PricedKind = tuple[str, str, Market | None]  # the catalogue's name of what is priced, the unit, the market of a machine


def _machine(item: Item) -> PricedKind | None:
    names = (item["meterName"], item["skuName"])
    is_excluded = "Windows" in item["productName"] or any(label.endswith("Low Priority") for label in names)
    if is_excluded or not item.get("armSkuName") or item["unitOfMeasure"] != "1 Hour":
        return None
    spot = any(label.endswith(" Spot") for label in names)
    return item["armSkuName"], PER_HOUR, Market.SPOT if spot else Market.ON_DEMAND


def _disk(item: Item) -> PricedKind | None:
    product, sku, unit = item["productName"], item["skuName"], item["unitOfMeasure"]
    tier_letter = next(
        (tier_letter for name, tier_letter in _TIER_LETTER_BY_PRODUCT.items() if product == f"{name} Managed Disks"),
        None,
    )
    if tier_letter == "S" and item["meterName"] == "LRS Snapshots" and unit == "1 GB/Month":
        return "snapshot", "usd_per_gb_month", None
    tier, _, redundancy = sku.partition(" ")
    size = TIER_SIZES_GIB.get(int(tier[1:]) if tier[1:].isdigit() else 0)
    is_known_disk = (
        tier_letter is not None and tier.startswith(tier_letter) and redundancy == "LRS" and size is not None
    )
    if (
        is_known_disk
        and item["meterName"] in (f"{tier} LRS Disk", f"{tier} Disk", f"{tier} Disks")
        and unit == "1/Month"
    ):
        return f"{tier} {size} GiB", "usd_per_disk_month", None
    return None


def _address(item: Item) -> PricedKind | None:
    if item["meterName"] == "Standard IPv4 Static Public IP" and item["unitOfMeasure"] == "1 Hour":
        return "public_ip_standard_static_regional", PER_HOUR, None
    return None


def _traffic(item: Item) -> PricedKind | None:
    return ("egress_internet", "usd_per_gb", None) if item["unitOfMeasure"] == "1 GB" else None


_READERS: dict[str, Callable[[Item], PricedKind | None]] = {
    "Virtual Machines": _machine,
    "Storage": _disk,
    "Virtual Network": _address,
    "Bandwidth": _traffic,
}


def _current_items(items_of_key: list[Item], now: str) -> list[Item]:
    """Return those of the latest date until now and of the first tier that is not free, of the items with one key.

    Where all dates are ahead, the earliest holds: what has a price can be bought, so this computer's clock is behind.
    """
    starts = {_start(item) for item in items_of_key}
    latest = max((start for start in starts if start <= now), default=min(starts))
    latest_items = [item for item in items_of_key if _start(item) == latest]
    tier_starts = sorted({_tier_start(item) for item in latest_items})
    paid_tiers = (
        tier_start
        for tier_start in tier_starts
        if any(_tier_start(item) == tier_start and item["retailPrice"] != 0 for item in latest_items)
    )
    chosen = next(paid_tiers, tier_starts[0])
    return [item for item in latest_items if _tier_start(item) == chosen]


def _start(item: Item) -> str:
    """Return since when a price holds, as text that sorts by time: `2024-01-01T00:00:00` in UTC, or empty."""
    return str(item.get("effectiveStartDate", ""))[: len("2024-01-01T00:00:00")]


def _tier_start(item: Item) -> float:
    minimum: Any = item.get("tierMinimumUnits", 0)
    return float(minimum) if isinstance(minimum, int | float) else 0.0


SPOT_VALID_FOR = timedelta(days=90)  # of a spot price in the catalogue
PriceKey = tuple[str, str]  # size and region


def prices(azure: Azure, offers: Sequence[MachineConfiguration]) -> list[Price | None]:
    """Return one price per offer, in order; None where none is known: a spot price is never estimated.

    One call per size and region that the catalogue lacks, or of which it has an old spot price (`SPOT_VALID_FOR`):
    those move from month to month (Microsoft Learn, "Use Azure Spot Virtual Machines"). Where the
    Retail Prices API does not answer, the catalogue's dated price is returned, if there is one.
    """
    listed_prices = [listed_price(PROVIDER, one.instance_type, one.region, one.market) for one in offers]
    oldest_valid_at = azure.clock() - SPOT_VALID_FOR
    outdated = sorted(
        {
            _key(one)
            for one, price in zip(offers, listed_prices, strict=True)
            if _is_outdated(price, one, oldest_valid_at)
        }
    )
    queried = _query_prices(azure, outdated) if outdated else {}
    return [
        (queried.get(_key(one), {}).get(one.market) or price) if _is_outdated(price, one, oldest_valid_at) else price
        for one, price in zip(offers, listed_prices, strict=True)
    ]


def _is_outdated(price: Price | None, configuration: MachineConfiguration, oldest_valid_at: datetime) -> bool:
    return price is None or (configuration.market is Market.SPOT and price.as_of < oldest_valid_at)


def _key(configuration: MachineConfiguration) -> PriceKey:
    return configuration.instance_type, configuration.region


def _query_prices(azure: Azure, type_regions: Sequence[PriceKey]) -> dict[PriceKey, Mapping[Market, Price]]:
    try:
        price_api = RetailPrices(azure.timeouts.read_s)
    except CloudgpuError:
        return {}
    return by_item(type_regions, lambda type_region: _prices_by_market(azure, price_api, type_region), MAX_PARALLEL)


def _prices_by_market(azure: Azure, price_api: RetailPrices, type_region: PriceKey) -> Mapping[Market, Price]:
    """Return the prices of a size in a region, by market; none where the price list does not answer."""
    name, region = type_region
    type_filter = (
        f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and armSkuName eq '{name}' "
        "and priceType eq 'Consumption'"
    )
    try:
        part = price_part(price_api.items(type_filter), region, azure.clock())
    except CloudgpuError:
        return {}
    return {
        machine.key.market: machine.hourly_price()
        for machine in part.rows
        if machine.key.market is not None and machine.key.item == name
    }
