"""Gives jobs as plain values: what `jobs` and `show` print, and the exit status of `run`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.shares import tariff_cost
from cloudgpu.core.jobs.waiting import is_retained, retained_until, waits_until
from cloudgpu.core.values.money import Money, usd
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from cloudgpu.core.jobs.job import Attempt, Job
    from cloudgpu.core.jobs.notice import SpotNoticeFit
    from cloudgpu.core.launch.traffic import JobTraffic
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.views.documents.jobs.jobs import (
        JobAttempt,
        JobDeadline,
        JobDocument,
        JobExit,
        JobMachine,
        JobProgress,
        JobResults,
        JobSlurm,
        JobWaits,
        NoticeFit,
        PlannedTraffic,
    )

OWN_FAILURE_CODE = 255  # what `run` exits with for a failure of ours, once the command has begun
_COMMAND_OUTCOMES = (State.SUCCEEDED, State.FAILED)  # the command itself ended
_NOT_BEGUN_CODES = {State.SETUP_FAILED: 2, State.NOT_LAUNCHED: 4, State.CANCELLED: 130, State.LOST: 8}


def exit_code(job: Job) -> int | None:
    """Return what `run` exits with for a job; None while it is not over.

    The command's own status, 128 + n after signal n, once the command has begun; where that is not known, 255. Before
    it has begun: 2 for a failed setup, 4 where no machine was to be had, 8 where machines went away, 130 when it was
    cancelled; 127 where the machine does not have the command, 126 where it cannot be executed, as a shell says it.
    """
    if job.outcome is None:
        return None
    if job.outcome is State.FAILED and job.shell_status is not None:
        return job.shell_status
    if job.outcome is State.SETUP_FAILED or first_began_at(job) is None:
        return _NOT_BEGUN_CODES.get(job.outcome, OWN_FAILURE_CODE)
    return OWN_FAILURE_CODE if job.shell_status is None else job.shell_status


def first_began_at(job: Job) -> datetime | None:
    """Return when the command began for the first time; None before that."""
    return min((attempt.began_at for attempt in job.attempts if attempt.began_at is not None), default=None)


def run_time(job: Job, now: datetime) -> timedelta:
    """Return how long the command has run up to `now`, over all attempts."""
    durations = (
        max(timedelta(0), min(attempt.ended_at or now, now) - attempt.began_at)
        for attempt in job.attempts
        if attempt.began_at is not None
    )
    return sum(durations, timedelta(0))


def expected_end(job: Job, now: datetime) -> tuple[datetime, Literal["progress", "timeout"]] | None:
    """Return when a running command will end, and what the estimate is based on; None without a basis.

    By the speed of its progress so far, but no later than its timeout ends it.
    """
    if job.state is not State.RUNNING or job.attempt is None or job.attempt.began_at is None:
        return None
    timeout = job.spec["timeout_s"]
    by_timeout = None if timeout is None else job.attempt.began_at + timedelta(seconds=timeout)
    by_progress = _end_by_progress(job)
    if by_progress is not None and (by_timeout is None or by_progress < by_timeout):
        return max(by_progress, now), "progress"
    return None if by_timeout is None else (by_timeout, "timeout")


def _end_by_progress(job: Job) -> datetime | None:
    if job.progress is None:
        return None
    done, total, measured_at = job.progress
    run_time_then = run_time(job, measured_at)
    if total is None or not 0 < done <= total or not run_time_then:
        return None
    try:
        return measured_at + run_time_then * ((total - done) / done)
    except OverflowError:  # it has hardly begun
        return None


def job_document(
    job: Job, machines: Mapping[str, Machine], now: datetime, *, cost: Money, unpriced: tuple[str, ...] = ()
) -> JobDocument:
    """Return one job; `machines` by id has those of its attempts, `cost` is what they have cost up to `now`."""
    last_attempt = job.attempts[-1] if job.attempts else None
    machine = machines.get(next(reversed(job.machines), ""))
    expected_end_and_basis, planned_max_nanos, began_at = (
        expected_end(job, now),
        job.spec["planned_max"],
        first_began_at(job),
    )
    return {
        "id": job.id,
        "name": job.name,
        "key": job.key,
        "state": str(job.state),
        "why": _why_text(job),
        "living": job.is_open,
        "command": list(job.spec["argv"]),
        "machine": None if machine is None else machine_document(machine, launched_for_job=job.spec["machine"] is None),
        "slurm": _slurm(job, now),
        "waits": _waits(job),
        "attempt": None if last_attempt is None else last_attempt.number,
        "attempts": [_attempt(attempt, machines) for attempt in job.attempts],
        "progress": _progress(job),
        "spent_usd": usd(cost),
        "unpriced": list(unpriced),
        "planned_max_usd": None if planned_max_nanos is None else usd(Money(planned_max_nanos)),
        "deadline": _deadline(job),
        "expected_end": None if expected_end_and_basis is None else iso(expected_end_and_basis[0]),
        "expected_by": None if expected_end_and_basis is None else expected_end_and_basis[1],
        "exit": _exit(job),
        "results": _results(job),
        "requested_at": iso(job.requested_at),
        "began_at": _time_text(began_at),
        "ended_at": _time_text(job.ended_at),
        "closed_at": _time_text(job.closed_at),
        "kept_until": _retention_text(job),
        "owner": job.spec["owner"],
        "project": job.spec["project"],
    }


def notice_document(fit: SpotNoticeFit) -> NoticeFit:
    """Return how much can be saved within the notice of a spot interruption."""
    return {
        "seconds": fit.notice.seconds,
        "begins_s": fit.notice.copy_after_s,
        "bytes_per_s": int(fit.bytes_per_s),
        "measured_on": fit.measured_on,
        "fits_bytes": fit.copyable_bytes,
        "last_bytes": fit.previous_bytes,
        "last_of": fit.previous_job or None,
    }


def traffic_document(traffic: JobTraffic) -> PlannedTraffic:
    """Return what the network traffic of a job costs."""
    return {
        "received_bytes": traffic.received_bytes,
        "received_usd": usd(traffic.upload_cost),
        "usd_per_gb_in": None if traffic.per_gb_in is None else usd(traffic.per_gb_in),
        "usd_per_gb_out": None if traffic.per_gb_out is None else usd(traffic.per_gb_out),
        "last_results_bytes": traffic.previous_bytes,
        "last_results_of": traffic.previous_job or None,
    }


def machine_document(machine: Machine, *, launched_for_job: bool) -> JobMachine:
    """Return the machine of a job, and whether it was launched for it."""
    price = machine.price
    return {
        "id": machine.id,
        "name": machine.name,
        "state": machine.state,
        "provider": machine.provider,
        "account": machine.account,
        "region": machine.region,
        "zone": machine.zone,
        "instance_type": machine.instance_type,
        "market": machine.market,
        "usd_per_hour": None if price is None else usd(Money(price.nanos_per_hour)),
        "own": launched_for_job,
    }


def _why_text(job: Job) -> str:
    if job.outcome is None and job.cancel is not None:
        return job.cancel[1]
    return job.why or job.queue_reason


def _waits(job: Job) -> JobWaits | None:
    if job.waits is None:
        return None
    since, reason = job.waits
    return {"since": iso(since), "until": iso(waits_until(job, since)), "why": reason}


def _slurm(job: Job, now: datetime) -> JobSlurm | None:
    slurm_record = job.slurm_record
    if slurm_record is None or job.slurm_id is None:
        return None
    tariff = tariff_cost(job, now)
    return {
        "id": job.slurm_id,
        "cluster": slurm_record["cluster"],
        "nodes": slurm_record["nodes"],
        "states": list(dict.fromkeys(run.state for run in job.runs)),
        "reason": _reason(job),
        "tariff_usd": None if tariff is None else usd(tariff),
    }


def _reason(job: Job) -> str | None:
    reasons = dict.fromkeys(run.reason for run in job.runs if run.waits and run.reason)
    return ", ".join(reasons) if reasons and job.state is State.QUEUED else None


def _attempt(attempt: Attempt, machines: Mapping[str, Machine]) -> JobAttempt:
    machine = machines.get(attempt.machine or "")
    return {
        "number": attempt.number,
        "machine": attempt.machine if machine is None else machine.name,
        "members": [machines[id_].name if id_ in machines else id_ for id_ in (*attempt.refused, *attempt.members)],
        "placed_at": iso(attempt.placed_at),
        "began_at": _time_text(attempt.began_at),
        "setup_s": attempt.setup_s,
        "ended_at": _time_text(attempt.ended_at),
        "interrupted": attempt.interrupted,
        "status": attempt.status,
        "why": attempt.why,
    }


def _progress(job: Job) -> JobProgress | None:
    if job.progress is None:
        return None
    done, total, measured_at = job.progress
    percent = round(min(100.0, max(0.0, 100 * done / total)), 1) if total is not None and total > 0 else None
    return {"done": done, "of": total, "percent": percent, "at": iso(measured_at)}


def _deadline(job: Job) -> JobDeadline | None:
    deadline, attempt = job.deadline, job.attempt
    if deadline is None:
        return None
    return {
        "at": deadline["at"],
        "work_s": deadline["work_s"],
        "policy": deadline["policy"],
        "market": None if attempt is None else attempt.market,
        "saved_s": 0.0 if job.saved is None else job.saved.work_s,
    }


def _exit(job: Job) -> JobExit | None:
    code = exit_code(job)
    if code is None:
        return None
    ended_itself = job.outcome in _COMMAND_OUTCOMES and first_began_at(job) is not None
    by: Literal["command", "cloudgpu"] = "command" if ended_itself else "cloudgpu"
    return {"status": job.status, "signal": job.signal, "code": code, "by": by}


def _results(job: Job) -> JobResults | None:
    fetched = job.fetched
    if fetched is None:
        return None
    return {
        "directory": fetched.directory,
        "host": fetched.host,
        "files": fetched.files,
        "bytes": fetched.bytes,
        "whole": fetched.whole,
        "why": fetched.why,
        "at": iso(fetched.at),
    }


def _retention_text(job: Job) -> str | None:
    is_retained_now = job.outcome is not None and is_retained(job) and job.closed_at is None
    return iso(retained_until(job)) if is_retained_now else None


def _time_text(at: datetime | None) -> str | None:
    return None if at is None else iso(at)
