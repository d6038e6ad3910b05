"""How much memory a model takes: the published figures, and what has to hold for every model."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from cloudgpu.config.desktops.workloads import shipped_workload_data
from cloudgpu.core.advice.model_memory import (
    GIB,
    PRECISIONS_BY_METHOD,
    Method,
    WeightPrecision,
    memory_given,
    memory_of,
    rule_memory,
    weight_bytes,
)

FIGURES = shipped_workload_data().figures
BILLION = 10**9
WAYS = [(method, precision) for method, allowed in PRECISIONS_BY_METHOD.items() for precision in allowed]
SIZES = st.integers(10**6, 10**13)


def states(parameters, method, precision):
    """The bytes that follow from the parameters alone, in GB as papers have them."""
    parts = memory_of(parameters, method, precision, FIGURES).parts
    return (
        float(sum(part.bytes_per_parameter * parameters for part in parts if part.bytes_per_parameter is not None))
        / 1e9
    )


@pytest.mark.parametrize(
    ("parameters", "gb"),
    [
        (1_500_000_000, 24),  # Rajbhandari et al., ZeRO, 2020, section 3.1: GPT-2 takes at least 24 GB
        (7_500_000_000, 120),  # the same, figure 1: 120 GB for 7.5 billion
        (7_000_000_000, 112),  # 16 bytes each
    ],
)
def test_mixed_precision_with_adam_takes_sixteen_bytes_a_parameter(parameters, gb):
    assert states(parameters, Method.FULL, WeightPrecision.FP16) == gb
    assert states(parameters, Method.FULL, WeightPrecision.FP32) == gb  # 4 + 4 + 8


@pytest.mark.parametrize(
    ("billions", "gib"),
    [(65, 48), (33, 24)],  # Dettmers et al., QLoRA, 2023: 65B on one GPU of 48 GB, 33B on one of 24 GB
)
def test_what_qlora_was_published_to_fit_fits(billions, gib):
    memory = memory_of(billions * BILLION, Method.QLORA, WeightPrecision.INT4, FIGURES)
    assert 0.9 * gib < memory.total <= gib
    assert memory.min_gpus(Fraction(gib), 8) == 1
    assert memory_of(billions * BILLION, Method.LORA, WeightPrecision.FP16, FIGURES).total > 1.5 * gib


def test_four_bits_have_constants_beside_them():
    # QLoRA: 4 bits and, with double quantization, 0.127 bits of constants
    assert weight_bytes(WeightPrecision.INT4, FIGURES) * 8 == Fraction("4.127")
    assert states(65 * BILLION, Method.INFERENCE, WeightPrecision.INT4) == pytest.approx(33.53, abs=0.01)


def test_running_a_model_takes_a_fifth_more_than_its_weights():
    # Hugging Face's Model Memory Utility: up to 20% beside the weights, as EleutherAI found
    memory = memory_of(7 * BILLION, Method.INFERENCE, WeightPrecision.FP16, FIGURES)
    beside = memory.total - FIGURES.framework_gib.value
    assert beside == Fraction(14 * BILLION, GIB) * Fraction(6, 5)


@given(SIZES, SIZES, st.sampled_from(WAYS))
def test_more_parameters_never_need_less_memory(one, other, way):
    small, large = (memory_of(size, *way, FIGURES) for size in sorted((one, other)))
    assert small.total <= large.total
    assert small.gib_per_gpu(4) <= large.gib_per_gpu(4)


@given(SIZES, st.sampled_from(list(Method)))
def test_a_cheaper_precision_never_needs_more(size, method):
    order = [
        WeightPrecision.FP32,
        WeightPrecision.FP16,
        WeightPrecision.BF16,
        WeightPrecision.INT8,
        WeightPrecision.INT4,
    ]
    allowed = sorted(PRECISIONS_BY_METHOD[method], key=order.index)
    found = [memory_of(size, method, precision, FIGURES).total for precision in allowed]
    assert found == sorted(found, reverse=True)


@given(SIZES)
def test_what_trains_less_takes_less(size):
    full = memory_of(size, Method.FULL, WeightPrecision.FP16, FIGURES).total
    lora = memory_of(size, Method.LORA, WeightPrecision.FP16, FIGURES).total
    assert full > lora > memory_of(size, Method.QLORA, WeightPrecision.INT4, FIGURES).total


@given(SIZES, st.sampled_from(WAYS), st.integers(2, 300), st.integers(1, 64))
def test_the_least_number_of_gpus_is_the_least(size, way, gib, most):
    memory = memory_of(size, *way, FIGURES)
    number = memory.min_gpus(Fraction(gib), most)
    fitting = [count for count in range(1, most + 1) if memory.gib_per_gpu(count) <= gib]
    assert number == next(iter(fitting), None)


@given(SIZES, st.sampled_from(WAYS), st.integers(1, 64))
def test_what_is_split_is_all_there_once(size, way, gpus):
    memory = memory_of(size, *way, FIGURES)
    assert (memory.gib_per_gpu(gpus) - memory.fixed) * gpus + memory.fixed == memory.total
    assert memory.gib_per_gpu(1) == memory.total


def test_a_rule_of_thumb_holds_for_every_gpu_and_typed_memory_is_split():
    source = shipped_workload_data().kinds["kaggle"].source
    ruled, typed = rule_memory(Fraction(24), source), memory_given(Fraction(24), FIGURES)
    assert (ruled.gib_per_gpu(4), ruled.min_gpus(Fraction(16), 64), ruled.min_gpus(Fraction(24), 1)) == (24, None, 1)
    assert (typed.gib_per_gpu(4), typed.min_gpus(Fraction(16), 64)) == (Fraction("7.125"), 2)  # 1.5 + 22.5 / 4
    assert memory_given(Fraction(1), FIGURES).min_gpus(Fraction(1), 1) == 1
    assert memory_given(Fraction(2), FIGURES).min_gpus(Fraction(1), 64) is None


@pytest.mark.parametrize(
    ("method", "precision"),
    [(Method.FULL, WeightPrecision.INT8), (Method.LORA, WeightPrecision.INT4), (Method.QLORA, WeightPrecision.FP16)],
)
def test_a_precision_that_a_method_does_not_have_is_no_memory(method, precision):
    with pytest.raises(ValueError, match=f"{method} has no {precision}"):
        memory_of(BILLION, method, precision, FIGURES)
