"""Takes over what a price list answered: what moved, what was held back, what stays as it was. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cloudgpu.catalog.read import catalogue, embedded, listed_price, regions
from cloudgpu.catalog.refreshed import StoredPart, StoredPrices
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
    """What came of a price list. `kept` is what stands of it; `unknown` are machines that the catalogue lacks.

    `silent` are the parts that did not answer, or answered without any price: what was known of them stands, with its
    date. `unnamed` are prices on demand of today's types that an answer did not renew.
    """

    kept: StoredPrices
    prices: int
    moves: tuple[ListPriceChange, ...]
    refused: tuple[RefusedRow, ...]
    unanswered: tuple[Unanswered, ...]
    unknown: tuple[str, ...]
    not_renewed: tuple[str, ...]


def merge_prices(before: StoredPrices, answer: PriceList, most: float, *, accept: bool) -> MergedPrices:
    """Return what stands after an answer: whole parts replace the same parts; a price that moved too far is held back.

    `most`: a price that is more than so many times the last one, or less than one so many times smaller, is held
    back and the last one stands with its date, unless `accept` says to take it.
    """
    known = {row.key: row for row in before.rows()}
    parts, moves, held_back, unanswered = (
        dict(before.parts),
        list[ListPriceChange](),
        list[PriceRow](),
        list(answer.unanswered),
    )
    names = set(catalogue()["types"][answer.provider])
    unknown = set[str]()
    for part in answer.parts:
        unknown |= {row.key.item for row in part.rows if row.key.market and row.key.item not in names}
        rows = [row for row in part.rows if row.key.market is None or row.key.item in names]
        if not rows:
            if part.scope in before.parts or part.region in ("", *regions(answer.provider)):
                unanswered.append(Unanswered(part.scope, "it answered without a single price that the catalogue knows"))
            continue  # a region in which nothing was known to be sold sells nothing
        moved = [(row, _moved(known.get(row.key), row, answer.provider, most, accept=accept)) for row in rows]
        moves += [one for _, one in moved if one is not None]
        held_back += [row for row, one in moved if one is not None and not one.is_accepted]
        in_use = (*_rows_in_use(moved, known), *_unrefused_rows(before, part))
        parts[part.scope] = StoredPart(part.asked_at, in_use)
    asked_now = {part.scope for part in answer.parts if part.scope in parts} - {one.scope for one in unanswered}
    earlier = _earlier_held_back(before, held_back, parts, asked_now)
    renewed = {row.key for part in answer.parts if part.scope in asked_now for row in part.rows}
    return MergedPrices(
        kept=StoredPrices(answer.provider, parts, (*earlier, *held_back)),
        prices=len(renewed) - len(held_back),
        moves=tuple(moves),
        refused=tuple(one for part in answer.parts for one in part.refused),
        unanswered=tuple(unanswered),
        unknown=tuple(sorted(unknown)),
        not_renewed=tuple(_not_renewed(answer, asked_now, renewed)),
    )


def _moved(
    known: PriceRow | None, row: PriceRow, provider: str, most: float, *, accept: bool
) -> ListPriceChange | None:
    previous = known or embedded_row(provider, row.key)
    return None if previous is None else price_change(previous, row, most, accept=accept)


def _rows_in_use(
    moved: list[tuple[PriceRow, ListPriceChange | None]], known: dict[RowKey, PriceRow]
) -> Iterator[PriceRow]:
    """Yield what is used from now on: of a price that was held back, the last refreshed one (or the embedded one)."""
    for row, move in moved:
        if move is None or move.is_accepted:
            yield row
        elif row.key in known:
            yield known[row.key]


def _unrefused_rows(before: StoredPrices, part: PricePart) -> Iterator[PriceRow]:
    """Yield what a part said last time and not now, if some of its rows were refused: that is no word of withdrawal."""
    last = before.parts.get(part.scope)
    answered = {row.key for row in part.rows}
    if part.refused and last is not None:
        yield from (row for row in last.rows if row.key not in answered)


def _earlier_held_back(
    before: StoredPrices, held_back: list[PriceRow], parts: dict[str, StoredPart], asked_now: set[str]
) -> Iterator[PriceRow]:
    """Yield what was held back before and was not asked about this time."""
    answered = {row.key for scope in asked_now for row in parts[scope].rows} | {row.key for row in held_back}
    yield from (row for row in before.held_back if row.key not in answered)


def _not_renewed(answer: PriceList, asked_now: set[str], renewed: set[RowKey]) -> Iterator[str]:
    regions = {row.key.region for part in answer.parts if part.scope in asked_now for row in _on_demand(part)}
    for name, shape in catalogue()["types"][answer.provider].items():
        for region in sorted(regions) if not shape.get("legacy") and not shape.get("spot_only") else ():
            key = RowKey(name, region, Market.ON_DEMAND)
            if key not in renewed and listed_price(answer.provider, name, region, Market.ON_DEMAND):
                yield f"{name} in {region}"


def _on_demand(part: PricePart) -> Iterator[PriceRow]:
    return (row for row in part.rows if row.key.market is Market.ON_DEMAND)


def embedded_row(provider: str, key: RowKey) -> PriceRow | None:
    """Return the embedded price of the same thing; None where there is none."""
    if key.market is None:
        prices = [price for price in embedded_storage(provider, key.item) if price.region == key.region and price.as_of]
        return storage_row(max(prices, key=lambda price: price.price)) if prices else None
    listed = (one for one in embedded(provider, key.item) if (one.region, one.market) == (key.region, key.market))
    return next((machine_row(key.item, price) for price in listed), None)


def embedded_rows(provider: str) -> Iterator[PriceRow]:
    """Yield every embedded price of a provider that has a date."""
    for name in catalogue()["prices"][provider]:
        yield from (machine_row(name, price) for price in embedded(provider, name))
    for kind in storage_kinds(provider):
        yield from (storage_row(price) for price in embedded_storage(provider, kind) if price.as_of)


def machine_row(name: str, one: ListedPrice) -> PriceRow:
    """Return a listed price of a machine as a row."""
    price = one.price
    key = RowKey(name, one.region, one.market)
    return PriceRow(key, PER_HOUR, price.per_hour, price.source, price.as_of, price.basis, one.check)


def storage_row(price: DiskPrice) -> PriceRow:
    """Return a dated price of storage as a row; one without a date counts as recalled."""
    if price.as_of is None:
        message = f"{price.kind} has no date"
        raise ValueError(message)
    key = RowKey(price.kind, price.region, None)
    return PriceRow(key, price.unit, price.price, price.source, price.as_of, Basis(price.basis), price.note)
