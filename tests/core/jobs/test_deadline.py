"""A job with a deadline: on time in every world in which on demand can be had, and one machine at a time."""

from __future__ import annotations

from bisect import bisect_right
from datetime import timedelta
from itertools import accumulate

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.jobs.deadline import Margins, SpotHistory, margins_of, percentile, work_s
from tests.core.jobs.spot_worlds import SpotWorld, deadline_spec
from tests.core.jobs.worlds import START
from tests.examples import some


def always(_minute):
    return True


def never(_minute):
    return False


def ends(world):
    return (world.done_at - START).total_seconds() / 3600


@pytest.mark.parametrize("policy", ["adaptive", "uniform-progress", "greedy", "on-demand"])
def test_a_job_is_done_by_its_deadline_where_spot_never_comes(policy):
    world = SpotWorld(deadline_spec(2, 4, policy), is_up=never).to_the_end()
    assert ends(world) <= 4
    assert world.cost()["spot"] == 0


def test_where_spot_stays_no_hour_is_on_demand():
    world = SpotWorld(deadline_spec(3, 5), is_up=always).to_the_end()
    assert (ends(world) <= 5, world.cost()["on_demand"], len(world.billed)) == (True, 0, 1)
    assert world.cost()["spot"] == pytest.approx(3 + 600 / 3600, abs=0.05)


def test_a_job_without_time_to_spare_begins_on_demand_at_once():
    world = SpotWorld(deadline_spec(2, 2.2), is_up=always).to_the_end()
    assert (ends(world) <= 2.2, world.cost()["spot"]) == (True, 0)


def test_what_is_lost_is_answered_on_demand_when_the_net_says_so():
    world = SpotWorld(deadline_spec(2, 3.2, "greedy"), is_up=lambda minute: minute < 60).to_the_end()
    assert ends(world) <= 3.2
    assert [market for market, *_ in world.billed] == ["spot", "on_demand"]


def test_a_command_that_writes_no_checkpoint_is_moved_before_its_loss_would_be_too_late():
    spec = deadline_spec(3, 5, "greedy", every_s=600)
    world = SpotWorld(spec, is_up=lambda minute: minute < 170, checkpoint_s=1e9).to_the_end()
    assert ends(world) <= 5


def test_a_job_that_is_interrupted_more_often_than_restarts_goes_on():
    world = SpotWorld(deadline_spec(3, 12, restarts=0), is_up=lambda minute: minute % 60 < 40).to_the_end()
    assert world.job.outcome == "succeeded"
    assert world.job.interruptions > 1


@given(
    work=st.floats(0.3, 4),
    spare=st.floats(0.25, 4),
    start=st.floats(30, 1200),
    every=st.sampled_from([60, 300, 600, 1800]),
    checkpoint=st.sampled_from([60.0, 300.0, 1200.0]),
    gap=st.sampled_from([60.0, 150.0, 300.0]),
    policy=st.sampled_from(["adaptive", "uniform-progress", "greedy"]),
    flips=st.lists(st.integers(1, 180), min_size=1, max_size=12),
    kills=st.sets(st.integers(0, 200), max_size=6),
)
@settings(max_examples=some(25), deadline=None)
def test_no_deadline_is_missed_and_no_two_machines_run(
    work, spare, start, every, checkpoint, gap, policy, flips, kills
):
    def is_up(minute):
        for number, length in enumerate(flips * 50):
            minute -= length
            if minute < 0:
                return number % 2 == 0
        return True

    deadline = work + (start + gap) / 3600 + spare
    spec = deadline_spec(work, deadline, policy, every_s=every)
    world = SpotWorld(spec, is_up=is_up, start_s=start, pass_interval_s=gap, checkpoint_s=checkpoint)
    world.to_the_end(kills)
    assert world.job.outcome == "succeeded"
    assert ends(world) <= deadline + 1e-6, world.billed
    for (_, _, until), (_, since, _) in zip(world.billed, world.billed[1:], strict=False):
        assert until <= since


@given(
    work=st.floats(1, 4),
    spare=st.floats(0.3, 6),
    start=st.floats(30, 1200),
    checkpoint=st.sampled_from([60.0, 300.0, 1200.0]),
    policy=st.sampled_from(["uniform-progress", "greedy"]),
    flips=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    every=st.integers(1, 60),
)
@settings(max_examples=some(25), deadline=None)
def test_no_deadline_is_missed_however_often_another_place_is_cheaper(
    work, spare, start, checkpoint, policy, flips, every
):
    ends_at = list(accumulate(flips * 50))
    deadline = work + (start + 60) / 3600 + spare
    world = SpotWorld(
        deadline_spec(work, deadline, policy, every_s=300),
        is_up=lambda minute: bisect_right(ends_at, minute) % 2 == 0,
        start_s=start,
        checkpoint_s=checkpoint,
        cheaper=lambda minute: minute % every == 0,
    )
    world.to_the_end()
    assert world.job.outcome == "succeeded"
    assert ends(world) <= deadline + 1e-6, world.billed


def test_a_move_to_a_cheaper_place_is_another_attempt_on_spot():
    world = SpotWorld(deadline_spec(3, 12), is_up=always, cheaper=lambda minute: 60 <= minute < 62).to_the_end()
    assert [market for market, *_ in world.billed] == ["spot", "spot"]
    assert [one.moved for one in world.job.attempts] == [True, False]
    assert (world.moves, world.job.interruptions) == (1, 0)


def test_no_cheaper_place_is_moved_to_without_time_to_spare():
    spec = deadline_spec(3, 3 + 2000 / 3600)
    world = SpotWorld(spec, is_up=always, cheaper=always).to_the_end()
    assert world.moves == 0


def test_a_refused_spot_launch_is_tried_again_after_a_minute_then_less_often():
    seen = SpotHistory(((START, "refused"),))
    assert not seen.may_be_tried(START + timedelta(seconds=59), "wait", 600)
    assert seen.may_be_tried(START + timedelta(seconds=60), "wait", 600)
    many = SpotHistory(tuple((START + timedelta(minutes=10 * number), "refused") for number in range(20)))
    last = many.events[-1][0]
    assert not many.may_be_tried(last + timedelta(minutes=9), "wait", 600)
    assert many.may_be_tried(last + timedelta(minutes=10), "wait", 600)


def first_try(seen, start_s):
    """Hours after the last event at which an on-demand machine is given up for spot."""
    last = seen.events[-1][0]
    return next(at / 60 for at in range(6000) if seen.may_be_tried(last + timedelta(minutes=at), "on_demand", start_s))


def test_an_on_demand_machine_is_given_up_for_spot_the_later_the_longer_a_start_takes_and_the_oftener_it_failed():
    lost = SpotHistory(((START, "obtained"), (START + timedelta(hours=1), "lost")))
    assert first_try(lost, 450) == pytest.approx(5 * 0.125 ** (2 / 3), abs=0.02)
    assert first_try(lost, 3600) == pytest.approx(5, abs=0.02)
    at, events = START + timedelta(hours=1), list(lost.events)
    waits = []
    for _ in range(5):
        at += timedelta(hours=2)
        events.append((at, "refused"))
        waits.append(first_try(SpotHistory(tuple(events)), 450))
    assert waits == pytest.approx([1.25 * factor for factor in (1.5, 2.25, 3.375, 4, 4)], abs=0.02)


def test_refusals_of_looks_that_follow_each_other_are_of_one_try():
    looks = SpotHistory(tuple((START + timedelta(minutes=number), "refused") for number in range(9)))
    assert first_try(looks, 450) == pytest.approx(1.25, abs=0.02)


def test_the_past_is_told_as_it_was_seen_and_else_as_it_could_be():
    seen = SpotHistory(
        ((START, "obtained"), (START + timedelta(hours=1), "lost"), (START + timedelta(hours=3), "refused"))
    )

    def told(minutes, mode="on_demand"):
        return seen.was_available(START + timedelta(minutes=minutes), mode, 450)

    assert not told(55), "the loss is in this tick"
    assert not told(60)
    assert not told(120)
    assert told(140), "an hour and a quarter later spot may be there again"
    assert not told(175), "it was refused in this tick"
    assert told(120, "wait"), "it was not tried, and could have been there"


def test_a_lost_machine_is_replaced_at_once():
    seen = SpotHistory(((START, "obtained"), (START + timedelta(hours=1), "lost")))
    assert seen.may_be_tried(START + timedelta(hours=1), "wait", 600)


def test_the_adaptive_policy_goes_back_to_spot_and_is_on_time():
    spec = deadline_spec(4, 6, "adaptive")
    world = SpotWorld(spec, is_up=lambda minute: not 60 <= minute < 140, pass_interval_s=300.0).to_the_end()
    markets = [market for market, *_ in world.billed]
    assert ends(world) <= 6
    assert markets == ["spot", "on_demand", "spot"]


def test_the_net_counts_what_was_measured_and_defaults_where_too_little_was():
    assert margins_of([], [], []) == Margins(900, 180, 60, 0)
    assert margins_of([1200], [], [5]) == Margins(1200, 180, 60, 1)
    assert margins_of([100, 200, 300], [20, 30, 40], [5, 300]) == Margins(300, 40, 300, 3)
    assert percentile(range(100)) == 95


def test_work_that_goes_slower_than_was_said_counts_at_once_and_faster_work_the_more_is_done():
    assert work_s(3600, 900, (10, 100)) == pytest.approx(9000)
    assert work_s(3600, 900, (50, 100)) == pytest.approx((1800 + 3600) / 2)
    assert work_s(3600, 900, None) == 3600
    assert work_s(3600, 900, (1, None)) == 3600
    assert work_s(3600, 5000, None) == 5000
