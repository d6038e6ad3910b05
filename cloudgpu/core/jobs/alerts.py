"""Makes findings, from which alerts are raised, about jobs: how one ended, and what one waits for. Pure.

How a job ended is a finding from its end until three days after it was closed, so it is sent once. That a job stalls,
or waits for a secret or a machine, is found by its watcher, and lasts until that finds otherwise or the job is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from cloudgpu.core.alerts.alerts import Finding, RaisedAlert
from cloudgpu.core.alerts.findings import JOB, JOB_WAITS, REPORT_ENDED_FOR, STOP_TIMEOUT
from cloudgpu.core.jobs.deadline import DeadlineStatus
from cloudgpu.core.jobs.job import Job, State
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import duration_text, iso, minute_text

CostOf = Callable[[Job], Money]
_KINDS = {
    State.SUCCEEDED: ("job done", "is done"),
    State.FAILED: ("job failed", "has failed"),
    State.SETUP_FAILED: ("job failed", "has failed: its setup ended with an error"),
    State.TIMED_OUT: ("job out of time", "was ended: its time is over"),
    State.OVER_COST: ("job over its cost", "was ended: it has reached its cost"),
    State.LOST: ("job lost", "is lost: its machine went away"),
    State.NOT_LAUNCHED: ("job not launched", "got no machine"),
}  # no alert for a cancelled job: whoever cancelled it knows


def job_findings(
    jobs: Iterable[Job], lasting: Mapping[str, RaisedAlert], now: datetime, cost: CostOf
) -> Iterator[Finding]:
    """Yield the findings about these jobs; an alert that lasts keeps the text with which it was raised.

    `lasting` are the alerts that last, by key. `cost` returns what a job has cost; it is called for new findings only.
    """
    for job in jobs:
        if job.outcome is None:
            keys = (job_alert_key(job, what) for what in ("stalled", "secret", "machine", "late"))
            yield from (lasting[key].finding for key in keys if key in lasting)
        elif is_reported(job, now):
            key = ended_key(job)
            yield lasting[key].finding if key in lasting else ended_finding(job, cost(job))


def is_reported(job: Job, now: datetime) -> bool:
    """Return whether to alert people on how a job ended.

    On a failure at once. On success when its results are here and its machine has ended, or after a quarter of an hour:
    then its results wait.
    """
    if job.outcome not in _KINDS or job.ended_at is None:
        return False
    if job.closed_at is not None:
        return now - max(job.closed_at, job.ended_at) <= REPORT_ENDED_FOR
    return job.outcome is not State.SUCCEEDED or now - job.ended_at > STOP_TIMEOUT


def ended_finding(job: Job, cost: Money) -> Finding:
    """Return the finding about a job that is over. Raises KeyError for one that somebody cancelled."""
    kind, predicate = _KINDS[State(job.state)]
    status = job.shell_status
    sentences = (
        f"Reason: {job.why}." if job.why else "",
        f"Its exit status is {status}." if status else "",
        _results(job),
        f"To see its output: cloudgpu logs {job.name}",
    )
    failed = job.outcome is not State.SUCCEEDED
    facts = _facts(job) | {"cost": cost.text(2)}
    return Finding(
        ended_key(job), kind, f"Job {job.name} {predicate}", " ".join(filter(None, sentences)), facts, urgent=failed
    )


def stalled_since(job: Job, last_output_at: datetime | None) -> datetime | None:
    """Return when a running job last showed activity: output, progress, or its begin; None if it has not begun."""
    attempt = job.attempt
    if job.outcome is not None or attempt is None or attempt.began_at is None:
        return None
    return max(filter(None, (attempt.began_at, last_output_at, job.progress and job.progress[2])))


def is_stalled(job: Job, last_output_at: datetime | None, now: datetime) -> bool:
    """Say whether a running job has given neither output nor progress for `--stall`; False for a job without one.

    `last_output_at` is when its command last wrote anything; None: it never did, or nobody knows.
    """
    since, limit = stalled_since(job, last_output_at), job.spec["stall_s"]
    return since is not None and limit is not None and now - since >= timedelta(seconds=limit)


def stalled_finding(job: Job, since: datetime, now: datetime) -> Finding:
    """Return the finding about a job that has given no sign of life since then."""
    return Finding(
        job_alert_key(job, "stalled"),
        "job stalled",
        f"Job {job.name} has been silent for {duration_text(now - since)}",
        f"No output and no progress since {minute_text(iso(since))}; its machine is billed. "
        f"To look: cloudgpu logs {job.name}; to end it: cloudgpu cancel {job.name}",
        _facts(job),
        urgent=True,
    )


def secret_finding(job: Job, names: Sequence[str]) -> Finding:
    """Return the finding about a job that cannot be restarted without these: names of secrets, its --env-file."""
    names_text = ", ".join(names)
    return Finding(
        job_alert_key(job, "secret"),
        "job waits for a secret",
        f"Job {job.name} waits for {names_text}",
        f"It has to be started again, and the computer that tried does not have {names_text}. Any computer on this "
        f"ledger that has {names_text} starts it: there, run cloudgpu watch, or cloudgpu reap, with each secret in the "
        "environment.",
        _facts(job),
        urgent=True,
    )


def machine_finding(job: Job, why: str, until: datetime) -> Finding:
    """Return the finding about a job that waits for a machine, until then at most."""
    return Finding(
        job_alert_key(job, "machine"),
        "job waits for a machine",
        f"Job {job.name} waits for a machine",
        f"{why} It is tried again each time somebody watches, until {minute_text(iso(until))}; nothing is billed "
        "meanwhile. "
        f"To end it: cloudgpu cancel {job.name}",
        _facts(job),
        urgent=False,
    )


def late_finding(job: Job, status: DeadlineStatus) -> Finding:
    """Return the finding about a job whose work no longer fits its deadline."""
    work, time_left = (
        duration_text(timedelta(seconds=max(0, int(one)))) for one in (status.work_left_s, status.time_left_s)
    )
    return Finding(
        job_alert_key(job, "late"),
        "job late",
        f"Job {job.name} does not fit its deadline any more",
        f"{work} of work are left, and {time_left} to the deadline. It keeps running, on demand where it has to. Its "
        f"progress, or --work, says how long it takes. To end it: cloudgpu cancel {job.name}",
        _facts(job),
        urgent=True,
    )


def ended_key(job: Job) -> str:
    """Return the key of the alert that a job is over."""
    return f"{JOB}:{job.id}:{job.state}"


def job_alert_key(job: Job, what: str) -> str:
    """Return the key of the alert that a job is `stalled` or `late`, or waits for a `secret` or a `machine`."""
    return f"{JOB_WAITS}:{job.id}:{what}"


def _results(job: Job) -> str:
    """Return where a job's results are, as a sentence; empty if its command never began."""
    fetched = job.fetched
    if fetched is not None and fetched.whole:
        rest_text = f"; {fetched.why}" if fetched.why else ""
        return f"Its results are in {fetched.directory}{' on ' if fetched.host else ''}{fetched.host}{rest_text}."
    if not any(attempt.began_at is not None for attempt in job.attempts):
        return ""
    if job.is_open:
        return "Its results are on its machine until a watcher fetches them: cloudgpu jobs."
    return "Its results were not fetched whole; what there is, is of the last copy."


def _facts(job: Job) -> dict[str, str]:
    return {"job": job.name, "id": job.id, "owner": job.spec["owner"] or job.by, "project": job.spec["project"]}
