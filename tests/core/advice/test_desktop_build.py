"""Several cards in one desktop: the published figures, and what has to hold for any."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from cloudgpu.config.desktops.workloads import shipped_workload_data
from cloudgpu.core.advice.desktop_build import Circuit, power_supply
from cloudgpu.core.values.units import Power

RULES = shipped_workload_data()
FIGURES = RULES.figures
WATTS = st.integers(1, 2000).map(Power.of)


def test_four_cards_of_350_w_want_1650_to_1725_w():
    # T. Dettmers, Which GPU(s) to Get for Deep Learning: the sum of watts and 10 to 15%; four 350 W cards and 100 W
    found = power_supply(4, Power.of(350), Power.of(100), FIGURES)
    assert (found.draw.watts, found.low.watts, found.high.watts) == (1500, 1650, 1725)


def test_a_power_limit_of_50_w_less_cost_about_seven_per_cent():
    # the same: measured on an RTX 2080 Ti
    assert (FIGURES.limit_watts.value, FIGURES.limit_cost_percent.value) == (50, 7)
    assert power_supply(4, Power.of(350), Power.of(100), FIGURES).limited.watts == 1300


def test_four_such_cards_are_too_much_for_a_us_circuit_for_hours():
    # NFPA 70: 15 A at 120 V carry 1,800 W, and 80% of that where it lasts three hours or more
    found = power_supply(4, Power.of(350), Power.of(100), FIGURES)
    assert (found.breaker.watts, found.continuous.watts) == (1800, 1440)
    assert found.circuit is Circuit.NOT_FOR_LONG
    assert power_supply(4, Power.of(450), Power.of(100), FIGURES).circuit is Circuit.NOT  # 1,900 W
    assert power_supply(3, Power.of(350), Power.of(100), FIGURES).circuit is Circuit.CARRIES  # 1,150 W


def test_a_circuit_supplies_the_losses_of_the_power_supply_too():
    # 80 PLUS Gold, 115 V: 87% at full load. A supply is rated for its output, so its size has none of this
    found = power_supply(4, Power.of(300), Power.of(100), FIGURES)
    assert (found.draw.watts, round(found.wall.watts)) == (1300, 1494)
    assert found.circuit is Circuit.NOT_FOR_LONG
    assert power_supply(5, Power.of(300), Power.of(100), FIGURES).circuit is Circuit.NOT  # 1,600 W: 1,839 W


def test_less_power_that_was_tried_kept_most_of_the_speed():
    # D. Kinghorn, Quad RTX3090 GPU Wattage Limited "MaxQ" TensorFlow Performance, Puget Systems, 2020-11-13
    assert "350 W to 280 W kept more than 95%" in RULES.notes["limit"].text


@given(st.integers(1, 64), WATTS, WATTS)
def test_a_supply_has_room_for_what_it_feeds_and_a_limit_never_takes_more(cards, card, rest):
    found = power_supply(cards, card, rest, FIGURES)
    assert found.draw < found.low < found.high
    assert found.limited <= found.draw
    assert (found.circuit is Circuit.CARRIES) == (found.draw.watts <= Fraction(1440 * 87, 100))
    assert found.draw.watts == cards * card.watts + rest.watts


@given(st.integers(1, 63), WATTS, WATTS)
def test_one_card_more_asks_for_more(cards, card, rest):
    few, many = (power_supply(number, card, rest, FIGURES) for number in (cards, cards + 1))
    assert few.low < many.low
    assert list(Circuit).index(few.circuit) <= list(Circuit).index(many.circuit)


def test_a_card_below_the_limit_takes_nothing_and_no_card_is_none():
    assert power_supply(2, Power.of(40), Power.of(100), FIGURES).limited == Power(Fraction(100))
    with pytest.raises(ValueError, match="0 cards"):
        power_supply(0, Power.of(350), Power.of(100), FIGURES)
