"""The refreshed price list of each provider: one file, whose prices replace the embedded ones; written as a whole.

An embedded price that is newer, since a newer cloudgpu brought it, is not replaced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from cloudgpu.catalog.location import catalogue, directory
from cloudgpu.core.catalog.pricelist import PriceRow, RowKey
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import earliest_moment, from_iso, iso
from cloudgpu.errors import InvalidRequest

FORMAT = 1


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of a provider's price list as it last answered completely: its prices of one region, or of all.

    A row may be older, if a newer price was held back.
    """

    asked_at: datetime
    rows: tuple[PriceRow, ...]


@dataclass(frozen=True, slots=True)
class StoredPrices:
    """The stored price list of a provider.

    `parts` has each part by its scope, the name of what was queried for it (`us-east-1 spot`). `rejected_changes` are
    new prices that were not accepted, as they moved too far.
    """

    provider: str
    parts: Mapping[str, StoredPart] = field(default_factory=dict)
    rejected_changes: tuple[PriceRow, ...] = ()

    def rows(self) -> Iterator[PriceRow]:
        """Yield every price in use."""
        for part in self.parts.values():
            yield from part.rows


@dataclass(frozen=True, slots=True, eq=False)
class PriceIndex:
    """Refreshed prices as mappings: `machines` by type, then region and market; `storage` by kind, then region.

    Compared by identity, so that it can be the key of a cache.
    """

    machines: Mapping[str, Mapping[tuple[str, Market], PriceRow]]
    storage: Mapping[str, Mapping[str, PriceRow]]


_EMPTY_INDEX = PriceIndex({}, {})


def price_list_file(provider: str, *, before: bool = False) -> Path | None:
    """Return the file of a provider's list (`before`: the previous list); None where no directory is set."""
    price_directory = directory()
    return (
        None
        if price_directory is None
        else price_directory / (f"{provider}.before.json" if before else f"{provider}.json")
    )


def price_index(provider: str) -> PriceIndex:
    """Return the refreshed prices of a provider that are in use; empty where there are none, or the file is damaged.

    With a damaged file, the embedded prices are used, with their own dates; `stored_prices` raises for it.
    """
    file = price_list_file(provider)
    try:
        stat = None if file is None else file.stat()
    except OSError:
        stat = None
    return _EMPTY_INDEX if stat is None else _cached_index(provider, file, stat.st_mtime_ns, stat.st_size, stat.st_ino)


@lru_cache(maxsize=8)
def _cached_index(provider: str, file: Path, *_stamp: int) -> PriceIndex:
    try:
        prices = read_price_list(provider, file)
    except InvalidRequest:
        return _EMPTY_INDEX
    machines: dict[str, dict[tuple[str, Market], PriceRow]] = {}
    storage: dict[str, dict[str, PriceRow]] = {}
    for row in prices.rows():
        if is_outdated(provider, row):
            continue
        if row.key.market is None:
            storage.setdefault(row.key.item, {})[row.key.region] = row
        else:
            machines.setdefault(row.key.item, {})[row.key.region, row.key.market] = row
    return PriceIndex(machines, storage)


def is_outdated(provider: str, row: PriceRow) -> bool:
    """Say whether an embedded price for the same is newer than a refreshed one, and no less reliable: that one counts.

    A day without a time counts as its begin, so that a price which was refreshed on that day is the newer one.
    """
    return any(
        date is not None and date > row.as_of and _unreliability(basis) <= _unreliability(row.basis)
        for date, basis in _embedded_dates(provider, row.key)
    )


def _embedded_dates(provider: str, key: RowKey) -> Iterator[tuple[datetime | None, str]]:
    """Yield the date and basis of each embedded price for a key."""
    if key.market is None:
        for region, _, _, as_of, basis, *_ in catalogue()["disks"].get(provider, {}).get(key.item, _NONE)["prices"]:
            if key.region in region.split("/"):
                yield earliest_moment(as_of), basis
        return
    for region, market, _, as_of, basis, *_ in catalogue()["prices"].get(provider, {}).get(key.item, ()):
        if (region, market) == (key.region, key.market):
            yield earliest_moment(as_of), basis


_NONE: dict[str, Any] = {"prices": ()}


def _unreliability(basis: str) -> int:
    return {Basis.DERIVED: 1, Basis.UNVERIFIED: 2}.get(Basis(basis), 0)


def stored_prices(provider: str, *, before: bool = False) -> StoredPrices:
    """Return a provider's stored list (`before`: the previous one); raise InvalidRequest for a damaged file."""
    file = price_list_file(provider, before=before)
    return StoredPrices(provider) if file is None or not file.exists() else read_price_list(provider, file)


def readable_prices(provider: str) -> tuple[StoredPrices, str | None]:
    """Return a provider's stored list, an empty one for a damaged file; and why that file cannot be read, else None."""
    try:
        return stored_prices(provider), None
    except InvalidRequest as error:
        return StoredPrices(provider), error.message


def read_price_list(provider: str, file: Path) -> StoredPrices:
    """Return the price list in a file; raise InvalidRequest, with the remedy, for a damaged one."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if (content["format"], content["provider"]) != (FORMAT, provider):
            raise ValueError("of another format or provider")  # noqa: TRY301
        parts = {
            scope: StoredPart(from_iso(part["asked_at"]), tuple(map(_row_from_json, part["rows"])))
            for scope, part in content["parts"].items()
        }
        return StoredPrices(provider, parts, tuple(map(_row_from_json, content["held"])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidRequest(
            f"The refreshed prices of {provider} cannot be read ({type(error).__name__}): the embedded ones are used.",
            field="catalog",
            value=str(file),
            next=f"Run: cloudgpu catalog refresh --provider {provider} (or remove the file)",
        ) from error


def write_price_list(prices: StoredPrices) -> None:
    """Replace a provider's stored list atomically; the previous one is then in `PROVIDER.before.json`."""
    file, before = price_list_file(prices.provider), price_list_file(prices.provider, before=True)
    if file is None or before is None:
        raise RuntimeError("no directory for refreshed prices is set")
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if file.exists():
        _replace_file(before, file.read_bytes())
    _replace_file(file, (json.dumps(_as_json(prices), indent=None, separators=(",", ":")) + "\n").encode())


def _replace_file(file: Path, text: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _as_json(prices: StoredPrices) -> dict[str, Any]:
    parts = {
        scope: {"asked_at": iso(part.asked_at), "rows": [_row_as_json(row) for row in part.rows]}
        for scope, part in sorted(prices.parts.items())
    }
    return {
        "format": FORMAT,
        "provider": prices.provider,
        "parts": parts,
        "held": [_row_as_json(row) for row in prices.rejected_changes],
    }


def _row_as_json(row: PriceRow) -> list[Any]:
    key = row.key
    return [
        key.item,
        key.region,
        key.market,
        row.unit,
        row.price.nanos,
        row.source,
        iso(row.as_of),
        row.basis,
        row.note,
    ]


def _row_from_json(values: list[Any]) -> PriceRow:
    """Return the price that `_row_as_json` wrote; `basis` is how reliable it is (`Basis`)."""
    item, region, market, unit, nanos, source, as_of, basis, note = values
    if not isinstance(nanos, int) or nanos <= 0:
        raise ValueError(f"{nanos!r} is not a price")
    key = RowKey(str(item), str(region), None if market is None else Market(market))
    return PriceRow(key, str(unit), Money(nanos), str(source), from_iso(as_of), Basis(basis), str(note))
