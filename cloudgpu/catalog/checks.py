"""Checks the facts and the catalogue made from them; every error is one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from cloudgpu.catalog import rules
from cloudgpu.catalog.compiled import Catalogue, Facts
from cloudgpu.core.values.times import earliest_moment

TABLE_KEYS = {
    "gpus": ("gpu",),
    "gpu_instances": ("cloud", "instance_type", "accel_count"),
    "prices": ("cloud", "region", "instance_type"),
    "storage_prices": ("cloud", "region", "type"),
    "quotas": ("cloud", "code_or_metric"),
    "storage_regions": ("cloud", "region", "type"),
    "confirmations": ("cloud", "region", "market", "as_of"),
    "drivers": ("family",),
    "machine_images": ("cloud", "use", "machine", "parameter"),
    "history": ("cloud", "region", "item", "market", "as_of"),
    "networks": ("cloud", "instance_type"),
    "flat_price_clouds": ("cloud", "instance_type"),
    "spot_interruption": ("cloud", "region", "instance_type"),
}
DATED_TABLES = ("gpu_instances", "drivers", "machine_images", "history", "networks", "spot_interruption")
PRICE_UNITS = {"usd_per_gb_month", "usd_per_gib_month", "usd_per_disk_month", "usd_per_hour", "usd_per_gb"}
PRICE_BASES = {"listed", "derived", "unverified"}
MARKETS = {"on_demand", "spot"}
MAX_GPUS, MAX_GPU_MEMORY_GIB, MAX_USD = 16, 300, 1000  # above every machine's GPUs, memory of a GPU, and hourly price
MAX_GBIT = 10_000  # a second; above every machine's network
MAX_CARD_USD = 100_000  # more than any card costs


def facts_errors(facts: Facts) -> Iterator[str]:
    """Yield what is wrong with the rows: duplicates, other providers, unknown regions, no source or date."""
    for table, keys in TABLE_KEYS.items():
        seen = Counter(tuple(row[key] for key in keys) for row in facts[table])
        yield from (f"{table}: {' '.join(key)} stands there {count} times" for key, count in seen.items() if count > 1)
        for row in facts[table]:
            row_name = f"{table}: {' '.join(row[key] for key in keys)}"
            yield from (f"{row_name}: {error}" for error in _row_errors(table, row))


def _row_errors(table: str, row: rules.CsvRow) -> Iterator[str]:
    if not rules.is_supported(row):
        yield "is of another provider or of a restricted region"
    if not row.get("source", row.get("spec_source")):
        yield "has no source"
    if table in DATED_TABLES and earliest_moment(row["as_of"]) is None:
        yield "has no date"
    if table == "prices":
        if row["region"] not in rules.REGIONS.get(row["cloud"], ()):
            yield "is of an unknown region"
        if row["price_spot_usd_hr"] and not row["spot_basis"]:
            yield "does not say what its spot price is based on"
        if row["price_on_demand_usd_hr"] and earliest_moment(row["as_of_on_demand"]) is None:
            yield "has a price on demand and no date"
    if table in ("storage_prices", "storage_regions"):
        yield from _storage_row_errors(row)
    yield from _type_row_errors(table, row)


def _type_row_errors(table: str, row: rules.CsvRow) -> Iterator[str]:
    """Yield what is wrong with the network or the spot interruptions of a type."""
    if table == "networks" and not _is_amount(row["gbit_per_s"], MAX_GBIT):
        yield f"{row['gbit_per_s']} Gbit/s is not the speed of a network"
    if table == "spot_interruption" and row["bucket"] not in rules.SPOT_INTERRUPTION_RANGES:
        yield f"{row['bucket']} is not a range of the Spot Advisor"


def _storage_row_errors(row: rules.CsvRow) -> Iterator[str]:
    # `price_usd` is the most that a derived price may be, and `low_usd` the least; other prices have no `low_usd`.
    low_price, price = row.get("low_usd", ""), row["price_usd"]
    if row["unit"] not in PRICE_UNITS:
        yield f"has an unknown unit: {row['unit']}"
    if not _is_price(price) or (low_price and not (_is_price(low_price) and Decimal(low_price) < Decimal(price))):
        yield f"{price} is not a price above {low_price or 0}"
    if earliest_moment(row["as_of"]) is None and rules.price_basis(row["confidence"]) != "unverified":
        yield "has no date and is not marked as unverified"


def unconfirmed_prices(facts: Facts) -> Iterator[str]:
    """Yield each price that differs in its newer source, or is missing from the prices."""
    columns = {market: f"price_{market}_usd_hr" for market in MARKETS}
    prices = {
        (row["cloud"], row["region"], row["instance_type"], market): row[column]
        for row in facts["prices"]
        for market, column in columns.items()
    }
    for row, name, price in rules.confirmed_prices(facts):
        known = prices.get((row["cloud"], row["region"], name, row["market"]))
        if known != price:
            yield f"confirmations: {row['cloud']} {row['region']} {name} is {price} there and {known} in prices"


def catalogue_errors(catalogue: Catalogue) -> Iterator[str]:
    """Yield what is wrong with the catalogue: a type without a figure, a price without a type, a date or a source."""
    for name, gpu in catalogue["gpus"].items():
        if not gpu.get("memory_gib"):
            yield f"GPU {name} has no memory"
        yield from (f"GPU {name}: {error}" for error in _card_errors(gpu.get("card", {})))
    for provider, types in catalogue["types"].items():
        for name, type_entry in types.items():
            yield from (f"{provider} {name}: {error}" for error in _type_errors(provider, type_entry, catalogue))
        for name in [*catalogue["networks"][provider], *catalogue["spot_interruption"][provider]]:
            if name not in types:
                yield f"{provider} {name} has a network or spot interruptions and no type"
        for name, prices in catalogue["prices"][provider].items():
            if name not in types:
                yield f"{provider} {name} has a price and no type"
            yield from (f"{provider} {name}: {error}" for error in _price_errors(provider, prices, catalogue))
    yield from _quota_errors(catalogue)
    yield from _storage_errors(catalogue)


def _card_errors(card: Catalogue) -> Iterator[str]:
    prices = {key: text for key, text in card.items() if key.endswith("_usd")}
    for key, text in prices.items():
        if not _is_amount(text, MAX_CARD_USD):
            yield f"{key} of its card is {text}"
    if prices and earliest_moment(card["dated"]) is None:
        yield "its card has a price and no date"


def _storage_errors(catalogue: Catalogue) -> Iterator[str]:
    for row in [*catalogue["parts"], *catalogue["history"]]:
        if not _is_price(row["usd"]) or row["market"] not in MARKETS or row["unit"] not in PRICE_UNITS:
            yield f"{row['provider']} {row['item']}: {row['usd']} {row['unit']} on {row['market']} is not a price"
    for provider, kinds in catalogue["disks"].items():
        for kind, entry in kinds.items():
            yield from (
                f"{provider} {kind}: {error}"
                for error in _storage_kind_errors(provider, kind, entry["prices"], catalogue)
            )


def _storage_kind_errors(provider: str, kind: str, prices: list[list[Any]], catalogue: Catalogue) -> Iterator[str]:
    regions = [region for row in prices for region in row[0].split("/")]
    yield from (f"{region} is priced twice" for region, count in Counter(regions).items() if count > 1)
    if kind in rules.PRICED_EVERYWHERE[provider] and not any(region.endswith("*") for region in regions):
        priced = {price[0] for entries in catalogue["prices"][provider].values() for price in entries}
        yield from (f"{region} has GPU machines and no price of it" for region in sorted(priced - set(regions)))


def _quota_errors(catalogue: Catalogue) -> Iterator[str]:
    for provider in rules.LISTED_PROVIDERS:
        for name, type_entry in catalogue["types"][provider].items():
            for market in sorted(MARKETS):
                quotas = [
                    quota
                    for quota in catalogue["quotas"]
                    if _counts_type(quota, provider, name, type_entry["gpu"], market)
                ]
                if len(quotas) > 1 or (provider == "aws" and not quotas):
                    yield f"{provider} {name} {market} counts against {len(quotas)} quotas"


def _counts_type(quota: Catalogue, provider: str, name: str, gpu: str, market: str) -> bool:
    is_same_market = quota["provider"] == provider and quota["market"] == market
    return is_same_market and any(family in quota["families"] for family in rules.quota_families(provider, name, gpu))


def _type_errors(provider: str, type_entry: Catalogue, catalogue: Catalogue) -> Iterator[str]:
    if type_entry["gpu"] not in catalogue["gpus"]:
        yield f"its GPU {type_entry['gpu']} is not known"
    for key, maximum in (
        ("count", MAX_GPUS),
        ("gpu_memory_gib", MAX_GPU_MEMORY_GIB),
        ("vcpus", 1000),
        ("memory_gib", 10_000),
    ):
        is_unknown_size = (
            provider in rules.PROVIDERS_WITHOUT_SIZES and key in ("vcpus", "memory_gib") and type_entry.get(key) == 0
        )
        if not is_unknown_size and not 0 < type_entry.get(key, 0) <= maximum:
            yield f"{key} is {type_entry.get(key)}"
    if not 0 < type_entry["share"] <= 1 or (type_entry["share"] < 1 and type_entry["count"] != 1):
        yield f"a share of {type_entry['share']} in {type_entry['count']} GPUs"
    gpu_memory_gib = catalogue["gpus"].get(type_entry["gpu"], {}).get("memory_gib")
    if gpu_memory_gib and not _fits_memory(type_entry, gpu_memory_gib):
        yield f"{type_entry['gpu_memory_gib']} GiB is not a share of {type_entry['share']} in {gpu_memory_gib} GiB"


def _fits_memory(type_entry: Catalogue, gpu_memory_gib: float) -> bool:
    """Say whether a type has its share of the GPU's memory, to a tenth (drivers report less than is on the board)."""
    return bool(abs(type_entry["gpu_memory_gib"] / (gpu_memory_gib * type_entry["share"]) - 1) < 0.1)  # noqa: PLR2004


def _price_errors(provider: str, prices: list[list[Any]], catalogue: Catalogue) -> Iterator[str]:
    """Yield what is wrong with the prices of a type, which `compiled` made: lists of values in a fixed order.

    `basis` is how reliable a price is; `source` and `confirmation` are indexes of texts.
    """
    seen = Counter((region, market) for region, market, *_ in prices)
    yield from (f"{' '.join(key)} is priced {count} times" for key, count in seen.items() if count > 1)
    on_demand = {price[0]: Decimal(price[2]) for price in prices if price[1] == "on_demand" and _is_price(price[2])}
    for region, market, usd, date_text, basis, source, confirmation in prices:
        where = f"{region} {market}"
        if region not in rules.REGIONS[provider] or market not in MARKETS or basis not in PRICE_BASES:
            yield f"{where}: unknown region, market or basis ({basis})"
        if not _is_price(usd):
            yield f"{where}: {usd} is not a price"
        elif market == "spot" and Decimal(usd) > on_demand.get(region, Decimal(usd)):
            yield f"{where}: spot costs more than on demand"
        if earliest_moment(date_text) is None:
            yield f"{where}: no date"
        if not catalogue["sources"][source] or not catalogue["checks"][confirmation]:
            yield f"{where}: no source"


def _is_price(text: str) -> bool:
    return _is_amount(text, MAX_USD)


def _is_amount(text: str, maximum: int) -> bool:
    try:
        return 0 < Decimal(text) < maximum
    except InvalidOperation:
        return False
