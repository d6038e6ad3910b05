"""What follows a job's end: its results are fetched, its machine's end is confirmed, its local copies are removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from cloudgpu.access.computer import hostname
from cloudgpu.access.jobs.remote import RemoteJob
from cloudgpu.access.jobs.snapshot import remove
from cloudgpu.control.jobs.remote_results import incomplete_results_events, remote_results_fetched, stores_remotely
from cloudgpu.control.jobs.results import deliver, deliver_copied, sync
from cloudgpu.control.jobs.slurm.gang import start_gang, stop_gang, terminate_gang
from cloudgpu.control.jobs.store import delete_copies, directory_of, snapshots_of_unknown_jobs
from cloudgpu.control.session.session import Session, all_jobs
from cloudgpu.core.events import job_events
from cloudgpu.core.events.log import Draft
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.model.machine import Machine, command_name, is_on_prem
from cloudgpu.errors import CloudgpuError, InvalidRequest, Unreachable

MAX_LEFT_BEHIND = 3  # entries that are named
DAY_S = 86_400.0  # a younger snapshot is not deleted: its job may not be in the ledger yet


def results_not_fetched_event(session: Session, job: Job, why: str) -> Draft:
    """Return the event that a job's results could not be fetched, and why."""
    directory, host = str(directory_of(session, job) / "results"), hostname()
    return job_events.job_results_fetched(job.id, 0, 0, directory, host, session.clock(), whole=False, why=why)


def cannot_store_results_events(session: Session, job: Job, error: CloudgpuError) -> list[Draft]:
    """Return the event that this computer cannot take a job's results, with the remedy; none where that was written."""
    why = " ".join(filter(None, (error.message, error.next)))
    is_reported = job.fetched is not None and job.fetched.why == why
    is_new = isinstance(error, InvalidRequest) and not is_reported
    return [results_not_fetched_event(session, job, why)] if is_new else []


def fetch_results(session: Session, job: Job, machine: Machine, remote: Callable[[], RemoteJob]) -> Draft | None:
    """Fetch all results, and return the event that says so; None where they are still being uploaded.

    `remote` connects to the attempt on its machine. Where this computer cannot take the results, the machine of the
    job is stopped all the same, and its disk retains them. Raises the error that prevented the copy.
    """
    if stores_remotely(job):
        return remote_results_fetched(session, job, remote())
    try:
        fetched = sync(remote(), directory_of(session, job), session.clock().timestamp())
        if not fetched.is_complete:
            raise Unreachable(
                f"The results of {job.name} are not whole: {fetched.why}.",
                field="name",
                value=job.name,
                next=f"It is tried again. Look at them: cloudgpu ssh {machine.name}",
            )
        paths = [*(file.path for file in fetched.files), *fetched.links]
        target, file_count, total_bytes = deliver(session, job, paths)
    except InvalidRequest as error:
        _stop_with_results(session, job, machine, error)
        raise
    now, host, why = session.clock(), hostname(), left_behind_text(fetched.skipped)
    return job_events.job_results_fetched(job.id, file_count, total_bytes, str(target), host, now, whole=True, why=why)


def left_behind_text(skipped: Sequence[tuple[str, str]]) -> str:
    """Return which entries of the results did not come, such as links out of them, as a clause; empty for none."""
    named = ", ".join(f"{path} ({reason})" for path, reason in skipped[:MAX_LEFT_BEHIND])
    more = len(skipped) - MAX_LEFT_BEHIND
    return f"not copied: {named}{f' and {more} more' if more > 0 else ''}" if skipped else ""


def _stop_with_results(session: Session, job: Job, machine: Machine, error: InvalidRequest) -> None:
    """Stop, or park, the machine of a job whose results cannot be copied now; an existing one (`--on`) runs on."""
    if job.spec["machine"] is not None or is_on_prem(machine.provider):
        return
    with suppress(InvalidRequest):  # it can do neither: it waits for --results-wait
        stop_gang(session, machine, f"the results of {job.name} could not be fetched: {error.message}")
        then = f"Once it runs again (cloudgpu start {command_name(machine)}), its results are fetched, and it ends."
        error.next = " ".join(filter(None, (error.next, then)))


def stop(session: Session, job: Job, machine: Machine, why: str) -> None:
    """Stop the machine of a job, or park it; one that can be neither is ended, with what is on it.

    Raises StopUnproved.
    """
    try:
        stop_gang(session, machine, f"the job {job.name} is over and {why}")
    except InvalidRequest:
        terminate(session, job, machine)


def resume(session: Session, job: Job, machine: Machine) -> None:
    """Start the machine again that has a job's results, with a lease of `--results-wait`, at least ten minutes.

    Raises what `start` raises: a budget that refuses, no capacity, no answer.
    """
    wait = timedelta(seconds=max(job.spec["results_wait_s"], 600))
    session.report(f"{job.name}: starting {machine.name} again to fetch its results")
    start_gang(session, machine, wait, no_guard=bool((job.spec["launch"] or {}).get("no_guard")))


def terminate(session: Session, job: Job, machine: Machine) -> None:
    """End the machine of a job with its resources; raise StopUnproved where that is not confirmed."""
    terminate_gang(session, machine, f"the job {job.name} {'goes on elsewhere' if job.outcome is None else 'is over'}")


def close_job(session: Session, job: Job, remote: RemoteJob | None, why: str) -> list[Draft]:
    """Return the last events of a job. What was copied of its results is delivered where they never came completely.

    `remote` is the attempt on its machine; one that existed before the job is cleaned up. None: it cannot be reached.
    """
    now, is_complete = session.clock(), job.fetched is not None and job.fetched.whole
    drafts = [] if is_complete else incomplete_results_events(session, job, why)
    delivery = None if is_complete else deliver_copied(session, job)
    if delivery is not None:
        (target, file_count, total_bytes), host = delivery, hostname()
        drafts.append(
            job_events.job_results_fetched(
                job.id, file_count, total_bytes, str(target), host, now, whole=False, why=why
            )
        )
    if remote is not None and job.spec["machine"] is not None:
        with suppress(CloudgpuError):  # the next job there cleans up, too
            remote.clean()
    delete_copies(directory_of(session, job))
    jobs = all_jobs(session)
    needed_snapshots = {
        other_job.spec["snapshot"] for other_job in jobs.values() if other_job.is_open and other_job.id != job.id
    }
    with suppress(InvalidRequest):  # a damaged list, or a journal that cannot be read: the next job's end tries again
        needed_snapshots |= snapshots_of_unknown_jobs(session, jobs)
        remove(session.home.snapshots, needed_snapshots, taken_before=now.timestamp() - DAY_S)
    return [*drafts, job_events.job_closed(job.id, why, now)]
