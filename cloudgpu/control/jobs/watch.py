"""Carries all living jobs on, side by side: what every run of the reaper does, and `watch` once a minute."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from cloudgpu.control.jobs.carry import LATER, Carried, Carrier
from cloudgpu.control.jobs.store import all_jobs
from cloudgpu.errors import CloudgpuError, LedgerUnavailable
from cloudgpu.parallel import Pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.core.reaper.result import Pass

AT_ONCE = 8
EVERY = timedelta(minutes=1)  # how often `watch` carries them on while one lives


def living(session: Session) -> list[Job]:
    """Return the jobs for which something is left to do."""
    return [job for job in all_jobs(session).values() if job.is_living]


def carry_all(session: Session, environ: Mapping[str, str]) -> list[tuple[Job, Carried]]:
    """Carry every living job on once; return each as it was, with how far it was carried.

    What goes wrong with one is in its entry and keeps no other on. `environ` has the values of secrets. Raises
    LedgerUnavailable.
    """
    jobs = living(session)
    if not jobs:
        return []

    def carried(job: Job) -> Carried:
        with session.beside() as own, Carrier(own, job.id, environ) as carrier:
            try:
                return carrier.carry()
            except LedgerUnavailable:
                raise
            except CloudgpuError as error:
                return Carried(job, error.message, LATER, None, error)

    with Pool(min(AT_ONCE, len(jobs))) as pool:
        calls = [(job, pool.submit(carried, job)) for job in jobs]
        return [(job, call.result()) for job, call in calls]


def sentences(found: Sequence[tuple[Job, Carried]]) -> list[str]:
    """Return what became of jobs, one sentence for each of which something has changed, or that cannot go on."""
    said = []
    for before, carried in found:
        job = carried.job
        if job.state is not before.state or job.is_living is not before.is_living:
            said.append(f"job {job.name}: {_word(job)}")
        elif carried.error is not None:
            said.append(f"job {job.name}: {carried.error.message}")
    return said


def _word(job: Job) -> str:
    """Return a job's state in words, with where its results are once it is over."""
    state = str(job.state).replace("_", " ")
    why = f" ({job.why})" if job.why else ""
    if job.is_living or job.fetched is None:
        return f"{state}{why}"
    whole = "" if job.fetched.whole else ", as far as they were copied"
    return f"{state}{why}; its results are in {job.fetched.directory}{whole}"


def with_jobs(session: Session, found: Pass, environ: Mapping[str, str]) -> Pass:
    """Carry jobs on after a run of the reaper, unless it changed nothing; return it with what became of them."""
    if found.dry_run or found.busy:
        return found
    return replace(found, sentences=(*found.sentences, *sentences(carry_all(session, environ))))
