"""Money over time by hand, and that rates of zero change nothing; what used desktops bring, by the catalogue."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from statistics import median

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu import catalog
from cloudgpu.core.advice.desktop import (
    NO_TERMS,
    USED_LOSS,
    USED_SHARE,
    YEAR,
    Depreciation,
    FinanceTerms,
    annuity_factor,
    discount,
    discount_growth,
    multiply_desktop,
    ownership_cost,
    with_market_depreciation,
    with_terms,
)
from cloudgpu.core.advice.rent_or_buy import RentOrBuyCase, costs_after, evaluate_case, lifetime_costs
from cloudgpu.core.values.money import Money
from tests.core.owning import EXAMPLE, desktops, usd
from tests.examples import some

NOTHING = Fraction(0)


def test_a_dollar_in_two_years_at_ten_per_cent_is_worth_82_64_cents():
    assert float(discount(Fraction("0.1"), 2 * YEAR)) == pytest.approx(1 / 1.21)  # 1 / 1.1 ** 2


def test_a_price_that_falls_by_half_a_year_adds_up_to_72_13_per_cent_of_a_year():
    # (0.5 - 1) / ln 0.5 = 0.72135
    assert float(annuity_factor(Fraction("-0.5"), YEAR)) == pytest.approx(0.7213475, abs=1e-7)
    assert float(discount_growth(Fraction("0.25"))) == pytest.approx(-0.2)  # 1 / 1.25 - 1
    assert (
        FinanceTerms(drift=Fraction("-0.1"), interest=Fraction("0.25")).growth == Fraction("0.9") / Fraction("1.25") - 1
    )


def test_electricity_and_a_sale_are_worth_less_later():
    one = with_terms(replace(EXAMPLE, resale=Money.usd(1000)), Fraction("0.25"), NOTHING)
    cost = ownership_cost(one, one.life, timedelta(0))
    assert cost.worth == Money.usd(1000).scaled(Fraction("0.8") ** 4)
    later = ownership_cost(one, one.life + timedelta(microseconds=1), timedelta(0))
    # bought anew after four years for $2,200 less the $1,000: both at 0.8 ** 4
    assert later.purchase == Money.usd(2200) + Money.usd(1200).scaled(Fraction("0.8") ** 4)


def test_vat_is_on_what_is_bought_and_not_on_what_is_sold():
    one = with_terms(replace(EXAMPLE, resale=Money.usd(500), maintenance=Money.usd(100)), NOTHING, Fraction("0.2"))
    assert (one.purchase, one.maintenance, one.tariff.per_kwh) == (Money.usd(2640), Money.usd(120), Money.usd("0.144"))
    assert one.resale == Money.usd(500)


@settings(max_examples=some(40))
@given(desktops(), usd(0, 20), st.fractions(0, 2), st.fractions(Fraction(1, 4), 4))
def test_terms_of_zero_give_the_identical_answer(one, price, use, speed):
    same = with_terms(one, NO_TERMS.interest, NO_TERMS.vat)
    assert same == one
    plain, given_zero = RentOrBuyCase(one, price, use, speed), RentOrBuyCase(same, price, use, speed, NO_TERMS.growth)
    assert evaluate_case(plain) == evaluate_case(given_zero)
    assert (NO_TERMS.interest, NO_TERMS.drift, NO_TERMS.vat) == (0, 0, 0)


@settings(max_examples=some(25))
@given(usd(1, 9), st.integers(1, 30).map(lambda part: Fraction(part, 100)), st.integers(1, 12))
def test_a_price_that_falls_never_speaks_for_the_desktop(price, part, quarters):
    span = YEAR * quarters / 4
    steady_price, falling = (
        RentOrBuyCase(EXAMPLE, price, Fraction(1, 8), Fraction(1), one) for one in (NOTHING, -part)
    )
    year = ownership_cost(EXAMPLE, YEAR, timedelta(0))
    assert costs_after(falling, span, year).cloud < costs_after(steady_price, span, year).cloud
    early, late = (evaluate_case(one).break_even for one in (steady_price, falling))
    assert late is None or (early is not None and early <= late)


@settings(max_examples=some(25))
@given(desktops([Depreciation.NONE]), usd(0, 9), st.fractions(0, 1), st.integers(1, 12))
def test_the_verdict_is_that_of_the_totals_and_the_crossing_agrees(one, price, use, half_years):
    question = RentOrBuyCase(with_market_depreciation(one), price, use, Fraction(1))
    found = lifetime_costs(question, YEAR * half_years / 2)
    assert found.desktop_is_cheaper == (found.costs.owned.total <= found.costs.cloud)
    assert found.difference == abs_(found.costs.owned.total - found.costs.cloud)
    if found.cheaper_from is not None:
        assert found.desktop_is_cheaper
        assert found.cheaper_from <= found.elapsed


def abs_(amount):
    return max(amount, Money(0) - amount)


def test_a_used_desktop_brings_what_used_cards_do():
    """USED_SHARE and USED_LOSS are the middle of the cards in the catalogue that have a launch and street prices."""
    cards = {"RTX2080Ti": 7, "RTX3060": 4, "RTX3070": 5, "RTX3080": 5, "RTX3080Ti": 4, "RTX3090": 5, "RTX3090Ti": 3,
             "RTX4070Ti": 2, "RTX4080": 3, "RTX4090": 3}  # years from their launch to 2025  # fmt: skip
    prices = {
        spec.name: spec.card_prices
        for spec in catalog.gpus()
        if spec.card_prices and spec.card_prices.used and spec.card_prices.at_launch
    }
    assert set(prices) == set(cards)
    shares = [float(one.used.dollars / one.new.dollars) for one in prices.values()]
    losses = [1 - float(one.new.dollars / one.at_launch.dollars) ** (1 / cards[name]) for name, one in prices.items()]
    assert float(USED_SHARE) == round(median(shares), 2)
    assert float(USED_LOSS) == round(median(losses), 2)


def test_resale_by_year_falls_with_age_down_to_what_was_typed():
    market = replace(EXAMPLE, depreciation=Depreciation.MARKET)
    # 2200 x 0.73 = 1606; a year later x 0.91
    assert [market.worth(YEAR * age).text() for age in (0, 1, 2)] == ["$1,606.00", "$1,461.46", "$1,329.93"]
    typed = replace(market, life=2 * YEAR, resale=Money.usd(1100), resale_known=True)
    # on a line from 1606 to 1100: 1353 in the middle
    assert [typed.worth(YEAR * age) for age in (0, 1, 2)] == [Money.usd(1606), Money.usd(1353), Money.usd(1100)]
    nothing = replace(market, resale_known=True)
    assert nothing.worth(2 * YEAR) == Money.usd(803)
    assert nothing.sold_for == Money(0)


def test_several_desktops_are_one_thing_of_their_sums():
    three = multiply_desktop(replace(EXAMPLE, idle_power=EXAMPLE.rest_power), 3)
    assert (three.gpus, three.computers, three.purchase) == (3, 3, Money.usd(6600))
    assert (three.busy_power.watts, three.waiting_power.watts) == (3 * 450, 300)
