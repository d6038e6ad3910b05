"""The lines of jobs in Slurm, folded: ours, and those that people gave to a cluster's Slurm themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from cloudgpu.control.jobs.slurm.events import slurm_state_event as line_of
from cloudgpu.core.clusters.queue import waits_text
from cloudgpu.core.events.job_events import job_began, job_in_slurm, job_placed, job_requested, slurm_job_recorded
from cloudgpu.core.events.log import Draft
from cloudgpu.core.jobs.job import State, jobs_of
from cloudgpu.core.jobs.reconcile_result import waiting_text
from cloudgpu.core.jobs.remote_state import EngineTask, Phase, RemoteState, SlurmJobState
from cloudgpu.core.jobs.shares import elements_of, minutes_within, tariff_cost
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from tests.core.costing import START
from tests.core.jobs.writing import in_slurm, slurm_run, spec


@dataclass
class Written:
    """A draft as the ledger has it."""

    seq: int
    draft: Draft

    def __getattr__(self, name: str) -> Any:
        return iso(self.draft.occurred_at) if name == "occurred_at" else getattr(self.draft, name)


def folded(*drafts: Draft) -> dict[str, Any]:
    return jobs_of([Written(number, one) for number, one in enumerate(drafts)])  # type: ignore[misc]


def task(id_: str, state: str, begin: int | None, end: int | None) -> Any:
    at = [None if one is None else iso(START + timedelta(seconds=one)) for one in (begin, end)]
    return {"id": id_, "state": state, "machines": ["cg-0"] if begin is not None else [], "begin": at[0], "end": at[1]}


def test_what_slurm_said_last_of_a_task_counts() -> None:
    asked = in_slurm(1, members=("cg-0",)).slurm_record
    lines = [job_requested("job-1", "lr", None, "tower", spec(slurm=asked), START)]
    lines += [job_in_slurm("job-1", 1, "12", [task("12", "PENDING", None, None)], START)]
    lines += [job_in_slurm("job-1", 1, "12", [task("12", "RUNNING", 5, None)], START + timedelta(seconds=5))]
    lines += [job_in_slurm("job-1", 1, "12", [task("12", "COMPLETED", 5, 9)], START + timedelta(seconds=9))]
    job = folded(*lines)["job-1"]
    assert (job.slurm_id, [one.state for one in job.runs]) == ("12", ["COMPLETED"])
    assert job.runs[0].end == START + timedelta(seconds=9)
    assert job.machines == ("cg-0",)


def test_a_job_that_somebody_gave_to_slurm_is_over_and_is_theirs() -> None:
    record: Any = {"cluster": "c1", "members": ["cg-0", "cg-1"], "user": "bob", "name": "bash", "status": 143}
    line = slurm_job_recorded({**record, "task": task("13", "CANCELLED", 5, 9)}, START + timedelta(seconds=9))
    job = folded(line, line)["slurm-c1-13"]
    assert (job.name, job.state, job.spec["owner"], job.is_open) == ("bash-13", State.CANCELLED, "bob", False)
    assert job.slurm_record is not None
    assert job.slurm_record["members"] == ["cg-0", "cg-1"]


def test_a_job_that_waits_in_slurm_says_for_what() -> None:
    waiting = EngineTask("12", "", "PENDING", "Resources", (), None, None)
    seen = RemoteState(Phase.RUNNING, 0.0, engine=SlurmJobState("12", "lr-1", (waiting,)))
    assert waiting_text(seen) == "Slurm job 12 waits in Slurm's queue: Resources (what it asks for is in use)"
    running = EngineTask("12", "", "RUNNING", "", ("train-0",), 1.0, None)
    assert waiting_text(RemoteState(Phase.RUNNING, 2.0, 1.0, engine=SlurmJobState("12", "lr-1", (running,)))) == ""


def test_a_tariff_counts_the_hours_of_gpus_to_the_nano_dollar() -> None:
    run = slurm_run(0, 1800, "gpu-7")
    one = in_slurm(1, run, run, members=("cg-1",), cluster=None)
    assert one.slurm_record is not None
    assert tariff_cost(one, START) is None
    asked = {**one.slurm_record, "usd_per_gpu_hour": 250_000_001, "nodes": 2, "gpus_per_node": 4}
    assert tariff_cost(replace(one, spec=spec(slurm=asked)), START) == Money(2_000_000_008)


def test_a_job_that_slurm_has_not_begun_is_queued_and_says_why() -> None:
    asked = in_slurm(1, members=("cg-0",)).slurm_record
    waiting = {**task("12", "PENDING", None, None), "reason": "Priority"}
    lines = [job_requested("job-1", "lr", None, "tower", spec(slurm=asked, machine="cg-0"), START)]
    lines += [job_placed("job-1", 1, START, key=None, machine="cg-0"), job_in_slurm("job-1", 1, "12", [waiting], START)]
    job = folded(*lines)["job-1"]
    assert (job.state, job.queue_reason) == (State.QUEUED, "waits in Slurm's queue: Priority (other jobs come first)")
    runs = job_in_slurm("job-1", 1, "12", [task("12", "RUNNING", 5, None)], START + timedelta(seconds=5))
    began = job_began("job-1", 1, None, START + timedelta(seconds=5))
    job = folded(*lines, runs, began)["job-1"]
    assert (job.state, job.queue_reason) == (State.RUNNING, "")


def test_a_reason_that_nobody_knows_is_said_as_slurm_says_it() -> None:
    assert waits_text(["None", ""]) == "waits in Slurm's queue"
    assert waits_text(["BurstBufferOperation", "JobHeldUser"]) == (
        "waits in Slurm's queue: BurstBufferOperation, "
        "JobHeldUser (it is held, and never starts unless somebody releases it)"
    )


def test_why_a_job_waits_is_a_line_every_ten_minutes_at_most_and_that_it_begins_is_one_at_once() -> None:
    asked = in_slurm(1, members=("cg-0",)).slurm_record
    job = folded(
        job_requested("job-1", "lr", None, "tower", spec(slurm=asked, machine="cg-0"), START),
        job_placed("job-1", 1, START, key=None, machine="cg-0"),
        job_in_slurm("job-1", 1, "12", [{**task("12", "PENDING", None, None), "reason": "Priority"}], START),
    )["job-1"]

    def line(state: str, reason: str, minutes: int, begin: float | None = None) -> Draft | None:
        seen = EngineTask("12", "", state, reason, ("n-0",) if begin else (), begin, None)
        return line_of(job, SlurmJobState("12", "lr-1", (seen,)), {"n-0": "cg-0"}, START + timedelta(minutes=minutes))

    assert line("PENDING", "Priority", 60) is None
    assert line("PENDING", "Resources", 9) is None
    changed = line("PENDING", "Resources", 10)
    assert changed is not None
    assert changed.body["tasks"][0]["reason"] == "Resources"
    assert line("RUNNING", "", 1, START.timestamp()) is not None
    assert line("CANCELLED", "", 1) is not None


def test_what_a_job_may_cost_pays_whole_minutes_of_every_element() -> None:
    assert minutes_within(Money(999_999_999), Money(6_000_000_000)) == 9
    assert minutes_within(Money(1_000_000_000), Money(6_000_000_000)) == 10
    assert minutes_within(Money(1_000_000_000), Money(6_000_000_000), elements=4) == 2
    assert minutes_within(Money(99), Money(6_000)) == 0


def test_an_array_has_as_many_elements_as_indexes() -> None:
    said = {None: 1, "0-9%4": 10, "1,3,5": 3, "0-9:3": 4, "1,1-3": 3, "7": 1, "9-1": 1, "0-9999999999": 4_000_001}
    assert {one: elements_of(one) for one in said} == said
    assert elements_of("0-" + "9" * 5000 + ":4000000") == 2
