"""Rent or own without a ledger: what follows from a price, a use and a desktop."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import pytest

from cloudgpu.core.advice.desktop import YEAR
from cloudgpu.core.advice.rent_or_buy import MONTH, RentOrBuyCase, costs_after, evaluate_case, milestones, round_days
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import DAY
from tests.core.owning import EXAMPLE

PUBLISHED = RentOrBuyCase(EXAMPLE, Money.usd("2.14"), Fraction(15, 100), Fraction(1))


def test_the_published_example_is_answered():
    """T. Dettmers, "Which GPU(s) to Get for Deep Learning": 591 kWh, $71, about 300 days ($2,311 vs $2,270)."""
    answer = evaluate_case(PUBLISHED)
    assert (answer.year.energy.text(), answer.year.electricity.text(0), answer.year.number) == ("591 kWh", "$71", 1)
    assert (round(answer.break_even / DAY, 2), round(answer.flat / DAY, 1)) == (292.96, 294.8)
    after = costs_after(PUBLISHED, 300 * DAY, answer.year)
    assert (after.cloud.text(0), after.flat.text(), after.owned.total.text()) == ("$2,311", "$2,270.96", "$2,258.32")


def test_of_years_that_have_begun_all_electricity_is_in_the_flat_sum():
    year = evaluate_case(PUBLISHED).year
    flats = [costs_after(PUBLISHED, at, year).flat.text() for at in (timedelta(0), DAY, YEAR, YEAR + DAY, 2 * YEAR)]
    assert flats == ["$2,200.00", "$2,270.96", "$2,270.96", "$2,341.91", "$2,341.91"]


def test_a_faster_desktop_works_less_and_is_even_at_more_use():
    fast = replace(PUBLISHED, speed=Fraction(3))
    assert fast.spend_rate.cloud == PUBLISHED.spend_rate.cloud
    assert fast.spend_rate.worked * 3 == PUBLISHED.spend_rate.worked
    assert evaluate_case(fast).year.energy.kwh * 3 == evaluate_case(PUBLISHED).year.energy.kwh
    assert evaluate_case(fast).break_even < evaluate_case(PUBLISHED).break_even


def test_use_above_what_one_can_do_takes_several():
    numbers = [evaluate_case(replace(PUBLISHED, use=Fraction(use, 100))).year.number for use in (100, 101, 200, 250)]
    assert numbers == [1, 2, 2, 3]


def test_a_use_of_nothing_and_a_price_that_is_too_low_never_cross():
    unused = evaluate_case(replace(PUBLISHED, use=Fraction(0)))
    assert (unused.break_even, unused.flat, unused.break_even_price) == (None, None, None)
    assert unused.break_even_use == evaluate_case(PUBLISHED).break_even_use
    cheap = evaluate_case(replace(PUBLISHED, per_hour=Money.usd("0.05")))
    assert (cheap.break_even, cheap.flat, cheap.break_even_use) == (None, None, None)
    assert cheap.break_even_price == evaluate_case(PUBLISHED).break_even_price


def test_the_times_are_in_order_and_end_at_the_horizon():
    assert milestones(4 * YEAR, 4 * YEAR) == [MONTH, MONTH * 6, YEAR, 2 * YEAR, 3 * YEAR, 4 * YEAR]
    assert milestones(4 * YEAR, YEAR, [300 * DAY, 900 * DAY]) == [MONTH, MONTH * 6, 300 * DAY, YEAR]
    assert milestones(YEAR, 2 * YEAR)[-1] == 2 * YEAR


@pytest.mark.parametrize(
    ("days", "said"),
    [(0.5, 1), (3, 3), (12, 15), (25, 25), (99, 100), (101, 150), (292.96, 300), (722.35, 750), (1001, 1500)],
)
def test_a_round_number_of_days_comes_after_the_exact_one(days, said):
    assert round_days(timedelta(days=days)) == timedelta(days=said)


def test_a_use_that_is_above_one_desktop_by_less_than_is_counted_is_that_of_one():
    hair = evaluate_case(replace(PUBLISHED, use=1 + Fraction(4, 10**12)))
    assert hair.year.number == 1
    assert costs_after(hair.case, 4 * YEAR, hair.year).owned.number == 1
    assert hair.break_even_price == evaluate_case(replace(PUBLISHED, use=Fraction(1))).break_even_price


def test_a_round_number_of_days_is_not_beyond_a_life_within_which_both_are_even():
    """The next desktop's price would stand in the sum of what is said to be even."""
    tight = evaluate_case(replace(PUBLISHED, per_hour=Money.usd("0.475")))
    assert (tight.break_even // DAY, tight.comparison_time) == (1451, 4 * YEAR)
    assert evaluate_case(PUBLISHED).comparison_time == 300 * DAY
    assert (
        evaluate_case(replace(PUBLISHED, per_hour=Money.usd("0.63"))).comparison_time == 1100 * DAY
    )  # 1,500 is beyond it
    assert evaluate_case(replace(PUBLISHED, per_hour=Money.usd("0.05"))).comparison_time is None
