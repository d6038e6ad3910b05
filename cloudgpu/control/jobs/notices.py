"""Tells people of jobs: what their watcher alone can see, as alerts, and their end on this computer's screen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime

from cloudgpu.config.alerts.alerts import DESKTOP
from cloudgpu.control.alerts.alerts import record_finding
from cloudgpu.control.cost.cost import job_spent
from cloudgpu.control.session.session import Session
from cloudgpu.core.jobs.alerts import (
    ended_finding,
    is_stalled,
    job_alert_key,
    machine_finding,
    secret_finding,
    stalled_finding,
    stalled_since,
)
from cloudgpu.core.jobs.job import Job, State
from cloudgpu.core.jobs.waiting import waits_until

NOTICE_TIMEOUT_S = 5.0  # for the program that shows a notice; a desktop that hangs keeps no job waiting
MAX_LENGTH = 500  # characters of a notice
_SCRIPT = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"


def update_stall_alert(
    session: Session,
    job: Job,
    last_output_at: datetime | None,
    progress: tuple[float, float | None] | None = None,
) -> bool:
    """Raise the alert that a job stalls, or clear it once it continues or is over; say whether the alert changed.

    `last_output_at` is when its command last wrote anything, `progress` what it reports as (done, of how much), both as
    the last sync of its machine saw them. Progress that the ledger does not have yet counts as made now. Nothing is
    sent: the next run of `reap` or `watch` does that.
    """
    now = session.clock()
    has_progressed = progress is not None and (job.progress is None or job.progress[:2] != progress)
    last_activity_at = now if has_progressed else last_output_at
    since = stalled_since(job, last_activity_at)
    stalls = since is not None and is_stalled(job, last_activity_at, now)
    finding = stalled_finding(job, since, now) if stalls and since is not None else None
    return record_finding(session, job_alert_key(job, "stalled"), finding)


def update_secret_alert(session: Session, job: Job, missing: Sequence[str]) -> bool:
    """Raise the alert that a job waits for secrets of these names, or clear it where there are none."""
    return record_finding(session, job_alert_key(job, "secret"), secret_finding(job, missing) if missing else None)


def update_machine_alert(session: Session, job: Job, why: str | None) -> bool:
    """Raise the alert that a job waits for a machine, or clear it where it has one (`why` is None)."""
    finding = None if why is None else machine_finding(job, why, waits_until(job, session.clock()))
    return record_finding(session, job_alert_key(job, "machine"), finding)


def show_end(session: Session, job: Job, environ: Mapping[str, str] = os.environ) -> bool:
    """Show on this computer's screen how a job ended, and say whether it was shown. A screen that fails raises nothing.

    Nothing is shown of a cancelled job, on a computer without a desktop, with `notify = false` in [jobs], or where
    alerts go to the desktop anyway.
    """
    settings = session.settings
    if job.outcome in (None, State.CANCELLED) or not settings.jobs.notify or DESKTOP in settings.alerts.to:
        return False
    finding = ended_finding(job, job_spent(session, job))
    return show(finding.title, f"{finding.facts['cost']}. {finding.text}", environ, urgent=finding.urgent)


def show(title: str, text: str, environ: Mapping[str, str], *, urgent: bool = False) -> bool:
    """Show a notice by the desktop's own program, if this computer has one; say whether it was shown."""
    command = _notice_command(title, text[:MAX_LENGTH], environ, urgent=urgent)
    if command is None:
        return False
    try:
        completed = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=NOTICE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return completed.returncode == 0


def _notice_command(title: str, text: str, environ: Mapping[str, str], *, urgent: bool) -> list[str] | None:
    """Return the command that shows a notice; None without a desktop. No text becomes part of a script."""
    if sys.platform == "darwin":
        program = shutil.which("osascript", path=environ.get("PATH"))
        return None if program is None else [program, "-e", _SCRIPT, title, text]
    program = shutil.which("notify-send", path=environ.get("PATH"))
    if program is None or not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")):
        return None
    return [program, f"--urgency={'critical' if urgent else 'normal'}", "--app-name=cloudgpu", "--", title, text]
