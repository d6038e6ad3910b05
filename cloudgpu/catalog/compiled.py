"""Turns the facts into the compact catalogue, as plain values: types, prices, GPUs, disks, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from cloudgpu.catalog import rules
from cloudgpu.catalog.rules import CsvRow
from cloudgpu.core.values.times import earliest_moment

Facts = dict[str, list[CsvRow]]
Catalogue = dict[str, Any]


def compile_catalogue(facts: Facts) -> Catalogue:
    """Return the catalogue that follows from the facts; the order is fixed, so that equal facts give equal text."""
    facts = facts | {"prices": _with_confirmed_prices(facts)}
    types = {provider: _types(facts, provider) for provider in rules.LISTED}
    sources, checks, notes = _Table(), _Table(), _Table()
    prices = {provider: _prices(facts, provider, types[provider], sources, checks) for provider in rules.LISTED}
    return {
        "compiled": rules.COMPILED.isoformat(),
        "gpus": _gpus(facts, types),
        "types": {provider: _type_entries(types[provider], sources) for provider in rules.LISTED},
        "prices": prices,
        "parts": list(_parts(facts)),
        "disks": {provider: _disks(facts, provider, sources, notes) for provider in rules.LISTED},
        "history": list(_history(facts)),
        "quotas": list(_quotas(facts)),
        "drivers": facts["drivers"],
        "images": [
            {"provider" if key == "cloud" else key: text for key, text in row.items()}
            for row in facts["machine_images"]
        ],
        "networks": {provider: _networks(facts, provider, sources) for provider in rules.LISTED},
        "spot_interruption": {provider: _interruptions(facts, provider, sources) for provider in rules.LISTED},
        "left_out": {provider: _left_out(facts, provider, types[provider]) for provider in rules.LISTED},
        "sources": sources.texts,
        "checks": checks.texts,
        "notes": notes.texts,
    }


class _Table:
    """Texts that occur often, each kept once and named by its number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)


def _gpus(facts: Facts, types: dict[str, dict[str, Catalogue]]) -> dict[str, Catalogue]:
    made = {row["gpu"]: _gpu(row) for row in facts["gpus"]}
    for one in (shape for named in types.values() for shape in named.values()):
        if one["gpu"] not in made and one["share"] == 1:
            made[one["gpu"]] = {"memory_gib": one["gpu_memory_gib"], "notes": "no specification in the facts"}
    return made


def _gpu(row: CsvRow) -> Catalogue:
    figures = {
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
    made = {name: rules.lowest_number(text) for name, text in figures.items() if text}
    return made | {key: text for key, text in texts.items() if text} | _card(row)


def _card(row: CsvRow) -> Catalogue:
    """Return what a card costs, where that is known; prices stay text, so that they stay exact."""
    prices = {name: row[f"{column}_usd"] for name, column in _CARD.items() if row[f"{column}_usd"]}
    note = {"note": row["price_note"]} if row["price_note"] else {}
    return {"card": {**prices, "dated": row["price_as_of"], **note}} if prices else {}


_CARD = {"launch_usd": "launch_msrp", "new_usd": "street_new", "used_usd": "street_used"}


def _types(facts: Facts, provider: str) -> dict[str, Catalogue]:
    """Return every type of a provider that has GPUs, by its name, with its row of the facts under `row`."""
    rows = [row for row in facts["gpu_instances"] if row["cloud"] == provider and row["accelerator"]]
    made = {row["instance_type"]: _shape(row) for row in rows if not row["instance_type"].startswith("n1+")}
    for gpu, host in _attached(facts) if provider == "gcp" else ():
        made[f"{host['instance_type']}+{_part(gpu)}:{gpu['accel_count']}"] = _shape(gpu, host)
    return made


def _shape(row: CsvRow, host: CsvRow | None = None) -> Catalogue:
    count = float(row["accel_count"])
    share = rules.MI25_SHARES.get(row["instance_type"], min(count, 1.0))
    memory = float(row["accel_mem_gib_each"])
    if row["instance_type"] in rules.MI25_SHARES:
        memory *= share  # the row gives the whole GPU's
    size = host or row
    return {
        "gpu": row["accelerator"],
        "count": max(1, int(count)),
        "share": _exact(share),
        "gpu_memory_gib": memory,
        "vcpus": int(size["vcpus"] or 0),
        "memory_gib": float(size["mem_gib"] or 0),
        "local_ssd_gb": _ssd_gb(size),
        "arch": size["arch"],
        "row": row,
        "host": host,
    }


def _exact(share: float) -> float:
    """Return the fraction that a rounded share means: 0.3333 is 1/3."""
    return share if share in (1, 0.5, 0.25, 0.125) else round(1 / round(1 / share), 6)


def _ssd_gb(row: CsvRow) -> float | None:
    size = rules.lowest_number(row["local_ssd_gib"])
    if size is None or row["local_ssd_unit"] == "GB":
        return size
    return round(size * 1.073741824, 1)


def _part(gpu: CsvRow) -> str:
    return rules.ATTACHED_GPUS[gpu["accelerator"]].removeprefix("nvidia-tesla-")


def _attached(facts: Facts) -> Iterator[tuple[CsvRow, CsvRow]]:
    """Yield Google's GPUs with each n1 host that carries them: the two are priced and launched together."""
    rows = [row for row in facts["gpu_instances"] if row["cloud"] == "gcp"]
    hosts = [row for row in rows if row["instance_type"].startswith("n1-")]
    for gpu in (row for row in rows if row["instance_type"].startswith("n1+")):
        yield from ((gpu, host) for host in sorted(hosts, key=lambda row: row["instance_type"]) if _carries(host, gpu))


def _carries(host: CsvRow, gpu: CsvRow) -> bool:
    cpus, memory, count = int(host["vcpus"]), float(host["mem_gib"]), int(gpu["accel_count"])
    limit = rules.host_limit(gpu["notes"])
    most_cpus, most_memory = limit or (rules.MAX_CPUS_PER_GPU * count, memory)
    return rules.MIN_CPUS_PER_GPU * count <= cpus <= most_cpus and memory <= most_memory


def _type_entries(types: dict[str, Catalogue], sources: _Table) -> dict[str, Catalogue]:
    return {name: _description(types[name], sources) for name in sorted(types)}


def _description(shape: Catalogue, sources: _Table) -> Catalogue:
    row = shape["row"]
    optional = {
        "legacy": rules.legacy_reason(row),
        "recalled": rules.unverified_facts(row),
        "spot_only": rules.spot_only(row),
        "notes": row["notes"].strip("; "),
    }
    return {
        **{key: value for key, value in shape.items() if key not in ("row", "host") and value is not None},
        **{key: value for key, value in optional.items() if value},
        "source": sources.number(rules.plain_source(row["source"])),
        "as_of": row["as_of"],
    }


def _prices(facts: Facts, provider: str, types: dict[str, Catalogue], sources: _Table, checks: _Table) -> Catalogue:
    rows = {(row["instance_type"], row["region"]): row for row in facts["prices"] if row["cloud"] == provider}
    catalogue: Catalogue = {}
    for (name, region), row in sorted(rows.items()):
        if name in types:
            catalogue.setdefault(name, []).extend(_entries(row, region, sources, checks))
    for name, shape in sorted(types.items()):
        if shape["host"]:
            catalogue[name] = [*_attached_entries(shape, rows, sources, checks)]
    return {name: entries for name, entries in sorted(catalogue.items()) if entries}


def _entries(row: CsvRow, region: str, sources: _Table, checks: _Table) -> Iterator[list[Any]]:
    """Yield [region, market, USD per hour, date as given, basis, source, check] for each market that has a price."""
    for market, price, dated, basis in _markets(row):
        source = sources.number(_source_of(row, market, basis))
        yield [region, market, price, dated, rules.price_basis(basis), source, _check(row, market, basis, checks)]


def _markets(row: CsvRow) -> Iterator[tuple[str, str, str, str]]:
    if row["price_on_demand_usd_hr"]:
        yield "on_demand", row["price_on_demand_usd_hr"], row["as_of_on_demand"], row["confidence"]
    if row["price_spot_usd_hr"]:
        yield "spot", row["price_spot_usd_hr"], row["as_of_spot"], row["spot_basis"]


def _source_of(row: CsvRow, market: str, basis: str) -> str:
    newer, source = row.get(f"source_{market}"), rules.plain_source(row["source"])
    if newer:
        return newer
    if market == "spot" and basis.startswith("derived"):
        return f"list price ({source}) less the savings of AWS Spot Advisor"
    own, _, of_spot = source.partition("; spot: ")
    return of_spot if market == "spot" and of_spot else own


def _with_confirmed_prices(facts: Facts) -> list[CsvRow]:
    """Return the prices, those that a newer source confirms with its date and name: it has the same figure."""
    seen = {(row["cloud"], row["region"], name, row["market"]): row for row, name, _ in rules.confirmed_prices(facts)}
    made = []
    for row in facts["prices"]:
        key = (row["cloud"], row["region"], row["instance_type"])
        newer = {market: seen[*key, market] for market in ("on_demand", "spot") if (*key, market) in seen}
        dates = {f"as_of_{market}": one["as_of"] for market, one in newer.items()}
        made.append(row | dates | {f"source_{market}": one["source"] for market, one in newer.items()})
    return made


def _check(row: CsvRow, market: str, basis: str, checks: _Table) -> int:
    return checks.number(row["confidence"] if market == "on_demand" else basis)


def _attached_entries(
    shape: Catalogue, rows: dict[tuple[str, str], CsvRow], sources: _Table, checks: _Table
) -> Iterator[list[Any]]:
    """Yield the prices of a host and its GPUs together, dated by the older of the two, wherever both are sold."""
    host, part = shape["host"]["instance_type"], f"accelerator:{rules.ATTACHED_GPUS[shape['gpu']]}"
    for region in sorted({region for name, region in rows if name == part}):
        if (host, region) not in rows:
            continue
        of_host = {market: more for market, *more in _markets(rows[host, region])}
        for market, price, dated, _ in _markets(rows[part, region]):
            if market in of_host:
                whole = Decimal(of_host[market][0]) + shape["count"] * Decimal(price)
                older = min(dated, of_host[market][1], key=lambda text: str(earliest_moment(text) or ""))
                names = [_source_of(rows[one, region], market, "") for one in (host, part)]
                source = sources.number(f"host ({names[0]}) and GPUs ({names[1]}) together")
                check = checks.number(rows[part, region]["confidence"])
                yield [region, market, str(whole.normalize()), older, "derived", source, check]


def _left_out(facts: Facts, provider: str, types: dict[str, Catalogue]) -> dict[str, str]:
    """Return every name that has a price in the facts and no type in the catalogue, with the reason."""
    used = {f"accelerator:{part}" for part in rules.ATTACHED_GPUS.values()}
    used |= {row["instance_type"] for row in facts["gpu_instances"] if row["accel_count"] == "0"}
    names = {row["instance_type"] for row in facts["prices"] if row["cloud"] == provider} - set(types) - used
    return {name: rules.why_unknown(provider, name) for name in sorted(names)}


def _disks(facts: Facts, provider: str, sources: _Table, notes: _Table) -> Catalogue:
    """Return by kind [regions, USD, the least it may be, date as given, basis, source, note] of each price.

    What is compiled by region stands for its kind alone: the other table has some of these kinds for few regions, or
    for all regions at the price of one.
    """
    own = [row for row in facts["storage_regions"] if row["cloud"] == provider]
    newer = {row["type"] for row in own}
    catalogue: Catalogue = {}
    for row in (row for row in facts["storage_prices"] if row["cloud"] == provider):
        found = catalogue.setdefault(row["type"], {"unit": row["unit"], "prices": []})
        if row["type"] not in newer:
            found["prices"].append(_storage_price(row, sources, notes))
    for row in own:
        found = catalogue.setdefault(row["type"], {"unit": row["unit"], "prices": []})
        found["prices"].append(_storage_price(row, sources, notes))
    return catalogue


def _storage_price(row: CsvRow, sources: _Table, notes: _Table) -> list[Any]:
    figures = [row["region"], row["price_usd"], row.get("low_usd", ""), row["as_of"]]
    basis, source = rules.price_basis(row["confidence"]), rules.plain_source(row["source"])
    return [*figures, basis, sources.number(source), notes.number(row["note"].strip())]


def _parts(facts: Facts) -> Iterator[Catalogue]:
    """Yield the prices of GPUs that are sold apart from their machine."""
    for row in facts["prices"]:
        if row["instance_type"] in {f"accelerator:{part}" for part in rules.ATTACHED_GPUS.values()}:
            for market, price, dated, basis in _markets(row):
                yield {
                    "provider": row["cloud"],
                    "region": row["region"],
                    "item": row["instance_type"],
                    "market": market,
                    "unit": "usd_per_hour",
                    "usd": price,
                    "as_of": dated,
                    "basis": rules.price_basis(basis),
                    "source": _source_of(row, market, basis),
                    "check": row["confidence"] if market == "on_demand" else basis,
                }


def _history(facts: Facts) -> Iterator[Catalogue]:
    """Yield prices of the past, as they were quoted then; they price nothing."""
    names = {"cloud": "provider", "price_usd": "usd", "confidence": "check"}
    for row in facts["history"]:
        basis = rules.price_basis(row["confidence"])
        yield {names.get(key, key): text for key, text in row.items()} | {"basis": basis}


def _quotas(facts: Facts) -> Iterator[Catalogue]:
    """Yield the quotas that count the types here, with the families that each counts."""
    for row in facts["quotas"]:
        for counted_quota in rules.counted_quotas(row):
            yield {
                "provider": row["cloud"],
                "code": counted_quota["code"],
                "name": counted_quota["name"],
                "market": counted_quota["market"],
                "unit": row["unit"],
                "families": counted_quota["families"],
                "source": rules.plain_source(row["source"]),
                "as_of": row["as_of"],
            }


def _networks(facts: Facts, provider: str, sources: _Table) -> Catalogue:
    """Return by type [Gbit/s for long, for a while, fabric, note, source, date] of what one machine can send."""
    return {
        row["instance_type"]: [
            float(row["gbit_per_s"]),
            rules.lowest_number(row["up_to_gbit_per_s"]),
            *(row["fabric"], row["note"], sources.number(rules.plain_source(row["source"])), row["as_of"]),
        ]
        for row in facts["networks"]
        if row["cloud"] == provider
    }


def _interruptions(facts: Facts, provider: str, sources: _Table) -> Catalogue:
    """Return by type and region [least, most, source, date] of the part of its spot machines taken in a month."""
    catalogue: Catalogue = {}
    for row in (row for row in facts["spot_interruption"] if row["cloud"] == provider):
        low, high = rules.SPOT_LOSS[row["bucket"]]
        figures = [low, high, sources.number(rules.plain_source(row["source"])), row["as_of"]]
        catalogue.setdefault(row["instance_type"], {})[row["region"]] = figures
    return catalogue
