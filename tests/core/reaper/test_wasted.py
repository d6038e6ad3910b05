"""Idle time costs what its hours cost, shared by seconds; what is not known is nothing at least and all at most."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings, strategies as st

from cloudgpu.core.activity.utilization import Hour
from cloudgpu.core.billing.charges import charge, cost_timeline
from cloudgpu.core.billing.daily import CostRange
from cloudgpu.core.billing.rules import PARTS_PER_NANO, to_us
from cloudgpu.core.reaper.savings import idle_cost
from tests.core.costing import NOW, START, segment, use
from tests.examples import some

DOLLAR = 10**9 * PARTS_PER_NANO


def hour(number, gpu=0, used=0, idle=0, unknown=0):
    return Hour(START + timedelta(hours=number), float(gpu), float(used), float(idle), float(unknown))


def of(hours, *uses, **period):
    return idle_cost(hours, [cost_timeline(one, to_us(NOW)) for one in uses], **period)


def test_a_quarter_of_an_hour_idle_costs_a_quarter_of_it():
    assert of([hour(0, gpu=1800, used=900, idle=900)], use(0, 3600)) == CostRange(*(DOLLAR // 4,) * 3)


def test_what_nobody_knows_is_nothing_at_least_and_all_at_most():
    assert of([hour(0, gpu=1800, idle=900, unknown=900)], use(0, 3600)) == (DOLLAR // 4, DOLLAR // 4, DOLLAR // 2)
    assert of([hour(0, unknown=3600), hour(1, unknown=1800)], use(0, 5400)) == (0, 0, DOLLAR * 3 // 2)


def test_each_hour_has_its_own_price():
    """$1 in the first hour, $3 in the second: half of each idle costs 50 cents and 1.50."""
    run = use(0, 7200, segments=(segment(1_000_000_000), segment(3_000_000_000, 3600)))
    found = of([hour(0, gpu=1800, idle=1800), hour(1, gpu=1800, idle=1800)], run)
    assert found == CostRange(*(2 * DOLLAR,) * 3)


def test_two_runs_within_an_hour_are_shared_by_what_was_billed():
    """Twenty minutes and ten: half a dollar, a third of which was idle."""
    found = of([hour(0, gpu=1200, idle=600)], use(0, 1200), use(3000, 3600))
    assert found.amount == DOLLAR // 6


def test_a_period_that_cuts_an_hour_counts_its_part_alone():
    begin = to_us(START + timedelta(minutes=30))
    assert of([hour(0, idle=1800)], use(0, 3600), since=begin).amount == DOLLAR // 2
    assert of([hour(0, unknown=1800)], use(0, 3600), since=begin).high == DOLLAR // 2


def test_without_hours_or_price_nothing_is_wasted():
    assert of([], use(0, 3600)) == (0, 0, 0)
    assert of([hour(0, idle=3600)], use(0, 3600, segments=())) == (0, 0, 0)
    assert of([hour(0, gpu=3600)], use(0, 3600)) == (0, 0, 0)


parts = st.lists(st.tuples(*(st.integers(0, 900),) * 4), min_size=1, max_size=6)


@settings(max_examples=some(60), deadline=None)
@given(parts, st.integers(1, 10**12))
def test_idle_time_never_costs_more_than_the_machine(shown, nanos):
    run = use(0, 3600 * len(shown), segments=(segment(nanos),))
    hours = [hour(number, *seconds) for number, seconds in enumerate(shown)]
    found, paid = of(hours, run), charge(run, NOW)
    assert 0 <= found.low <= found.amount <= found.high <= paid.high
    interactive = sum(
        nanos * PARTS_PER_NANO * idle // max(1, gpu + used + idle + rest) for gpu, used, idle, rest in shown
    )
    assert abs(found.amount - interactive) <= len(shown)
