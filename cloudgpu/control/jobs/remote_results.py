"""Jobs whose results go to a bucket or a volume: what a watcher does for them in place of copying them here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from cloudgpu.access.jobs.copies import explain_disk_errors
from cloudgpu.access.jobs.remote import RemoteJob
from cloudgpu.control.jobs.buckets.results import (
    MIN_VALIDITY_S,
    PRESIGNED_POST_TTL_S,
    fetch_state,
    fetch_stored_output,
    job_bucket,
    remove_all_but_results,
    send_presigned_post,
)
from cloudgpu.control.jobs.results import fetch_output, sync
from cloudgpu.control.jobs.store import directory_of, last_sync, log_file, record_sync
from cloudgpu.control.session.session import Session
from cloudgpu.core.events import job_events
from cloudgpu.core.events.log import Draft
from cloudgpu.core.jobs import stored
from cloudgpu.core.jobs.deadline import last_upload_s
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.jobs.remote_state import RemoteState
from cloudgpu.core.jobs.stored import StoredResults
from cloudgpu.core.model.machine import Machine
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, Unreachable

NOTICED_SYNC_INTERVAL_S = 20.0  # between two copies from a spot machine with an interruption notice
NO_HOST = ""  # the host of results that are in a bucket or on a volume
_MAYBE_RUNNING_STATES = ("pending", "running", "stopping", "unknown")


def stores_remotely(job: Job) -> bool:
    """Say whether a job's results do not come to this computer."""
    return job.spec["results_to"] is not None


def find_stored_results(session: Session, job: Job, machine: Machine | None) -> tuple[StoredResults | None, str | None]:
    """Return the complete results of a job's latest attempt in its bucket, or why the bucket cannot be read.

    The bucket is read only where that decides the next step: the command is over, or its machine does not run.
    """
    is_needed = job.attempts and (
        job.outcome is not None or (machine is not None and machine.state not in _MAYBE_RUNNING_STATES)
    )
    if not is_needed or job.closed_at is not None or (job.fetched is not None and job.fetched.whole):
        return None, None
    try:
        bucket = job_bucket(session, job)
        return (None if bucket is None else bucket.results(job.attempts[-1].number)), None
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        return None, f"Cannot read the job's results in {job.spec['results_to']}: {error.message}"


def ensure_uploads(session: Session, job: Job, remote: RemoteJob, state: RemoteState) -> None:
    """Have the machine upload: send it a presigned form, unless the one that it has is valid for long enough.

    A new form ends the process that uploads, which has to begin its copy again. A login that expires soon signs no form
    that is valid for longer than it, so it signs one as soon as that would be valid for twice as long as the present
    one. Raises Unreachable, and the error of a form that cannot be signed.
    """
    storing = state.uploads
    is_done = storing is not None and storing.final
    is_valid = storing is not None and storing.is_good(state.now, MIN_VALIDITY_S)
    bucket = None if is_done or is_valid else job_bucket(session, job)
    if bucket is None:
        return
    new_validity = bucket.client.url_expires_at(PRESIGNED_POST_TTL_S) - session.clock()
    if storing is None or not storing.is_good(state.now, new_validity.total_seconds() / 2):
        send_presigned_post(bucket, job, remote)


def sync_if_due(session: Session, job: Job, remote: Callable[[], RemoteJob], state: RemoteState) -> None:
    """Copy what a running job has written, if a copy is due: each `--every`, more often after an interruption notice.

    Where results do not come to this computer, ensure their uploads, and copy only the output. Raises Unreachable,
    InvalidRequest.
    """
    directory, now = directory_of(session, job), session.clock().timestamp()
    last_sync_s, began_at = last_sync(directory), job.attempts[-1].began_at
    interval_start = last_sync_s if last_sync_s is not None else (began_at.timestamp() if began_at else now)
    interval_s = min(NOTICED_SYNC_INTERVAL_S, job.spec["every_s"]) if state.notice else job.spec["every_s"]
    is_due = not 0 <= now - interval_start < interval_s  # a copy in the future: the clock was set back since
    if stores_remotely(job):
        ensure_uploads(session, job, remote(), state)
    if is_due and not stores_remotely(job):
        sync(remote(), directory, now)
    elif is_due or (last_sync_s is None and stores_remotely(job)):
        fetch_output(remote(), directory)
        record_sync(directory, now)
        bucket = job_bucket(session, job)
        if bucket is not None:
            with suppress(CloudgpuError):  # the next sync tries again
                bucket.prune(len(job.attempts))


def last_copy(session: Session, job: Job, remote: RemoteJob, state: RemoteState) -> str | None:
    """Copy what this attempt wrote, before the next one. Return what the next attempt must wait for, or None.

    It waits for uploads to a bucket, for `--results-wait` at most after the end of the command; with a deadline, for
    at most the time that its safety margin has for the end of a machine. Raises as `sync_if_due`.
    """
    if not stores_remotely(job):
        sync(remote, directory_of(session, job), session.clock().timestamp())
        return None
    fetch_output(remote, directory_of(session, job))
    exit_seen = state.exit
    if stored.bucket_of(job.spec["results_to"]) is None or exit_seen is None:
        return None
    is_wait_over = state.now - exit_seen.ended_at > last_upload_s(job)
    if is_wait_over or (state.uploads is not None and state.uploads.final):
        return None
    ensure_uploads(session, job, remote, state)
    return "what it wrote is being uploaded"


def remote_results_fetched(session: Session, job: Job, remote: RemoteJob) -> Draft | None:
    """Return the event that results are complete on their volume; None where they are being uploaded to their bucket.

    Raises Unreachable for an upload that fails, or where the machine does not answer.
    """
    is_in_bucket = stored.bucket_of(job.spec["results_to"]) is not None
    # A full disk here keeps no results from their bucket, which gets the output, too.
    with suppress(*[InvalidRequest] if is_in_bucket else []):
        fetch_output(remote, directory_of(session, job))
    if not is_in_bucket:
        result = remote.call("sync_results")
        return _fetched_event(session, job, int(result["files"]), int(result["bytes"]), whole=True)
    state = remote.state()
    ensure_uploads(session, job, remote, state)
    if state.uploads is not None and state.uploads.error:
        message = f"The results of {job.name} do not reach {job.spec['results_to']}: {state.uploads.error}."
        raise Unreachable(message, field="--results-to", value=job.spec["results_to"], next="It is tried again.")
    return None


def bucket_results_fetched(
    session: Session, job: Job, stored_results: StoredResults, remote: Callable[[], RemoteJob] | None
) -> list[Draft]:
    """Return the event that results are complete in their bucket, and delete all else of the job there.

    Output that is not on this computer yet comes from the machine, where that runs (`remote`), else from the bucket.
    Where it cannot be written here, it stays there, and a report says so. Raises AuthFailed, ProviderUnavailable.
    """
    directory, bucket = directory_of(session, job), job_bucket(session, job)
    if remote is not None:
        with suppress(CloudgpuError):
            fetch_output(remote(), directory)
    if bucket is not None:
        try:
            with explain_disk_errors(directory):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                fetch_stored_output(
                    bucket, stored_results, lambda stream: log_file(directory, stored_results.attempt, stream)
                )
        except InvalidRequest as error:  # a full disk here, say: the machine must not be billed for it
            session.report(f"the output of {job.name} is not here: {error.message}")
        remove_all_but_results(bucket, stored_results, session.report)
    return [_fetched_event(session, job, len(stored_results.results.files), stored_results.bytes, whole=True)]


def started_events(session: Session, job: Job, stored_results: StoredResults) -> list[Draft]:
    """Return the event that a command began, where only its bucket says so."""
    attempt = job.attempts[-1]
    if attempt.began_at is not None or stored_results.started is None:
        return []
    began_at = capped_at_now(session, stored_results.started)
    return [job_events.job_began(job.id, attempt.number, stored_results.setup_s, began_at)]


def capped_at_now(session: Session, epoch_s: float) -> datetime:
    """Return a time of a machine's clock (seconds since 1970), but no later than now: that clock may be ahead."""
    with suppress(ValueError, OverflowError, OSError):
        return min(session.clock(), max(datetime.fromtimestamp(epoch_s, UTC), session.clock() - timedelta(days=365)))
    return session.clock()


def incomplete_results_events(session: Session, job: Job, why: str) -> list[Draft]:
    """Return the events about results that never were complete.

    Those in a bucket are copied to the job's own directory, from where they are delivered; those on a volume stay.
    """
    bucket = job_bucket(session, job)
    if bucket is not None:
        with suppress(CloudgpuError):
            fetch_state(bucket, len(job.attempts), directory_of(session, job) / "results")
    elif stored.volume_of(job.spec["results_to"]) is not None and any(attempt.began_at for attempt in job.attempts):
        return [_fetched_event(session, job, 0, 0, whole=False, why=why)]
    return []


def results_location(job: Job) -> str:
    """Return the bucket's or volume's folder with the results of a job, as text."""
    results_to, folder_name = job.spec["results_to"] or "", stored.folder(job.name, job.id)
    address = stored.bucket_of(results_to)
    if address is not None:
        return address.joined(folder_name, stored.RESULTS.rstrip("/")).text
    return f"{results_to}/cloudgpu/{folder_name}/results"


def _fetched_event(
    session: Session, job: Job, file_count: int, total_bytes: int, *, whole: bool, why: str = ""
) -> Draft:
    """Return the event that results are in the bucket or on the volume; `whole`: they are complete."""
    now, location = session.clock(), results_location(job)
    return job_events.job_results_fetched(job.id, file_count, total_bytes, location, NO_HOST, now, whole=whole, why=why)


def check_volume_attached(machine: Machine, sources_by_option: Mapping[str, str | None]) -> None:
    """Raise InvalidRequest for a volume that is not attached to an existing machine; each option names its source."""
    attached = machine.setup.volume if machine.setup is not None else None
    for option, source in sources_by_option.items():
        volume = stored.volume_of(source)
        if volume is not None and (attached is None or attached.name != volume):
            raise InvalidRequest(
                f"{machine.name} does not have the volume {volume}.",
                field=option,
                value=source,
                next=f"Leave --on out: {option} {source} attaches it to a machine that is launched.",
            )
