"""A backtest compares policies from the same starts, next to the optimum, and says how sure it is."""

from __future__ import annotations

import pytest

from benchmarks.spot.hazards import fit_rates
from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay.backtest import backtest, percentile
from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.optimum import optimum
from cloudgpu.core.spot.replay.quote import EDGES_H, SHIPPED, AvailabilityModel, Quote, pick_model, quote
from cloudgpu.core.spot.replay.traces import Trace
from cloudgpu.core.spot.simulate import SpotJob
from cloudgpu.errors import InvalidRequest
from tests.core.spot.worlds import generated_trace

JOB = SpotJob(6, 9, 0.25, 0.1)
QUICK = {name: POLICIES[name] for name in ("on-demand", "greedy", "uniform-progress")}
TRACES = [generated_trace(model, 600, 800, seed) for seed, model in enumerate(SHIPPED)]


@pytest.fixture(scope="module")
def found():
    return backtest(TRACES, JOB, QUICK, starts=12, seed=3)


def test_every_policy_starts_at_the_same_moments_as_the_optimum(found):
    assert len(found.starts) == 36
    for start in found.starts:
        assert start.best == optimum(JOB, start.zones(JOB))
        assert 0 <= start.at_s <= start.traces[0].seconds - 9 * 3600
    assert [len(one.runs) for one in found.policies] == [36] * 3
    assert all(
        run.cost >= start.best.cost - 1e-6
        for one in found.policies
        for run, start in zip(one.runs, found.starts, strict=True)
    )


def test_on_demand_alone_costs_what_is_known_and_has_no_spread(found):
    alone = found.policies[0]
    assert (alone.cost.mean, alone.cost.low, alone.cost.high) == pytest.approx((18.3, 18.3, 18.3))
    assert (alone.cost_p95, alone.on_demand_h, alone.starts, alone.missed) == pytest.approx((18.3, 6.1, 1, 0))
    assert alone.above.mean == pytest.approx((18.3 - found.optimum) / 18.3)


def test_the_interval_of_a_mean_holds_it(found):
    for one in found.policies:
        assert one.above.low <= one.above.mean + 1e-9
        assert one.above.high >= one.above.mean - 1e-9
        assert one.above_p95 >= 0


@pytest.mark.soak
def test_the_same_seed_gives_the_same_and_another_one_another(found):
    assert backtest(TRACES, JOB, QUICK, starts=12, seed=3) == found
    assert backtest(TRACES, JOB, QUICK, starts=12, seed=4).starts != found.starts


def test_a_policy_less_changes_nothing_for_the_others(found):
    alone = backtest(TRACES, JOB, {"greedy": POLICIES["greedy"]}, starts=12, seed=3)
    assert alone.policies[0] == found.policies[1]


def test_the_run_that_is_shown_is_in_the_middle_of_the_last_policy(found):
    shown, costs = found.timelines[-1], sorted(run.cost for run in found.policies[-1].runs)
    assert shown.cost == costs[len(costs) // 2]
    assert sum(tick.hours for tick in shown.timeline) == pytest.approx(shown.finish_h)


def test_traces_together_are_zones_of_one_job():
    together = backtest(TRACES, JOB, QUICK, starts=5, together=True)
    assert len(together.starts) == 5
    assert len(together.starts[0].zones(JOB)) == 3
    apart = backtest([TRACES[0]], JOB, QUICK, starts=5)
    assert together.optimum <= apart.optimum


def test_a_trace_shorter_than_the_deadline_is_left_out_and_named():
    short = Trace("short", 600, bytes(20))
    assert backtest([*TRACES, short], JOB, QUICK, starts=1).too_short == ("short",)
    for together in (False, True):
        with pytest.raises(InvalidRequest, match="No trace is as long as the deadline of 9 hours"):
            backtest([short], JOB, QUICK, together=together)


def test_one_run_has_no_interval():
    one = backtest(TRACES[:1], JOB, QUICK, starts=1).policies[0]
    assert (one.cost.low, one.cost.high) == (None, None)


def test_it_says_how_far_it_is():
    told = []
    backtest(TRACES[:1], JOB, {"greedy": POLICIES["greedy"]}, starts=2, progress=lambda *one: told.append(one))
    assert told == [("optimum", 1, 2), ("optimum", 2, 2), ("greedy", 1, 2), ("greedy", 2, 2)]


def test_a_percentile_is_interpolated():
    assert [percentile([0, 10, 20], share) for share in (0, 0.25, 0.95, 1)] == pytest.approx([0, 5, 19, 20])


@pytest.mark.soak
def test_a_fit_finds_the_rates_that_a_trace_was_made_with():
    model = AvailabilityModel("made", 1, 0.5, (2.0, 1.0, 0.5, 0.2), (1.5, 1.0, 0.4, 0.3))
    found = fit_rates("found", [generated_trace(model, 60, 200_000, 1)])
    assert found.loss_rates == pytest.approx(model.loss_rates, rel=0.25)
    assert found.return_rates == pytest.approx(model.return_rates, rel=0.25)


def test_the_shipped_models_make_traces_of_their_share():
    for model in SHIPPED:
        assert len(model.loss_rates) == len(model.return_rates) == len(EDGES_H)
        shares = [generated_trace(model, 600, 1000, seed).share for seed in range(12)]
        assert sum(shares) / 12 == pytest.approx(model.share, abs=0.15)
    draws = Draws(1)
    assert [sum(pick_model(draws) is one for _ in range(1100)) > 100 for one in SHIPPED] == [True] * 3


@pytest.mark.soak
def test_a_quotation_lies_between_spot_and_on_demand():
    found = quote(SpotJob(18, 24, 1 / 60, 0.2, 0.92, 3.06))
    assert 18.2 * 0.92 - 0.01 <= found.low < found.mean < found.high <= 18.2 * 3.06 * 1.1
    assert (found.on_demand, found.missed) == (pytest.approx(55.692), 0)
    assert found.sentence().startswith("about $17 to $")
    assert "; on demand $56; " in found.sentence()
    assert quote(SpotJob(18, 24, 1 / 60, 0.2, 0.92, 3.06)) == found


def test_a_quotation_uses_the_history_where_it_is_long_enough():
    job = SpotJob(2, 3, 0.1, 0.1, 1.0, 3.0)
    always, short = Trace("always", 600, b"\1" * 100), Trace("short", 600, bytes(3))
    found = quote(job, [always, short])
    assert found.sentence() == (
        "about $2.10; on demand $6.30; none of 96 simulated runs needs on demand for the last hours"
    )
    never = quote(job, [Trace("never", 600, bytes(100))])
    assert never.sentence() == "about $6.60; on demand $6.30; every run needs on demand for the last hours"
    assert quote(job, [short]) == quote(job)


@pytest.mark.soak
def test_the_adaptive_policy_is_quoted_as_what_it_does():
    job = SpotJob(6, 9, 1 / 60, 0.2, 0.92, 3.06)
    found, other = quote(job, policy="adaptive"), quote(job, policy="uniform-progress", runs=48)
    assert found.mean < other.mean
    assert found.runs == other.runs == 48
    assert not found.missed


def test_a_job_without_slack_is_quoted_on_demand():
    found = quote(SpotJob(2, 2.1, 1 / 60, 0.1, 1.0, 3.0))
    assert (found.missed, found.low) == (0, pytest.approx(6.3))


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (0.0, "none of 96 simulated runs needs"),
        (1 / 12, "one run in twelve needs"),
        (0.01, "one run in 100 needs"),
        (0.34, "one run in three needs"),
        (0.4, "four runs in ten need"),
        (0.44, "four runs in ten need"),
        (0.5, "half of the runs need"),
        (0.97, "nine runs in ten need"),
        (1.0, "every run needs"),
    ],
)
def test_how_often_on_demand_is_needed_is_said_in_words(share, says):
    found = Quote(1414.2, 1999.0, 0, 5000, share, 0, 0, 96)
    assert found.sentence() == f"about $1,414 to $1,999; on demand $5,000; {says} on demand for the last hours"
