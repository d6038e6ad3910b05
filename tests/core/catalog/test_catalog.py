"""Speeds and their stand-ins, work per dollar, the cheapest region, old prices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu import catalog
from cloudgpu.core.catalog.catalog import (
    CatalogOffer,
    GpuSpec,
    InstanceType,
    ListedPrice,
    Speed,
    SpeedBasis,
    by_price,
    by_speed_per_dollar,
    cheapest_per_type,
    is_old_price,
    speed,
    speed_per_dollar,
)
from cloudgpu.core.model.offers import Accelerator, Basis, Market, Price
from cloudgpu.core.values.money import Money

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def spec(**more):
    figures = {
        "bandwidth_gbs": 1680.0,
        "fp32_tflops": 33.455,
        "tensor_tflops": 98.9,
        "trains_vs_h100": None,
        "notes": "",
    }
    return GpuSpec(
        name="X1",
        memory_gib=16,
        year=2020,
        architecture="",
        compute_capability="",
        watts=None,
        source="",
        **figures | more,
    )


def offer(usd, *, name="x.large", region="r1", market=Market.ON_DEMAND, count=1, share=1.0):
    shape = InstanceType(
        "aws", name, Accelerator("X1", count, 16, share), 4, 16, None, "x86_64",
        spot_only=False, legacy_reason="", unverified=(), notes="", source="", as_of="2026",
    )  # fmt: skip
    return CatalogOffer(shape, ListedPrice(region, market, Price(Money.usd(usd), "s", NOW, Basis.LISTED), "", "2026"))


@pytest.mark.parametrize(
    ("figures", "value", "basis"),
    [
        ({"trains_vs_h100": 0.4}, 0.4, SpeedBasis.MEASURED),
        ({}, 0.5, SpeedBasis.BANDWIDTH),
        ({"bandwidth_gbs": 6720.0}, 0.1, SpeedBasis.TENSOR),
        ({"bandwidth_gbs": 6720.0, "tensor_tflops": None}, 2.0, SpeedBasis.BANDWIDTH),
        ({"tensor_tflops": None, "notes": "no tensor cores"}, 0.5, SpeedBasis.FP32),
        ({"bandwidth_gbs": None}, 0.1, SpeedBasis.TENSOR),
    ],
)
def test_a_speed_that_was_not_measured_names_its_stand_in(figures, value, basis):
    found = speed(spec(**figures))
    assert found.vs_h100 == pytest.approx(value)
    assert found.basis is basis


def test_what_nothing_is_known_of_has_no_speed_and_comes_last():
    nothing = speed(spec(bandwidth_gbs=None, tensor_tflops=None))
    assert nothing is None
    assert speed_per_dollar(offer("1"), nothing) is None
    unknown, known = offer("0.1", name="a"), offer("9", name="b")
    speeds = {"a": None, "b": Speed(0.1, SpeedBasis.MEASURED)}
    ordered = by_speed_per_dollar([unknown, known], lambda one: speeds[one.type.name])
    assert [one.type.name for one in ordered] == ["b", "a"]


def test_bandwidth_is_as_near_to_the_measured_speeds_as_is_said():
    """The docstring's bounds, over every measured GPU."""
    measured = [one for one in catalog.gpus() if one.trains_vs_h100]
    off = [one.bandwidth_gbs / 3360 / one.trains_vs_h100 - 1 for one in measured]
    assert len(measured) == 15
    assert round(min(off), 2) == -0.19
    assert round(max(off), 2) == 0.52


def test_every_gpu_on_offer_that_is_not_legacy_has_a_speed():
    names = {one.type.gpu.name for one in catalog.offers()}
    assert all(speed(catalog.gpu_by_name(name)) for name in names)


def test_work_per_dollar_counts_gpus_and_shares():
    one = Speed(0.5, SpeedBasis.MEASURED)
    assert speed_per_dollar(offer("2"), one) == pytest.approx(0.25)
    assert speed_per_dollar(offer("2", count=8), one) == pytest.approx(2.0)
    assert speed_per_dollar(offer("2", share=0.25), one) == pytest.approx(0.0625)


def test_the_cheapest_region_stands_for_a_type_and_markets_are_apart():
    found = cheapest_per_type(
        [offer("3", region="r1"), offer("2", region="r2"), offer("2", region="r0"), offer("1", market=Market.SPOT)]
    )
    said = {(one.listed.market, one.listed.region, one.region_count) for one in found}
    assert said == {(Market.ON_DEMAND, "r0", 3), (Market.SPOT, "r1", 1)}


def test_cheapest_first_and_equal_prices_in_a_fixed_order():
    found = by_price([offer("2", name="c"), offer("1", name="b"), offer("1", name="a")])
    assert [one.type.name for one in found] == ["a", "b", "c"]


@pytest.mark.parametrize(("days", "old"), [(0, False), (180, False), (181, True), (900, True), (-3, False)])
def test_a_price_is_old_after_180_days(days, old):
    assert is_old_price(NOW - timedelta(days=days), NOW) is old
