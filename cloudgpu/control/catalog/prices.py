"""The documents of `catalog` and `prices`: what the catalogue has, present and past prices, changes by a refresh."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from cloudgpu import catalog
from cloudgpu.catalog.read import catalogue, embedded_prices
from cloudgpu.catalog.refreshed import is_outdated, price_index, readable_prices, stored_prices
from cloudgpu.catalog.rules import LISTED_PROVIDERS
from cloudgpu.catalog.storage import covers_region, embedded_storage, storage_prices
from cloudgpu.catalog.takeover import embedded_rows
from cloudgpu.control.catalog.market import check_listed
from cloudgpu.core.catalog.catalog import is_old_price
from cloudgpu.core.catalog.pricelist import ListPriceChange, PriceRow, RowKey, large_changes
from cloudgpu.core.model.offers import Trust
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.catalog import (
    CURRENT,
    HISTORIC,
    SUPERSEDED,
    dated_price,
    machine_price,
    price_change_document,
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

ItemKind = Literal["machine", "storage", "part"]  # a part is a GPU that is sold apart from machines


def catalog_overview(provider: str | None, now: datetime) -> CatalogDocument:
    """Return how much the catalogue has of each provider (or one), how old that is, and what was refreshed when."""
    return {
        "compiled": f"{catalog.compiled_on():%Y-%m-%d}",
        "providers": [_summary(name, now) for name in _listed_providers(provider)],
    }


def _summary(provider: str, now: datetime) -> CatalogProvider:
    offers = catalog.offers(provider, with_legacy=True, trust=Trust.COMMUNITY)
    dates = sorted(offer.listed.price.as_of for offer in offers)
    refreshed, error = readable_prices(provider)
    return {
        "provider": provider,
        "types": len({offer.type.name for offer in offers}),
        "legacy": len({offer.type.name for offer in offers if offer.type.legacy_reason}),
        "regions": len(catalog.regions(provider)),
        "prices": len(offers),
        "storage": len(catalog.storage_kinds(provider)),
        "oldest": iso(dates[0]),
        "newest": iso(dates[-1]),
        "old": sum(is_old_price(date, now) for date in dates),
        "derived": sum(str(offer.listed.price.basis) == "derived" for offer in offers),
        "unverified": sum(str(offer.listed.price.basis) == "unverified" for offer in offers),
        "refreshed": [{"scope": scope, "refreshed_at": iso(part.asked_at)} for scope, part in refreshed.parts.items()],
        "held": len(refreshed.rejected_changes),
        "error": error,
    }


def show_prices(
    name: str, provider: str | None, region: str | None, now: datetime, *, history: bool
) -> CatalogItemDocument:
    """Return what a machine type, a kind of storage or a separately sold GPU costs, in every region or in one.

    With `history` also prices that a refresh replaced, and historical prices. Raises InvalidRequest for a name that the
    catalogue lacks, or that two providers have.
    """
    provider_name, kind, name = _find_item(name, provider)
    if region is not None and kind == "machine":
        catalog.check_region(region, provider_name)
    prices = [price for price in _prices(provider_name, kind, name, now) if history or price["state"] == CURRENT]
    shown = [price for price in prices if region is None or covers_region(price["region"], region)]
    if region is not None and not shown:  # storage or a part, which may have prices where no machine has one
        catalog.check_region(region, provider_name)
    machine_type = catalog.instance_type(provider_name, name) if kind == "machine" else None
    return {
        "provider": provider_name,
        "item": name,
        "what": kind,
        "legacy": (machine_type.legacy_reason or None) if machine_type else None,
        "unverified": list(machine_type.unverified) if machine_type else [],
        "notes": machine_type.notes if machine_type else "",
        "prices": shown,
        "error": readable_prices(provider_name)[1],
    }


def _listed_providers(provider: str | None) -> tuple[str, ...]:
    """Return this provider, or all of the catalogue for None. Raises InvalidRequest if the catalogue lacks it."""
    if provider is None:
        return tuple(LISTED_PROVIDERS)
    check_listed(provider)
    catalog.omitted_types(provider)  # raises for an unknown provider
    return (provider,)


def _find_item(name: str, provider: str | None) -> tuple[str, ItemKind, str]:
    """Return the provider of the item with this name, its kind, and the name as the catalogue writes it.

    Case does not matter. Azure's types are also found without `Standard_`, as `gpus` shows them.
    """
    providers = _listed_providers(provider)
    kinds = {listed: dict(_named_items(listed)) for listed in providers}
    spellings = {one: {_normalized(written): written for written in names} for one, names in kinds.items()}
    provider_names = [provider for provider in providers if _normalized(name) in spellings[provider]]
    if len(provider_names) == 1:
        written = spellings[provider_names[0]][_normalized(name)]
        return provider_names[0], kinds[provider_names[0]][written], written
    if provider_names:
        message, remedy = f"Several providers have {name!r}.", f"Name one: --provider {' | '.join(provider_names)}"
        raise InvalidRequest(message, field="--provider", value=None, next=remedy)
    raise unknown_word(
        f"The catalogue has no {name!r}",
        name,
        [written for names in kinds.values() for written in names],
        field="TYPE",
        use="Run: cloudgpu catalog show {}",
        next="See types: cloudgpu gpus --all",
    )


def _normalized(name: str) -> str:
    return name.lower().removeprefix("standard_")


def _named_items(provider: str) -> Iterator[tuple[str, ItemKind]]:
    """Yield the name and kind of each item that the catalogue has of a provider."""
    components = (*catalog.component_prices(provider), *catalog.past_prices(provider))
    yield from ((price.item, "part") for price in components)
    yield from ((kind, "storage") for kind in catalog.storage_kinds(provider))
    yield from ((name, "machine") for name in catalogue()["types"][provider])


def _prices(provider: str, kind: ItemKind, name: str, now: datetime) -> Iterator[CatalogPrice]:
    """Yield the current prices of an item, then those that a refresh replaced, then historical ones."""
    if kind == "machine":
        refreshed = price_index(provider).machines.get(name, {})
        yield from (
            machine_price(offer.listed, CURRENT, now)
            for offer in catalog.offers(provider, with_legacy=True, trust=Trust.COMMUNITY)
            if offer.type.name == name
        )
        yield from (
            machine_price(price, SUPERSEDED, now)
            for price in embedded_prices(provider, name)
            if (price.region, price.market) in refreshed
        )
    elif kind == "storage":
        refreshed_regions = price_index(provider).storage.get(name, {})
        yield from (storage_price(price, CURRENT, now) for price in storage_prices(provider, name))
        yield from (
            storage_price(price, SUPERSEDED, now)
            for price in embedded_storage(provider, name)
            if price.region in refreshed_regions
        )
    else:
        yield from (dated_price(price, CURRENT, now) for price in catalog.component_prices(provider, name))
    yield from (dated_price(price, HISTORIC, now) for price in catalog.past_prices(provider, name))


def price_difference_document(provider: str | None, factor: float, *, last: bool) -> CatalogDiffDocument:
    """Return how refreshed prices differ from the embedded ones, or with `last` from the refresh before.

    `jumps` counts the changes by more than `factor`; withheld prices are among the changes, with `accepted` false.
    """
    providers = _listed_providers(provider)
    changes = [(name, change) for name in providers for change in _price_changes(name, last=last)]
    return {
        "against": "the refresh before" if last else "the embedded prices",
        "factor": factor,
        "changes": [price_change_document(name, change) for name, change in changes],
        "jumps": len(large_changes((change for _, change in changes), factor)),
        "new": sum(_count_new(name, last=last) for name in providers),
    }


def _price_changes(provider: str, *, last: bool) -> Iterator[ListPriceChange]:
    """Yield the accepted changes of prices, then the withheld ones."""
    earlier = _earlier_by_key(provider, last=last)
    refreshed = stored_prices(provider)
    in_use = [row for row in refreshed.rows() if not is_outdated(provider, row)]
    for is_accepted, price_rows in ((True, in_use), (False, list(refreshed.rejected_changes))):
        for row in sorted(price_rows, key=lambda row: (row.key.item, row.key.region, row.key.market or "")):
            earlier_price = earlier.get(row.key)
            if earlier_price is not None and (earlier_price.price, earlier_price.unit) != (row.price, row.unit):
                yield ListPriceChange(row.key, row.unit, earlier_price, row, is_accepted)


def _count_new(provider: str, *, last: bool) -> int:
    """Return how many refreshed prices have no earlier one."""
    earlier = _earlier_by_key(provider, last=last)
    return sum(row.key not in earlier for row in stored_prices(provider).rows())


def _earlier_by_key(provider: str, *, last: bool) -> dict[RowKey, PriceRow]:
    """Return the embedded prices by their keys, or with `last` those of the refresh before the last one."""
    price_rows = stored_prices(provider, before=True).rows() if last else embedded_rows(provider)
    return {row.key: row for row in price_rows}
