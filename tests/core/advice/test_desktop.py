"""What owning a desktop costs: the figures that are published, and what has to hold of any."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.advice.desktop import YEAR, Depreciation, desktops_needed, ownership_cost, years
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import DAY
from cloudgpu.core.values.units import Energy, Power, Tariff
from tests.core.owning import EXAMPLE, desktops
from tests.examples import some

STRAIGHT, DECLINING = Depreciation.STRAIGHT, Depreciation.DECLINING


def test_the_published_electricity_is_reproduced():
    """(350 W + 100 W) x 0.15 x 24 h x 365 days = 591 kWh a year, $71: T. Dettmers, "Which GPU(s) to Get ..."."""
    cost = ownership_cost(EXAMPLE, YEAR, YEAR * 15 / 100)
    assert (cost.energy.text(1), cost.energy.text()) == ("591.3 kWh", "591 kWh")
    assert (cost.electricity, cost.electricity.text(0)) == (Money.usd("70.956"), "$71")


def test_the_published_electricity_of_five_years_is_reproduced():
    """A 4090 by its card alone at $0.175 and 15%: the text says about $100 a year; the arithmetic gives $103.48."""
    card = replace(
        EXAMPLE,
        gpu_power=Power.of(450),
        rest_power=Power.of(0),
        life=5 * YEAR,
        tariff=Tariff(Money.usd("0.175")),
    )
    cost = ownership_cost(card, 5 * YEAR, 5 * YEAR * 15 / 100)
    assert (cost.electricity.scaled(Fraction(1, 5)).text(), cost.number) == ("$103.48", 1)


@pytest.mark.parametrize(("elapsed", "worked"), [(timedelta(-1), timedelta(0)), (timedelta(1), timedelta(-1))])
def test_a_negative_span_is_refused(elapsed, worked):
    with pytest.raises(ValueError, match="negative"):
        ownership_cost(EXAMPLE, elapsed, worked)


def test_so_many_desktops_cannot_have_worked_for_longer_than_they_stood_there():
    with pytest.raises(ValueError, match="2 desktops do not work"):
        ownership_cost(EXAMPLE, DAY, timedelta(hours=49), 2)
    assert ownership_cost(EXAMPLE, DAY, timedelta(hours=48), 2).number == 2


@pytest.mark.parametrize(("hours", "number"), [(0, 1), (1, 1), (24, 1), (25, 2), (48, 2), (49, 3), (2400, 100)])
def test_work_above_24_hours_a_day_takes_several_desktops(hours, number):
    assert desktops_needed(DAY, timedelta(hours=hours)) == number
    cost = ownership_cost(EXAMPLE, DAY, timedelta(hours=hours))
    assert (cost.number, cost.purchase) == (number, Money.usd(2200 * number))


def test_before_any_time_has_passed_it_is_bought_and_no_more():
    cost = ownership_cost(EXAMPLE, timedelta(0), timedelta(0))
    assert (cost.total, cost.energy, cost.number) == (Money.usd(2200), Energy(Fraction(0)), 1)
    assert ownership_cost(replace(EXAMPLE, depreciation=STRAIGHT), timedelta(0), timedelta(0)).total == ZERO


def test_idle_watts_are_paid_while_it_waits_and_cooling_on_all_of_it():
    one = replace(EXAMPLE, idle_power=Power.of(50), pue=Fraction("1.5"), gpus=2)
    cost = ownership_cost(one, timedelta(hours=10), timedelta(hours=4))
    assert cost.energy == Energy((Fraction("0.8") * 4 + Fraction("0.05") * 6) * Fraction("1.5"))


def test_at_its_end_it_is_sold_and_bought_anew():
    one = replace(EXAMPLE, resale=Money.usd(200), maintenance=Money.usd(50))
    moment = timedelta(microseconds=1)
    assert [ownership_cost(one, at, timedelta(0)).total for at in (timedelta(0), one.life - moment, one.life)] == [
        Money.usd(2200),
        Money.usd(2400) - ownership_cost(one, moment, timedelta(0)).maintenance,
        Money.usd(2200),
    ]
    after = ownership_cost(one, one.life + moment, timedelta(0))
    assert (after.purchase, after.worth) == (Money.usd(4200), ZERO)
    assert ownership_cost(one, 3 * one.life, timedelta(0)).purchase == Money.usd(2200 + 2 * 2000)


def test_one_that_is_still_worth_something_is_sold_for_that():
    one = replace(EXAMPLE, resale=Money.usd(100), depreciation=DECLINING, yearly_loss=Fraction("0.5"))
    assert (one.sold_for, one.sold_for.text()) == (one.worth(4 * YEAR), "$137.50")
    before, after = (ownership_cost(one, 4 * YEAR + timedelta(microseconds=number), timedelta(0)) for number in (0, 1))
    assert (after.purchase, after.worth.text()) == (Money.usd("4262.5"), "$2,200.00")
    assert abs((after.total - before.total).nanos) < 100


def test_it_loses_the_same_each_day_or_the_same_part_each_year():
    straight = replace(EXAMPLE, resale=Money.usd(200), depreciation=STRAIGHT)
    assert [straight.worth(YEAR * age).text(0) for age in range(6)] == [
        "$2,200",
        "$1,700",
        "$1,200",
        "$700",
        "$200",
        "$200",
    ]
    declining = replace(straight, depreciation=DECLINING, yearly_loss=Fraction("0.5"))
    assert [declining.worth(YEAR * age).text(0) for age in range(5)] == ["$2,200", "$1,100", "$550", "$275", "$200"]
    assert declining.worth(YEAR / 2) == Money.usd(2200).scaled(Fraction(Decimal("0.5").sqrt()))
    assert replace(declining, yearly_loss=Fraction(1)).worth(timedelta(1)) == Money.usd(200)
    assert replace(declining, yearly_loss=Fraction(0)).worth(4 * YEAR) == Money.usd(2200)


@settings(max_examples=some(60))
@given(desktops(), st.floats(0, 1), st.floats(0, 3))
def test_its_worth_falls_and_over_a_life_no_way_to_depreciate_costs_less(one, share, lives):
    age = one.life * share
    assert one.sold_for <= one.worth(age) <= one.purchase or one.depreciation is Depreciation.NONE
    straight, none = replace(one, depreciation=STRAIGHT), replace(one, depreciation=Depreciation.NONE)
    assert straight.worth(one.life) == none.worth(one.life) == one.resale
    worked = one.life * share
    assert ownership_cost(straight, one.life, worked).total == ownership_cost(none, one.life, worked).total
    earlier, later = (
        ownership_cost(straight, one.life * part, timedelta(0), 1) for part in sorted((lives, lives + share))
    )
    assert later.total >= earlier.total - Money(2)  # rounded apart


@pytest.mark.parametrize(
    ("number", "span"),
    [("4", 4 * YEAR), ("0.1", timedelta(days=36, hours=12)), ("0.333333", timedelta(microseconds=10511989488000))],
)
def test_years_are_exact_to_a_microsecond(number, span):
    assert years(Decimal(number)) == span


def test_a_programs_own_precision_of_decimals_changes_no_worth():
    one = replace(EXAMPLE, depreciation=DECLINING, yearly_loss=Fraction(185, 1000))
    exact = one.worth(3 * YEAR + DAY)
    with localcontext(prec=4):
        assert one.worth(3 * YEAR + DAY) == exact
