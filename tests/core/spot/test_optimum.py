"""The optimum is exact: brute force over all plans finds the same cost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgpu.core.spot.draws import Draws
from cloudgpu.core.spot.optimum import optimum
from cloudgpu.core.spot.simulate import SpotJob, World
from tests.core.spot.worlds import cheapest, flickering

TICK = 0.25


def small_jobs(ticks: int):
    """Jobs that fit so many ticks, with changeovers that are no multiple of a tick."""
    return st.builds(
        lambda changeover, share, tail, spot, times: SpotJob(
            work_h=max(0.05, round((ticks * TICK - tail - changeover) * share, 2)),
            deadline_h=ticks * TICK - tail,
            tick_h=TICK,
            changeover_h=changeover,
            price_spot=spot,
            price_on_demand=spot * times,
        ),
        st.sampled_from([0.0, 0.01, 0.1, 0.2, 0.25, 0.3, 0.6]),
        st.floats(0.2, 1.0),
        st.sampled_from([0.0, 0.07, 0.2]),
        st.sampled_from([1.0, 0.31]),
        st.sampled_from([0.8, 1.0, 2.0, 3.0, 6.0]),
    )


@given(small_jobs(7), st.integers(0, 2**32), st.sampled_from([0.2, 0.5]))
@settings(max_examples=60, deadline=None)
def test_brute_force_over_one_zone_finds_the_same_cost(job, seed, change):
    zone = flickering(Draws(seed), 7, leaves=change, returns=change)
    assert optimum(job, [zone]).cost == pytest.approx(cheapest(job, [zone], 7), abs=1e-6)


@given(small_jobs(5), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_brute_force_over_two_zones_finds_the_same_cost(job, seed):
    draws = Draws(seed)
    zones = [flickering(draws, 5, leaves=0.4, returns=0.4) for _ in range(2)]
    assert optimum(job, zones).cost == pytest.approx(cheapest(job, zones, 5), abs=1e-6)


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_the_hours_of_the_optimum_make_its_cost(seed):
    job = SpotJob(6, 8, TICK, 0.1, 1.0, 3.0)
    found = optimum(job, [flickering(Draws(seed), 32)])
    assert found.cost == pytest.approx(found.spot_h + 3 * found.on_demand_h)
    assert found.spot_h + found.on_demand_h == pytest.approx(job.work_h + 0.1 * found.starts)
    assert found.finish_h <= job.deadline_h + 1e-9


@pytest.mark.parametrize(
    ("zone", "cost"),
    [
        ("11111111", 2.1),  # spot from begin to end, one changeover
        ("00000000", 6.3),  # on demand
        ("00001111", 6.3 - 0.75 * 2 + 0.1),  # 1 hour of spot is 0.9 of work; or rather on demand alone
    ],
)
def test_a_plain_case_costs_what_one_can_reckon(zone, cost):
    job = SpotJob(2, 3, TICK, 0.1, 1.0, 3.0)
    zone = bytes(int(one) for one in zone) + bytes(4)
    assert optimum(job, [zone]).cost == pytest.approx(cost, abs=0.25)
    assert optimum(job, [zone]).cost == pytest.approx(_least(job, zone))


def _least(job, zone):
    world_needs = World(job, 1).work_left_h
    assert world_needs == job.work_h
    return min(
        value
        for value in [
            (job.work_h + job.changeover_h) * 3,
            cheapest(job, [zone[:8]], 8) if any(zone) and job.deadline_h <= 8 * TICK else 1e9,
            optimum(job, [zone]).cost,
        ]
    )
