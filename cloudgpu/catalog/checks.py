"""What has to hold for the facts and for the catalogue made from them; every breach is one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from cloudgpu.catalog import rules
from cloudgpu.catalog.compiled import Catalogue, Facts
from cloudgpu.core.values.times import earliest_moment

KEYS = {
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
    "more_clouds": ("cloud", "instance_type"),
    "spot_interruption": ("cloud", "region", "instance_type"),
}
DATED = ("gpu_instances", "drivers", "machine_images", "history", "networks", "spot_interruption")
UNITS = {"usd_per_gb_month", "usd_per_gib_month", "usd_per_disk_month", "usd_per_hour", "usd_per_gb"}
BASES = {"listed", "derived", "recalled"}
MARKETS = {"on_demand", "spot"}
MAX_GPUS, MAX_GIB, MAX_USD = 16, 300, 1000  # more than any machine here has, or costs an hour
MAX_GBIT = 10_000  # more than any machine sends
MAX_CARD_USD = 100_000  # more than any card costs


def facts_errors(facts: Facts) -> Iterator[str]:
    """Yield what is wrong with the rows: duplicates, other providers, unknown regions, no source or date."""
    for table, keys in KEYS.items():
        seen = Counter(tuple(row[key] for key in keys) for row in facts[table])
        yield from (f"{table}: {' '.join(key)} stands there {count} times" for key, count in seen.items() if count > 1)
        for row in facts[table]:
            name = f"{table}: {' '.join(row[key] for key in keys)}"
            yield from (f"{name}: {fault}" for fault in _row_faults(table, row))


def _row_faults(table: str, row: rules.CsvRow) -> Iterator[str]:
    if not rules.is_supported(row):
        yield "is of another provider or of a restricted region"
    if not row.get("source", row.get("spec_source")):
        yield "has no source"
    if table in DATED and earliest_moment(row["as_of"]) is None:
        yield "has no date"
    if table == "prices":
        if row["region"] not in rules.REGIONS.get(row["cloud"], ()):
            yield "is of an unknown region"
        if row["price_spot_usd_hr"] and not row["spot_basis"]:
            yield "does not say what its spot price rests on"
        if row["price_on_demand_usd_hr"] and earliest_moment(row["as_of_on_demand"]) is None:
            yield "has a price on demand and no date"
    if table in ("storage_prices", "storage_regions"):
        yield from _storage_row_faults(row)
    yield from _type_row_faults(table, row)


def _type_row_faults(table: str, row: rules.CsvRow) -> Iterator[str]:
    """Yield what is wrong with a figure of a type that is no price."""
    if table == "networks" and not _is_amount(row["gbit_per_s"], MAX_GBIT):
        yield f"{row['gbit_per_s']} Gbit/s is no network"
    if table == "spot_interruption" and row["bucket"] not in rules.SPOT_LOSS:
        yield f"{row['bucket']} is no part of machines"


def _storage_row_faults(row: rules.CsvRow) -> Iterator[str]:
    low, price = row.get("low_usd", ""), row["price_usd"]
    if row["unit"] not in UNITS:
        yield f"has an unknown unit: {row['unit']}"
    if not _is_price(price) or (low and not (_is_price(low) and Decimal(low) < Decimal(price))):
        yield f"{price} is not a price above {low or 0}"
    if earliest_moment(row["as_of"]) is None and rules.price_basis(row["confidence"]) != "recalled":
        yield "has no date and is not marked as recalled"


def unconfirmed_prices(facts: Facts) -> Iterator[str]:
    """Yield each price that its newer source has differently, or that is in no row."""
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
        yield from (f"GPU {name}: {fault}" for fault in _card_faults(gpu.get("card", {})))
    for provider, types in catalogue["types"].items():
        for name, shape in types.items():
            yield from (f"{provider} {name}: {fault}" for fault in _type_faults(provider, shape, catalogue))
        for name in [*catalogue["networks"][provider], *catalogue["spot_interruption"][provider]]:
            if name not in types:
                yield f"{provider} {name} has a network or spot interruptions and no type"
        for name, prices in catalogue["prices"][provider].items():
            if name not in types:
                yield f"{provider} {name} has a price and no type"
            yield from (f"{provider} {name}: {fault}" for fault in _prices_faults(provider, prices, catalogue))
    yield from _quota_faults(catalogue)
    yield from _storage_faults(catalogue)


def _card_faults(card: Catalogue) -> Iterator[str]:
    prices = {key: text for key, text in card.items() if key.endswith("_usd")}
    for key, text in prices.items():
        if not _is_amount(text, MAX_CARD_USD):
            yield f"{key} of its card is {text}"
    if prices and earliest_moment(card["dated"]) is None:
        yield "its card has a price and no date"


def _storage_faults(made: Catalogue) -> Iterator[str]:
    for row in [*made["parts"], *made["history"]]:
        if not _is_price(row["usd"]) or row["market"] not in MARKETS or row["unit"] not in UNITS:
            yield f"{row['provider']} {row['item']}: {row['usd']} {row['unit']} on {row['market']} is not a price"
    for provider, kinds in made["disks"].items():
        for kind, found in kinds.items():
            yield from (f"{provider} {kind}: {fault}" for fault in _kind_faults(provider, kind, found["prices"], made))


def _kind_faults(provider: str, kind: str, prices: list[list[Any]], catalogue: Catalogue) -> Iterator[str]:
    regions = [region for row in prices for region in row[0].split("/")]
    yield from (f"{region} is priced twice" for region, count in Counter(regions).items() if count > 1)
    if kind in rules.PRICED_EVERYWHERE[provider] and not any(region.endswith("*") for region in regions):
        priced = {price[0] for entries in catalogue["prices"][provider].values() for price in entries}
        yield from (f"{region} has GPU machines and no price of it" for region in sorted(priced - set(regions)))


def _quota_faults(made: Catalogue) -> Iterator[str]:
    for provider in rules.LISTED:
        for name, shape in made["types"][provider].items():
            for market in sorted(MARKETS):
                counted = [quota for quota in made["quotas"] if _counts(quota, provider, name, shape["gpu"], market)]
                if len(counted) > 1 or (provider == "aws" and not counted):
                    yield f"{provider} {name} {market} counts against {len(counted)} quotas"


def _counts(quota: Catalogue, provider: str, name: str, gpu: str, market: str) -> bool:
    here = quota["provider"] == provider and quota["market"] == market
    return here and any(family in quota["families"] for family in rules.quota_families(provider, name, gpu))


def _type_faults(provider: str, shape: Catalogue, catalogue: Catalogue) -> Iterator[str]:
    if shape["gpu"] not in catalogue["gpus"]:
        yield f"its GPU {shape['gpu']} is not known"
    for key, most in (("count", MAX_GPUS), ("gpu_memory_gib", MAX_GIB), ("vcpus", 1000), ("memory_gib", 10_000)):
        unsaid = provider in rules.UNSIZED and key in ("vcpus", "memory_gib") and shape.get(key) == 0
        if not unsaid and not 0 < shape.get(key, 0) <= most:
            yield f"{key} is {shape.get(key)}"
    if not 0 < shape["share"] <= 1 or (shape["share"] < 1 and shape["count"] != 1):
        yield f"a share of {shape['share']} in {shape['count']} GPUs"
    whole = catalogue["gpus"].get(shape["gpu"], {}).get("memory_gib")
    if whole and not _fits_memory(shape, whole):
        yield f"{shape['gpu_memory_gib']} GiB is not a share of {shape['share']} in {whole} GiB"


def _fits_memory(shape: Catalogue, whole: float) -> bool:
    """Say whether a GPU's memory is its share of the whole, to a tenth (a driver reports less than is on the board)."""
    return bool(abs(shape["gpu_memory_gib"] / (whole * shape["share"]) - 1) < 0.1)  # noqa: PLR2004


def _prices_faults(provider: str, prices: list[list[Any]], catalogue: Catalogue) -> Iterator[str]:
    seen = Counter((region, market) for region, market, *_ in prices)
    yield from (f"{' '.join(key)} is priced {count} times" for key, count in seen.items() if count > 1)
    on_demand = {price[0]: Decimal(price[2]) for price in prices if price[1] == "on_demand" and _is_price(price[2])}
    for region, market, usd, dated, basis, source, check in prices:
        where = f"{region} {market}"
        if region not in rules.REGIONS[provider] or market not in MARKETS or basis not in BASES:
            yield f"{where}: unknown region, market or basis ({basis})"
        if not _is_price(usd):
            yield f"{where}: {usd} is not a price"
        elif market == "spot" and Decimal(usd) > on_demand.get(region, Decimal(usd)):
            yield f"{where}: spot costs more than on demand"
        if earliest_moment(dated) is None:
            yield f"{where}: no date"
        if not catalogue["sources"][source] or not catalogue["checks"][check]:
            yield f"{where}: no source"


def _is_price(text: str) -> bool:
    return _is_amount(text, MAX_USD)


def _is_amount(text: str, most: int) -> bool:
    try:
        return 0 < Decimal(text) < most
    except InvalidOperation:
        return False
