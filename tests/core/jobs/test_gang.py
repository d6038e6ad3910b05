"""What comes next for a job whose attempts are several machines as one: a lost node is an interruption of all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.job import State, jobs_of
from cloudgpu.core.jobs.remote_state import Exit, Phase, RemoteState
from cloudgpu.core.jobs.shares import machine_assignments
from cloudgpu.core.jobs.steps import JobAction, ObservedState, next_step
from cloudgpu.core.values.times import iso
from tests.core.jobs.worlds import START, lines_to_events, machine, spec

ASKED = {"cluster": None, "members": [], "name": "fox", "nodes": 3, "minutes": 0, "once": False} | dict.fromkeys(
    ("gpus_per_node", "array", "after", "partition", "account")
)
IDS = ("g-0", "g-1", "g-2")
GONE = {"state": "terminated", "terminated_at": iso(START)}


def gang(*more, **facts):
    """A job on three machines of its own, whose command runs, and what else its lines say."""
    begin = [
        lines.job_requested("job-1", "fox", None, "desk", spec(gang=3, slurm=ASKED, **facts), START),
        lines.job_placed("job-1", 1, START, key="job-1-1", machine=None),
        lines.job_machine("job-1", 1, "g-0", START, cluster="g", members=IDS),
        lines.job_began("job-1", 1, None, START),
    ]
    return jobs_of(lines_to_events([*begin, *more]))["job-1"]


def nodes(**changed):
    return tuple(machine(one, **changed.get(one.replace("-", ""), {})) for one in IDS)


def step(job, rows, remote=None, **more):
    return next_step(job, ObservedState(rows[0], remote, other_nodes=rows[1:], **more), START + timedelta(hours=1))


def ran(phase=Phase.RUNNING, **exit_):
    ended = Exit(**{"status": 0, "signal": None, "reason": "exited", "ended_at": 0.0} | exit_) if exit_ else None
    return RemoteState(phase, START.timestamp(), exit=ended)


def test_it_runs_as_long_as_it_has_all_its_nodes():
    assert step(gang(), nodes(), ran()).action is JobAction.WATCH


@pytest.mark.parametrize("state", [GONE, {"state": "stopping"}, {"state": "stopped"}])
def test_any_lost_node_is_an_interruption_of_the_attempt(state):
    found = step(gang(), nodes(g2=state), ran())
    assert (found.action, found.interrupted) == (JobAction.RETRY, True)
    assert found.why.startswith("g-2 is gone")


def test_a_command_that_fails_for_want_of_a_lost_node_has_not_failed():
    found = step(gang(), nodes(g1=GONE), ran(Phase.EXITED, status=1))
    assert (found.action, found.interrupted) == (JobAction.RETRY, True)


def test_a_command_that_succeeded_before_a_node_went_has_succeeded():
    assert step(gang(), nodes(g1=GONE), ran(Phase.EXITED, status=0)).outcome is State.SUCCEEDED


def test_a_command_that_failed_is_not_over_while_a_node_does_not_answer():
    failed = ran(Phase.EXITED, status=1)
    assert step(gang(), nodes(), failed, why_node_doubtful="g-1 does not answer").action is JobAction.WAIT
    assert step(gang(), nodes(), failed).outcome is State.FAILED


def test_what_is_left_of_an_interrupted_gang_ends_before_anything_is_placed_or_waited_for():
    again = lines.job_try_ended("job-1", 1, START, interrupted=True, status=None, why="g-2 is gone")
    assert step(gang(again), nodes(g2=GONE)).action is JobAction.TERMINATE
    assert step(gang(again), nodes(g0=GONE, g1=GONE, g2=GONE)).action is JobAction.SCHEDULE


def test_a_gang_that_lost_a_node_too_often_is_lost_and_ended():
    found = step(gang(restarts=0), nodes(g0=GONE), ran())
    assert (found.action, found.outcome) == (JobAction.END, State.LOST)
    over = gang(lines.job_ended("job-1", 1, "lost", START, why=found.why))
    assert step(over, nodes(g0=GONE)).action is JobAction.TERMINATE
    assert step(over, nodes(g0=GONE, g1=GONE, g2=GONE)).action is JobAction.CLOSE


def test_an_end_that_somebody_asked_for_launches_no_other_gang():
    interactive = GONE | {"action_reason": "asked by the user"}
    assert step(gang(), nodes(g0=interactive, g1=interactive, g2=interactive)).outcome is State.LOST
    taken = step(gang(), nodes(g0=interactive, g1=GONE, g2=interactive))
    assert (taken.action, taken.interrupted) == (JobAction.RETRY, True)


def test_a_move_is_over_when_all_nodes_have_ended():
    move = lines.job_move_requested("job-1", 1, "on_demand", "the net", START)
    assert step(gang(move), nodes(g0=GONE, g1=GONE)).action is JobAction.MOVE
    assert step(gang(move), nodes(g0=GONE, g1=GONE, g2=GONE)).action is JobAction.RETRY


def test_slurm_is_that_of_the_attempt_and_all_nodes_are_the_jobs():
    job = gang()
    assert (job.slurm_record["cluster"], job.slurm_record["members"]) == ("g", list(IDS))
    assert job.machines == ("g-1", "g-2", "g-0")
    assert {id_: part.key for id_, (part,) in machine_assignments([job]).items()} == dict.fromkeys(IDS, "job-1")


def test_a_failed_try_goes_on_in_the_same_gang():
    tried = lines.job_try_ended("job-1", 1, START, interrupted=False, status=1, why="exit status 1")
    again = lines.job_placed("job-1", 2, START, key="job-1-1", machine="g-0")
    assert gang(tried, again).attempts[1].members == IDS
