"""Begins a job: its intent is written before anything is launched."""

from __future__ import annotations

import secrets
import socket
from typing import TYPE_CHECKING

from cloudgpu.control.jobs.store import all_jobs, check_free, directory_of, the_job
from cloudgpu.core.events.job_lines import job_requested
from cloudgpu.core.jobs.job import living_named
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudgpu.control.jobs.plan import PlannedRun
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job

LOCK = "jobs"


def begin(session: Session, planned: PlannedRun) -> Job:
    """Write that this job is asked for, and return it; whoever watches carries it on from here.

    Raises InvalidRequest where a job of that name or key lives by now.
    """
    id_, request = f"job-{secrets.token_hex(5)}", planned.request
    with session.hold(LOCK, wait=60):
        jobs = list(all_jobs(session).values())
        _check_name(jobs, request.name, request.key)
        if planned.machine is not None:
            check_free(planned.machine, jobs)
        line = job_requested(id_, request.name, request.key, socket.gethostname(), planned.spec, session.clock())
        session.ledger.append([line])
    job = the_job(session, id_)
    directory_of(session, job).mkdir(mode=0o700, parents=True, exist_ok=True)
    return job


def _check_name(jobs: Iterable[Job], name: str, key: str | None) -> None:
    taken = living_named(jobs, name) or (living_named(jobs, key) if key else None)
    if taken is None:
        return
    raise InvalidRequest(
        f"A job is called {taken.name} and is not over.",
        field="NAME",
        value=name,
        next=f"Follow it: cloudgpu logs -f {taken.name}. For another job, choose another name.",
    )
