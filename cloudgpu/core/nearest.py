"""The nearest to a GPU that cannot be launched: by memory and training speed, then by price. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cloudgpu.core.catalog import CatalogOffer, GpuSpec, by_price, speed

SpecOf = Callable[[CatalogOffer], GpuSpec | None]


def nearest(lost: Sequence[GpuSpec], offers: Iterable[CatalogOffer], spec_of: SpecOf) -> CatalogOffer | None:
    """Return the cheapest offer whose GPU has the memory and the speed of the least of `lost`, which has one or more.

    Where none is as fast, it is the fastest with the memory: a slower GPU ends the same work later, one with less
    memory may not do it at all. None where none has the memory.
    """
    memory = min(spec.memory_gib for spec in lost)
    roomy = [offer for offer in by_price(offers) if (offer.type.gpu.memory_gib or 0) >= memory]
    pace = min(_speed(spec) for spec in lost)
    fast = [offer for offer in roomy if _speed(spec_of(offer)) >= pace]
    if fast:
        return fast[0]
    return max(roomy, key=lambda offer: _speed(spec_of(offer)), default=None)  # the first, cheapest, of equals


def _speed(spec: GpuSpec | None) -> float:
    found = None if spec is None else speed(spec)
    return 0.0 if found is None else found.value
