"""Power, energy, tariffs and quoted amounts: exact, and never mixed."""

from __future__ import annotations

import operator
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import permutations

import pytest

from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.units import Energy, Power, QuotedAmount, Tariff, hours

WON = Currency("KRW", Decimal(1270), date(2022, 5, 15), "unverified")
ONE_EACH = (
    Money.usd(1),
    Power.of(350),
    Energy(Fraction(5)),
    Tariff(Money.usd("0.12")),
    QuotedAmount(Decimal(1), WON),
    1,
)


@pytest.mark.parametrize("do", [operator.add, operator.sub, operator.lt, operator.mul], ids=lambda do: do.__name__)
def test_no_two_units_mix_whatever_a_checker_has_missed(do):
    for one, other in permutations(ONE_EACH, 2):
        with pytest.raises(TypeError):
            do(one, other)


def test_amounts_in_two_currencies_do_not_even_add_to_their_like():
    won, euro = (
        QuotedAmount(Decimal(5), WON),
        QuotedAmount(Decimal(5), Currency("EUR", Decimal("0.9"), date(2026, 1, 1))),
    )
    for one, other in ((won, won), (won, euro)):
        with pytest.raises(TypeError):
            one + other


def test_power_over_a_time_is_energy():
    assert Power.of(350) + Power.of("100.5") == Power.of("450.5")
    assert Power.of(450).over(timedelta(hours=10)) == Energy(Fraction("4.5"))
    assert Power.of(100).times(Fraction(3, 2)).over(timedelta(minutes=1)) == Energy(Fraction(1, 400))
    assert (Energy(Fraction(1)) + Energy(Fraction(2))).times(2) == Energy(Fraction(6))
    assert hours(timedelta(microseconds=1)) == Fraction(1, 3_600_000_000)


@pytest.mark.parametrize("watts", ["NaN", "Infinity", "-1", "-0.0001"])
def test_no_power_is_below_zero_or_endless(watts):
    with pytest.raises(ValueError, match="not a power"):
        Power.of(watts)


def test_energy_is_shown_rounded_half_even_and_costs_to_the_nano_dollar():
    assert [Energy(Fraction(text)).text() for text in ("591.3", "0.5", "1.5", "12345")] == [
        "591 kWh",
        "0 kWh",
        "2 kWh",
        "12,345 kWh",
    ]
    assert Tariff(Money.usd("0.12")).cost(Energy(Fraction("591.3"))) == Money.usd("70.956")
    assert Tariff(Money(1)).cost(Energy(Fraction(1, 2))) == Money(0)


def test_an_amount_is_converted_at_its_own_rate_and_rounded_once():
    build = QuotedAmount(Decimal(7_500_000), WON)
    assert (str(build), build.in_usd.text()) == ("7,500,000 KRW", "$5,905.51")
    assert QuotedAmount(Decimal(1), Currency("XAF", Decimal(3), date(2026, 1, 1))).in_usd == Money(333_333_333)
