"""Takes over what a price list answered: what moved, what was held back, what stays as it was. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cloudgpu.catalog.read import catalogue, embedded, listed_price, regions
from cloudgpu.catalog.refreshed import Stored, StoredPart
from cloudgpu.catalog.storage import embedded_storage, storage_kinds
from cloudgpu.core.catalog.catalog import DiskPrice, ListedPrice
from cloudgpu.core.catalog.pricelist import (
    PER_HOUR,
    PriceList,
    PriceMove,
    PricePart,
    PriceRow,
    RefusedRow,
    RowKey,
    price_move,
)
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import Basis, Market


@dataclass(frozen=True, slots=True)
class Takeover:
    """What came of a price list. `kept` is what stands of it; `unknown` are machines that the catalogue lacks.

    `silent` are the parts that did not answer, or answered without any price: what was known of them stands, with its
    date. `unnamed` are prices on demand of today's types that an answer did not renew.
    """

    kept: Stored
    prices: int
    moves: tuple[PriceMove, ...]
    refused: tuple[RefusedRow, ...]
    silent: tuple[Unanswered, ...]
    unknown: tuple[str, ...]
    unnamed: tuple[str, ...]


def merge_prices(before: Stored, answer: PriceList, most: float, *, accept: bool) -> Takeover:
    """Return what stands after an answer: whole parts replace the same parts; a price that moved too far is held back.

    `most`: a price that is more than so many times the last one, or less than one so many times smaller, is held
    back and the last one stands with its date, unless `accept` says to take it.
    """
    known = {machine.key: machine for machine in before.rows()}
    parts, moves, held, silent = dict(before.parts), list[PriceMove](), list[PriceRow](), list(answer.unanswered)
    names = set(catalogue()["types"][answer.provider])
    unknown = set[str]()
    for part in answer.parts:
        unknown |= {machine.key.item for machine in part.rows if machine.key.market and machine.key.item not in names}
        machines = [machine for machine in part.rows if machine.key.market is None or machine.key.item in names]
        if not machines:
            if part.scope in before.parts or part.region in ("", *regions(answer.provider)):
                silent.append(Unanswered(part.scope, "it answered without a single price that the catalogue knows"))
            continue  # a region in which nothing was known to be sold sells nothing
        moved = [
            (machine, _moved(known.get(machine.key), machine, answer.provider, most, accept=accept))
            for machine in machines
        ]
        moves += [one for _, one in moved if one is not None]
        held += [machine for machine, one in moved if one is not None and not one.taken]
        standing = (*_standing(moved, known), *_left(before, part))
        parts[part.scope] = StoredPart(part.asked_at, standing)
    asked_now = {part.scope for part in answer.parts if part.scope in parts} - {one.scope for one in silent}
    earlier = _still_held(before, held, parts, asked_now)
    renewed = {machine.key for part in answer.parts if part.scope in asked_now for machine in part.rows}
    return Takeover(
        kept=Stored(answer.provider, parts, (*earlier, *held)),
        prices=len(renewed) - len(held),
        moves=tuple(moves),
        refused=tuple(one for part in answer.parts for one in part.refused),
        silent=tuple(silent),
        unknown=tuple(sorted(unknown)),
        unnamed=tuple(_unnamed(answer, asked_now, renewed)),
    )


def _moved(known: PriceRow | None, row: PriceRow, provider: str, most: float, *, accept: bool) -> PriceMove | None:
    was = known or embedded_row(provider, row.key)
    return None if was is None else price_move(was, row, most, accept=accept)


def _standing(moved: list[tuple[PriceRow, PriceMove | None]], known: dict[RowKey, PriceRow]) -> Iterator[PriceRow]:
    """Yield what is used from now on: of a price that was held back, the last refreshed one (or the embedded one)."""
    for row, one in moved:
        if one is None or one.taken:
            yield row
        elif row.key in known:
            yield known[row.key]


def _left(before: Stored, part: PricePart) -> Iterator[PriceRow]:
    """Yield what a part said last time and not now, if some of its rows were refused: that is no word of withdrawal."""
    last = before.parts.get(part.scope)
    answered = {machine.key for machine in part.rows}
    if part.refused and last is not None:
        yield from (machine for machine in last.rows if machine.key not in answered)


def _still_held(
    before: Stored, held: list[PriceRow], parts: dict[str, StoredPart], asked_now: set[str]
) -> Iterator[PriceRow]:
    """Yield what was held back before and was not asked about this time."""
    settled = {machine.key for scope in asked_now for machine in parts[scope].rows} | {machine.key for machine in held}
    yield from (machine for machine in before.held if machine.key not in settled)


def _unnamed(answer: PriceList, asked_now: set[str], renewed: set[RowKey]) -> Iterator[str]:
    regions = {row.key.region for part in answer.parts if part.scope in asked_now for row in _on_demand(part)}
    for name, shape in catalogue()["types"][answer.provider].items():
        for region in sorted(regions) if not shape.get("legacy") and not shape.get("spot_only") else ():
            key = RowKey(name, region, Market.ON_DEMAND)
            if key not in renewed and listed_price(answer.provider, name, region, Market.ON_DEMAND):
                yield f"{name} in {region}"


def _on_demand(part: PricePart) -> Iterator[PriceRow]:
    return (machine for machine in part.rows if machine.key.market is Market.ON_DEMAND)


def embedded_row(provider: str, key: RowKey) -> PriceRow | None:
    """Return the embedded price of the same thing; None where there is none."""
    if key.market is None:
        found = [one for one in embedded_storage(provider, key.item) if one.region == key.region and one.as_of]
        return storage_row(max(found, key=lambda one: one.price)) if found else None
    listed = (one for one in embedded(provider, key.item) if (one.region, one.market) == (key.region, key.market))
    return next((machine_row(key.item, one) for one in listed), None)


def embedded_rows(provider: str) -> Iterator[PriceRow]:
    """Yield every embedded price of a provider that has a date."""
    for name in catalogue()["prices"][provider]:
        yield from (machine_row(name, one) for one in embedded(provider, name))
    for kind in storage_kinds(provider):
        yield from (storage_row(one) for one in embedded_storage(provider, kind) if one.as_of)


def machine_row(name: str, one: ListedPrice) -> PriceRow:
    """Return a listed price of a machine as a row."""
    price = one.price
    key = RowKey(name, one.region, one.market)
    return PriceRow(key, PER_HOUR, price.per_hour, price.source, price.as_of, price.basis, one.check)


def storage_row(one: DiskPrice) -> PriceRow:
    """Return a dated price of storage as a row; one without a date counts as recalled."""
    if one.as_of is None:
        message = f"{one.kind} has no date"
        raise ValueError(message)
    key = RowKey(one.kind, one.region, None)
    return PriceRow(key, one.unit, one.price, one.source, one.as_of, Basis(one.basis), one.note)
