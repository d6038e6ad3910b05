"""What the catalogue says a thing costs and cost, and what a refresh changed, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from cloudgpu import catalog
from cloudgpu.catalog.read import catalogue, embedded
from cloudgpu.catalog.refreshed import StoredPrices, index, stored
from cloudgpu.catalog.rules import LISTED
from cloudgpu.catalog.storage import covers, embedded_storage, storage_prices
from cloudgpu.catalog.takeover import embedded_rows
from cloudgpu.control.catalog.market import check_listed
from cloudgpu.core.catalog.catalog import is_old
from cloudgpu.core.catalog.pricelist import PriceMove, PriceRow, RowKey, large_moves
from cloudgpu.core.model.offers import Trust
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.catalog import (
    CURRENT,
    HISTORIC,
    SUPERSEDED,
    machine_price,
    past_price,
    price_change_value,
    storage_price,
)

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.catalog import (
        CatalogDiffDocument,
        CatalogDocument,
        CatalogItemDocument,
        CatalogPrice,
        CatalogProvider,
    )

What = Literal["machine", "storage", "part"]


def overview(provider: str | None, now: datetime) -> CatalogDocument:
    """Return how much the catalogue knows of each provider, how old that is, and what of it was refreshed when."""
    kinds = catalog.storage_kinds
    chosen = LISTED if provider is None else (_provider(provider),)
    return {
        "compiled": f"{catalog.compiled_on():%Y-%m-%d}",
        "providers": [_summary(one, len(kinds(one)), now) for one in chosen],
    }


def _summary(provider: str, kinds: int, now: datetime) -> CatalogProvider:
    listed = catalog.offers(provider, with_legacy=True, trust=Trust.COMMUNITY)
    dates = sorted(offer.listed.price.as_of for offer in listed)
    error, kept = _kept(provider)
    return {
        "provider": provider,
        "types": len({offer.type.name for offer in listed}),
        "legacy": len({offer.type.name for offer in listed if offer.type.legacy_reason}),
        "regions": len(catalog.regions(provider)),
        "prices": len(listed),
        "storage": kinds,
        "oldest": iso(dates[0]),
        "newest": iso(dates[-1]),
        "old": sum(is_old(date, now) for date in dates),
        "derived": sum(str(offer.listed.price.basis) == "derived" for offer in listed),
        "recalled": sum(str(offer.listed.price.basis) == "recalled" for offer in listed),
        "refreshed": [{"scope": scope, "refreshed_at": iso(part.asked_at)} for scope, part in kept.parts.items()],
        "held": len(kept.held_back),
        "error": error,
    }


def _kept(provider: str) -> tuple[str | None, StoredPrices]:
    try:
        return None, stored(provider)
    except InvalidRequest as error:
        return error.message, StoredPrices(provider)


def show_prices(
    name: str, provider: str | None, region: str | None, now: datetime, *, history: bool
) -> CatalogItemDocument:
    """Return what a machine type, a kind of storage or a GPU sold apart costs, in every region or in one.

    With `history` also what a refresh superseded and what was quoted in the past. Raises InvalidRequest for a name that
    the catalogue lacks, or that two providers have.
    """
    owner, what, name = _found(name, provider)
    if region is not None and what == "machine":
        catalog.check_region(region, owner)
    prices = [value for value in _prices(owner, what, name, now) if history or value["state"] == CURRENT]
    shape = catalog.instance_type(owner, name) if what == "machine" else None
    return {
        "provider": owner,
        "item": name,
        "what": what,
        "legacy": (shape.legacy_reason or None) if shape else None,
        "recalled": list(shape.recalled) if shape else [],
        "notes": shape.notes if shape else "",
        "prices": [value for value in prices if region is None or covers(value["region"], region)],
        "error": _kept(owner)[0],
    }


def _provider(provider: str) -> str:
    check_listed(provider)
    catalog.omitted_types(provider)  # raises for one that it does not have
    return provider


def _found(name: str, provider: str | None) -> tuple[str, What, str]:
    """Return whose a name is, what it names (`machine`, `storage` or `part`), and how the catalogue writes it.

    Azure's machines are found as `gpus` shows them, too, without `Standard_`; small and capital letters are the same.
    """
    wanted = LISTED if provider is None else (_provider(provider),)
    named = {one: dict(_names(one)) for one in wanted}
    spelt = {one: {_plain(other): other for other in names} for one, names in named.items()}
    owners = [one for one in wanted if _plain(name) in spelt[one]]
    if len(owners) == 1:
        written = spelt[owners[0]][_plain(name)]
        return owners[0], named[owners[0]][written], written
    if owners:
        says, remedy = f"Several providers have {name!r}.", f"Name one: --provider {' | '.join(owners)}"
        raise InvalidRequest(says, field="--provider", value=None, next=remedy)
    raise unknown_word(
        f"The catalogue has no {name!r}",
        name,
        [one for names in named.values() for one in names],
        field="TYPE",
        use="Run: cloudgpu catalog show {}",
        next="See types: cloudgpu gpus --all",
    )


def _plain(name: str) -> str:
    return name.lower().removeprefix("standard_")


def _names(provider: str) -> Iterator[tuple[str, What]]:
    yield from ((one.item, "part") for one in (*catalog.component_prices(provider), *catalog.past_prices(provider)))
    yield from ((kind, "storage") for kind in catalog.storage_kinds(provider))
    yield from ((name, "machine") for name in catalogue()["types"][provider])


def _prices(provider: str, what: What, name: str, now: datetime) -> Iterator[CatalogPrice]:
    if what == "machine":
        current = [
            offer.listed
            for offer in catalog.offers(provider, with_legacy=True, trust=Trust.COMMUNITY)
            if offer.type.name == name
        ]
        fresh = index(provider).machines.get(name, {})
        past = [one for one in embedded(provider, name) if (one.region, one.market) in fresh]
        yield from (machine_price(one, CURRENT, now) for one in current)
        yield from (machine_price(one, SUPERSEDED, now) for one in past)
    elif what == "storage":
        renewed = index(provider).storage.get(name, {})
        yield from (storage_price(one, CURRENT, now) for one in storage_prices(provider, name))
        yield from (
            storage_price(one, SUPERSEDED, now) for one in embedded_storage(provider, name) if one.region in renewed
        )
    else:
        yield from (past_price(one, CURRENT, now) for one in catalog.component_prices(provider, name))
    yield from (past_price(one, HISTORIC, now) for one in catalog.past_prices(provider, name))


def difference(provider: str | None, factor: float, *, last: bool) -> CatalogDiffDocument:
    """Return what refreshed prices changed: against the embedded ones, or with `last` against the refresh before.

    `jumps` counts the changes by more than `factor`; what was held back stands under the changes with `accepted` false.
    """
    chosen = LISTED if provider is None else (_provider(provider),)
    moves = [(one, move) for one in chosen for move in _moves(one, last=last)]
    return {
        "against": "the refresh before" if last else "the embedded prices",
        "factor": factor,
        "changes": [price_change_value(one, move) for one, move in moves],
        "jumps": len(large_moves((move for _, move in moves), factor)),
        "new": sum(len(list(_new(one, last=last))) for one in chosen),
    }


def _moves(provider: str, *, last: bool) -> Iterator[PriceMove]:
    was = _by_key(_earlier(provider, last=last))
    kept = stored(provider)
    for taken, rows in ((True, list(kept.rows())), (False, list(kept.held_back))):
        for row in sorted(rows, key=lambda row: (row.key.item, row.key.region, row.key.market or "")):
            old = was.get(row.key)
            if old is not None and (old.price, old.unit) != (row.price, row.unit):
                yield PriceMove(row.key, row.unit, old, row, taken)


def _new(provider: str, *, last: bool) -> Iterator[PriceRow]:
    was = _by_key(_earlier(provider, last=last))
    return (row for row in stored(provider).rows() if row.key not in was)


def _earlier(provider: str, *, last: bool) -> Iterable[PriceRow]:
    return stored(provider, before=True).rows() if last else embedded_rows(provider)


def _by_key(rows: Iterable[PriceRow]) -> dict[RowKey, PriceRow]:
    return {row.key: row for row in rows}
