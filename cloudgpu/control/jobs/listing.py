"""Finds jobs by what people call them, and gives them as `jobs` and `show` print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.cost.cost import jobs_spent
from cloudgpu.control.session.session import all_jobs
from cloudgpu.core.billing.charges import unpriced_of
from cloudgpu.core.values.naming import closest_match, did_you_mean, tag_value
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.views.jobs import job_document as view_of_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.jobs.inputs.request import RunRequest
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.views.documents.jobs.jobs import JobDocument, JobsDocument

NAME_PREFIX = "job:"  # may stand before a job's name, to tell it from a machine of that name


def find(session: Session, name: str) -> Job:
    """Return the job of this name, key or id: the one that is not closed, else the latest. `job:` may stand before it.

    Raises InstanceNotFound where there is none, with the name that was probably meant.
    """
    jobs, wanted = list(all_jobs(session).values()), name.removeprefix(NAME_PREFIX)
    matching = [job for job in jobs if wanted in (job.name, job.key, job.id)]
    if matching:
        return next((job for job in matching if job.is_open), matching[-1])
    known = dict.fromkeys(job.name for job in reversed(jobs))
    raise InstanceNotFound(
        f"No job is called {wanted!r}" + did_you_mean(closest_match(wanted, known), "."),
        field="NAME",
        value=wanted,
        next="See: cloudgpu jobs --all" if jobs else "Run one: cloudgpu run --gpu v100 -- python train.py",
    )


def is_known(session: Session, name: str) -> bool:
    """Say whether a job has this name, key or id."""
    return any(name in (job.name, job.key, job.id) for job in all_jobs(session).values())


def find_same_living_job(session: Session, request: RunRequest) -> Job | None:
    """Return the job, not closed yet, that this request means by its name or key; None where it is a new one.

    Raises InvalidRequest where that job has another command, or name and key are those of two jobs.
    """
    living_jobs = [job for job in all_jobs(session).values() if job.is_open]
    job_with_key = next((job for job in living_jobs if request.key is not None and job.key == request.key), None)
    job_with_name = next((job for job in living_jobs if request.is_named and job.name == request.name), None)
    job = job_with_key or job_with_name
    if job_with_key is not None and request.is_named and job_with_key.name != request.name:
        message = f"--key {request.key} is that of the job {job_with_key.name}, not of {request.name}."
        raise InvalidRequest(
            message, field="--key", value=request.key, next=f"Leave NAME out, or name {job_with_key.name}."
        )
    if job is not None and tuple(job.spec["argv"]) != request.argv:
        raise InvalidRequest(
            f"The job {job.name} is {job.state} with another command.",
            field="--key" if job is job_with_key else "NAME",
            value=request.key if job is job_with_key else request.name,
            next=f"Follow it: cloudgpu logs -f {job.name}. For another command, choose another name, or leave it out.",
        )
    return job


def list_jobs(session: Session, *, ended: bool = False, mine: bool = False) -> JobsDocument:
    """Return the answer of `jobs`: those not closed, with `ended` every one; with `mine` only the settings' owner's."""
    jobs = [job for job in all_jobs(session).values() if ended or job.is_open]
    owner = session.settings.owner
    listed_jobs = [job for job in jobs if not mine or job.spec["owner"] in (owner, tag_value(owner))]
    return {"jobs": _job_documents(session, listed_jobs)}


def job_document(session: Session, job: Job) -> JobDocument:
    """Return one job, with its machines and what they have cost."""
    return _job_documents(session, [job])[0]


def job_names(session: Session, *, living: bool = False) -> list[str]:
    """Return the names of jobs, the latest first, each once; with `living` only those that are not closed."""
    jobs = reversed(all_jobs(session).values())
    return list(dict.fromkeys(job.name for job in jobs if job.is_open or not living))


def _job_documents(session: Session, jobs: Sequence[Job]) -> list[JobDocument]:
    all_machines = map(session.ledger.machine, dict.fromkeys(id_ for job in jobs for id_ in job.machines))
    machines = {machine.id: machine for machine in all_machines if machine is not None}
    now, documents, costs = session.clock(), [], jobs_spent(session, jobs)
    for job in jobs:
        machines_of_job = [machines[id_] for id_ in job.machines if id_ in machines]
        unpriced = tuple(
            dict.fromkeys(
                f"{machine.name} ({resource})" for machine in machines_of_job for resource in unpriced_of(machine)
            )
        )
        documents.append(view_of_job(job, machines, now, cost=costs[job.id], unpriced=unpriced))
    return documents
