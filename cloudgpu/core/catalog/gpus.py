"""Compares GPUs by speed, finds the nearest replacement for one, and describes drivers and public images.

Speeds are compared as measured if both GPUs were, else by a figure that both have. The replacement is found by memory
and training speed, then by price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.catalog.catalog import NO_TENSOR_CORES, CatalogOffer, GpuSpec, by_price, speed

STILL_SUPPORTED = ""  # as `last_branch` or `last_cuda`: the newest version still supports the GPU


@dataclass(frozen=True, slots=True)
class GpuDriver:
    """The driver for a generation of NVIDIA GPUs.

    `last_branch` and `last_cuda` are the last versions that support it (STILL_SUPPORTED: the newest do). `driver` and
    `toolkit` are the packages of NVIDIA's repository that install them, empty where an image with a driver is used.
    `system` is the only operating system on which that is known to work, empty for any. `unverified` names what has no
    source.
    """

    family: str
    last_branch: str
    last_cuda: str
    driver: str
    toolkit: str
    system: str
    unverified: str
    source: str
    as_of: str

    @property
    def is_current(self) -> bool:
        """Say whether an image with the newest driver works with the GPU."""
        return self.last_branch == STILL_SUPPORTED


@dataclass(frozen=True, slots=True)
class PublicImage:
    """A public machine image: the parameter that names its newest version, or the pattern of its name and its owner."""

    provider: str
    use: str  # `cuda` (NVIDIA's driver is on it) or `plain`
    machine: str  # x86_64 or arm64
    system: str  # the operating system
    parameter: (
        str  # a parameter of AWS Systems Manager that holds the image's id; empty: found by `pattern` and `owner`
    )
    pattern: str
    owner: str
    source: str
    as_of: str


FindSpec = Callable[[CatalogOffer], GpuSpec | None]


def nearest_offer(
    unavailable: Sequence[GpuSpec], offers: Iterable[CatalogOffer], spec_of: FindSpec
) -> CatalogOffer | None:
    """Return the cheapest offer with at least the memory and speed of the least of the unavailable GPUs (not empty).

    If none is as fast, it is the fastest with enough memory: a slower GPU finishes the same work later, but one with
    less memory may not be able to do it. None if none has the memory.
    """
    memory = min(spec.memory_gib for spec in unavailable)
    large_enough = [offer for offer in by_price(offers) if (offer.type.gpu.memory_gib or 0) >= memory]
    required_speed = min(_speed(spec) for spec in unavailable)
    fast_enough = [offer for offer in large_enough if _speed(spec_of(offer)) >= required_speed]
    if fast_enough:
        return fast_enough[0]
    # Of equally fast ones the first, the cheapest.
    return max(large_enough, key=lambda offer: _speed(spec_of(offer)), default=None)


def _speed(spec: GpuSpec | None) -> float:
    found = None if spec is None else speed(spec)
    return 0.0 if found is None else found.vs_h100


class Workload(StrEnum):
    """The kind of work of a GPU: it decides which figures make a GPU fast."""

    TRAINING = "training"
    INFERENCE = "inference"  # decoding a language model token by token: the memory's bandwidth decides


class RatioBasis(StrEnum):
    """The figures that a ratio of speeds is computed from; only the first is a measurement of the work itself."""

    MEASURED = "measured training throughput"
    BANDWIDTH = "memory bandwidth"
    TENSOR = "dense tensor TFLOPs"
    FP32 = "FP32 TFLOPs"
    SAME = "one GPU counted as fast as the other"


@dataclass(frozen=True, slots=True)
class SpeedRatio:
    """How many hours another GPU needs for the work of an hour of this one: `ratio`, between `low` and `high`."""

    ratio: Fraction
    low: Fraction
    high: Fraction
    basis: RatioBasis


EQUAL_SPEED = SpeedRatio(Fraction(1), Fraction(1), Fraction(1), RatioBasis.SAME)


def speed_ratio(spec: GpuSpec, other: GpuSpec, work: Workload) -> SpeedRatio | None:
    """Return how many hours `other` needs for the work of an hour of `spec`; None if no figure of both is known.

    Training: the measured throughput if both were measured. Else memory bandwidth, if both have tensor cores or neither
    has (FP32 if only one has), with the range that the other figures give. Inference: bandwidth only.
    """
    if spec.name == other.name:
        return EQUAL_SPEED
    if work is Workload.INFERENCE:
        return _ratio_from(_ratio(spec.bandwidth_gbs, other.bandwidth_gbs), [], RatioBasis.BANDWIDTH)
    measured = _ratio(spec.trains_vs_h100, other.trains_vs_h100)
    if measured is not None:
        return _ratio_from(measured, [], RatioBasis.MEASURED)
    ratios = {
        RatioBasis.BANDWIDTH: _ratio(spec.bandwidth_gbs, other.bandwidth_gbs),
        RatioBasis.TENSOR: _ratio(spec.tensor_tflops, other.tensor_tflops),
        RatioBasis.FP32: _ratio(spec.fp32_tflops, other.fp32_tflops),
    }
    is_comparable = (NO_TENSOR_CORES in spec.notes) == (
        NO_TENSOR_CORES in other.notes
    )  # both have tensor cores or neither; by their notes, as a figure may be missing
    for basis in list(ratios) if is_comparable else [RatioBasis.FP32, RatioBasis.BANDWIDTH]:
        ratio = ratios[basis]
        if ratio is not None:
            return _ratio_from(ratio, [known for known in ratios.values() if known is not None], basis)
    return None


def _ratio_from(ratio: Fraction | None, others: list[Fraction], basis: RatioBasis) -> SpeedRatio | None:
    return None if ratio is None else SpeedRatio(ratio, min([ratio, *others]), max([ratio, *others]), basis)


def _ratio(figure: float | None, other: float | None) -> Fraction | None:
    return None if not figure or not other else Fraction(str(figure)) / Fraction(str(other))
