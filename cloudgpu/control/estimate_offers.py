"""Which offers of the catalogue an estimate is about, and which wish is in the way where there are none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudgpu import catalog
from cloudgpu.core.advice.estimate import Precision, peak_tflops
from cloudgpu.core.catalog.catalog import by_price
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.naming import near
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.estimate_asked import Wish
    from cloudgpu.core.catalog.catalog import CatalogOffer
    from cloudgpu.core.values.money import Money


def typed(wish: Wish) -> Wish:
    """Return the wish with its type as the catalogue writes it, and the provider whose that is."""
    if wish.type is None:
        return wish
    names = {
        _plain(shape.name): (shape.provider, shape.name)
        for shape in catalog.types(wish.filters.provider)
        if wish.filters.provider in (None, shape.provider)
    }
    if _plain(wish.type) not in names:
        raise _unknown_type(wish.type, [name for _, name in names.values()])
    provider, name = names[_plain(wish.type)]
    return replace(wish, type=name, filters=replace(wish.filters, provider=provider, legacy=True))


def _plain(name: str) -> str:
    return name.lower().removeprefix("standard_")


def _unknown_type(name: str, known: list[str]) -> InvalidRequest:
    alone = [one for one in known if _plain(one).startswith(f"{_plain(name)}+")]
    if name and alone:
        says, way = f"{name!r} has no GPU by itself.", f"Say which is attached to it: {', '.join(alone)}."
        return InvalidRequest(says, field="--type", value=name, next=way)
    meant = near(name, known)
    owner = next((shape for shape in catalog.types() if _plain(shape.name) == _plain(name)), None)
    if owner is not None:
        says, way = f"{name!r} is a type of {owner.provider}.", f"Leave out --provider, or write {owner.provider}."
        return InvalidRequest(says, field="--type", value=name, next=way)
    return InvalidRequest(
        f"The catalogue has no type {name!r}" + (f"; did you mean {meant!r}?" if meant else "."),
        field="--type",
        value=name,
        next=f"Use {meant}." if meant else "See all: cloudgpu gpus --all",
    )


def offers_of(wish: Wish) -> list[CatalogOffer]:
    """Return every offer that passes, in every region."""
    it = wish.filters
    found = catalog.offers(it.provider, it.region, it.market, it.gpu, legacy=it.legacy)
    return [
        offer
        for offer in found
        if wish.type in (None, offer.type.name) and it.gpu_count in (None, offer.type.gpu.count)
    ]


def withheld(wish: Wish, offers: list[CatalogOffer]) -> list[str]:
    """Return the types of a named GPU that have a price, and are not shown since they can probably not be launched."""
    if wish.filters.gpu is None or wish.filters.legacy:
        return []
    every = offers_of(replace(wish, filters=replace(wish.filters, legacy=True)))
    shown = {(offer.type.provider, offer.type.name) for offer in offers}
    named = {(offer.type.provider, offer.type.name) for offer in every}
    return sorted(f"{provider} {name}" for provider, name in named - shown)


_NOTHING: dict[str, Any] = {
    "gpu": None,
    "gpu_count": None,
    "provider": None,
    "region": None,
    "market": Market.ON_DEMAND,
    "legacy": True,
}


def without(wish: Wish) -> dict[str, tuple[int, Money]]:
    """Return for every single wish that, left out, leaves something to buy: how many types, and from what price."""
    ways = {name: replace(wish, filters=replace(wish.filters, **{name: none})) for name, none in _NOTHING.items()}
    ways["type"] = replace(wish, type=None)
    found = {}
    for name, other in ways.items():
        offers = [] if other == wish or (wish.type and name in ("provider", "legacy")) else offers_of(other)
        if offers:
            types = len({one.type.name for one in offers})
            found[name] = (types, by_price(offers)[0].listed.price.per_hour)
    return found


def precisions(offers: Iterable[CatalogOffer]) -> list[str]:
    """Return in what the GPUs of these offers have a peak that is known."""
    specs = {spec.name: spec for offer in offers if (spec := catalog.named_gpu(offer.type.gpu.name))}
    return [str(one) for one in Precision if any(peak_tflops(spec, one) for spec in specs.values())]
