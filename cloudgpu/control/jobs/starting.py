"""Carries a job on until its command has begun: what has to happen while the values of its secrets are here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.jobs.carry import Carrier
from cloudgpu.core.jobs.job import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job

MOST_PAUSE_S = 5.0
_BEFORE = (State.PENDING, State.STARTING)


def carry_until_begun(session: Session, job: Job, environ: Mapping[str, str]) -> Job:
    """Carry a job on until its command runs, or is over, and return it.

    What cannot be done now is said by `session.tell` and tried again. KeyboardInterrupt passes: the job goes on. Raises
    what the launch of its first machine raises: the job is over then. Raises LedgerUnavailable.
    """
    said = ""
    with Carrier(session, job.id, environ) as carrier:
        while True:
            carried = carrier.carry()
            if carried.job.state not in _BEFORE:
                return carried.job
            if carried.why and carried.why != said:
                session.tell(f"{job.name}: {carried.why}")
            said = carried.why
            session.pause(min(carried.wait.total_seconds(), MOST_PAUSE_S))
