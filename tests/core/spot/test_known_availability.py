"""Policies that see no more of spot than a live job does."""

from __future__ import annotations

import pytest

from cloudgpu.core.spot.adaptive import Adaptive
from cloudgpu.core.spot.known_availability import MAX_BACKOFF, resolve_wait, retry_after_h
from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.quote import SHIPPED, make_trace
from cloudgpu.core.spot.safety_net import SafetyNet
from cloudgpu.core.spot.simulate import SpotJob, simulate
from tests.core.spot.test_simulate import Scripted
from tests.core.spot.worlds import flickering

JOB = SpotJob(6, 9, 1 / 6, 0.1)


def live(policy, *zones, job=JOB):
    return simulate(job, zones, policy, live=True, timeline=True)


def test_the_next_try_comes_later_with_the_changeover_and_with_each_refusal_up_to_a_limit():
    waits = [retry_after_h(0.2, refusals) for refusals in range(8)]
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(MAX_BACKOFF * waits[0])
    assert retry_after_h(0.1, 10_000) == retry_after_h(0.1, 50)
    assert retry_after_h(0.5, 0) > retry_after_h(0.1, 0) > retry_after_h(0.0, 0) == 0


def test_an_idle_job_asks_for_spot_and_learns_in_the_same_tick_that_there_is_none():
    policy = Scripted("spot", "wait", "wait", "on_demand")
    run = live(policy, bytes(60))
    assert [state["spot_available"] for state in policy.seen[:4]] == [True, False, True, False]
    assert [state["elapsed_h"] for state in policy.seen[:2]] == [0, 0]
    assert run.wait_h == pytest.approx(1 / 6)


def test_an_idle_job_tries_spot_where_its_policy_would_wait():
    run = live(Scripted("wait"), bytes([0, 1, 1]) + bytes([1] * 60))
    assert [tick.mode for tick in run.timeline[:3]] == ["wait", "spot", "spot"]


def test_a_machine_whose_work_seems_done_is_kept_until_its_command_says_so():
    state = {"elapsed_h": 3.0, "work_left_h": 0.0, "time_left_h": 6.0, "spot_available": True, "mode": "spot"}
    waits = {"action": "wait", "zone": None}
    assert resolve_wait(waits, state, SafetyNet(0.1, 1 / 60)) == {"action": "spot", "zone": None}
    assert resolve_wait(waits, {**state, "mode": "wait"}, SafetyNet(0.1, 1 / 60)) == waits


def test_on_demand_that_is_given_up_for_spot_that_is_not_there_starts_again():
    policy = Scripted("on_demand", "spot", "on_demand")
    run = live(policy, bytes(60))
    assert [state["mode"] for state in policy.seen[:3]] == ["wait", "on_demand", "wait"]
    assert (run.starts, run.changeover_h) == (2, pytest.approx(0.2))


def test_on_demand_sees_nothing_of_spot_until_it_may_be_tried():
    policy = Scripted("spot", "on_demand")
    zone = bytes([1, 0] + [1] * 60)
    live(policy, zone)
    told = [
        (round(state["elapsed_h"], 2), state["spot_available"]) for state in policy.seen[2:] if state["mode"] != "wait"
    ]
    first = next(at for at, may_be in told if may_be)
    assert first == pytest.approx(1 / 6 + retry_after_h(0.1, 0), abs=1 / 6)
    assert not any(may_be for at, may_be in told if at < first)


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_live_job_does_not_look_ahead(name):
    draws, policy = Draws(5), POLICIES[name]()
    zone = flickering(draws, 60, leaves=0.2, returns=0.2)
    whole = live(policy, zone).timeline
    for cut in (6, 20, 33):
        other = live(policy, zone[:cut] + bytes(1 - one for one in zone[cut:])).timeline
        assert [tick[:2] for tick in other[:cut]] == [tick[:2] for tick in whole[:cut]]


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_live_job_is_never_late(name):
    policy = POLICIES[name]()
    for seed, (work, spare, changeover) in enumerate([(6, 0.3, 0.1), (6, 3, 0.1), (4, 1.0, 0.4), (5, 2.5, 0.02)]):
        job, draws = SpotJob(work, work + changeover + spare, 1 / 6, changeover), Draws(seed)
        for _ in range(25):
            zone = flickering(draws, 80, leaves=draws.uniform(), returns=draws.uniform())
            assert not live(policy, zone, job=job).missed


def test_what_the_adaptive_policy_is_told_again_of_a_moment_replaces_what_it_was_told_before():
    one, other = Adaptive(), Adaptive()

    def at(tick, *, spot):
        hours = tick / 6
        return {
            "elapsed_h": hours,
            "work_left_h": 6.0,
            "time_left_h": 9 - hours,
            "mode": "wait",
            "spot_available": spot,
        }

    for policy in (one, other):
        policy.reset(JOB.facts())
    for tick in range(30):
        spot = tick % 5 == 0
        one.decide(at(tick, spot=not spot))
        assert one.decide(at(tick, spot=spot)) == other.decide(at(tick, spot=spot))
    assert one._belief.chances() == other._belief.chances()


@pytest.mark.soak
def test_the_adaptive_policy_costs_less_than_uniform_progress_in_live_jobs_too():
    job, draws = SpotJob(18, 26, 1 / 6, 0.1), Draws(11)
    zones = [make_trace(SHIPPED[number % 3], job.tick_h, 160, draws) for number in range(30)]
    costs = {}
    for name in ("adaptive", "uniform-progress"):
        policy = POLICIES[name]()
        costs[name] = sum(live(policy, zone, job=job).cost for zone in zones)
    assert costs["adaptive"] < costs["uniform-progress"]
