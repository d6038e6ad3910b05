"""Whether a running spot machine is left for a cheaper place."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.spot.moves import LOOK_BACK, PricedPlace, RunningJob, Saving, extra_cost_here, saving
from cloudgpu.core.spot.places import Sighting, SpotLocation
from tests.examples import some

NOW = datetime(2026, 11, 1, 9, tzinfo=UTC)
A, B = (SpotLocation("lab", "north", zone, "v100") for zone in "ab")
RUNS = RunningJob(age_h=5, work_left_h=20, unsaved_h=0.1, start_h=0.25, end_h=0.05, redone_h=0.1)


def ago(hours):
    return NOW - timedelta(hours=hours)


def priced(place, *prices, travel=0):
    """A place with prices as (hours ago, price)."""
    return PricedPlace(place, tuple((ago(hours), price) for hours, price in prices), travel)


def pays(here, there, running=RUNS, seen=()):
    return saving(running, here, there, seen, NOW).pays


DEAR, CHEAP = priced(A, (30, 1000)), priced(B, (30, 1000), (8, 300))


def test_a_place_that_has_been_much_cheaper_for_hours_is_moved_to():
    found = saving(RUNS, DEAR, CHEAP, (), NOW)
    assert found.pays
    assert found.saves > 1500
    assert 300 * (0.25 + 0.1) + 1000 * 0.05 < found.costs < 1000


def test_what_is_left_of_the_work_has_to_be_worth_the_move():
    assert not pays(DEAR, CHEAP, replace(RUNS, work_left_h=0.5))


def test_a_price_that_has_just_fallen_is_waited_with():
    assert not pays(DEAR, priced(B, (30, 1000), (0.2, 300)))


def test_a_small_difference_is_no_reason_to_move():
    assert not pays(DEAR, priced(B, (30, 970)))


def test_data_that_has_to_travel_counts():
    assert not pays(DEAR, replace(CHEAP, transfer_cost=3000))


def test_work_that_would_be_lost_counts():
    assert not pays(DEAR, CHEAP, replace(RUNS, unsaved_h=9))


def test_a_place_that_takes_machines_often_is_not_moved_to():
    losses = [Sighting(ago(number / 2), B, "taken", hours=0.3) for number in range(1, 60)]
    assert not pays(DEAR, CHEAP, seen=losses)


def test_refused_launches_count_against_a_place():
    refused = [Sighting(ago(number / 2), B, "refused") for number in range(1, 8)]
    assert saving(RUNS, DEAR, CHEAP, refused, NOW).saves < 0.5 * saving(RUNS, DEAR, CHEAP, (), NOW).saves
    assert not pays(DEAR, CHEAP, seen=refused * 3)


def test_a_young_machine_is_left_more_easily_than_an_old_one():
    young, old = (saving(replace(RUNS, age_h=age), DEAR, CHEAP, (), NOW) for age in (0.0, 16.0))
    assert young.costs < old.costs


def test_each_move_within_a_day_makes_the_next_one_harder():
    assert [pays(DEAR, CHEAP, replace(RUNS, moves=moves)) for moves in range(6)].count(True) < 4
    assert not pays(DEAR, CHEAP, replace(RUNS, moves=5))


def test_a_place_that_was_left_is_returned_to_once_that_move_has_earned_the_return():
    there = priced(B, (30, 300), (20, 1500), (8, 300))
    assert pays(DEAR, there)
    assert pays(DEAR, there, replace(RUNS, left_at=ago(20)))
    assert not pays(DEAR, there, replace(RUNS, left_at=ago(10)))
    assert not pays(DEAR, there, replace(RUNS, left_at=ago(26)))


def test_a_price_of_which_no_past_is_known_counts_for_the_past_day():
    assert pays(priced(A, (0, 1000)), priced(B, (0, 300)))


def test_what_staying_has_cost_more_is_forgotten_as_far_as_it_has_cost_less():
    here, there = priced(A, (30, 1000)), priced(B, (30, 400), (12, 2000), (2, 500))
    assert extra_cost_here(here, there, NOW, 600) == pytest.approx(-600 + 2 * 500)


AMOUNTS = st.integers(1, 3000)
HISTORIES = st.lists(st.tuples(st.floats(0, 30), AMOUNTS), min_size=1, max_size=12)
MACHINES = st.builds(
    RunningJob,
    age_h=st.floats(0, 48),
    work_left_h=st.floats(0, 96),
    unsaved_h=st.floats(0, 4),
    start_h=st.floats(0.01, 1),
    end_h=st.floats(0, 0.5),
    redone_h=st.floats(0, 1),
    moves=st.integers(0, 4),
)
SEEN = st.lists(
    st.builds(
        Sighting,
        st.floats(0, 200).map(ago),
        st.sampled_from([A, B]),
        st.sampled_from(["made", "refused", "taken", "ended"]),
        st.none(),
        st.floats(0, 20),
    ),
    max_size=6,
)


def history(place, prices):
    return priced(place, *sorted(prices, reverse=True))


def test_each_of_the_three_rules_keeps_a_job_where_it_is():
    enough = Saving(saves=151.0, costs=100.0, extra_cost=150.0, margin=1.5, least_saving=0.9, saved_before=100.0)
    assert enough.pays
    assert enough._replace(saved_before=None).pays
    for less in (
        {"saves": 150.9},
        {"extra_cost": 149.9},
        {"saved_before": 99.9},
        {"least_saving": 1.0},
        {"margin": 1.6},
    ):
        assert not enough._replace(**less).pays, less


@given(MACHINES, HISTORIES, HISTORIES, SEEN, st.integers(0, 2000))
@settings(max_examples=some(300), deadline=None)
def test_a_move_that_is_made_saves_more_than_it_costs_and_staying_has_cost_as_much(running, one, two, seen, travel):
    here, there = history(A, one), replace(history(B, two), transfer_cost=travel)
    found = saving(running, here, there, seen, NOW)
    least = there.price * (running.start_h + running.unsaved_h) + here.price * running.end_h + travel
    assert found.costs >= least * 0.999
    assert found.saves <= max(0, here.price - there.price) * running.work_left_h * 1.001
    if found.pays:
        assert there.price < here.price
        assert found.saves > 1.5 * found.costs
        assert found.extra_cost >= 1.5 * found.costs
        assert found.extra_cost <= 24 * max(0, max(price for _, price in one) - min(price for _, price in two))


@given(MACHINES, HISTORIES, HISTORIES, SEEN)
@settings(max_examples=some(300), deadline=None)
def test_no_machine_is_to_be_left_for_a_place_and_that_one_for_this_at_once(running, one, two, seen):
    here, there = history(A, one), history(B, two)
    assert not (pays(here, there, running, seen) and pays(there, here, running, seen))


@given(MACHINES, HISTORIES, HISTORIES, SEEN, st.floats(0.1, 5))
@settings(max_examples=some(200), deadline=None)
def test_more_to_lose_never_makes_a_move_out_of_none(running, one, two, seen, more):
    here, there = history(A, one), history(B, two)
    if not pays(here, there, running, seen):
        assert not pays(here, there, replace(running, unsaved_h=running.unsaved_h + more), seen)
        assert not pays(here, there, replace(running, moves=running.moves + 1), seen)
        assert not pays(here, replace(there, transfer_cost=int(more * 1000)), running, seen)


@pytest.mark.parametrize("period", [0.5, 1, 3, 5, 6, 7, 9, 12, 16, 24, 36, 60])
@pytest.mark.parametrize("low", [300, *(pytest.param(low, marks=pytest.mark.soak) for low in (100, 700))])
def test_prices_that_alternate_are_followed_only_where_each_move_earns_itself(period, low):
    """Two places are cheap in turns, for `period` hours each, over ten days: little more is paid than for staying."""
    begin = ago(0)

    def changes(first):
        return tuple(
            (begin + timedelta(hours=number * period), (low, 1000)[(number + first) % 2])
            for number in range(int(240 / period))
        )

    known = {A: changes(0), B: changes(1)}
    place, since, paid, stayed, moves, left = A, begin, 0.0, 0.0, [], {}
    for quarter in range(960):
        now = begin + timedelta(hours=quarter / 4)
        both = {one: PricedPlace(one, tuple(pair for pair in known[one] if pair[0] <= now)) for one in (A, B)}
        other = B if place is A else A
        lately = sum(now - one <= LOOK_BACK for one in moves)
        age = (now - since) / timedelta(hours=1)
        running = replace(RUNS, age_h=age, work_left_h=240 - quarter / 4, moves=lately, left_at=left.get(other))
        if saving(running, both[place], both[other], (), now).pays:
            paid += both[other].price * 0.35 + both[place].price * 0.05
            left[place] = now
            place, since = other, now
            moves.append(now)
        paid += both[place].price / 4
        stayed += both[A].price / 4
    assert paid <= stayed * 1.1
    assert len(moves) <= (24 if period > 3 else 0)
    if period > 24:
        assert paid < stayed * 0.95
