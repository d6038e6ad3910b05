"""The result of a watcher's step on a job, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.core.billing.rules import GB
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.jobs.remote_state import Phase, RemoteState
from cloudgpu.errors import CloudgpuError

REQUEUE_SOON, REQUEUE_LATER = timedelta(seconds=5), timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """A job after a watcher's step: why it waits, and how long until the next step should be taken (`wait`).

    `remote` is what its machine reported. `error` made a step fail; the next watcher tries it again. `kept_until`:
    until then the machine of a failed job is kept for inspection, and nothing else is to be done.
    """

    job: Job
    why: str = ""
    wait: timedelta = REQUEUE_LATER
    remote: RemoteState | None = None
    error: CloudgpuError | None = None
    kept_until: datetime | None = None

    @property
    def is_over(self) -> bool:
        """Whether nobody has to wait for it any more."""
        return not self.job.is_open or self.kept_until is not None


def waiting_text(remote: RemoteState) -> str:
    """Return what an attempt that has not begun waits for: Slurm, or its data; empty for one that runs."""
    engine = remote.engine
    if engine is not None and remote.started_at is None and engine.tasks:
        return engine.text
    return data_text(remote)


def data_text(remote: RemoteState) -> str:
    """Return how much data has come for an attempt that has not begun; empty if it waits for none."""
    if remote.phase is not Phase.CLAIMED or remote.data is None or not remote.data[1]:
        return ""
    received, total = remote.data
    return f"fetching its data: {received / GB:.2f} of {total / GB:.2f} GB"
