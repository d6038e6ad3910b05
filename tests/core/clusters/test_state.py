"""How the engine is, read from what Slurm prints."""

from __future__ import annotations

from cloudgpu.core.clusters.state import SlurmState, missing_nodes, nodes_to_resume, read_sinfo, read_squeue

SINFO = """train-0|idle|none
train-1|mixed*|Not responding [slurm@2026-11-26T09:00:00]
train-2|drained|Duplicate jobid [slurm@2026-11-26T09:00:00]
train-3|drained|fan broken, ask bob [ada@2026-11-26T09:00:00]
train-0|idle|none
"""
SQUEUE = """7|RUNNING|None
8|PENDING|Priority
9_3|PENDING|JobHeldUser
"""


def test_nodes_are_read_once_each_with_why_they_are_not_up():
    nodes = read_sinfo(SINFO)
    assert [(one.name, one.state, one.responds, one.is_usable) for one in nodes] == [
        ("train-0", "idle", True, True),
        ("train-1", "mixed", False, False),
        ("train-2", "drained", True, False),
        ("train-3", "drained", True, False),
    ]
    assert missing_nodes(["train-0", "train-1", "train-9"], nodes) == (
        "train-1 (mixed, does not answer: Not responding [slurm@2026-11-26T09:00:00])",
        "train-9 (unknown to Slurm)",
    )


def test_an_idle_node_that_is_planned_for_a_waiting_job_is_usable():
    nodes = read_sinfo("train-0|planned|none\ntrain-1|mixed-|none\n")
    assert missing_nodes(["train-0", "train-1"], nodes) == ()
    assert SlurmState(answers=True, nodes=nodes).usable_nodes == 2


def test_only_what_slurm_itself_put_out_of_use_is_taken_back():
    assert nodes_to_resume(read_sinfo(SINFO)) == ("train-2",)


def test_jobs_run_or_wait():
    state = SlurmState(answers=True, nodes=read_sinfo(SINFO), jobs=read_squeue(SQUEUE))
    assert (state.running_count, state.waiting_count, state.usable_nodes) == (1, 2, 1)
    assert [one.reason for one in state.jobs] == ["None", "Priority", "JobHeldUser"]
    assert SlurmState(answers=False).running_count == 0
