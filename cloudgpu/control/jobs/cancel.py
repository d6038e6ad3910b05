"""Cancels a job: records that first, then reconciles it until the end of its machine is confirmed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from cloudgpu.access.computer import hostname
from cloudgpu.control.jobs.listing import find, job_document
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import append
from cloudgpu.control.team.authorization import check_right_and_claim_owner
from cloudgpu.core.events.job_events import job_cancel_requested
from cloudgpu.core.model.machine import Ownership

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.views.documents.jobs.jobs import CancelDocument

CANCEL_TIMEOUT = timedelta(minutes=5)  # for which a job is reconciled: its machine may not answer
MAX_PAUSE_S = 5.0


def cancel(session: Session, name: str, environ: Mapping[str, str]) -> CancelDocument:
    """Cancel a job, and return it once nothing is left to do for it, or with what it waits for.

    Its results are fetched first. A job whose command is over already keeps its outcome; what is left to do, such as
    ending its machine, is done, but a machine that --keep holds stays. Raises InstanceNotFound, RoleNeeded where the
    job is somebody else's.
    """
    job = find(session, name)
    if not job.is_open:
        return {"job": job_document(session, job), "was_over": True, "waits": None}
    was_over = job.outcome is not None
    if was_over:
        _check_may_cancel(session, job)
    else:
        request_cancel(session, job)
    job, wait_reason = _continue_job(session, job, environ)
    return {"job": job_document(session, job), "was_over": was_over, "waits": wait_reason}


def _check_may_cancel(session: Session, job: Job) -> None:
    check_right_and_claim_owner(session, Ownership(f"the job {job.name}", job.spec["owner"]), "cancel")


def request_cancel(session: Session, job: Job) -> None:
    """Record that a job is to be cancelled; raise RoleNeeded where this user may not."""
    _check_may_cancel(session, job)
    why = f"cancelled by {session.settings.owner}"
    append(session, job.id, [job_cancel_requested(job.id, "cancelled", why, hostname(), session.clock())])


def _continue_job(session: Session, job: Job, environ: Mapping[str, str]) -> tuple[Job, str | None]:
    """Reconcile a job to its end; return it with what it waits for, None where nothing is left to do."""
    give_up_at, last_reason = session.clock() + CANCEL_TIMEOUT, ""
    with JobReconciler(session, job.id, environ) as reconciler:
        while True:
            result = reconciler.reconcile()
            if result.is_over:
                return result.job, None
            why = result.why or f"it is {result.job.state}"
            if why != last_reason:
                session.report(f"{job.name}: {why}")
                last_reason = why
            if result.error is not None or session.clock() >= give_up_at:
                return result.job, why
            session.pause(min(MAX_PAUSE_S, result.wait.total_seconds()))
