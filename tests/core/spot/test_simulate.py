"""The simulator bills and counts as the model says, and no policy sees the future in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.optimum import optimum
from cloudgpu.core.spot.safety_net import SafetyNet
from cloudgpu.core.spot.simulate import SpotJob, simulate
from cloudgpu.errors import InvalidRequest
from tests.core.spot.worlds import flickering, fuzzed

QUICK = ("on-demand", "greedy", "uniform-progress")


class Scripted:
    """Answers one after the other; the last one from then on. Remembers what it saw."""

    def __init__(self, *answers):
        self.answers, self.seen = list(answers), []

    def reset(self, job):
        self.job, self.asked = job, 0

    def decide(self, state):
        self.seen.append(state)
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        action, _, zone = answer.partition(" ")
        return {"action": action, "zone": int(zone) if zone else None}


def ran(answers, *zones, work=1.0, deadline=4.0, changeover=0.1, net=None):
    policy = Scripted(*answers.split(","))
    job = SpotJob(work, deadline, 0.25, changeover, 1.0, 3.0)
    run = simulate(job, [bytes(map(int, zone)) for zone in zones], policy, net=net, timeline=True)
    return run, policy


def test_a_changeover_makes_no_progress_and_is_billed():
    run, _ = ran("on_demand", "0")
    assert (run.cost, run.on_demand_h, run.changeover_h) == pytest.approx((3.3, 1.1, 0.1))
    assert (run.finish_h, run.starts, run.missed) == (pytest.approx(1.1), 1, False)
    assert [round(tick.work_left_h, 3) for tick in run.timeline] == [0.85, 0.6, 0.35, 0.1, 0.0]


def test_a_job_is_billed_to_the_moment_it_is_done_and_not_to_the_tick():
    run, _ = ran("spot", "11111111", work=0.3)
    assert (run.cost, run.finish_h) == pytest.approx((0.4, 0.4))


def test_a_changeover_longer_than_a_tick_goes_on_in_the_next():
    run, policy = ran("spot", "11111111", changeover=0.4)
    assert [round(state["pending_h"], 3) for state in policy.seen] == [0, 0.15, 0, 0, 0, 0]
    assert run.cost == pytest.approx(1.4)


def test_waiting_is_free_and_ends_a_machine():
    run, policy = ran("spot,wait,spot", "11111111")
    assert [state["mode"] for state in policy.seen[:3]] == ["wait", "spot", "wait"]
    assert (run.starts, run.wait_h, run.losses) == (2, 0.25, 0)
    assert run.cost == pytest.approx(1.2)


def test_a_spot_machine_is_lost_at_the_tick_at_which_its_zone_has_none():
    run, policy = ran("spot,spot,on_demand", "10111111")
    second = policy.seen[1]
    assert (second["mode"], second["zone"], second["pending_h"], second["spot_available"]) == ("wait", None, 0, False)
    assert second["work_left_h"] == pytest.approx(0.85)  # progress stays
    assert (run.losses, run.wait_h) == (1, 0.25)  # and spot that is not there is waiting
    assert run.cost == pytest.approx(0.25 + 3 * (0.85 + 0.1))


def test_a_loss_within_a_changeover_pays_for_nothing():
    run, _ = ran("spot,on_demand", "1000", changeover=0.4)
    assert run.cost == pytest.approx(0.25 + 3 * 1.4)


def test_another_zone_is_another_start():
    run, policy = ran("spot 0,spot 1", "11111111", "11111111")
    assert (run.starts, run.losses) == (2, 0)
    assert [state["zone"] for state in policy.seen[:3]] == [None, 0, 1]
    assert policy.seen[0]["zones_available"] == [True, True]
    assert run.cost == pytest.approx(1.2)


def test_the_loss_of_another_zone_is_no_loss():
    run, _ = ran("spot 1", "10000000", "11111111")
    assert (run.losses, run.starts) == (0, 1)


@pytest.mark.parametrize("answer", ["spot 5", "spot 1"])
def test_a_zone_that_has_no_spot_or_does_not_exist_is_waiting(answer):
    run, _ = ran(f"{answer},on_demand", "1111", "0000")
    assert (run.wait_h, run.spot_h) == (0.25, 0)


def test_one_zone_is_told_as_one():
    _, policy = ran("spot", "11111111")
    assert {(state["zones_available"], state["zone"]) for state in policy.seen} == {(None, None)}
    assert policy.job["prior_history"] is None


def test_a_policy_that_waits_forever_misses_its_deadline_and_then_finishes_on_demand():
    run, _ = ran("wait", "1111")
    assert run.missed
    assert (run.wait_h, run.finish_h, run.cost) == pytest.approx((4, 5.1, 3.3))


def test_the_net_keeps_the_deadline_of_a_policy_that_waits_forever():
    run, _ = ran("wait", "1111", net=SafetyNet(0.1, 0.25))
    assert not run.missed
    assert run.finish_h <= 4
    assert run.wait_h >= 4 - 1.1 - 2 * 0.25


def test_spot_ends_with_its_trace():
    run, _ = ran("spot,spot,on_demand", "1")
    assert run.losses == 1


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"work_h": 0}, "work_h"),
        ({"tick_h": float("nan")}, "tick_h"),
        ({"price_spot": float("inf")}, "price_spot"),
        ({"changeover_h": -0.1}, "changeover_h"),
        ({"work_h": 60, "deadline_h": 60}, "deadline_h"),
    ],
)
def test_an_impossible_job_is_refused_by_its_field(fields, names):
    with pytest.raises(InvalidRequest) as refused:
        SpotJob(**{"work_h": 48, "deadline_h": 60} | fields)
    assert refused.value.field == names


@given(st.integers(0, 2**32), st.sampled_from(QUICK))
@settings(max_examples=60, deadline=None)
def test_no_policy_is_cheaper_than_the_optimum(seed, name):
    job, zones = fuzzed(Draws(seed))
    run = simulate(job, zones, POLICIES[name](), net=SafetyNet(job.changeover_h, job.tick_h))
    assert run.cost >= optimum(job, zones).cost - 1e-6
    hours = run.spot_h + run.on_demand_h
    assert hours == pytest.approx(job.work_h + run.changeover_h)
    assert run.finish_h == pytest.approx(hours + run.wait_h)


@given(st.integers(0, 2**32), st.sampled_from(QUICK))
@settings(max_examples=40, deadline=None)
def test_what_comes_after_a_tick_changes_nothing_before_it(seed, name):
    draws = Draws(seed)
    job, zones = fuzzed(draws)
    known = draws.below(len(zones[0]))
    other = [zone[:known] + flickering(draws, len(zone) - known) for zone in zones]
    first, second = (simulate(job, one, POLICIES[name](), timeline=True).timeline for one in (zones, other))
    assert first[:known] == second[:known]


def test_the_adaptive_policy_sees_no_future_either():
    job, policy = SpotJob(6, 9, 0.25, 0.1), POLICIES["adaptive"]()
    for seed in range(12):
        draws = Draws(seed)
        zones = [flickering(draws, 36) for _ in range(1 + seed % 2)]
        known = draws.below(36)
        other = [zone[:known] + flickering(draws, 36 - known) for zone in zones]
        first, second = (simulate(job, one, policy, timeline=True).timeline for one in (zones, other))
        assert first[:known] == second[:known]
