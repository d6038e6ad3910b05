"""The optimum is exact: brute force over all plans finds the same cost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.optimum import optimum
from cloudgpu.core.spot.simulate import SpotJob
from tests.core.spot.worlds import cheapest, flickering

TICK = 0.25


def small_jobs(ticks: int):
    """Jobs that fit so many ticks, with changeovers that are no multiple of a tick."""
    return st.builds(
        lambda changeover, share, tail, spot, times: SpotJob(
            work_h=max(0.05, (ticks * TICK - tail - changeover) * share),
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
    on_demand_starts = (found.on_demand_h - found.on_demand_work_h) / 0.1
    assert on_demand_starts == pytest.approx(round(on_demand_starts))
    assert bool(round(on_demand_starts)) == (found.on_demand_h > 0)


@pytest.mark.parametrize(
    ("zone", "cost"),
    [
        ("111111111111", 2.1),  # spot from begin to end, with one changeover
        ("000000000000", 6.3),  # on demand from begin to end
        ("111000000000", 0.75 + 3 * (2 - 0.65 + 0.1)),  # what spot has done, and the rest on demand
        ("100000000000", 6.3 - 0.2),  # a tick of spot: 0.15 of work for 0.25, where on demand takes 0.45
        ("000111111111", 2.1),  # it waits for the spot that comes
        ("011110011111", 2.25 - 0.05),  # two starts
    ],
)
def test_a_plain_case_costs_what_one_can_reckon(zone, cost):
    job = SpotJob(2, 3, TICK, 0.1, 1.0, 3.0)
    assert optimum(job, [bytes(map(int, zone))]).cost == pytest.approx(cost)


@pytest.mark.parametrize(("work_ms", "changeover_ms"), [(3_600_000.6, 360_000.6), (7_200_000.5, 0.4)])
def test_a_job_without_slack_is_found_also_in_fractions_of_a_millisecond(work_ms, changeover_ms):
    work_h, changeover_h = work_ms / 3_600_000, changeover_ms / 3_600_000
    job = SpotJob(work_h, work_h + changeover_h, TICK, changeover_h, 1.0, 3.0)
    found = optimum(job, [bytes(16)])
    assert found.cost == pytest.approx(job.on_demand_only, abs=1e-5)
