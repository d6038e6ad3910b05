from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgpu.core.compare import YEAR, Desktop, desktop_cost, said
from cloudgpu.core.money import Money

HOUR = timedelta(hours=1)
EXAMPLE = Desktop(
    name="example",
    gpu="RTX 3090",
    purchase=Money.usd(2200),
    life_years=Decimal(4),
    gpu_watts=Decimal(350),
    rest_watts=Decimal(100),
    idle_watts=Decimal(0),
    tariff=Money.usd("0.12"),
    source="published example",
    as_of=date(2025, 12, 1),
)
STAYS_ON = Desktop(
    name="stays-on",
    gpu="RTX 3090",
    purchase=Money.usd(2200),
    life_years=Decimal("2.5"),
    gpu_watts=Decimal(350),
    rest_watts=Decimal(100),
    idle_watts=Decimal(60),
    tariff=Money.usd("0.30"),
    source="made up",
    as_of=date(2025, 12, 1),
)
spans = st.timedeltas(timedelta(0), 10 * YEAR)


def test_the_published_example_is_reproduced():
    cost = desktop_cost(EXAMPLE, YEAR * 15 / 100, YEAR)
    assert round(cost.kwh) == 591
    assert cost.kwh == Decimal("591.3")
    assert cost.electricity.text(0) == "$71"
    assert cost.electricity == Money.usd("70.956")
    assert cost.purchase_share == Money.usd(550)
    assert cost.purchase == Money.usd(2200)


def test_a_desktop_that_stays_on_pays_for_waiting():
    cost = desktop_cost(STAYS_ON, 10 * HOUR, 24 * HOUR)
    assert cost.kwh == Decimal("4.5") + Decimal("0.84")
    assert cost.electricity == Money.usd(Decimal("5.34") * Decimal("0.30"))


def test_more_work_than_hours_keeps_it_busy_for_all_of_them():
    assert desktop_cost(STAYS_ON, 30 * HOUR, 24 * HOUR) == desktop_cost(STAYS_ON, 30 * HOUR, 30 * HOUR)


def test_nothing_done_costs_nothing_yet():
    cost = desktop_cost(EXAMPLE, timedelta(0), timedelta(0))
    assert (cost.electricity, cost.purchase_share, cost.total) == (Money(0), Money(0), Money(0))


@pytest.mark.parametrize(("active", "elapsed"), [(-HOUR, HOUR), (HOUR, -HOUR)])
def test_a_negative_span_is_refused(active, elapsed):
    with pytest.raises(ValueError, match="cannot be negative"):
        desktop_cost(EXAMPLE, active, elapsed)


@given(active=spans, more=spans, elapsed=spans, longer=spans)
def test_more_work_and_more_time_never_cost_less(active, more, elapsed, longer):
    first, second = (
        desktop_cost(STAYS_ON, active, elapsed),
        desktop_cost(STAYS_ON, active + more, elapsed + longer),
    )
    assert second.electricity.nanos >= first.electricity.nanos
    assert second.purchase_share >= first.purchase_share
    assert first.total == first.electricity + first.purchase_share


@given(st.timedeltas(timedelta(0), YEAR))
def test_electricity_agrees_with_a_slow_sum(active):
    watts, seconds = Decimal(450), Decimal(active // timedelta(microseconds=1)) / 1_000_000
    dollars = watts / 1000 * seconds / 3600 * Decimal("0.12")
    exact = desktop_cost(EXAMPLE, active, YEAR).electricity
    assert abs(exact.dollars - dollars) <= Decimal("1e-9")


def test_the_sentence_says_both_ways_of_paying():
    sentence = said(EXAMPLE, desktop_cost(EXAMPLE, YEAR * 15 / 100, YEAR))
    assert sentence == (
        "The same hours on an owned desktop (RTX 3090): $70.96 of electricity and $550.00 of its price over 4 years, "
        "after $2,200 on the first day."
    )


def test_small_amounts_are_shown_and_never_as_nothing():
    minutes = said(EXAMPLE, desktop_cost(EXAMPLE, timedelta(minutes=5), timedelta(minutes=20)))
    assert "$0.0045 of electricity and $0.0209 of its price" in minutes
    seconds = said(EXAMPLE, desktop_cost(EXAMPLE, timedelta(seconds=1), timedelta(seconds=2)))
    assert "<$0.0001 of electricity and <$0.0001 of its price" in seconds
