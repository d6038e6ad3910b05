"""How far a watcher has carried a job, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.core.jobs.job import Job
from cloudgpu.core.jobs.remote_state import Phase, RemoteState
from cloudgpu.errors import CloudgpuError

REQUEUE_SOON, REQUEUE_LATER = timedelta(seconds=5), timedelta(minutes=1)
GB = 10**9


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """How far a job was carried: why it waits, and how long before the next step is worth taking.

    `error` is what kept a step from being done; the next watcher tries it again. `kept_until`: nothing is left to do
    before that but to keep the machine for inspection.
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
        return not self.job.is_living or self.kept_until is not None


def waiting_text(remote: RemoteState) -> str:
    """Return what an attempt that has not begun waits for: Slurm, or its data; empty for one that runs."""
    engine = remote.engine
    if engine is not None and remote.started is None and engine.tasks:
        return engine.text
    return data_text(remote)


def data_text(remote: RemoteState) -> str:
    """Return how far the data of an attempt is that has not begun; empty where there is none to wait for."""
    if remote.phase is not Phase.CLAIMED or remote.data is None or not remote.data[1]:
        return ""
    done, of = remote.data
    return f"fetching its data: {done / GB:.2f} of {of / GB:.2f} GB"
