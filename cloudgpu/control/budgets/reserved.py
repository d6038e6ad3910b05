"""Reads from the ledger what budgets keep for jobs with a deadline that have no machine now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.events.job_lines import SUBJECT
from cloudgpu.core.jobs.job import Job, jobs_of
from cloudgpu.core.jobs.reservation import is_carried, may_reserve, reservation_of
from cloudgpu.core.model.machine import Budgeted, Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.budgets.exposure import Exposure
    from cloudgpu.ledger.log.base import View


def reserved(session: Session, view: View, wanted: Budgeted | None = None) -> list[Exposure]:
    """Return what is kept for jobs that wait for a machine, but for the job that `wanted` is launched for."""
    key = wanted.key if isinstance(wanted, Machine) else ""
    return list(_reserved(session, view, key))


def _reserved(session: Session, view: View, key: str) -> Iterator[Exposure]:
    if not _may_be_any(view):
        return
    for job in jobs_of(session.ledger.events(SUBJECT)).values():
        if may_reserve(job) and not key.startswith(f"{job.id}-") and not is_carried(_machines(view, job)):
            found = reservation_of(job, session.clock())
            if found is not None:
                yield found


def _may_be_any(view: View) -> bool:
    """Say whether a job with a deadline may not be over; most admissions read no more of jobs than this."""
    wanted, over = set[str](), set[str]()
    for line in view.said(("job_requested", "job_ended", "job_closed")):
        if line.kind != "job_requested":
            over.add(line.body["job"])
        elif line.body["spec"].get("deadline") is not None:
            wanted.add(line.body["job"])
    return bool(wanted - over)


def _machines(view: View, job: Job) -> list[Machine]:
    """Return the machine of a job's open attempt, or what its launch may have made; empty for none."""
    attempt = job.attempt
    if attempt is None:
        return []
    if attempt.machine is None:
        return [] if attempt.key is None else view.launched(attempt.key)
    machine = view.machine(attempt.machine)
    return [] if machine is None else [machine]
