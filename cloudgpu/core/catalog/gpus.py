"""Compares GPUs by speed, finds the nearest to one that cannot be launched, and holds facts of drivers and images.

Speed is as measured where both GPUs were, else by the figure that both have. The nearest is found by memory and
training speed, then by price. The facts say which driver drives a GPU and which public images there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.catalog.catalog import NO_TENSOR, CatalogOffer, GpuSpec, by_price, speed

CURRENT = ""  # of a branch or a version: today's newest still supports the GPU


@dataclass(frozen=True, slots=True)
class GpuDriver:
    """What drives a generation of NVIDIA GPUs.

    `last_branch` and `last_cuda` are the last that support it (CURRENT: they still do). `driver` and `toolkit` are the
    packages of NVIDIA's repository that install them, empty where an image with a driver is used. `system` is the only
    system on which that is known to work, empty for any. `recalled` says what rests on memory.
    """

    family: str
    last_branch: str
    last_cuda: str
    driver: str
    toolkit: str
    system: str
    recalled: str
    source: str
    as_of: str

    @property
    def is_current(self) -> bool:
        """Say whether an image with today's driver drives it."""
        return self.last_branch == CURRENT


@dataclass(frozen=True, slots=True)
class PublicImage:
    """A public image that is kept up to date: its parameter, and the pattern of its name with its owner."""

    provider: str
    use: str  # `cuda` (NVIDIA's driver is on it) or `plain`
    machine: str  # x86_64 or arm64
    system: str
    parameter: str
    pattern: str
    owner: str
    source: str
    as_of: str


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


class Work(StrEnum):
    """What a GPU does, as far as that decides what makes it fast."""

    TRAINING = "training"
    INFERENCE = "inference"  # decoding a language model token by token: the memory's bandwidth decides


class RatioBasis(StrEnum):
    """What a ratio of speeds rests on; only the first is a measurement of the work itself."""

    MEASURED = "measured training throughput"
    BANDWIDTH = "memory bandwidth"
    TENSOR = "dense tensor TFLOPs"
    FP32 = "FP32 TFLOPs"
    SAME = "one GPU counted as fast as the other"


@dataclass(frozen=True, slots=True)
class SpeedRatio:
    """How many hours of another GPU an hour of one does: `ratio`, between `low` and `high`, and what that rests on."""

    ratio: Fraction
    low: Fraction
    high: Fraction
    basis: RatioBasis


EQUAL = SpeedRatio(Fraction(1), Fraction(1), Fraction(1), RatioBasis.SAME)


def speed_ratio(spec: GpuSpec, other: GpuSpec, work: Work) -> SpeedRatio | None:
    """Return how many hours of `other` an hour of `one` does; None where no figure of both is known.

    Training: the measured throughput where both were measured. Else the memory's bandwidth, where both have tensor
    cores or neither has, with the range that the other figures of both give. Inference: bandwidth alone.
    """
    if spec.name == other.name:
        return EQUAL
    if work is Work.INFERENCE:
        return _ratio_from(_ratio(spec.bandwidth_gbs, other.bandwidth_gbs), [], RatioBasis.BANDWIDTH)
    measured = _ratio(spec.trains_vs_h100, other.trains_vs_h100)
    if measured is not None:
        return _ratio_from(measured, [], RatioBasis.MEASURED)
    found = {
        RatioBasis.BANDWIDTH: _ratio(spec.bandwidth_gbs, other.bandwidth_gbs),
        RatioBasis.TENSOR: _ratio(spec.tensor_tflops, other.tensor_tflops),
        RatioBasis.FP32: _ratio(spec.fp32_tflops, other.fp32_tflops),
    }
    alike = (NO_TENSOR in spec.notes) == (NO_TENSOR in other.notes)  # a figure that is missing says nothing of that
    order = list(found) if alike else [RatioBasis.FP32, RatioBasis.BANDWIDTH]
    for rests in order:
        ratio = found[rests]
        if ratio is not None:
            return _ratio_from(ratio, [each for each in found.values() if each is not None], rests)
    return None


def _ratio_from(ratio: Fraction | None, others: list[Fraction], rests: RatioBasis) -> SpeedRatio | None:
    return None if ratio is None else SpeedRatio(ratio, min([ratio, *others]), max([ratio, *others]), rests)


def _ratio(one: float | None, other: float | None) -> Fraction | None:
    return None if not one or not other else Fraction(str(one)) / Fraction(str(other))
