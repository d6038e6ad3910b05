"""Where a recommendation's figures of GPUs, prices and the desktop come from, each with its day."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date

from cloudgpu.core.advice.desktop_build import Build, Paid
from cloudgpu.core.advice.recommend import Machine
from cloudgpu.core.advice.recommendation import Answer
from cloudgpu.core.advice.workloads import Ground, Source
from cloudgpu.core.catalog.catalog import GpuSpec, SpeedBasis
from cloudgpu.core.model.offers import Basis

_GROUNDS = {Basis.LISTED: Ground.PUBLISHED, Basis.DERIVED: Ground.DERIVED}
_DAY = re.compile(r"(\d{4})[-.](\d{2})(?:-(\d{2}))?")
_UNDATED = date(2025, 12, 1)  # of the collection of specifications that the catalogue took, where a text has no day


def of_memory(specs: Iterable[GpuSpec]) -> tuple[Source, ...]:
    """Return where it stands how much memory these GPUs have."""
    return tuple(_figures(spec) for spec in specs)


def of_speed(machine: Machine) -> Source | None:
    """Return where a machine's speed comes from; None where none is known."""
    if machine.speed is None:
        return None
    if machine.speed.basis is SpeedBasis.MEASURED:
        return _dated(machine.spec.source.rpartition("; ")[2], Ground.DERIVED)
    return _figures(machine.spec)


def of_rent(machine: Machine) -> Source:
    """Return where a machine's price comes from."""
    listed = machine.offer.listed.price
    name = f"price of {machine.offer.type.name}: {listed.source}"
    return Source(name, listed.as_of.date(), _GROUNDS.get(listed.basis, Ground.RECALLED))


def of_purchase(answer: Answer, build: Build) -> Iterator[Source]:
    """Yield where the figures of a desktop come from: its cards' price, the rest, and how it is run."""
    if build.spec.card is not None:
        what = "list price" if build.paid is Paid.LAUNCH else f"{build.paid} price"
        name = f"{what} of an {build.spec.name}: a public table of cards, {build.dated}"
        yield Source(name, build.spec.card.as_of.date(), Ground.PUBLISHED)
    yield answer.rules.figures.base_machine_usd.source
    base = answer.base
    yield Source(f"power of the rest and tariff: desktop {base.name}, {base.source}", base.as_of, Ground.PUBLISHED)


def _figures(spec: GpuSpec) -> Source:
    return _dated(f"{spec.name}: {spec.source.partition('; ')[0]}", Ground.PUBLISHED)


def _dated(text: str, ground: Ground) -> Source:
    found = _DAY.search(text)
    as_of = _UNDATED if found is None else date(int(found[1]), int(found[2]), int(found[3] or 1))
    return Source(text, as_of, ground)
