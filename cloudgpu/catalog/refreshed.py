"""The refreshed price list of each provider: one file, read over the embedded prices and written as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from cloudgpu.catalog.location import directory
from cloudgpu.core.catalog.pricelist import PriceRow, RowKey
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import InvalidRequest

FORMAT = 1


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of a price list as it last answered whole; a row may be older, where a newer price was held back."""

    asked_at: datetime
    rows: tuple[PriceRow, ...]


@dataclass(frozen=True, slots=True)
class StoredPrices:
    """The stored price list of a provider. `held_back` are new prices that were not accepted, as they moved too far."""

    provider: str
    parts: Mapping[str, StoredPart] = field(default_factory=dict)
    held_back: tuple[PriceRow, ...] = ()

    def rows(self) -> Iterator[PriceRow]:
        """Yield every price in use."""
        for part in self.parts.values():
            yield from part.rows


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The same prices as mappings: `machines` by type, `storage` by kind. Compared by identity."""

    machines: Mapping[str, Mapping[tuple[str, Market], PriceRow]]
    storage: Mapping[str, Mapping[str, PriceRow]]


_EMPTY = Index({}, {})


def file_of(provider: str, *, before: bool = False) -> Path | None:
    """Return where a provider's list is kept (`before`: that of the refresh before); None where no directory is set."""
    parent = directory()
    return None if parent is None else parent / (f"{provider}.before.json" if before else f"{provider}.json")


def index(provider: str) -> Index:
    """Return the refreshed prices of a provider; none where there are none, or the file is damaged.

    A damaged file is no reason to stop: the embedded prices are used, with their own dates. `stored` raises for it.
    """
    file = file_of(provider)
    try:
        stat = None if file is None else file.stat()
    except OSError:
        stat = None
    return _EMPTY if stat is None else _index(provider, file, stat.st_mtime_ns, stat.st_size, stat.st_ino)


@lru_cache(maxsize=8)
def _index(provider: str, file: Path, *_stamp: int) -> Index:
    try:
        stored_list = read(provider, file)
    except InvalidRequest:
        return _EMPTY
    machines: dict[str, dict[tuple[str, Market], PriceRow]] = {}
    storage: dict[str, dict[str, PriceRow]] = {}
    for row in stored_list.rows():
        if row.key.market is None:
            storage.setdefault(row.key.item, {})[row.key.region] = row
        else:
            machines.setdefault(row.key.item, {})[row.key.region, row.key.market] = row
    return Index(machines, storage)


def stored(provider: str, *, before: bool = False) -> StoredPrices:
    """Return a provider's stored list; raise InvalidRequest for a file of another program, or a damaged one."""
    file = file_of(provider, before=before)
    return StoredPrices(provider) if file is None or not file.exists() else read(provider, file)


def read(provider: str, file: Path) -> StoredPrices:
    """Return what a file says; raise InvalidRequest, with the remedy, for a damaged one."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        if (value["format"], value["provider"]) != (FORMAT, provider):
            raise ValueError("of another format or provider")  # noqa: TRY301
        parts = {
            scope: StoredPart(from_iso(part["asked_at"]), tuple(map(_row, part["rows"])))
            for scope, part in value["parts"].items()
        }
        return StoredPrices(provider, parts, tuple(map(_row, value["held"])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidRequest(
            f"The refreshed prices of {provider} cannot be read ({type(error).__name__}): the embedded ones are used.",
            field="catalog",
            value=str(file),
            next=f"Run: cloudgpu catalog refresh --provider {provider} (or remove the file)",
        ) from error


def write(value: StoredPrices) -> None:
    """Replace a provider's stored list atomically; keep the previous one in `PROVIDER.before.json`."""
    file, before = file_of(value.provider), file_of(value.provider, before=True)
    if file is None or before is None:
        message = "no directory for refreshed prices is set"
        raise RuntimeError(message)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if file.exists():
        _replace_file(before, file.read_bytes())
    _replace_file(file, (json.dumps(_as_json(value), indent=None, separators=(",", ":")) + "\n").encode())


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


def _as_json(value: StoredPrices) -> dict[str, Any]:
    parts = {
        scope: {"asked_at": iso(part.asked_at), "rows": [_row_as_json(row) for row in part.rows]}
        for scope, part in sorted(value.parts.items())
    }
    return {
        "format": FORMAT,
        "provider": value.provider,
        "parts": parts,
        "held": [_row_as_json(row) for row in value.held_back],
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


def _row(values: list[Any]) -> PriceRow:
    item, region, market, unit, nanos, source, as_of, basis, note = values
    if not isinstance(nanos, int) or nanos <= 0:
        message = f"{nanos!r} is not a price"
        raise ValueError(message)
    key = RowKey(str(item), str(region), None if market is None else Market(market))
    return PriceRow(key, str(unit), Money(nanos), str(source), from_iso(as_of), Basis(basis), str(note))
