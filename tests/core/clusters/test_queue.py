"""The queue of Slurm, as its squeue prints it."""

from __future__ import annotations

import pytest

from cloudgpu.core.clusters.queue import FORMAT, read_queue

LINES = """\
7|RUNNING|ann|all|2|None|train
8|PENDING|ann|all|4|Resources|wide
9_[2-9%4]|PENDING|bob|all|1|JobArrayTaskLimit|sweep
"""


def _one(state: str, reason: str) -> str:
    return f"11|{state}|ann|all|1|{reason}|x\n"


def test_the_queue_says_what_runs_and_what_waits() -> None:
    queue = read_queue(LINES)
    assert queue.is_busy
    assert [one.id for one in queue.running] == ["7"]
    assert [(one.id, one.nodes) for one in queue.waiting] == [("8", 4), ("9_[2-9%4]", 1)]


def test_an_empty_queue_is_not_busy() -> None:
    assert not read_queue("").is_busy
    assert not read_queue("\n").is_busy


def test_a_name_may_hold_bars() -> None:
    assert read_queue("3|RUNNING|ann|all|1|None|a|b|c\n").jobs[0].name == "a|b|c"
    assert FORMAT.endswith("%j")


@pytest.mark.parametrize("state", ["RUNNING", "CONFIGURING", "SUSPENDED", "RESIZING", "A_STATE_OF_2030"])
def test_a_job_that_runs_or_starts_is_activity(state: str) -> None:
    assert read_queue(_one(state, "None")).is_busy


@pytest.mark.parametrize(
    "reason", ["None", "Priority", "Resources", "Dependency", "BeginTime", "QOSMaxJobsPerUserLimit"]
)
def test_a_job_that_waits_with_a_chance_is_activity(reason: str) -> None:
    assert read_queue(_one("PENDING", reason)).is_busy


@pytest.mark.parametrize(
    ("state", "reason", "why"),
    [
        ("PENDING", "JobHeldUser", "held"),
        ("PENDING", "JobHeldAdmin", "held"),
        ("PENDING", "launch failed requeued held", "held"),
        ("PENDING", "launch_failed_requeued_held", "held"),
        ("PENDING", "job requeued in held state", "held"),
        ("REQUEUE_HOLD", "None", "held"),
        ("SPECIAL_EXIT", "None", "held"),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:train-[2-3]", "impossible"),
        ("PENDING", "ReqNodeNotAvail(Unavailable:train-2)", "impossible"),
        (
            "PENDING",
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "impossible",
        ),
        ("PENDING", "PartitionNodeLimit", "impossible"),
        ("PENDING", "PartitionTimeLimit", "impossible"),
        ("PENDING", "BadConstraints", "impossible"),
        ("PENDING", "DependencyNeverSatisfied", "impossible"),
        ("PENDING", "QOSMaxGRESPerJob", "impossible"),
        ("PENDING", "InvalidAccount", "impossible"),
    ],
)
def test_a_held_or_impossible_job_is_no_activity(state: str, reason: str, why: str) -> None:
    queue = read_queue(_one(state, reason))
    assert not queue.is_busy
    assert [one.why_never_runs for one in queue.hopeless] == [why]


@pytest.mark.parametrize("state", ["COMPLETED", "COMPLETING", "FAILED", "NODE_FAIL", "TIMEOUT", "CANCELLED"])
def test_a_job_that_is_over_is_no_activity(state: str) -> None:
    assert not read_queue(_one(state, "None")).is_busy


@pytest.mark.parametrize(
    "text",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
        "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n",
        "7|RUNNING\n",
    ],
)
def test_what_is_no_queue_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a line of squeue"):
        read_queue(text)
