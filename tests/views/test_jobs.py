"""Jobs as values: the exit status of `run`, the expected end, and documents that fit their schema."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.core.events import job_events as lines
from cloudgpu.core.events.log import EventSummary
from cloudgpu.core.jobs.job import jobs_of
from cloudgpu.core.model.facts import HourlyPrice
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import iso
from cloudgpu.views.jobs import exit_code, expected_end, job_document, run_time
from tests.cli.documents import faults_under
from tests.core.jobs.worlds import START, machine, spec

MINUTE = timedelta(minutes=1)


def at(minutes):
    return START + minutes * MINUTE


def folded(*drafts, **more):
    """The job of these lines, behind its request."""
    drafts = (lines.job_requested("job-1", "fox", None, "here", spec(**more), START), *drafts)
    said = [
        EventSummary(seq, iso(one.occurred_at), one.kind, one.subject, one.dedupe, one.body)
        for seq, one in enumerate(drafts, 1)
    ]
    return jobs_of(said)["job-1"]


def began(number=1, minutes=1):
    place = lines.job_placed("job-1", number, at(minutes), key=f"k-{number}", machine=None)
    machine_line = lines.job_machine("job-1", number, f"m-{number}", at(minutes))
    return (place, machine_line, lines.job_began("job-1", number, 3.5, at(minutes)))


def ended(outcome, minutes=9, **more):
    return lines.job_ended("job-1", 1, outcome, at(minutes), **more)


ENDS = [
    ("succeeded", {"status": 0}, True, 0),
    ("failed", {"status": 7}, True, 7),
    ("failed", {"signal": 11}, True, 139),
    ("timed_out", {"status": 143, "signal": 15}, True, 143),
    ("over_cost", {"signal": 9}, True, 137),
    ("cancelled", {"status": 143, "signal": 15}, True, 143),
    ("lost", {}, True, 255),
    ("failed", {"status": 127}, False, 127),
    ("setup_failed", {"status": 1}, False, 2),
    ("not_launched", {}, False, 4),
    ("cancelled", {}, False, 130),
    ("lost", {}, False, 8),
]


@pytest.mark.parametrize(("outcome", "more", "has_begun", "code"), ENDS)
def test_run_exits_as_its_command_did_once_that_has_begun(outcome, more, has_begun, code):
    job = folded(*(began() if has_begun else ()), ended(outcome, **more))
    assert exit_code(job) == code
    value = job_document(job, {}, at(10), cost=ZERO)
    assert value["exit"]["by"] == ("command" if outcome in ("succeeded", "failed") and has_begun else "cloudgpu")
    assert not faults_under("job", value)


def test_a_job_that_is_not_over_has_no_exit_code():
    assert exit_code(folded()) is None
    assert exit_code(folded(*began())) is None


def progressed(done, of, minutes, number=1):
    return lines.job_progressed("job-1", number, done, of, at(minutes))


def test_the_end_is_expected_by_the_speed_so_far():
    job = folded(*began(), progressed(25, 100, 11))  # a quarter in ten minutes
    assert expected_end(job, at(12)) == (at(41), "progress")


def test_an_expected_end_that_is_past_is_now():
    job = folded(*began(), progressed(99, 100, 100))
    assert expected_end(job, at(500)) == (at(500), "progress")


def test_a_timeout_ends_a_slow_job_before_its_work_is_done():
    job = folded(*began(), progressed(1, 100, 11), timeout_s=3600)
    assert expected_end(job, at(12)) == (at(61), "timeout")
    assert expected_end(folded(*began(), timeout_s=3600), at(12)) == (at(61), "timeout")


@pytest.mark.parametrize(("done", "of"), [(0, 100), (5, None), (120, 100), (1e-308, 1e308)])
def test_progress_that_says_nothing_of_an_end_gives_none(done, of):
    assert expected_end(folded(*began(), progressed(done, of, 11)), at(12)) is None


def test_nothing_is_expected_of_a_job_that_waits_or_is_over():
    assert expected_end(folded(timeout_s=60), at(1)) is None
    assert expected_end(folded(*began(), ended("failed", status=1), timeout_s=60), at(10)) is None


def test_the_speed_counts_what_ran_before_an_interruption():
    again = lines.job_try_ended("job-1", 1, at(11), interrupted=True, status=None, why="gone")
    job = folded(*began(), again, *began(2, 31), progressed(50, 100, 41, 2))  # ten minutes, and ten more
    assert run_time(job, at(41)) == 20 * MINUTE
    assert expected_end(job, at(42)) == (at(61), "progress")


def test_a_job_with_all_that_can_be_said_fits_its_schema():
    came = lines.job_results_fetched("job-1", 3, 1000, "/home/ada/out", "here", at(10), whole=False, why="it was cut")
    job = folded(*began(), progressed(3, 4, 5), ended("failed", status=7), came, keep_s=4800, planned_max=10**9)
    facts = {"provider": "fake", "account": "lab", "region": "r", "zone": "z", "instance_type": "t", "market": "spot"}
    there = machine("m-1", price=HourlyPrice(2 * 10**9, "a list", iso(START), "listed"), **facts)
    value = job_document(job, {"m-1": there}, at(10), cost=Money.usd("0.30"), unpriced=("m-1 (disk)",))
    assert not faults_under("job", value)
    assert value["machine"] | {"own": True} == value["machine"]
    assert (value["machine"]["usd_per_hour"], value["spent_usd"], value["planned_max_usd"]) == ("2", "0.3", "1")
    assert value["progress"]["percent"] == 75
    assert value["results"]["why"] == "it was cut"
    assert value["kept_until"] == iso(at(89))
    assert (value["living"], value["state"], value["attempt"]) == (True, "failed", 1)


def test_why_a_job_is_to_end_is_said_before_it_has_ended():
    asked = lines.job_cancel_requested("job-1", "cancelled", "cancelled by ada", "here", at(5))
    assert job_document(folded(*began(), asked), {}, at(6), cost=ZERO)["why"] == "cancelled by ada"
