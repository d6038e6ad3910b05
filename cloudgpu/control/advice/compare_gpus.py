"""Which GPUs the ledger's machines have, how fast the desktop's is beside them, and where the same can be rented."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.catalog.read import gpu_of
from cloudgpu.core.advice.compare import Own
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec
from cloudgpu.core.catalog.gpus import Work, faster
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.units import Energy

if TYPE_CHECKING:
    from cloudgpu.control.activity.utilization import OwnMachine
    from cloudgpu.core.values.money import Money

_KWH = 3_600_000  # joules


def own(machine: Machine, found: OwnMachine, work: Work, cost: Money | None, *, read: bool) -> Own:
    """Return what one of the user's own machines did; `cost` is what the ledger says it came to, None: not known.

    Where its GPUs are not `read`, all its use counts as work.
    """
    gpu = gpu_of(machine)
    hours = found.gpu_hours if read else found.hours
    spec = None if gpu is None else catalog.spec_of(gpu.name, gpu.memory_gib)
    offer, ratio = (None, Fraction(1)) if spec is None else cheapest(spec, work)
    return Own(
        id=found.id,
        name=found.name or found.id,
        gpu="" if gpu is None else gpu.name,
        gpus=0.0 if gpu is None else gpu.count * gpu.share,
        worked=timedelta(hours=hours),
        unknown=timedelta(hours=found.unknown_hours),
        energy=_energy(found, hours),
        electricity=cost,
        assumed=machine.price is not None and machine.price.basis == Basis.ASSUMED,
        offer=offer,
        ratio=ratio,
        cards=timedelta(hours=found.card_hours),
        counted=timedelta(hours=found.counted_hours),
    )


def _energy(found: OwnMachine, hours: float) -> Energy | None:
    """Return what its GPUs drew, where that was measured: hours that were not are as the others' mean."""
    if found.kwh is None or not found.measured_hours:
        return None
    late = max(0.0, hours - found.measured_hours)
    return Energy(Fraction(found.kwh) + Fraction(found.watts or 0.0) * Fraction(late) / 1000)


def cheapest(spec: GpuSpec, work: Work) -> tuple[CatalogOffer | None, Fraction]:
    """Return the cheapest on-demand offer of this GPU and 1; where no cloud lists it, of the same work and its ratio.

    That is how many hours of the offer's GPU an hour of this one does. None where nothing is known.
    """
    offers = [offer for offer in catalog.offers(market=Market.ON_DEMAND) if offer.type.gpu.share]
    same = [(offer, Fraction(1)) for offer in offers if offer.type.gpu.name == spec.name]
    found = same or [(offer, ratio) for offer in offers if (ratio := _ratio(spec, offer, work))]
    if not found:
        return None, Fraction(1)
    return min(found, key=lambda one: (_per_gpu(one[0]) * one[1], one[0].type.provider, one[0].type.name))


def _ratio(spec: GpuSpec, offer: CatalogOffer, work: Work) -> Fraction | None:
    other = catalog.spec_of(offer.type.gpu.name, offer.type.gpu.memory_gib)
    found = None if other is None else faster(spec, other, work)
    return None if found is None else found.ratio


def _per_gpu(offer: CatalogOffer) -> Fraction:
    """Return what an hour of one whole GPU of it costs, in nano-dollars."""
    gpu = offer.type.gpu
    return Fraction(offer.listed.price.per_hour.nanos) / (Fraction(str(gpu.share)) * gpu.count)
