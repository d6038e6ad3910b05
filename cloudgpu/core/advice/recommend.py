"""Selects the machines of the catalogue on which a workload fits, sorted by work per dollar."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from cloudgpu.core.advice.model_memory import Memory, WeightPrecision
from cloudgpu.core.advice.workloads import Figures
from cloudgpu.core.catalog.catalog import (
    CatalogOffer,
    GpuSpec,
    Speed,
    SpeedBasis,
    by_price,
    decoding_speed,
    speed,
    speed_per_dollar,
    spot_uncertainty,
)
from cloudgpu.core.catalog.gpus import Workload
from cloudgpu.core.values.money import Money

SpecOf = Callable[[CatalogOffer], GpuSpec | None]


@dataclass(frozen=True, slots=True)
class WorkNeeds:
    """The requirements: memory, number of GPUs (None: the fewest that hold it), kind of work, precision."""

    memory: Memory
    work: Workload
    cards: int | None = None
    precision: WeightPrecision | None = None

    def min_gpus(self, gib: float | None, most: int) -> int | None:
        """Return on how many GPUs with so much memory each it runs, at most `most`; None where it does not."""
        if gib is None:
            return None
        gib_per_gpu = Fraction(str(gib))
        if self.cards is not None:
            return self.cards if self.cards <= most and self.memory.gib_per_gpu(self.cards) <= gib_per_gpu else None
        return self.memory.min_gpus(gib_per_gpu, most)

    def speed(self, spec: GpuSpec) -> Speed | None:
        """Return how fast one GPU does this work, as a part of one H100 SXM; None where nothing is known.

        For training, no GPU counts as faster than an H100 by its memory bandwidth alone: a B200 was measured at two
        thirds of such an estimate, and a GPU that was not measured must not come before it.
        """
        if self.work is not Workload.TRAINING:
            return decoding_speed(spec)
        known_speed = speed(spec)
        return (
            None
            if known_speed and known_speed.basis is SpeedBasis.BANDWIDTH and known_speed.vs_h100 > 1
            else known_speed
        )


@dataclass(frozen=True, slots=True)
class FittingOffer:
    """A machine to rent on which the workload fits, on `gpus` of its GPUs.

    `per_dollar` is the work that a dollar buys, in hours of one H100 SXM; None where its speed is not known.
    """

    offer: CatalogOffer
    spec: GpuSpec
    gpus: int
    speed: Speed | None
    per_dollar: float | None

    @property
    def price(self) -> Money:
        """What an hour costs."""
        return self.offer.listed.price.per_hour

    @property
    def whole_gpus(self) -> Fraction:
        """How many whole GPUs it has; a share of one is less than one."""
        return self.offer.type.gpu.count * Fraction(str(self.offer.type.gpu.share)).limit_denominator(8)


def exclusion_reason(spec: GpuSpec | None, need: WorkNeeds, figures: Figures) -> str | None:
    """Return why a GPU is not recommended, whatever its memory; None where nothing speaks against it.

    `figures` are the numbers of the rules, such as the oldest compute capability.
    """
    if spec is None or not spec.compute_capability:
        return "the catalogue has no specification of it"
    if spec.compute_capability.startswith("gfx"):
        return "an AMD GPU, and the images that machines are launched with are made for CUDA"
    capability = Fraction(spec.compute_capability)
    if capability < figures.oldest_capability.value:
        return "older than Volta: no tensor cores, and today's frameworks leave it out"
    if need.precision is WeightPrecision.BF16 and capability < figures.bf16_capability.value:
        return "older than Ampere: computes no bfloat16 in hardware"
    return None


def fitting_machines(
    offers: Iterable[CatalogOffer], need: WorkNeeds, spec_of: SpecOf, figures: Figures, now: datetime | None = None
) -> list[FittingOffer]:
    """Return the machines on which the work fits: those with the fewest GPUs first, of these the most work per dollar.

    Of each GPU, only the machines with the smallest number of it that is enough: several GPUs have to talk to each
    other, and a larger machine is paid whole. A machine whose speed is not known comes last of those with as many GPUs;
    equal ones are by price. With `now`, a spot price that its note doubts comes after those that are certain.
    """
    machines = [one for offer in by_price(offers) if (one := _fitting_offer(offer, need, spec_of, figures))]
    fewest: dict[tuple[str, float], int] = {}
    for one in machines:
        fewest[_gpu_key(one)] = min(one.offer.type.gpu.count, fewest.get(_gpu_key(one), one.offer.type.gpu.count))
    least = min(fewest.values(), default=0)
    fitting = [one for one in machines if one.offer.type.gpu.count == fewest[_gpu_key(one)]]
    return sorted(
        fitting, key=lambda one: (_is_doubtful(one, now), one.offer.type.gpu.count > least, -(one.per_dollar or 0.0))
    )


def _is_doubtful(machine: FittingOffer, now: datetime | None) -> bool:
    return now is not None and bool(spot_uncertainty(machine.offer, now))


def _gpu_key(machine: FittingOffer) -> tuple[str, float]:
    return machine.spec.name, machine.offer.type.gpu.share


def _fitting_offer(offer: CatalogOffer, need: WorkNeeds, spec_of: SpecOf, figures: Figures) -> FittingOffer | None:
    spec, gpu = spec_of(offer), offer.type.gpu
    if spec is None or need.cards not in (None, gpu.count) or _rejection_reason(offer, need, spec_of, figures):
        return None
    number = need.min_gpus(gpu.memory_gib, gpu.count)
    if number is None:
        return None
    gpu_speed = need.speed(spec)
    return FittingOffer(offer, spec, number, gpu_speed, speed_per_dollar(offer, gpu_speed))


def _rejection_reason(offer: CatalogOffer, need: WorkNeeds, spec_of: SpecOf, figures: Figures) -> str | None:
    if offer.type.arch == "arm64":
        return "in machines with Arm processors, for which many packages are not built"
    return exclusion_reason(spec_of(offer), need, figures)


def excluded_gpus(offers: Iterable[CatalogOffer], need: WorkNeeds, spec_of: SpecOf, figures: Figures) -> dict[str, str]:
    """Return the GPUs that have the memory and are recommended in no machine all the same, each with the reason."""
    reasons: dict[str, str] = {}
    accepted: set[str] = set()
    for offer in offers:
        gpu = offer.type.gpu
        if gpu.name not in accepted and need.min_gpus(gpu.memory_gib, gpu.count) is not None:
            why = _rejection_reason(offer, need, spec_of, figures)
            if why:
                reasons[gpu.name] = why
            else:
                accepted.add(gpu.name)
    return {name: reasons[name] for name in sorted(reasons) if name not in accepted}
