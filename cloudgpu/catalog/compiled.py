"""Turns the facts (the CSV tables) into the compact catalogue as plain values: types, prices, GPUs, disks."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from cloudgpu.catalog import rules
from cloudgpu.catalog.rules import CsvRow
from cloudgpu.core.values.times import earliest_moment

Facts = dict[str, list[CsvRow]]  # the rows of each table
Catalogue = dict[str, Any]  # catalog.json, or a part of it


def compile_catalogue(facts: Facts) -> Catalogue:
    """Return the catalogue made from the facts; the order is fixed, so that equal facts give equal text."""
    facts = facts | {"prices": _with_confirmed_prices(facts)}
    types = {provider: _types(facts, provider) for provider in rules.LISTED_PROVIDERS}
    sources, checks, notes = _TextTable(), _TextTable(), _TextTable()
    prices = {
        provider: _prices(facts, provider, types[provider], sources, checks) for provider in rules.LISTED_PROVIDERS
    }
    return {
        "compiled": rules.COMPILED_ON.isoformat(),
        "gpus": _gpus(facts, types),
        "types": {
            provider: {name: _type_entry(types[provider][name], sources) for name in sorted(types[provider])}
            for provider in rules.LISTED_PROVIDERS
        },
        "prices": prices,
        "parts": list(_gpu_component_prices(facts)),
        "disks": {provider: _disks(facts, provider, sources, notes) for provider in rules.LISTED_PROVIDERS},
        "history": list(_history(facts)),
        "quotas": list(_quotas(facts)),
        "drivers": facts["drivers"],
        "images": [
            {"provider" if key == "cloud" else key: text for key, text in row.items()}
            for row in facts["machine_images"]
        ],
        "networks": {provider: _networks(facts, provider, sources) for provider in rules.LISTED_PROVIDERS},
        "spot_interruption": {
            provider: _interruptions(facts, provider, sources) for provider in rules.LISTED_PROVIDERS
        },
        "left_out": {provider: _omitted_types(facts, provider, types[provider]) for provider in rules.LISTED_PROVIDERS},
        "sources": sources.texts,
        "checks": checks.texts,
        "notes": notes.texts,
    }


class _TextTable:
    """Texts that occur often, each stored once and referred to by its index."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def index_of(self, text: str) -> int:
        """Return the index of a text, which is added if it is new."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)


def _gpus(facts: Facts, types: dict[str, dict[str, Catalogue]]) -> dict[str, Catalogue]:
    gpus = {row["gpu"]: _gpu(row) for row in facts["gpus"]}
    for raw_type in (raw_type for raw_types in types.values() for raw_type in raw_types.values()):
        if raw_type["gpu"] not in gpus and raw_type["share"] == 1:
            gpus[raw_type["gpu"]] = {"memory_gib": raw_type["gpu_memory_gib"], "notes": "no specification in the facts"}
    return gpus


def _gpu(row: CsvRow) -> Catalogue:
    numbers = {
        "memory_gib": row["mem_gib"],
        "year": row["year"],
        "bandwidth_gbs": row["mem_bw_gbs"],
        "fp32_tflops": row["fp32_tflops"],
        "tensor_tflops": row["fp16_tensor_dense_tflops"],
        "fp8_tflops": row["fp8_dense_tflops"],
        "watts": row["tdp_w"],
        "trains_vs_h100": row["rel_train_vs_H100SXM"],
    }
    texts = {
        "architecture": row["arch"],
        "compute_capability": row["compute_capability"],
        "notes": row["tensor_note"],
        "source": "; ".join(filter(None, [row["spec_source"], row["speed_source"]])),
    }
    entry = {name: rules.lowest_number(text) for name, text in numbers.items() if text}
    return entry | {key: text for key, text in texts.items() if text} | _card_prices(row)


def _card_prices(row: CsvRow) -> Catalogue:
    """Return what a GPU card costs to buy, where that is known; prices stay text, so that they stay exact."""
    prices = {name: row[f"{column}_usd"] for name, column in _CARD_COLUMNS.items() if row[f"{column}_usd"]}
    note = {"note": row["price_note"]} if row["price_note"] else {}
    return {"card": {**prices, "dated": row["price_as_of"], **note}} if prices else {}


_CARD_COLUMNS = {"launch_usd": "launch_msrp", "new_usd": "street_new", "used_usd": "street_used"}


def _types(facts: Facts, provider: str) -> dict[str, Catalogue]:
    """Return every type of a provider that has GPUs, by its name, with its row of the facts under `row`."""
    rows = [row for row in facts["gpu_instances"] if row["cloud"] == provider and row["accelerator"]]
    raw_types = {row["instance_type"]: _raw_type(row) for row in rows if not row["instance_type"].startswith("n1+")}
    for gpu, host in _gpus_with_hosts(facts) if provider == "gcp" else ():
        raw_types[f"{host['instance_type']}+{_short_gpu_name(gpu)}:{gpu['accel_count']}"] = _raw_type(gpu, host)
    return raw_types


def _raw_type(row: CsvRow, host: CsvRow | None = None) -> Catalogue:
    count = float(row["accel_count"])
    share = rules.MI25_SHARES.get(row["instance_type"], min(count, 1.0))
    gpu_memory_gib = float(row["accel_mem_gib_each"])
    if row["instance_type"] in rules.MI25_SHARES:
        gpu_memory_gib *= share  # the row gives the whole GPU's
    size_row = host or row
    return {
        "gpu": row["accelerator"],
        "count": max(1, int(count)),
        "share": _exact_fraction(share),
        "gpu_memory_gib": gpu_memory_gib,
        "vcpus": int(size_row["vcpus"] or 0),
        "memory_gib": float(size_row["mem_gib"] or 0),
        "local_ssd_gb": _ssd_gb(size_row),
        "arch": size_row["arch"],
        "row": row,
        "host": host,
    }


def _exact_fraction(share: float) -> float:
    """Return the fraction that a rounded share means: 0.3333 is 1/3."""
    return share if share in (1, 0.5, 0.25, 0.125) else round(1 / round(1 / share), 6)


def _ssd_gb(row: CsvRow) -> float | None:
    size = rules.lowest_number(row["local_ssd_gib"])
    if size is None or row["local_ssd_unit"] == "GB":
        return size
    return round(size * 1.073741824, 1)


def _short_gpu_name(gpu: CsvRow) -> str:
    return rules.ATTACHED_GPUS[gpu["accelerator"]].removeprefix("nvidia-tesla-")


def _gpus_with_hosts(facts: Facts) -> Iterator[tuple[CsvRow, CsvRow]]:
    """Yield Google's GPUs with each n1 host that they can be attached to: the two are priced and launched together."""
    rows = [row for row in facts["gpu_instances"] if row["cloud"] == "gcp"]
    hosts = [row for row in rows if row["instance_type"].startswith("n1-")]
    for gpu in (row for row in rows if row["instance_type"].startswith("n1+")):
        yield from (
            (gpu, host) for host in sorted(hosts, key=lambda row: row["instance_type"]) if _fits_host(host, gpu)
        )


def _fits_host(host: CsvRow, gpu: CsvRow) -> bool:
    vcpus, memory_gib, count = int(host["vcpus"]), float(host["mem_gib"]), int(gpu["accel_count"])
    max_vcpus, max_memory_gib = rules.host_limit(gpu["notes"]) or (rules.MAX_CPUS_PER_GPU * count, memory_gib)
    return rules.MIN_CPUS_PER_GPU * count <= vcpus <= max_vcpus and memory_gib <= max_memory_gib


def _type_entry(raw_type: Catalogue, sources: _TextTable) -> Catalogue:
    row = raw_type["row"]
    optional = {
        "legacy": rules.legacy_reason(row),
        "unverified": rules.unverified_facts(row),
        "spot_only": rules.spot_only(row),
        "notes": row["notes"].strip("; "),
    }
    return {
        **{key: value for key, value in raw_type.items() if key not in ("row", "host") and value is not None},
        **{key: value for key, value in optional.items() if value},
        "source": sources.index_of(rules.without_search_notes(row["source"])),
        "as_of": row["as_of"],
    }


def _prices(
    facts: Facts, provider: str, types: dict[str, Catalogue], sources: _TextTable, checks: _TextTable
) -> Catalogue:
    rows = {(row["instance_type"], row["region"]): row for row in facts["prices"] if row["cloud"] == provider}
    prices: Catalogue = {}
    for (name, region), row in sorted(rows.items()):
        if name in types:
            prices.setdefault(name, []).extend(_price_entries(row, region, sources, checks))
    for name, raw_type in sorted(types.items()):
        if raw_type["host"]:
            prices[name] = [*_attached_price_entries(raw_type, rows, sources, checks)]
    return {name: entries for name, entries in sorted(prices.items()) if entries}


def _price_entries(row: CsvRow, region: str, sources: _TextTable, checks: _TextTable) -> Iterator[list[Any]]:
    """Yield [region, market, USD per hour, date as written, basis, source, confirmation] for each market with a price.

    The last two are indexes into the catalogue's lists of texts: its `sources`, and its `checks`, which say what
    confirms a price (`two sources`). The basis is how reliable the price is.
    """
    for market, price, date_text, basis in _market_prices(row):
        source = sources.index_of(_source_of(row, market, basis))
        confirmation = checks.index_of(row["confidence"] if market == "on_demand" else basis)
        yield [region, market, price, date_text, rules.price_basis(basis), source, confirmation]


def _market_prices(row: CsvRow) -> Iterator[tuple[str, str, str, str]]:
    if row["price_on_demand_usd_hr"]:
        yield "on_demand", row["price_on_demand_usd_hr"], row["as_of_on_demand"], row["confidence"]
    if row["price_spot_usd_hr"]:
        yield "spot", row["price_spot_usd_hr"], row["as_of_spot"], row["spot_basis"]


def _source_of(row: CsvRow, market: str, basis: str) -> str:
    newer_source, source = row.get(f"source_{market}"), rules.without_search_notes(row["source"])
    if newer_source:
        return newer_source
    if market == "spot" and basis.startswith("derived"):
        return f"list price ({source}) less the savings of AWS Spot Advisor"
    on_demand_source, _, spot_source = source.partition("; spot: ")
    return spot_source if market == "spot" and spot_source else on_demand_source


def _with_confirmed_prices(facts: Facts) -> list[CsvRow]:
    """Return the prices; one that a newer source confirms has the date and name of that source."""
    confirmed = {
        (row["cloud"], row["region"], name, row["market"]): row for row, name, _ in rules.confirmed_prices(facts)
    }
    rows = []
    for row in facts["prices"]:
        key = (row["cloud"], row["region"], row["instance_type"])
        newer_rows = {
            market: confirmed[*key, market] for market in ("on_demand", "spot") if (*key, market) in confirmed
        }
        dates = {f"as_of_{market}": confirmation["as_of"] for market, confirmation in newer_rows.items()}
        rows.append(
            row | dates | {f"source_{market}": confirmation["source"] for market, confirmation in newer_rows.items()}
        )
    return rows


def _attached_price_entries(
    raw_type: Catalogue, rows: dict[tuple[str, str], CsvRow], sources: _TextTable, checks: _TextTable
) -> Iterator[list[Any]]:
    """Yield the price of a host with its GPUs for each region and market that has both, dated by the older one."""
    host, component = raw_type["host"]["instance_type"], f"accelerator:{rules.ATTACHED_GPUS[raw_type['gpu']]}"
    for region in sorted({region for row_name, region in rows if row_name == component}):
        if (host, region) not in rows:
            continue
        host_prices = {market: price_and_date for market, *price_and_date in _market_prices(rows[host, region])}
        for market, price, date_text, _ in _market_prices(rows[component, region]):
            if market in host_prices:
                total_usd = Decimal(host_prices[market][0]) + raw_type["count"] * Decimal(price)
                older_date = min(date_text, host_prices[market][1], key=lambda text: str(earliest_moment(text) or ""))
                row_sources = [_source_of(rows[item_name, region], market, "") for item_name in (host, component)]
                source = sources.index_of(f"host ({row_sources[0]}) and GPUs ({row_sources[1]}) together")
                confirmation = checks.index_of(rows[component, region]["confidence"])
                yield [region, market, str(total_usd.normalize()), older_date, "derived", source, confirmation]


def _omitted_types(facts: Facts, provider: str, types: dict[str, Catalogue]) -> dict[str, str]:
    """Return every type that has a price in the facts and no entry in the catalogue, with the reason."""
    components = {f"accelerator:{part}" for part in rules.ATTACHED_GPUS.values()}
    components |= {row["instance_type"] for row in facts["gpu_instances"] if row["accel_count"] == "0"}
    names = {row["instance_type"] for row in facts["prices"] if row["cloud"] == provider} - set(types) - components
    return {name: rules.why_unknown(provider, name) for name in sorted(names)}


def _disks(facts: Facts, provider: str, sources: _TextTable, notes: _TextTable) -> Catalogue:
    """Return for each kind its unit and prices: [regions, USD, lower bound, date as written, basis, source, note].

    The table `storage_regions` has prices by region; its kinds are not read from `storage_prices`, which has some of
    them for few regions, or for all regions at the price of one.
    """
    regional_rows = [row for row in facts["storage_regions"] if row["cloud"] == provider]
    regional_kinds = {row["type"] for row in regional_rows}
    kinds: Catalogue = {}
    for row in (row for row in facts["storage_prices"] if row["cloud"] == provider):
        kind = kinds.setdefault(row["type"], {"unit": row["unit"], "prices": []})
        if row["type"] not in regional_kinds:
            kind["prices"].append(_storage_price(row, sources, notes))
    for row in regional_rows:
        kind = kinds.setdefault(row["type"], {"unit": row["unit"], "prices": []})
        kind["prices"].append(_storage_price(row, sources, notes))
    return kinds


def _storage_price(row: CsvRow, sources: _TextTable, notes: _TextTable) -> list[Any]:
    values = [row["region"], row["price_usd"], row.get("low_usd", ""), row["as_of"]]
    basis, source = rules.price_basis(row["confidence"]), rules.without_search_notes(row["source"])
    return [*values, basis, sources.index_of(source), notes.index_of(row["note"].strip())]


def _gpu_component_prices(facts: Facts) -> Iterator[Catalogue]:
    """Yield the prices of GPUs that are sold apart from their machine."""
    for row in facts["prices"]:
        if row["instance_type"] in {f"accelerator:{part}" for part in rules.ATTACHED_GPUS.values()}:
            for market, price, date_text, basis in _market_prices(row):
                yield {
                    "provider": row["cloud"],
                    "region": row["region"],
                    "item": row["instance_type"],
                    "market": market,
                    "unit": "usd_per_hour",
                    "usd": price,
                    "as_of": date_text,
                    "basis": rules.price_basis(basis),
                    "source": _source_of(row, market, basis),
                    "check": row["confidence"] if market == "on_demand" else basis,
                }


def _history(facts: Facts) -> Iterator[Catalogue]:
    """Yield prices of the past, as they were listed then; no machine is priced by them."""
    column_names = {"cloud": "provider", "price_usd": "usd", "confidence": "check"}
    for row in facts["history"]:
        basis = rules.price_basis(row["confidence"])
        yield {column_names.get(key, key): text for key, text in row.items()} | {"basis": basis}


def _quotas(facts: Facts) -> Iterator[Catalogue]:
    """Yield the quotas that limit the types of the catalogue, with the GPU or type families that each counts."""
    for row in facts["quotas"]:
        for counted_quota in rules.counted_quotas(row):
            yield {
                "provider": row["cloud"],
                "code": counted_quota["code"],
                "name": counted_quota["name"],
                "market": counted_quota["market"],
                "unit": row["unit"],
                "families": counted_quota["families"],
                "source": rules.without_search_notes(row["source"]),
                "as_of": row["as_of"],
            }


def _networks(facts: Facts, provider: str, sources: _TextTable) -> Catalogue:
    """Return for each type [sustained Gbit/s, burst Gbit/s, fabric, note, source, date] of its network."""
    return {
        row["instance_type"]: [
            float(row["gbit_per_s"]),
            rules.lowest_number(row["up_to_gbit_per_s"]),
            *(row["fabric"], row["note"], sources.index_of(rules.without_search_notes(row["source"])), row["as_of"]),
        ]
        for row in facts["networks"]
        if row["cloud"] == provider
    }


def _interruptions(facts: Facts, provider: str, sources: _TextTable) -> Catalogue:
    """Return by type and region [lowest, highest, source, date] of the share of spot machines interrupted a month."""
    interruptions: Catalogue = {}
    for row in (row for row in facts["spot_interruption"] if row["cloud"] == provider):
        low, high = rules.SPOT_INTERRUPTION_RANGES[row["bucket"]]
        values = [low, high, sources.index_of(rules.without_search_notes(row["source"])), row["as_of"]]
        interruptions.setdefault(row["instance_type"], {})[row["region"]] = values
    return interruptions
