"""How far a watcher has carried a job: what it waits for, how long, and what became of it in words.

A step that could be taken at once is taken at once, so this is what stands between two looks: `wait` is short while
something is about to change, and a minute where time alone has to pass. An error is no end: whoever watches next tries
the step again.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def sentences(found: Sequence[tuple[Job, Carried]]) -> list[str]:
    """Return what became of jobs, one sentence for each of which something has changed, or that cannot go on."""
    said = []
    for before, carried in found:
        job = carried.job
        if job.state is not before.state or job.is_living is not before.is_living:
            said.append(f"job {job.name}: {_word(job)}")
        elif carried.error is not None:
            said.append(f"job {job.name}: {carried.error.message}")
    return said


def _word(job: Job) -> str:
    """Return a job's state in words, with where its results are once it is over."""
    state = str(job.state).replace("_", " ")
    why = f" ({job.why})" if job.why else ""
    if job.is_living or job.fetched is None:
        return f"{state}{why}"
    whole = "" if job.fetched.whole else ", as far as they were copied"
    return f"{state}{why}; its results are in {job.fetched.directory}{whole}"
