"""The scheduler itself: an overdue job is run once, and is not dropped with a warning."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.triggers.interval import IntervalTrigger

from cloudgpu.control.scheduler.watch import JOB_DEFAULTS, new_scheduler
from tests.cli.program import until

HOUR = timedelta(hours=1)


def missed(ran, **more):
    """A scheduler with a job whose time was three and a half hours ago, and three times more since."""
    found = new_scheduler()
    trigger = IntervalTrigger(hours=1, timezone=UTC)
    found.add_job(lambda: ran.append(1), trigger, next_run_time=datetime.now(UTC) - 3.5 * HOUR, **more)
    return found


def test_an_overdue_job_is_run_once_and_not_dropped_with_a_warning():
    ran: list[int] = []
    found = missed(ran)
    found.start()
    try:
        assert until(lambda: ran, within_s=10)
        (job,) = found.get_jobs()
        assert job.next_run_time > datetime.now(UTC) - timedelta(minutes=1)
    finally:
        found.shutdown()
    assert ran == [1]


def test_the_usual_grace_of_a_second_would_have_dropped_it():
    """What the peers run into, and the reason for our settings."""
    ran: list[int] = []
    found = missed(ran, misfire_grace_time=1)
    later = threading.Event()
    # One that recurs: the scheduler takes a single one away after it ran, and would not find it after `shutdown`.
    found.add_job(later.set, IntervalTrigger(hours=1, timezone=UTC), next_run_time=datetime.now(UTC))
    found.start()
    try:
        assert later.wait(10)
    finally:
        found.shutdown()
    assert ran == []


@pytest.mark.parametrize(("setting", "value"), [("misfire_grace_time", None), ("coalesce", True), ("max_instances", 1)])
def test_each_job_has_these_settings(setting, value):
    found = missed([])
    found.start(paused=True)
    try:
        assert [getattr(job, setting) for job in found.get_jobs()] == [value]
        assert JOB_DEFAULTS[setting] is value
    finally:
        found.shutdown()


def test_nothing_is_kept_beside_the_ledger():
    found = new_scheduler()
    found.start(paused=True)
    try:
        assert [type(store).__name__ for store in found._jobstores.values()] == ["MemoryJobStore"]
    finally:
        found.shutdown()
