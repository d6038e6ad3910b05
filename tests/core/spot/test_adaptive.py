"""The adaptive policy: its plans, its belief, and what it does with both."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.spot.adaptive import Adaptive, shipped_models
from cloudgpu.core.spot.hazards import Belief, Hazards, Mixture
from cloudgpu.core.spot.horizon import Plan, grid_of
from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.simulate import SpotJob, simulate
from tests.core.spot.worlds import flickering, fuzzed

JOB = SpotJob(6.0, 10.0, 1 / 6, 0.2)
STABLE = Hazards((0.0,), (0.01,), (0.0,), (2.0,))
SHAKY = Hazards((0.0,), (3.0,), (0.0,), (0.5,))
BOTH = Mixture((STABLE, SHAKY), (0.5, 0.5))


def plan(hazards, *, changeover=0.2, ratio=3.0, step=1 / 6):
    return Plan(hazards, grid_of(10.0, 4.0, step, changeover, ratio))


@pytest.mark.parametrize("changeover", [0.0, 0.05, 0.2, 0.5])
def test_spot_that_is_never_lost_costs_its_work_and_one_changeover(changeover):
    never = Hazards((0.0,), (0.0,), (0.0,), (1.0,))
    cost = plan(never, changeover=changeover).spot(0, 10.0, 4.0, changeover)
    assert cost == pytest.approx(6 + changeover, abs=0.02)


def test_without_spot_the_work_is_paid_on_demand():
    gone = Hazards((0.0,), (1.0,), (0.0,), (0.0,))
    found = plan(gone)
    assert found._value(2, 1, 10.0, 4.0) == pytest.approx(3 * 6.2, rel=0.01)
    assert found._value(1, 1, 10.0, 4.0) == pytest.approx(3 * 6, rel=0.01)


def test_a_plan_costs_what_a_hand_worked_tree_does():
    """One step is left to wait in, two hours of work, no changeover: spot comes with chance p and is never lost."""
    back = Hazards((0.0,), (0.0,), (0.0,), (0.7,))
    found = Plan(back, grid_of(3.0, 1.0, 1.0, 0.0, 3.0))
    p = 1 - exp(-0.7)
    after = p * 2 + (1 - p) * (3 + p * 1 + (1 - p) * 3)  # waited: on demand, and back to spot once it is there
    assert found._value(2, 1, 3.0, 1.0) == pytest.approx(after)


def test_more_slack_never_costs_more():
    found = Plan(shipped_models().models[0], grid_of(30.0, 12.0, 1 / 3, 0.2, 3.0))
    costs = [found.spot(0, 18.0 + slack, slack, 0.0) for slack in (1.0, 2.0, 4.0, 8.0, 12.0)]
    assert costs == sorted(costs, reverse=True)


def test_belief_moves_to_the_model_that_explains_what_was_seen():
    belief = Belief(BOTH, 1 / 6)
    assert belief.chances() == pytest.approx([0.5, 0.5])
    for _ in range(30):
        belief.observe(True)
    assert belief.chances()[0] > 0.99
    for up in (False, True) * 10:
        belief.observe(up)
    assert belief.chances()[1] > 0.5


def test_history_before_the_start_is_learned():
    """A job on demand moves to spot in a zone that was steady, and not in one that flickers: all else is equal."""
    now = {"elapsed_h": 3.0, "work_left_h": 6.0, "time_left_h": 7.0, "spot_available": True, "mode": "on_demand"}
    actions = []
    for history in ([1] * 200, [1, 0, 0, 1] * 50):
        policy = Adaptive(BOTH)
        policy.reset(JOB.facts([history]))
        actions.append(policy.decide(now)["action"])
    assert actions == ["spot", "on_demand"]


def test_a_start_takes_the_zone_that_has_had_spot_longest():
    policy = Adaptive(BOTH)
    policy.reset(JOB.facts([[0, 1, 1, 1], [0, 0, 0, 1], [1, 1, 1, 0]]))
    state = {"elapsed_h": 0.0, "work_left_h": 6.0, "time_left_h": 10.0, "spot_available": True, "mode": "wait"}
    assert policy.decide({**state, "zones_available": [True, True, True]}) == {"action": "spot", "zone": 0}
    assert policy.decide({**state, "zones_available": [False, True, True]}) == {"action": "spot", "zone": 1}


def test_a_zone_that_runs_is_kept_while_another_has_had_spot_longer():
    policy = Adaptive(BOTH)
    policy.reset(JOB.facts([[0, 0], [1, 1]]))
    state = {"elapsed_h": 0.0, "work_left_h": 6.0, "time_left_h": 10.0, "spot_available": True}
    state |= {"mode": "spot", "zone": 0, "zones_available": [True, True]}
    assert policy.decide(state) == {"action": "spot", "zone": 0}


def test_reset_forgets_the_last_job():
    zones = [flickering(Draws(1), 60)]
    used, fresh = Adaptive(), Adaptive()
    simulate(JOB, [flickering(Draws(2), 60)], used)
    assert simulate(JOB, zones, used, timeline=True) == simulate(JOB, zones, fresh, timeline=True)


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_looks_ahead(name):
    """Everything after tick t is replaced, and what was done up to t stays the same."""
    zones = [flickering(Draws(seed), 60) for seed in (3, 4)]
    before = simulate(JOB, zones, POLICIES[name](), timeline=True).timeline
    policy = POLICIES[name]()
    for tick in (1, 7, 20, 35):
        changed = [zone[: tick + 1] + bytes(1 - up for up in zone[tick + 1 :]) for zone in zones]
        after = simulate(JOB, changed, policy, timeline=True).timeline
        assert after[: tick + 1] == before[: tick + 1]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_adaptive_policy_alone_is_never_late(seed):
    job, zones = fuzzed(Draws(seed))
    assert not simulate(job, zones, Adaptive()).missed


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32), tight=st.floats(0, 0.3))
def test_it_is_never_late_with_hardly_any_slack(seed, tight):
    job, zones = fuzzed(Draws(seed))
    job = replace(job, work_h=max(job.tick_h / 10, job.deadline_h - job.changeover_h - tight))
    assert not simulate(job, zones, Adaptive()).missed


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_it_is_never_late_in_1000_runs():
    late = [seed for seed in range(1000) if simulate(*fuzzed(Draws(seed)), Adaptive()).missed]
    assert late == []


@pytest.mark.soak
def test_it_costs_less_than_uniform_progress_where_its_models_are_true():
    """Zones that are drawn from one of its models; the mean of 12 runs, with the same zones for both."""
    job = SpotJob(24.0, 32.0, 1 / 6, 0.1)
    zones = [drawn(shipped_models().models[0], seed, 192) for seed in range(12)]
    costs = {}
    for name in ("adaptive", "uniform-progress"):
        policy = POLICIES[name]()
        costs[name] = sum(simulate(job, [zone], policy).cost for zone in zones)
    assert costs["adaptive"] < costs["uniform-progress"]


def drawn(model, seed, ticks):
    """Return availability that follows the model."""
    draws, up, age, found = Draws(seed), True, 0.0, bytearray()
    for _ in range(ticks):
        found.append(up)
        changes = draws.uniform() < model.chance_of_change(model.node(up, age), 1 / 6)
        up, age = up != changes, 0.0 if changes else age + 1 / 6
    return bytes(found)
