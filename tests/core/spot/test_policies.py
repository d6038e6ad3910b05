"""Greedy, uniform progress and the net: what they do in one tick."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cloudgpu.core.spot import POLICIES
from cloudgpu.core.spot.safety_net import SafetyNet, latest_start
from cloudgpu.core.spot.situation import situation_of, task_of
from cloudgpu.errors import InvalidRequest

JOB = {
    "total_work_h": 8.0,
    "deadline_h": 12.0,
    "tick_h": 0.1,
    "changeover_h": 0.2,
    "price_spot": 1.0,
    "price_on_demand": 3.0,
}


def state(elapsed=0.0, work=8.0, *, up=True, mode="wait", pending=0.0, zones=None, zone=None):
    return {
        "elapsed_h": elapsed,
        "work_left_h": work,
        "time_left_h": JOB["deadline_h"] - elapsed,
        "spot_available": up if zones is None else any(zones),
        "zones_available": zones,
        "mode": mode,
        "zone": zone,
        "pending_h": pending,
    }


def decided(name, now):
    policy = POLICIES[name]()
    policy.reset(JOB)
    return policy.decide(now)


def action(name, now):
    return decided(name, now)["action"]


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_runs_once_the_work_is_done(name):
    assert decided(name, state(3.0, 0.0, mode="spot")) == {"action": "wait", "zone": None}


@pytest.mark.parametrize("name", ["greedy", "uniform-progress"])
def test_spot_is_kept_until_it_is_lost(name):
    assert action(name, state(11.0, 0.75, mode="spot")) == "spot"


@pytest.mark.parametrize("name", ["greedy", "uniform-progress", "adaptive"])
def test_an_idle_job_without_slack_goes_on_demand_even_where_spot_is_there(name):
    assert action(name, state(6.0, 5.7)) == "on_demand"


@pytest.mark.parametrize("name", ["greedy", "uniform-progress", "adaptive"])
def test_a_job_that_cannot_finish_in_time_any_more_goes_on_demand(name):
    assert action(name, state(11.0, 5.0)) == "on_demand"


def test_greedy_waits_behind_the_line_and_uniform_progress_does_not():
    behind = state(3.0, 7.0, up=False)
    assert (action("greedy", behind), action("uniform-progress", behind)) == ("wait", "on_demand")


def test_uniform_progress_waits_ahead_of_the_line():
    assert action("uniform-progress", state(3.0, 5.9, up=False)) == "wait"


def test_uniform_progress_takes_spot_behind_the_line():
    assert action("uniform-progress", state(3.0, 7.0)) == "spot"


def test_uniform_progress_leaves_on_demand_two_changeovers_ahead_of_the_line():
    line = 8.0 - (3.0 + 2 * 0.2) * 8 / 12
    assert action("uniform-progress", state(3.0, line + 0.01, mode="on_demand")) == "on_demand"
    assert action("uniform-progress", state(3.0, line - 0.01, mode="on_demand")) == "spot"


def test_uniform_progress_stays_on_demand_while_there_is_no_spot():
    assert action("uniform-progress", state(3.0, 4.0, mode="on_demand", up=False)) == "on_demand"


def test_greedy_stays_on_demand_to_the_end():
    policy = POLICIES["greedy"]()
    policy.reset(JOB)
    assert policy.decide(state(6.0, 5.7, up=False))["action"] == "on_demand"
    assert policy.decide(state(6.1, 5.0, mode="on_demand"))["action"] == "on_demand"


def test_with_several_zones_the_answer_names_one_that_has_spot():
    assert decided("greedy", state(zones=[False, True])) == {"action": "spot", "zone": 1}
    assert decided("greedy", state(1.0, zones=[True, True], mode="spot", zone=1)) == {"action": "spot", "zone": 1}


@pytest.mark.parametrize(
    ("key", "value"),
    [("tick_h", 0), ("deadline_h", "12"), ("deadline_h", 0), ("changeover_h", -1), ("total_work_h", 10**400)],
)
def test_an_impossible_number_of_the_job_is_refused_by_name(key, value):
    with pytest.raises(InvalidRequest, match=key) as refused:
        task_of({**JOB, key: value})
    assert len(f"{refused.value} {refused.value.value}") < 200


def test_history_is_one_list_or_one_for_each_zone():
    assert task_of({**JOB, "prior_history": [1, 0]}).history == ((True, False),)
    assert task_of({**JOB, "prior_history": [[1], [0]]}).history == ((True,), (False,))
    assert task_of({**JOB, "prior_history": None}).history == ()


def test_the_newest_of_what_was_seen_of_each_zone_is_of_the_same_moment():
    policy = POLICIES["adaptive"]()
    policy.reset({**JOB, "prior_history": [[1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1]]})  # zone 1 has had spot for longer
    assert policy.decide(state(zones=[True, True])) == {"action": "spot", "zone": 1}


def test_the_net_counts_the_tick_that_passes_before_the_next_decision():
    net = SafetyNet(0.2, 0.1)
    assert net.is_safe("wait", situation_of(state(6.0, 5.699)))
    assert not net.is_safe("wait", situation_of(state(6.0, 5.701)))


def test_the_net_counts_a_second_changeover_for_spot_that_may_be_lost():
    net = SafetyNet(0.2, 0.1)
    assert net.is_safe("spot", situation_of(state(6.0, 5.599)))
    assert not net.is_safe("spot", situation_of(state(6.0, 5.601)))


def test_the_net_counts_a_move_to_another_zone_as_a_start():
    net = SafetyNet(0.2, 0.1)
    now = situation_of(state(6.0, 5.7, mode="spot", zones=[True, True], zone=0))
    assert (net.is_safe("spot", now, 0), net.is_safe("spot", now, 1)) == (True, False)


def test_the_net_counts_what_a_loss_undoes():
    now = situation_of(state(6.0, 5.7, mode="spot"))
    assert SafetyNet(0.2, 0.1).is_safe("spot", now)
    assert not SafetyNet(0.2, 0.1, lost=0.2).is_safe("spot", now)


def test_the_net_overrides_an_answer_that_could_miss_the_deadline():
    wait, net = {"action": "wait", "zone": None}, SafetyNet(0.2, 0.1)
    assert net.check(wait, situation_of(state())) == wait
    assert net.check(wait, situation_of(state(6.0, 5.75))) == {"action": "on_demand", "zone": None}


def test_the_latest_start_leaves_time_for_the_work_a_changeover_and_a_tick():
    assert latest_start(12.0, 8.0, SafetyNet(0.2, 0.1)) == pytest.approx(3.7)
    assert latest_start(8.0, 8.0, SafetyNet(0.2, 0.1)) == 0.0


def test_the_package_loads_no_policy_before_one_is_used():
    code = "import sys, cloudgpu.core.spot as spot; print([m for m in sys.modules if 'core.spot.' in m])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
