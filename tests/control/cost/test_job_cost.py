"""What jobs cost, from the ledger's own lines: groups of `cost`, one job's sum, and the lines of an export."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.cli.money.cost_text import cost_text
from cloudgpu.control.cost.cost import cost_document, job_spent, jobs_spent
from cloudgpu.control.cost.exports import ExportFormat, ExportPeriod, export
from cloudgpu.control.cost.report import report_document
from cloudgpu.control.inputs.periods import parse_cost
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.session.session import all_jobs
from cloudgpu.core.events.job_events import job_began, job_closed, job_ended, job_machine, job_placed, job_requested
from cloudgpu.core.values.money import usd
from tests.core.jobs.writing import spec

TRAIN, GUEST, OTHER = "job-00000000a1", "job-00000000b2", "job-00000000c3"


def begun(lab, job, name, *, machine, key=None):
    """Write that a job was asked for and began on a machine, now."""
    now = lab.clock()
    lines = [
        job_requested(job, name, None, "tower", spec(machine=None if key else machine), now),
        job_placed(job, 1, now, key=key, machine=None if key else machine),
        *([job_machine(job, 1, machine, now)] if key else []),
        job_began(job, 1, None, now),
    ]
    lab.session.ledger.append(lines)


def over(lab, job):
    lab.session.ledger.append([job_ended(job, 1, "succeeded", lab.clock(), status=0), job_closed(job, "", lab.clock())])


def id_of(lab, name):
    return next(row.id for row in lab.session.ledger.machines() if row.name == name)


def asked(lab, **more):
    return cost_document(lab.session, parse_cost(lab.session.settings, lab.clock(), by="job", **more))


@pytest.fixture
def busy(lab):
    """Four hours: a job with a machine of its own, two guests on another one, a machine without a job."""
    for name in ("fox", "owl", "elk"):
        lab.up(name=name)
    begun(lab, TRAIN, "train", machine=id_of(lab, "fox"), key="job:a1:1")
    lab.later(hours=1)
    begun(lab, GUEST, "sweep", machine=id_of(lab, "owl"))
    lab.later(hours=1)
    begun(lab, OTHER, "eval", machine=id_of(lab, "owl"))
    lab.later(minutes=30)
    over(lab, TRAIN)
    over(lab, GUEST)
    lab.later(minutes=30)
    over(lab, OTHER)
    lab.later(hours=1)
    return lab


def test_cost_by_job_has_each_job_the_shared_time_the_idle_time_and_the_rest(busy):
    document = asked(busy)
    hours = {one["group"]: (one["name"], round(float(one["hours"]), 2)) for one in document["groups"]}
    assert hours == {
        TRAIN: ("train", 4.0),
        GUEST: ("sweep", 1.0),
        OTHER: ("eval", 0.5),
        "shared": ("shared", 0.5),
        "idle": ("idle", 2.0),
        "": ("", 4.0),
    }
    total = Decimal(document["total_usd"])
    assert sum(Decimal(one["usd"]) for one in document["groups"]) == total
    by_machine = cost_document(busy.session, parse_cost(busy.session.settings, busy.clock()))
    assert Decimal(by_machine["total_usd"]) == total


def test_the_table_names_jobs(busy):
    text = cost_text(asked(busy), None, verbose=True)
    assert text.split("\n\n")[1].splitlines()[0].startswith("JOB")
    for name in ("train", "sweep", "eval", "shared", "idle", "(none)"):
        assert f"\n{name}" in text


def test_a_period_cuts_the_rows_of_jobs(busy):
    begin = busy.clock() - timedelta(hours=2, minutes=15)
    document = asked(busy, since=begin, until=begin + timedelta(minutes=30))
    hours = {one["group"]: round(float(one["hours"]), 2) for one in document["groups"]}
    assert hours == {TRAIN: 0.5, GUEST: 0.25, "shared": 0.25, "": 0.5}


def test_what_one_job_has_spent_is_its_row(busy):
    rows = {one["group"]: Decimal(one["usd"]) for one in asked(busy)["groups"]}
    jobs = all_jobs(busy.session)
    for job in jobs.values():
        found = job_spent(busy.session, job)
        assert abs(Decimal(usd(found)) - rows[job.id]) <= Decimal("1e-9")
        assert job_spent(busy.session, job, jobs=jobs) == found
    assert jobs_spent(busy.session, jobs.values()) == {one.id: job_spent(busy.session, one) for one in jobs.values()}


def test_a_jobs_sum_stays_after_its_machine_has_ended(busy):
    job = all_jobs(busy.session)[TRAIN]
    terminate_one(busy.session, busy.session.ledger.machine(id_of(busy, "fox")), why="the job is over")
    before = job_spent(busy.session, job)
    busy.later(days=2)
    assert job_spent(busy.session, job) == before
    assert before.nanos > 0


def test_exported_lines_by_job_add_up_to_the_rows_by_job(busy):
    stream = io.StringIO()
    export(busy.session, ExportFormat.FOCUS, ExportPeriod(None, None, busy.clock()), None, stream)
    found: dict[str, Decimal] = {}
    for row in csv.DictReader(io.StringIO(stream.getvalue())):
        job = json.loads(row["Tags"]).get("cloudgpu-job", "")
        found[job] = found.get(job, Decimal()) + Decimal(row["BilledCost"])
    rows = {one["group"]: Decimal(one["usd"]) for one in asked(busy)["groups"]}
    assert set(found) == set(rows)
    for key, amount in found.items():
        assert abs(amount - rows[key]) < Decimal("1e-7"), key  # each of its lines is off by a nano-dollar at most
    assert sum(found.values()) == sum(rows.values())


def test_plain_exports_name_the_job(busy):
    stream = io.StringIO()
    export(busy.session, ExportFormat.JSON, ExportPeriod(None, None, busy.clock()), None, stream)
    charges = json.loads(stream.getvalue())["charges"]
    assert {one["job"] for one in charges} == {TRAIN, GUEST, OTHER, "shared", "idle", None}


def test_the_report_has_the_rows_of_cost_with_the_state_of_each_job(busy):
    document = report_document(busy.session)
    rows = {one["group"]: Decimal(one["usd"]) for one in asked(busy)["groups"]}
    found = {one["id"]: one for one in document["jobs"]}
    assert set(found) == set(rows)
    assert sum(Decimal(one["usd"]) for one in document["jobs"]) == Decimal(document["total"]["usd"])
    for key, one in found.items():
        assert abs(Decimal(one["usd"]) - rows[key]) <= Decimal("1e-9")
    assert [one["state"] for one in document["jobs"]] == ["succeeded"] * 3 + [None] * 3
    assert (found[TRAIN]["name"], found[TRAIN]["billed_s"]) == ("train", 4 * 3600)


def test_a_report_of_a_time_without_jobs_has_none(lab):
    lab.up(name="fox")
    lab.later(hours=1)
    assert report_document(lab.session)["jobs"] == []
