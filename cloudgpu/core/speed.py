"""How fast one GPU is beside another: measured where both were, else by the figure that both have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.catalog import NO_TENSOR, GpuSpec


class Work(StrEnum):
    """What a GPU does, as far as that decides what makes it fast."""

    TRAINING = "training"
    INFERENCE = "inference"  # decoding a language model token by token: the memory's bandwidth decides


class Rests(StrEnum):
    """What a ratio of speeds rests on; only the first is a measurement of the work itself."""

    MEASURED = "measured training throughput"
    BANDWIDTH = "memory bandwidth"
    TENSOR = "dense tensor TFLOPs"
    FP32 = "FP32 TFLOPs"
    SAME = "one GPU counted as fast as the other"


@dataclass(frozen=True, slots=True)
class Faster:
    """How many hours of another GPU an hour of one does: `ratio`, between `low` and `high`, and what that rests on."""

    ratio: Fraction
    low: Fraction
    high: Fraction
    rests: Rests


EQUAL = Faster(Fraction(1), Fraction(1), Fraction(1), Rests.SAME)


def faster(one: GpuSpec, other: GpuSpec, work: Work) -> Faster | None:
    """Return how many hours of `other` an hour of `one` does; None where no figure of both is known.

    Training: the measured throughput where both were measured. Else the memory's bandwidth, where both have tensor
    cores or neither has, with the range that the other figures of both give. Inference: bandwidth alone.
    """
    if one.name == other.name:
        return EQUAL
    if work is Work.INFERENCE:
        return _of(_ratio(one.bandwidth_gbs, other.bandwidth_gbs), [], Rests.BANDWIDTH)
    measured = _ratio(one.trains_vs_h100, other.trains_vs_h100)
    if measured is not None:
        return _of(measured, [], Rests.MEASURED)
    found = {
        Rests.BANDWIDTH: _ratio(one.bandwidth_gbs, other.bandwidth_gbs),
        Rests.TENSOR: _ratio(one.tensor_tflops, other.tensor_tflops),
        Rests.FP32: _ratio(one.fp32_tflops, other.fp32_tflops),
    }
    alike = (NO_TENSOR in one.notes) == (NO_TENSOR in other.notes)  # a figure that is missing says nothing of that
    order = list(found) if alike else [Rests.FP32, Rests.BANDWIDTH]
    for rests in order:
        ratio = found[rests]
        if ratio is not None:
            return _of(ratio, [each for each in found.values() if each is not None], rests)
    return None


def _of(ratio: Fraction | None, others: list[Fraction], rests: Rests) -> Faster | None:
    return None if ratio is None else Faster(ratio, min([ratio, *others]), max([ratio, *others]), rests)


def _ratio(one: float | None, other: float | None) -> Fraction | None:
    return None if not one or not other else Fraction(str(one)) / Fraction(str(other))
