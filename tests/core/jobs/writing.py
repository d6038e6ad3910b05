"""Jobs as tests write them: short words for what the ledger's lines fold to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cloudgpu.core.events.job_events import JobSpec
from cloudgpu.core.jobs.job import Attempt, Job, SlurmRun, State
from tests.core.costing import START


def spec(**facts: Any) -> JobSpec:
    """Return what a job is; nothing of it but `facts` matters."""
    usual: dict[str, Any] = {"argv": ["python", "train.py"], "workdir": "/home/ada/thesis", "snapshot": "0" * 64}
    usual |= {"files": 3, "bytes": 1000, "machine": None, "launch": {"gpu": "t4"}, "setup": None, "environment": {}}
    usual |= {"env_file": None, "secrets": [], "data": [], "ports": [], "results": "results", "checkpoint": None}
    usual |= {"every_s": 600, "timeout_s": None, "max_cost": None, "stall_s": None, "retries": 0, "restarts": 3}
    usual |= {"keep_s": 0, "results_wait_s": 7200, "owner": "ada", "project": "thesis", "planned_max": None}
    return JobSpec(**(usual | facts))  # type: ignore[typeddict-item]


def attempt(machine: str | None, begin: float, end: float | None, *, on: bool = False, number: int = 1) -> Attempt:
    """Return one try from second to second; `on`: the machine was there."""
    key = None if on else f"job-key-{number}"
    over = None if end is None else START + timedelta(seconds=end)
    placed = START + timedelta(seconds=begin)
    return Attempt(number, key, machine, placed, began_at=placed, ended_at=over)


def job(number: int, *attempts: Attempt, **facts: Any) -> Job:
    """Return a job; the outcome, where it is given, was at the end of its last attempt unless `ended_at` says."""
    usual: dict[str, Any] = {"name": f"job {number}", "key": None, "host": "tower", "by": "ada", "spec": spec()}
    usual |= {"requested_at": START, "attempts": attempts}
    if facts.get("outcome") and attempts:
        usual["ended_at"] = attempts[-1].ended_at
    return Job(id=f"job-{number:010x}", **(usual | facts))


def in_slurm(number: int, *runs: SlurmRun, members: tuple[str, ...], cluster: str | None = "c1", **facts: Any) -> Job:
    """Return a job that the Slurm of a cluster has run so; the cluster is of these machines."""
    asked = {"cluster": cluster, "members": list(members), "name": f"job-{number}", "nodes": 1, "minutes": 5}
    asked |= dict.fromkeys(("gpus_per_node", "array", "after", "partition", "account")) | {"once": False}
    return job(number, attempt(members[0], 0, None, on=True), spec=spec(slurm=asked), runs=runs, slurm_id="1", **facts)


def slurm_run(begin: float | None, end: float | None, *machines: str, id: str = "1") -> SlurmRun:  # noqa: A002
    """Return when a job of Slurm was on machines, from second to second."""
    at = [None if one is None else START + timedelta(seconds=one) for one in (begin, end)]
    return SlurmRun(id, "RUNNING" if end is None else "COMPLETED", machines, *at)


def succeeded(number: int, *attempts: Attempt, **facts: Any) -> Job:
    """Return a job that ended well and is closed."""
    closed = attempts[-1].ended_at
    return job(number, *attempts, **{"outcome": State.SUCCEEDED, "status": 0, "closed_at": closed} | facts)
