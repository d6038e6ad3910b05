"""What owning a desktop costs: the figures that are published, and what has to hold of any."""

from __future__ import annotations

from datetime import date, timedelta
from fractions import Fraction

import pytest

from cloudgpu.core.desktop import YEAR, Desktop, owned
from cloudgpu.core.even import DAY, Pace, crossing, crossing_by_flat_year
from cloudgpu.core.money import Money
from cloudgpu.core.units import Power, Tariff

# The $2,200 desktop of "Which GPU(s) to Get for Deep Learning": 350 W and 100 W, 15 % of the time, $0.12 per kWh.
EXAMPLE = Desktop(
    name="example",
    gpu="RTX3090",
    gpus=1,
    purchase=Money.usd(2200),
    life=4 * YEAR,
    gpu_power=Power.of(350),
    rest_power=Power.of(100),
    idle_power=Power.of(0),
    tariff=Tariff(Money.usd("0.12")),
    source="published example",
    as_of=date(2025, 12, 1),
)
V100 = Pace(Money.usd("2.14").scaled(24 * Fraction(15, 100)), DAY * 15 / 100)


def test_the_published_electricity_is_reproduced():
    cost = owned(EXAMPLE, YEAR, YEAR * 15 / 100)
    assert cost.energy.text(1) == "591.3 kWh"
    assert cost.electricity == Money.usd("70.956")


def test_the_published_break_even_is_reproduced_both_ways():
    assert V100.cloud.scaled(Fraction(300)).text(0) == "$2,311"
    assert round(crossing(EXAMPLE, V100) / DAY, 2) == 292.96
    assert round(crossing_by_flat_year(EXAMPLE, V100) / DAY, 1) == 294.8


@pytest.mark.parametrize(("elapsed", "worked"), [(timedelta(-1), timedelta(0)), (timedelta(1), timedelta(-1))])
def test_a_negative_span_is_refused(elapsed, worked):
    with pytest.raises(ValueError, match="negative"):
        owned(EXAMPLE, elapsed, worked)
