"""What comes next for a job: each case by name, and whole lives with a kill between any two steps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.remote_state import Exit, Phase
from cloudgpu.core.jobs.steps import JobAction, next_step
from cloudgpu.core.model.facts import LastDecision
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from tests.core.jobs.worlds import START, World, machine, spec
from tests.examples import some

PARKED = {"state": "terminated", "parked": True, "terminated_at": iso(START)}


def until(world, do, most=30):
    """Take steps until this one was taken; return it."""
    for _ in range(most):
        step = world.step()
        if step.action is do:
            return step
    raise AssertionError(f"never {do}")


def begun(world):
    until(world, JobAction.START)
    return world


def test_a_job_is_placed_launched_begun_watched():
    world = World(spec())
    assert [world.step().action for _ in range(4)] == [
        JobAction.SCHEDULE,
        JobAction.LAUNCH,
        JobAction.START,
        JobAction.WATCH,
    ]
    assert world.job.attempts[0].key == "key-1"


@pytest.mark.parametrize(("there", "hours", "text"), [(None, 1, "1h"), ("desk", 24, "1d")])
def test_a_machine_that_cannot_begin_a_job_is_tried_so_long_and_then_ended_without_a_fetch(there, hours, text):
    world = World(spec(machine=there))
    until(world, JobAction.LAUNCH)
    for why in ("The disk of fox is full.", "It is full still."):  # each try is refused, the first reason counts
        world.write(lines.job_waits("job-1", 1, why, world.now, "start"))
        assert next_step(world.job, world.seen(world.job), world.now).action is JobAction.START
    assert (world.job.waits, world.job.state) == ((START, "The disk of fox is full."), State.STARTING)
    world.now += timedelta(hours=hours, seconds=-1)
    assert next_step(world.job, world.seen(world.job), world.now).action is JobAction.START
    world.now += timedelta(seconds=1)
    assert next_step(world.job, world.seen(world.job), world.now).action is JobAction.START, "a last try"
    world.unbegun = True
    end = world.step()
    assert (end.action, end.outcome) == (JobAction.END, State.SETUP_FAILED)
    assert end.why == f"it could not be begun for {text}: The disk of fox is full."
    assert world.job.waits is None
    assert [world.step().action for _ in range(2 - (there is not None))][-1] is JobAction.CLOSE
    assert world.begun == []


def test_what_succeeded_is_fetched_then_its_machine_ends_then_it_is_closed():
    world = begun(World(spec()))
    world.ends(1, status=0)
    assert [world.step().action for _ in range(4)] == [
        JobAction.END,
        JobAction.FETCH,
        JobAction.TERMINATE,
        JobAction.CLOSE,
    ]
    assert (world.job.outcome, world.job.shell_status) == (State.SUCCEEDED, 0)


def test_a_signal_is_an_exit_status_as_a_shell_says_it():
    world = begun(World(spec()))
    world.ends(1, signal=11)
    until(world, JobAction.CLOSE)
    assert (world.job.outcome, world.job.shell_status) == (State.FAILED, 139)


def test_a_machine_that_was_there_is_left():
    world = World(spec(machine="desk"))
    world.machines["desk"] = machine("desk")
    begun(world).ends(1, status=3)
    until(world, JobAction.CLOSE)
    assert world.ended_machines == []
    assert world.job.attempts[0].key is None


def test_a_vanished_machine_is_replaced_up_to_the_limit_and_then_the_job_is_lost():
    world = World(spec(restarts=2))
    for _ in range(3):
        until(world, JobAction.START)
        world.vanishes()
    until(world, JobAction.CLOSE)
    assert (world.job.outcome, world.job.interruptions, len(world.job.attempts)) == (State.LOST, 2, 3)
    assert [number for number, _ in world.begun] == [1, 2, 3]


def test_a_launch_that_made_no_machine_is_repeated_though_a_job_allows_no_restart():
    world = World(spec(restarts=0))
    until(world, JobAction.LAUNCH)
    there = world.machine_of(world.job)
    world.machines[there.id] = there._replace(state="terminated", terminated_at=iso(START), launch_status="void")
    step = until(world, JobAction.RETRY, most=1)
    assert step.why == f"the launch of {there.name} made no machine"
    until(world, JobAction.START)
    assert len(world.job.attempts) == 2


def made_nothing(world):
    """Let the next launch make no machine; return how long after that one it was sent."""
    since = world.now
    until(world, JobAction.LAUNCH)
    waited, there = world.now - since, world.machine_of(world.job)
    world.machines[there.id] = there._replace(state="terminated", terminated_at=iso(world.now), launch_status="void")
    until(world, JobAction.RETRY, most=1)
    return waited


def test_launches_in_a_row_that_make_no_machine_slow_down_say_so_and_end_after_a_day():
    world = World(spec(restarts=0))
    assert [made_nothing(world) / timedelta(minutes=1) for _ in range(8)] == [0, 0, 1, 2, 4, 8, 10, 10]
    assert world.step().why == "8 launches in a row made no machine; the next one is sent after 09:45:00 UTC"
    world.now = START + timedelta(hours=24)
    until(world, JobAction.CLOSE)
    assert (world.job.outcome, world.job.why) == (
        State.LOST,
        "the launch of m-key-7 made no machine; it got no other machine in 1d: the launch of m-key-8 made no machine",
    )


def test_a_launch_that_made_no_machine_uses_up_no_restart_and_slows_nothing_once_one_has_come():
    world = World(spec(restarts=1))
    for _ in range(3):
        made_nothing(world)
    until(world, JobAction.START)
    world.vanishes()
    until(world, JobAction.RETRY)
    assert [world.step().action for _ in range(3)] == [JobAction.SCHEDULE, JobAction.LAUNCH, JobAction.START]


def test_a_machine_that_was_there_and_is_gone_is_not_replaced():
    world = World(spec(machine="desk"))
    world.machines["desk"] = machine("desk")
    begun(world).vanishes()
    until(world, JobAction.CLOSE)
    assert (world.job.outcome, len(world.job.attempts)) == (State.LOST, 1)


def test_a_reboot_is_an_interruption_and_the_next_attempt_is_on_the_same_machine():
    world = begun(World(spec()))
    world.reboots()
    until(world, JobAction.START)
    first, second = world.job.attempts
    assert (first.interrupted, second.machine, second.key) == (True, first.machine, first.key)


def test_a_failing_exit_is_tried_again_where_that_was_asked_and_an_interruption_does_not_count():
    world = begun(World(spec(retries=1)))
    world.vanishes()
    until(world, JobAction.START)
    world.ends(2, status=1)
    until(world, JobAction.START)
    world.ends(3, status=1)
    until(world, JobAction.CLOSE)
    assert (world.job.outcome, world.job.status, world.job.failed_tries) == (State.FAILED, 1, 2)


def test_a_command_that_does_not_exist_in_setup_is_no_failing_exit():
    world = begun(World(spec(retries=3)))
    world.ends(1, status=127, reason="setup")
    until(world, JobAction.CLOSE)
    assert world.job.outcome is State.SETUP_FAILED


def test_a_command_that_the_machine_does_not_have_is_not_tried_again():
    world = begun(World(spec(retries=3)))
    world.ends(1, status=127, reason="no_command")
    until(world, JobAction.CLOSE)
    assert (world.job.outcome, world.job.status, len(world.job.attempts)) == (State.FAILED, 127, 1)


def test_a_timeout_is_a_state_of_its_own_and_is_not_tried_again():
    world = begun(World(spec(retries=3, timeout_s=60)))
    world.ends(1, signal=15, reason="timeout")
    until(world, JobAction.CLOSE)
    assert (world.job.outcome, len(world.job.attempts)) == (State.TIMED_OUT, 1)


def test_a_job_that_has_cost_its_most_is_ended_and_its_results_come_back():
    world = begun(World(spec(max_cost=Money.usd(2).nanos)))
    world.spent = Money.usd("1.99")
    assert world.step().action is JobAction.WATCH
    world.spent = Money.usd(2)
    step = world.step()
    assert (step.action, step.why) == (JobAction.CANCEL, "it has cost $2.00, and --max-cost is $2.00")
    until(world, JobAction.CLOSE)
    assert (world.job.outcome, world.whole) == (State.OVER_COST, {1})


def test_a_job_that_has_cost_its_most_is_ended_also_where_its_machine_does_not_answer():
    world = begun(World(spec(max_cost=Money.usd(2).nanos)))
    world.write(lines.job_began("job-1", 1, None, world.now))
    there = world.machine_of(world.job)
    world.machines[there.id] = there._replace(state="unknown")
    world.spent = Money.usd("1.99")
    assert world.step().action is JobAction.WAIT
    world.spent = Money.usd(2)
    step = next_step(world.job, world.seen(world.job), world.now)
    assert (step.action, step.outcome) == (JobAction.CANCEL, State.OVER_COST)
    world.write(lines.job_cancel_requested("job-1", "over_cost", step.why, "desk", world.now))
    until(world, JobAction.END)
    assert (world.job.outcome, world.now - START < timedelta(minutes=15)) == (State.OVER_COST, True)


def test_a_job_that_has_cost_its_most_is_not_begun_on_the_machine_that_it_has():
    world = World(spec(max_cost=Money.usd(2).nanos))
    until(world, JobAction.LAUNCH)
    world.spent = Money.usd(2)
    until(world, JobAction.CLOSE)
    assert (world.job.outcome, world.begun, len(world.ended_machines)) == (State.OVER_COST, [], 1)


def test_a_job_that_has_cost_its_most_gets_no_further_machine():
    world = begun(World(spec(max_cost=Money.usd(2).nanos)))
    world.vanishes()
    world.spent = Money.usd(2)
    until(world, JobAction.CLOSE)
    assert (world.job.outcome, len(world.job.attempts)) == (State.OVER_COST, 1)


def test_a_cancelled_job_that_never_had_a_machine_launches_none():
    world = World(spec())
    world.step()
    world.write(lines.job_cancel_requested("job-1", "cancelled", "asked", "desk", START))
    until(world, JobAction.CLOSE)
    assert (world.machines, world.job.outcome) == ({}, State.CANCELLED)


def test_a_cancelled_job_does_not_wait_for_ever_for_a_machine_that_does_not_answer():
    world = begun(World(spec()))
    world.write(lines.job_began("job-1", 1, None, START))
    there = world.machine_of(world.job)
    world.machines[there.id] = there._replace(state="unknown")
    world.write(lines.job_cancel_requested("job-1", "cancelled", "asked", "desk", world.now))
    assert world.step().action is JobAction.WAIT
    world.now += timedelta(minutes=10)
    assert world.step().action is JobAction.END
    world.now += timedelta(hours=2)
    world.unfetched = True
    assert world.step().action is JobAction.STOP


def test_a_cancelled_job_whose_machine_never_answered_ends_it_at_once():
    world = World(spec())
    until(world, JobAction.LAUNCH)
    there = world.machine_of(world.job)
    world.machines[there.id] = there._replace(state="pending")
    world.write(lines.job_cancel_requested("job-1", "cancelled", "asked", "desk", world.now))
    assert [world.step().action for _ in range(3)] == [JobAction.END, JobAction.TERMINATE, JobAction.CLOSE]


def test_a_machine_that_somebody_stopped_ends_the_job_and_its_results_wait_there():
    world = begun(World(spec()))
    there = world.machine_of(world.job)
    world.write(lines.job_began("job-1", 1, None, START))
    world.machines[there.id] = there._replace(state="stopped", action_reason="the budget lab is spent")
    step = until(world, JobAction.END)
    assert step.why == f"{there.name} was stopped: the budget lab is spent"
    assert world.step().action is JobAction.WAIT
    world.machines[there.id] = there
    assert [world.step().action for _ in range(3)] == [JobAction.FETCH, JobAction.TERMINATE, JobAction.CLOSE]


@pytest.mark.parametrize("how", [{"state": "stopped"}, PARKED])
def test_a_machine_that_its_policy_stopped_before_anybody_fetched_is_started_once_more(how):
    world = begun(World(spec()))
    world.ends(1, status=0)
    until(world, JobAction.END)
    there = world.machine_of(world.job)
    world.machines[there.id] = there._replace(**how)
    assert [world.step().action for _ in range(4)] == [
        JobAction.RESUME,
        JobAction.FETCH,
        JobAction.TERMINATE,
        JobAction.CLOSE,
    ]


def idle(at=START):
    return LastDecision("stop", "idle", "idle for 10m", "IDLE", iso(at), iso(at), iso(at))


@pytest.mark.parametrize("how", [{"state": "stopped"}, PARKED])
def test_a_machine_that_was_stopped_for_idle_time_is_looked_at_as_its_command_has_ended(how):
    world = begun(World(spec()))
    world.ends(1, status=5)
    there = world.machine_of(world.job)
    world.machines[there.id] = there._replace(decision=idle(), **how)
    assert [world.step().action for _ in range(5)] == [
        JobAction.RESUME,
        JobAction.END,
        JobAction.FETCH,
        JobAction.TERMINATE,
        JobAction.CLOSE,
    ]
    assert world.job.status == 5


def test_a_machine_that_is_stopped_for_idle_time_again_and_again_is_not_started_for_ever():
    world = begun(World(spec()))
    taken = []
    for _ in range(12):
        there = world.machine_of(world.job)
        world.machines[there.id] = there._replace(decision=idle(), state="stopped")
        taken.append(world.step().action)
    assert (taken.count(JobAction.RESUME), world.job.outcome, taken[-1]) == (2, State.LOST, JobAction.WAIT)


def test_a_spot_machine_that_is_taken_and_kept_is_started_again_as_often_as_a_job_may_restart():
    world = begun(World(spec(restarts=5)))
    for _ in range(5):
        world.taken()
        assert [world.step().action for _ in range(4)] == [
            JobAction.RESUME,
            JobAction.RETRY,
            JobAction.SCHEDULE,
            JobAction.START,
        ]
    world.taken()
    assert [world.step().action for _ in range(2)] == [JobAction.RESUME, JobAction.END]
    assert (world.job.outcome, world.job.interruptions, world.resumed) == (State.LOST, 5, 6)


def test_a_taken_machine_that_cannot_be_started_again_is_given_up_for_another_one():
    world = begun(World(spec(restarts=1)))
    world.taken()
    world.sold_out = True
    assert [world.step().action for _ in range(3)] == [JobAction.RETRY, JobAction.SCHEDULE, JobAction.LAUNCH]
    assert (world.job.machines, world.job.resumes) == (("m-key-1", "m-key-2"), 0)
    world.sold_out = False
    assert world.step().action is JobAction.START


def test_a_machine_that_was_stopped_for_idle_time_waits_for_capacity_with_what_it_may_have():
    world = begun(World(spec()))
    there = world.machine_of(world.job)
    world.machines[there.id] = there._replace(decision=idle(), state="stopped")
    world.sold_out = True
    assert [world.step().action for _ in range(9)] == [JobAction.RESUME] * 9


def test_results_that_nobody_fetches_in_time_end_compute_and_are_not_started_for_again():
    world = begun(World(spec(results_wait_s=7200)))
    world.ends(1, status=0)
    until(world, JobAction.END)
    world.now += timedelta(hours=1)
    world.unfetched = True
    assert next_step(world.job, world.seen(world.job), world.now).action is JobAction.FETCH
    world.now += timedelta(hours=1)
    assert [world.step().action for _ in range(3)] == [JobAction.STOP, JobAction.WAIT, JobAction.WAIT]
    assert world.resumed == 0


def test_a_watcher_that_comes_too_late_fetches_results_that_are_still_there():
    world = begun(World(spec(results_wait_s=7200)))
    world.ends(1, status=0)
    until(world, JobAction.END)
    world.now += timedelta(hours=9)
    assert [world.step().action for _ in range(3)] == [JobAction.FETCH, JobAction.TERMINATE, JobAction.CLOSE]


def test_a_machine_that_somebody_ended_is_not_replaced_and_one_that_a_rule_ended_is():
    for how, follows in (
        ({"action_reason": "asked by the user"}, JobAction.END),
        ({"action_reason": "it never came up", "launch_failed": True}, JobAction.RETRY),
        ({"action_reason": "its lease is over", "decision": ended("its lease is over")}, JobAction.RETRY),
        ({}, JobAction.RETRY),
    ):
        world = begun(World(spec()))
        there = world.machine_of(world.job)
        world.machines[there.id] = there._replace(state="terminated", terminated_at=iso(START), **how)
        assert world.step().action is follows


def ended(why):
    return LastDecision("terminate", "lease", why, "IDLE", iso(START), iso(START), iso(START))


def test_a_failed_job_keeps_its_machine_as_long_as_that_was_asked():
    world = begun(World(spec(keep_s=3600)))
    world.ends(1, status=1)
    until(world, JobAction.FETCH)
    assert world.step().action is JobAction.WAIT
    world.now = world.job.ended_at + timedelta(hours=1)
    assert world.step().action is JobAction.TERMINATE


def test_what_was_once_begun_and_is_not_there_any_more_is_not_begun_again_as_the_same_attempt():
    world = begun(World(spec()))
    world.write(lines.job_began("job-1", 1, None, START))
    world.remotes[1] = replace(world.remotes[1], phase=Phase.ABSENT)
    assert world.step().action is JobAction.RETRY


FAULTS = ["nothing", "killed", "vanishes", "reboots", "succeeds", "fails", "cancelled", "time"]


@settings(max_examples=some(300), deadline=None)
@given(
    faults=st.lists(st.sampled_from(FAULTS), max_size=40),
    restarts=st.integers(0, 3),
    retries=st.integers(0, 2),
    there=st.booleans(),
)
def test_whatever_happens_a_job_never_runs_twice_at_once_and_ends_and_leaves_no_machine(
    faults, restarts, retries, there
):
    world = World(spec(restarts=restarts, retries=retries, machine="desk" if there else None))
    if there:
        world.machines["desk"] = machine("desk")
    for fault in [*faults, *["nothing"] * 10]:
        number = len(world.job.attempts)
        if fault == "vanishes":
            world.vanishes()
        elif fault == "reboots":
            world.reboots()
        elif fault == "cancelled":
            world.write(lines.job_cancel_requested("job-1", "cancelled", "asked", "desk", world.now))
        elif fault in ("succeeds", "fails"):
            world.ends(number, status=int(fault == "fails"))
        elif fault == "time":
            world.now += timedelta(hours=1)
        world.step(killed=fault == "killed")
        assert len(world.running()) <= 1
    for _ in range(60):
        world.ends(len(world.job.attempts), status=0)
        world.step()
    job = world.job
    assert job.closed_at is not None
    alive = [one for one in world.machines.values() if one.terminated_at is None and one.id != "desk"]
    assert alive == []
    assert len(world.begun) <= 1 + restarts + retries
    if job.outcome is State.SUCCEEDED:
        whole = job.fetched is not None and job.fetched.whole
        assert whole or world.machine_of(job).terminated_at is not None  # what is gone cannot be fetched


def test_an_exit_that_a_killed_watcher_saw_is_seen_by_the_next_one():
    world = begun(World(spec()))
    world.ends(1, status=7)
    world.step(killed=True)
    until(world, JobAction.CLOSE)
    assert (world.job.status, world.remotes[1].exit) == (7, Exit(7, None, "exited", world.remotes[1].exit.ended_at))
