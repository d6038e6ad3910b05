"""How much memory a model takes on its GPUs: by its parameters, the precision and what is done with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.advice.workloads import Figures, Source

GIB = 1024**3


class WeightPrecision(StrEnum):
    """The number format of the weights."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"


class Method(StrEnum):
    """What is done with the model."""

    FULL = "full"  # every parameter is trained
    LORA = "lora"  # small matrices beside the frozen weights are trained (Hu et al., LoRA, 2021, arXiv:2106.09685)
    QLORA = "qlora"  # the same, and the frozen weights are quantized
    INFERENCE = "inference"  # nothing is trained


PRECISIONS_BY_METHOD = {
    Method.FULL: (WeightPrecision.FP16, WeightPrecision.BF16, WeightPrecision.FP32),  # whole numbers cannot be trained
    Method.LORA: (WeightPrecision.FP16, WeightPrecision.BF16, WeightPrecision.FP32),
    Method.QLORA: (WeightPrecision.INT4, WeightPrecision.INT8),
    Method.INFERENCE: (
        WeightPrecision.FP16,
        WeightPrecision.BF16,
        WeightPrecision.FP32,
        WeightPrecision.INT8,
        WeightPrecision.INT4,
    ),
}
_BYTES = {
    WeightPrecision.FP32: 4,
    WeightPrecision.FP16: 2,
    WeightPrecision.BF16: 2,
    WeightPrecision.INT8: 1,
}  # bytes, by definition


@dataclass(frozen=True, slots=True)
class MemoryComponent:
    """One part of the memory: GiB in all, bytes for each parameter of the model (None: not by parameters)."""

    label: str
    gib: Fraction
    bytes_per_parameter: Fraction | None
    source: Source | None  # None: by definition


@dataclass(frozen=True, slots=True)
class Memory:
    """What a workload takes: `total` GiB on one GPU, of which `fixed` is needed on each of several."""

    parts: tuple[MemoryComponent, ...]
    fixed: Fraction

    @property
    def total(self) -> Fraction:
        """GiB on one GPU."""
        return sum((part.gib for part in self.parts), Fraction(0))

    def gib_per_gpu(self, gpus: int) -> Fraction:
        """Return GiB on each of so many GPUs, where all but what each needs is split evenly among them."""
        return self.fixed + (self.total - self.fixed) / gpus

    def min_gpus(self, gib: Fraction, most: int) -> int | None:
        """Return the least number of GPUs with so much memory each that hold it; None where `most` do not."""
        if gib <= self.fixed:
            return 1 if self.total <= gib else None
        number = max(1, -(-(self.total - self.fixed) // (gib - self.fixed)))
        return int(number) if number <= most else None


def weight_bytes(precision: WeightPrecision, figures: Figures) -> Fraction:
    """Return how many bytes a parameter takes; 4-bit weights have scaling constants in addition."""
    if precision is WeightPrecision.INT4:
        return figures.quantized_bits.value / 8
    return Fraction(_BYTES[precision])


def memory_of(parameters: int, method: Method, precision: WeightPrecision, figures: Figures) -> Memory:
    """Return what a model takes. Raises ValueError for a precision that the method does not have.

    Weights, gradients and optimizer as in Rajbhandari et al., ZeRO, 2020 (16 bytes a parameter in mixed precision with
    Adam); adapters are trained so, too, beside frozen weights. What comes on top is a stated allowance.
    """
    if precision not in PRECISIONS_BY_METHOD[method]:
        raise ValueError(f"{method} has no {precision}")
    states = _weight_parts(parameters, method, precision, figures)
    gib = sum((part.gib for part in states), Fraction(0))
    inference = method is Method.INFERENCE
    extra = figures.inference_percent if inference else figures.activation_percent
    what = "keys, values and the rest" if inference else "activations"
    allowance = MemoryComponent(f"{extra.value}% more for {what}", gib * extra.value / 100, None, extra.source)
    framework = MemoryComponent(
        "CUDA and the framework", figures.framework_gib.value, None, figures.framework_gib.source
    )
    return Memory((*states, allowance, framework), framework.gib)


def memory_given(gib: Fraction, figures: Figures) -> Memory:
    """Return a requirement that the user gave as GiB on one GPU; on several, the framework's part is needed on each."""
    return Memory((MemoryComponent("memory", gib, None, None),), min(gib, figures.framework_gib.value))


def rule_memory(gib: Fraction, source: Source) -> Memory:
    """Return what a rule of thumb asks of every GPU, however many there are."""
    return Memory((MemoryComponent("memory", gib, None, source),), gib)


def _weight_parts(
    parameters: int, method: Method, precision: WeightPrecision, figures: Figures
) -> list[MemoryComponent]:
    weights = weight_bytes(precision, figures)
    zero_paper_source = figures.mixed_optimizer_bytes.source
    weight_source = figures.quantized_bits.source if precision is WeightPrecision.INT4 else None
    if method is Method.INFERENCE:
        return [_part("weights", weights, parameters, weight_source)]
    if method is Method.FULL:
        is_fp32 = precision is WeightPrecision.FP32
        optimizer = figures.full_optimizer_bytes if is_fp32 else figures.mixed_optimizer_bytes
        return [
            _part("weights", weights, parameters, zero_paper_source),
            _part("gradients", weights, parameters, zero_paper_source),
            _part("Adam's states", optimizer.value, parameters, optimizer.source),
        ]
    mixed_bytes = 2 * weight_bytes(WeightPrecision.FP16, figures) + figures.mixed_optimizer_bytes.value
    share, source = figures.adapter_percent.value / 100, figures.adapter_percent.source
    return [
        _part("frozen weights", weights, parameters, weight_source),
        _part(f"adapters, {figures.adapter_percent.value}% of the parameters", mixed_bytes * share, parameters, source),
    ]


def _part(label: str, bytes_per_parameter: Fraction, parameters: int, source: Source | None) -> MemoryComponent:
    return MemoryComponent(label, bytes_per_parameter * parameters / GIB, bytes_per_parameter, source)
