"""How far a watcher has carried a job: what it waits for, and how long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.core.jobs.job import Job
from cloudgpu.core.jobs.remote_state import RemoteState
from cloudgpu.errors import CloudgpuError

SOON, LATER = timedelta(seconds=5), timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Carried:
    """How far a job was carried: why it waits, and how long before the next step is worth taking.

    `error` is what kept a step from being done; the next watcher tries it again. `kept_until`: nothing is left to do
    before that but to keep the machine for a look.
    """

    job: Job
    why: str = ""
    wait: timedelta = LATER
    remote: RemoteState | None = None
    error: CloudgpuError | None = None
    kept_until: datetime | None = None

    @property
    def is_over(self) -> bool:
        """Whether nobody has to wait for it any more."""
        return not self.job.is_living or self.kept_until is not None
