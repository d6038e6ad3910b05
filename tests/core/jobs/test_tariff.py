"""What somebody else's Slurm asks for a job: a row of its own, once in every grouping, by Slurm's own times."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any

from hypothesis import given, settings, strategies as st

from cloudgpu.core.billing.charges import money, period_charges
from cloudgpu.core.billing.cost_groups import CostQuery, Grouping, costs
from cloudgpu.core.billing.daily import daily_of, timed_usages
from cloudgpu.core.billing.line_items import line_items
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.events.job_events import job_in_slurm, job_placed, job_requested
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.jobs.shares import machine_assignments, tariff_cost, tariff_record_id, tariff_records
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from tests.core.costing import NOW, START, ledgers, row
from tests.core.jobs.test_in_slurm import folded
from tests.core.jobs.writing import in_slurm, slurm_run, spec
from tests.examples import some

HOUR_US = 3_600_000_000
seconds = st.integers(0, 39 * 86_400)


def asking(number: int, price: int, gpus: int | None, *runs: Any, **facts: Any) -> Job:
    """Return a job that somebody else's Slurm asks so much for."""
    one = in_slurm(number, *runs, members=("cg-0",), cluster=None)
    asked = {**one.spec["slurm"], "usd_per_gpu_hour": price, "gpus_per_node": gpus}
    return replace(one, spec=spec(slurm=asked, machine="cg-0", **{"owner": "bob", "project": "vision", **facts}))


def exact(job: Job) -> int:
    """Return what a job comes to, in exact parts: GPUs x microseconds x price."""
    asked = job.spec["slurm"]
    spans = [((one.end or NOW) - one.begin) // timedelta(microseconds=1) for one in job.runs if one.begin]
    gpus = asked["nodes"] * (asked["gpus_per_node"] or 0)
    return sum(max(0, one) for one in spans) * gpus * asked["usd_per_gpu_hour"] * PARTS_PER_NANO // HOUR_US


@st.composite
def jobs_of_others(draw: st.DrawFn) -> list[Job]:
    """Return jobs in somebody else's Slurm: with elements that ran, run, wait, and end before they begin."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        runs = [
            slurm_run(draw(st.none() | seconds), draw(st.none() | seconds), id=str(one))
            for one in range(draw(st.integers(0, 3)))
        ]
        found.append(asking(number, draw(st.integers(0, 10**11)), draw(st.sampled_from([None, 1, 8])), *runs))
    return found


@settings(max_examples=some(100), deadline=None)
@given(ledgers(), jobs_of_others())
def test_what_is_asked_is_in_every_grouping_once_and_to_the_last_part(ledger: Any, jobs: list[Job]) -> None:
    rows, ended = ledger
    login, _ = row(id="cg-0")
    rows = [login, *(one for one in rows if one.id != "cg-0")]
    ended = [one for one in ended if one[0] != "cg-0"]
    more = [*rows, *tariff_records(jobs, rows)]
    asked = sum(map(exact, jobs))
    for by in Grouping:
        query = CostQuery(by, UTC)
        before = costs(rows, ended, NOW, query).total.amount
        found = costs(more, ended, NOW, query, machine_assignments(jobs))
        assert found.total.amount == before + asked, by
        assert sum(one.amount for one in found.groups.values()) == found.total.amount, by
    by_job = costs(more, ended, NOW, CostQuery(Grouping.JOB, UTC), machine_assignments(jobs)).groups
    for job in jobs:
        assert (by_job[job.id].amount if job.id in by_job else 0) == exact(job)
        assert tariff_cost(job, NOW) == money(exact(job))
    items = list(line_items(period_charges(more, ended, NOW), NOW, assigned=machine_assignments(jobs)))
    total = costs(more, ended, NOW, CostQuery(Grouping.JOB, UTC)).total
    assert sum(one.amount.nanos for one in items) == money(total.amount).nanos
    days = daily_of(more, timed_usages(more, ended, NOW), UTC, since=None, until=None)
    assert days.total.amount == total.amount


def test_it_is_the_jobs_owners_and_a_kind_of_its_own() -> None:
    login, ended = row(id="cg-0")
    job = asking(1, 250_000_000, 4, slurm_run(0, 7200))
    more = [login, *tariff_records([job], [login])]
    for by, key in (
        (Grouping.OWNER, "bob"),
        (Grouping.PROJECT, "vision"),
        (Grouping.RESOURCE, "slurm"),
        (Grouping.INSTANCE, tariff_record_id(job)),
    ):
        groups = costs(more, ended, NOW, CostQuery(by, UTC)).groups
        assert money(groups[key].amount) == Money(2_000_000_000), by
    assert more[1].name == "job 1 in Slurm of name of cg-0"


def test_a_job_that_is_free_or_in_a_cluster_of_ours_has_no_such_row() -> None:
    login, _ = row(id="cg-0")
    ours = in_slurm(2, slurm_run(0, 60, "cg-0"), members=("cg-0",))
    free = in_slurm(3, slurm_run(0, 60), members=("cg-0",), cluster=None)
    assert tariff_records([ours, free], [login]) == []
    assert tariff_cost(free, NOW) is None


@settings(max_examples=some(100), deadline=None)
@given(st.lists(st.sampled_from(["waits", "runs", "is over"]), min_size=1), st.integers(0, 10**12))
def test_however_often_a_job_is_looked_at_it_is_asked_for_once(looks: list[str], price: int) -> None:
    asked = {**in_slurm(1, members=("cg-0",), cluster=None).spec["slurm"], "usd_per_gpu_hour": price}
    lines = [job_requested("job-1", "lr", None, "tower", spec(slurm={**asked, "gpus_per_node": 2}), START)]
    lines += [job_placed("job-1", 1, START, key=None, machine="cg-0")]
    begin, end = (iso(START + timedelta(seconds=one)) for one in (100, 3700))
    times = {"waits": ("PENDING", None, None), "runs": ("RUNNING", begin, None), "is over": ("COMPLETED", begin, end)}
    for number, look in enumerate((*looks, "is over")):
        state, since, until = times[look]
        task: Any = {"id": "12", "state": state, "machines": [], "begin": since, "end": until}
        lines.append(job_in_slurm("job-1", 1, "12", [task], START + timedelta(seconds=4000 + number)))
    job = folded(*lines)["job-1"]
    assert tariff_cost(job, NOW) == Money(2 * price)
