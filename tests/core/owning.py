"""Desktops for tests: the published example, and any."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction

from hypothesis import strategies as st

from cloudgpu.core.advice.desktop import YEAR, Depreciation, Desktop
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.units import Power, Tariff

# The $2,200 desktop of "Which GPU(s) to Get for Deep Learning" (T. Dettmers): 350 W and 100 W, $0.12 per kWh.
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


def usd(least, most):
    return st.integers(least * 100, most * 100).map(lambda cents: Money.usd(Decimal(cents) / 100))


@st.composite
def desktops(draw, ways=tuple(Depreciation)):
    """Any desktop: 1 to 4 cards, with or without cooling, maintenance, resale, in every way to depreciate."""
    purchase, parts = draw(usd(100, 9000)), draw(st.integers(0, 9))
    return Desktop(
        name="any",
        gpu="RTX3090",
        gpus=draw(st.integers(1, 4)),
        purchase=purchase,
        life=draw(st.integers(1, 6)) * YEAR,
        gpu_power=Power.of(draw(st.integers(50, 600))),
        rest_power=Power.of(draw(st.integers(40, 300))),
        idle_power=Power.of(draw(st.integers(0, 90))),
        tariff=Tariff(draw(usd(0, 1))),
        source="drawn",
        as_of=date(2026, 1, 1),
        resale=purchase.scaled(Fraction(parts, 10)),
        depreciation=draw(st.sampled_from(ways)),
        yearly_loss=Fraction(draw(st.integers(1, 99)), 100),
        pue=Fraction(draw(st.integers(10, 20)), 10),
        maintenance=draw(usd(0, 200)),
    )
