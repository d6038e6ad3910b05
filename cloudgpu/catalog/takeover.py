"""Merges a provider's answer into the stored price list: which prices change, stay or are held back. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cloudgpu.catalog.read import catalogue, embedded_prices, listed_price, regions
from cloudgpu.catalog.refreshed import StoredPart, StoredPrices, is_outdated
from cloudgpu.catalog.storage import embedded_storage, storage_kinds
from cloudgpu.core.catalog.catalog import DiskPrice, ListedPrice
from cloudgpu.core.catalog.pricelist import (
    PER_HOUR,
    ListPriceChange,
    PriceList,
    PricePart,
    PriceRow,
    RefusedRow,
    RowKey,
    price_change,
)
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import Basis, Market


@dataclass(frozen=True, slots=True)
class MergedPrices:
    """The result of a merge. `stored` is the new price list; `unknown_types` are types that the catalogue lacks.

    `changes` are changed prices, `refused_rows` are rows that cannot be read.

    `renewed_count` counts the prices that the answer renewed. `unanswered` are the parts that did not answer, or
    answered without any price: their old prices stay, with their dates. `not_renewed` are types sold today whose
    on-demand price the answer did not renew.
    """

    stored: StoredPrices
    renewed_count: int
    changes: tuple[ListPriceChange, ...]
    refused_rows: tuple[RefusedRow, ...]
    unanswered: tuple[Unanswered, ...]
    unknown_types: tuple[str, ...]
    not_renewed: tuple[str, ...]


def merge_prices(previous: StoredPrices, answer: PriceList, max_factor: float, *, accept: bool) -> MergedPrices:
    """Return the price list after an answer: each answered part replaces the same part of `previous`.

    A price that rose or fell by more than `max_factor` is held back, and the last one stays with its date, unless
    `accept` is set.
    """
    known_rows = {row.key: row for row in previous.rows() if not is_outdated(answer.provider, row)}
    parts, moves, rejected_changes, unanswered = (
        dict(previous.parts),
        list[ListPriceChange](),
        list[PriceRow](),
        list(answer.unanswered),
    )
    known_types = set(catalogue()["types"][answer.provider])
    unknown_types = set[str]()
    for part in answer.parts:
        unknown_types |= {row.key.item for row in part.rows if row.key.market and row.key.item not in known_types}
        rows = [row for row in part.rows if row.key.market is None or row.key.item in known_types]
        if not rows:
            if part.scope in previous.parts or part.region in ("", *regions(answer.provider)):
                unanswered.append(Unanswered(part.scope, "it answered without a single price that the catalogue knows"))
            continue  # a region in which nothing was known to be sold sells nothing
        rows_and_moves = [
            (row, _price_change(known_rows.get(row.key), row, answer.provider, max_factor, accept=accept))
            for row in rows
        ]
        moves += [one for _, one in rows_and_moves if one is not None]
        rejected_changes += [row for row, one in rows_and_moves if one is not None and not one.is_accepted]
        in_use = (*_rows_in_use(rows_and_moves, known_rows), *_unrefused_rows(previous, part))
        parts[part.scope] = StoredPart(part.asked_at, in_use)
    answered_scopes = {part.scope for part in answer.parts if part.scope in parts} - {one.scope for one in unanswered}
    earlier = _earlier_held_back(previous, rejected_changes, parts, answered_scopes)
    renewed = {
        row.key
        for part in answer.parts
        if part.scope in answered_scopes
        for row in part.rows
        if row.key.item not in unknown_types
    }
    return MergedPrices(
        stored=StoredPrices(answer.provider, parts, (*earlier, *rejected_changes)),
        renewed_count=len(renewed) - len(rejected_changes),
        changes=tuple(moves),
        refused_rows=tuple(one for part in answer.parts for one in part.refused),
        unanswered=tuple(unanswered),
        unknown_types=tuple(sorted(unknown_types)),
        not_renewed=tuple(_not_renewed(answer, answered_scopes, renewed)),
    )


def _price_change(
    known_row: PriceRow | None, row: PriceRow, provider: str, max_factor: float, *, accept: bool
) -> ListPriceChange | None:
    previous = known_row or embedded_row(provider, row.key)
    return None if previous is None else price_change(previous, row, max_factor, accept=accept)


def _rows_in_use(
    rows_and_moves: list[tuple[PriceRow, ListPriceChange | None]], known_rows: dict[RowKey, PriceRow]
) -> Iterator[PriceRow]:
    """Yield the rows in use from now on; for a price that was held back, the last refreshed one, if there is one."""
    for row, move in rows_and_moves:
        if move is None or move.is_accepted:
            yield row
        elif row.key in known_rows:
            yield known_rows[row.key]


def _unrefused_rows(previous: StoredPrices, part: PricePart) -> Iterator[PriceRow]:
    """Yield a part's last rows that are missing now, if some of its rows were refused: they may be the missing ones."""
    last_part = previous.parts.get(part.scope)
    answered = {row.key for row in part.rows}
    if part.refused and last_part is not None:
        yield from (row for row in last_part.rows if row.key not in answered)


def _earlier_held_back(
    previous: StoredPrices, rejected_changes: list[PriceRow], parts: dict[str, StoredPart], answered_scopes: set[str]
) -> Iterator[PriceRow]:
    """Yield the prices that were held back before and are not in the parts that answered this time."""
    answered = {row.key for scope in answered_scopes for row in parts[scope].rows} | {
        row.key for row in rejected_changes
    }
    yield from (row for row in previous.rejected_changes if row.key not in answered)


def _not_renewed(answer: PriceList, answered_scopes: set[str], renewed: set[RowKey]) -> Iterator[str]:
    regions = {
        row.key.region
        for part in answer.parts
        if part.scope in answered_scopes
        for row in part.rows
        if row.key.market is Market.ON_DEMAND
    }
    for name, type_entry in catalogue()["types"][answer.provider].items():
        for region in sorted(regions) if not type_entry.get("legacy") and not type_entry.get("spot_only") else ():
            key = RowKey(name, region, Market.ON_DEMAND)
            if key not in renewed and listed_price(answer.provider, name, region, Market.ON_DEMAND):
                yield f"{name} in {region}"


def embedded_row(provider: str, key: RowKey) -> PriceRow | None:
    """Return the embedded price for a key; None where there is none."""
    if key.market is None:
        prices = [price for price in embedded_storage(provider, key.item) if price.region == key.region and price.as_of]
        return storage_row(max(prices, key=lambda price: price.price)) if prices else None
    candidates = (price for price in embedded_prices(provider, key.item) if price.region == key.region)
    return next((machine_row(key.item, price) for price in candidates if price.market is key.market), None)


def embedded_rows(provider: str) -> Iterator[PriceRow]:
    """Yield every embedded price of a provider that has a date."""
    for name in catalogue()["prices"][provider]:
        yield from (machine_row(name, price) for price in embedded_prices(provider, name))
    for kind in storage_kinds(provider):
        yield from (storage_row(price) for price in embedded_storage(provider, kind) if price.as_of)


def machine_row(name: str, listed: ListedPrice) -> PriceRow:
    """Return a listed price of a machine as a row."""
    price = listed.price
    key = RowKey(name, listed.region, listed.market)
    return PriceRow(key, PER_HOUR, price.per_hour, price.source, price.as_of, price.basis, listed.corroboration)


def storage_row(price: DiskPrice) -> PriceRow:
    """Return a dated price of storage as a row; one without a date counts as unverified."""
    if price.as_of is None:
        raise ValueError(f"{price.kind} has no date")
    key = RowKey(price.kind, price.region, None)
    return PriceRow(key, price.unit, price.price, price.source, price.as_of, Basis(price.basis), price.note)
