"""Decides how long a job waits for a machine that it needs, or that cannot begin it, and how long one is kept. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import takewhile

from cloudgpu.core.jobs.job import Attempt, Job, State
from cloudgpu.core.values.times import from_iso

CAPACITY_WAIT = timedelta(hours=24)  # for which a job waits for a machine, also for a restart
START_WAIT = timedelta(hours=1)  # for which a billed machine that was launched for a job may be unable to begin it


def waits_until(job: Job, now: datetime) -> datetime:
    """Return until when a job waits if its launch is refused now: a day from the first refusal or void launch.

    With a deadline, a day from that, or from the end of its last machine if that is later. It also waits a day for an
    existing machine that cannot begin it, but only an hour for one that was launched for it.
    """
    if job.waits is not None and job.attempts[-1].machine is not None:
        return job.waits[0] + (START_WAIT if job.spec["machine"] is None else CAPACITY_WAIT)
    if job.deadline is not None:
        ends = [attempt.ended_at for attempt in job.attempts if attempt.ended_at is not None]
        return max([from_iso(job.deadline["at"]), *ends]) + CAPACITY_WAIT
    waits, void = job.attempts[-1].waits, void_launches(job)
    return (void[-1].placed_at if void else now if waits is None else waits[0]) + CAPACITY_WAIT


def gives_up(job: Job, now: datetime) -> bool:
    """Say whether a job whose launch is refused once more has waited for its machine as long as it may."""
    return now >= waits_until(job, now)


def void_launches(job: Job) -> list[Attempt]:
    """Return the last attempts whose launches made no machine, the newest first."""
    return list(takewhile(lambda one: one.nothing_made, (one for one in reversed(job.attempts) if one.ended_at)))


def is_retained(job: Job) -> bool:
    """Say whether the machine of this job, which is over, is kept for inspection."""
    return job.spec["keep_s"] > 0 and job.outcome in (State.FAILED, State.SETUP_FAILED, State.TIMED_OUT, State.LOST)


def retained_until(job: Job) -> datetime:
    """Return until when a failed job's machine is kept: `--keep` from its end, or from its request before that."""
    return (job.ended_at or job.requested_at) + timedelta(seconds=job.spec["keep_s"])
