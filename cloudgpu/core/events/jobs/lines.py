"""Makes the ledger lines of jobs: one function for each kind, with its body and its dedupe text.

All of them have the subject `jobs`. The same text is written once, whoever tries again, so that two watchers of one job
write one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.events.jobs import bodies
from cloudgpu.core.events.log import MACHINE, OWN, Draft
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from datetime import datetime

SUBJECT = "jobs"  # of every line about a job


def job_requested(job: str, name: str, key: str | None, host: str, spec: bodies.JobSpec, now: datetime) -> Draft:
    """Return the line that is written before anything is launched for a job."""
    body: bodies.JobRequested = {"job": job, "name": name, "key": key, "host": host, "spec": spec}
    return Draft("job_requested", SUBJECT, body, now, f"job:{job}:requested")


def job_placed(job: str, attempt: int, now: datetime, *, key: str | None, machine: str | None) -> Draft:
    """Return the line that an attempt gets a machine: the one that is there, or the one launched with this key."""
    body: bodies.JobPlaced = {"job": job, "attempt": attempt, "key": key, "machine": machine}
    return Draft("job_placed", SUBJECT, body, now, f"job:{job}:{attempt}:placed")


def job_machine(job: str, attempt: int, machine: str, now: datetime) -> Draft:
    """Return the line that names the machine that was launched for an attempt."""
    body: bodies.JobMachine = {"job": job, "attempt": attempt, "machine": machine}
    return Draft("job_machine", SUBJECT, body, now, f"job:{job}:{attempt}:machine")


def job_began(job: str, attempt: int, setup_s: float | None, at: datetime) -> Draft:
    """Return the line that the command has begun; `at` is the machine's own time."""
    body: bodies.JobBegan = {"job": job, "attempt": attempt, "setup_s": setup_s}
    return Draft("job_began", SUBJECT, body, at, f"job:{job}:{attempt}:began", clock=MACHINE)


def job_progressed(job: str, attempt: int, done: float, of: float | None, now: datetime) -> Draft:
    """Return the line that says how far a job is."""
    body: bodies.JobProgressed = {"job": job, "attempt": attempt, "done": done, "of": of}
    return Draft("job_progressed", SUBJECT, body, now, f"job:{job}:{attempt}:progressed:{iso(now)}")


def job_try_ended(job: str, attempt: int, now: datetime, *, interrupted: bool, status: int | None, why: str) -> Draft:
    """Return the line that an attempt is over and another one follows."""
    body: bodies.JobTryEnded = {
        "job": job,
        "attempt": attempt,
        "interrupted": interrupted,
        "status": status,
        "why": why,
    }
    return Draft("job_try_ended", SUBJECT, body, now, f"job:{job}:{attempt}:try-ended")


def job_ended(
    job: str,
    attempt: int,
    outcome: bodies.Outcome,
    at: datetime,
    *,
    status: int | None = None,
    signal: int | None = None,
    why: str = "",
    by_machine: bool = False,
) -> Draft:
    """Return the line that a job is over; `by_machine`: `at` is the machine's own time."""
    body: bodies.JobEnded = {
        "job": job,
        "attempt": attempt,
        "outcome": outcome,
        "status": status,
        "signal": signal,
        "why": why,
    }
    return Draft("job_ended", SUBJECT, body, at, f"job:{job}:ended", clock=MACHINE if by_machine else OWN)


def job_cancel_requested(job: str, outcome: bodies.Outcome, why: str, host: str, now: datetime) -> Draft:
    """Return the line that somebody asked for a job's end."""
    body: bodies.JobCancelRequested = {"job": job, "outcome": outcome, "why": why, "host": host}
    return Draft("job_cancel_requested", SUBJECT, body, now, f"job:{job}:cancel")


def job_results_fetched(
    job: str, files: int, size: int, directory: str, host: str, now: datetime, *, whole: bool, why: str = ""
) -> Draft:
    """Return the line that says where results are, and whether they are whole; `size` is in bytes."""
    body: bodies.JobResultsFetched = {
        "job": job,
        "files": files,
        "bytes": size,
        "directory": directory,
        "host": host,
        "whole": whole,
        "why": why,
    }
    dedupe = f"job:{job}:fetched" if whole else f"job:{job}:fetched:{iso(now)}"
    return Draft("job_results_fetched", SUBJECT, body, now, dedupe)


def job_kept(job: str, until: datetime, now: datetime) -> Draft:
    """Return the line that the machine of a failed job is kept for a look."""
    body: bodies.JobKept = {"job": job, "until": iso(until)}
    return Draft("job_kept", SUBJECT, body, now, f"job:{job}:kept")


def job_closed(job: str, why: str, now: datetime) -> Draft:
    """Return the line that nothing is left to do for a job."""
    body: bodies.JobClosed = {"job": job, "why": why}
    return Draft("job_closed", SUBJECT, body, now, f"job:{job}:closed")
