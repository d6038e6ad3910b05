"""Carries a job on in front: what its command writes is written here at once, until it is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO, TYPE_CHECKING

from cloudgpu.control.jobs.carry import Carrier
from cloudgpu.control.jobs.store import directory_of, log_file
from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.remote_state import Phase
from cloudgpu.errors import CloudgpuError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudgpu.control.jobs.carry import Carried
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job

_BEFORE = (State.PENDING, State.STARTING)
MOST_PAUSE_S = 5.0
LOOK_S = 0.5  # between two looks at a command that runs
_RUNS = (Phase.RUNNING, Phase.ORPHANED)


@dataclass
class _Printed:
    """How much of each attempt's output is printed, and where to."""

    stdout: IO[bytes]
    stderr: IO[bytes]
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)


def follow(session: Session, job: Job, environ: Mapping[str, str], *, stdout: IO[bytes], stderr: IO[bytes]) -> Job:
    """Carry a job on until nothing is left to do for it, and return it; its output goes to these binary files.

    What cannot be done now is said by `session.tell` and tried again. KeyboardInterrupt passes: the job goes on.
    Raises what the launch of its first machine raises: the job is over then. Raises LedgerUnavailable.
    """
    printed, said = _Printed(stdout, stderr), ""
    with Carrier(session, job.id, environ) as carrier:
        while True:
            carried = carrier.carry()
            _print(carrier, carried, printed)
            if not carried.job.is_living:
                return carried.job
            if carried.why and carried.why != said:
                session.tell(f"{job.name}: {carried.why}")
            said = carried.why
            session.pause(LOOK_S if _runs(carried) else min(carried.wait, timedelta(seconds=5)).total_seconds())


def _runs(carried: Carried) -> bool:
    return carried.remote is not None and carried.remote.phase in _RUNS


def _print(carrier: Carrier, carried: Carried, printed: _Printed) -> None:
    """Print what is new of the open attempt from its machine, and what is left of ended ones from the copies here."""
    job = carried.job
    for attempt in job.attempts:
        done = printed.offsets.get(attempt.number, (0, 0))
        last = attempt.number == len(job.attempts)
        if last and _runs(carried) and carrier.connection is not None:
            printed.offsets[attempt.number] = _tailed(carrier, job, printed, done)
        elif attempt.ended_at is not None:
            printed.offsets[attempt.number] = _copied(carrier.session, job, attempt.number, printed, done)


def _tailed(carrier: Carrier, job: Job, printed: _Printed, done: tuple[int, int]) -> tuple[int, int]:
    machine = carrier.session.ledger.machine(job.attempts[-1].machine or "")
    if machine is None:
        return done
    try:
        found = carrier.at(job, machine).tail(printed.stdout, printed.stderr, out_from=done[0], err_from=done[1])
    except CloudgpuError:  # the next look says what is wrong
        carrier.close()
        return done
    printed.stdout.flush()
    return found.out, found.err


def _copied(session: Session, job: Job, attempt: int, printed: _Printed, done: tuple[int, int]) -> tuple[int, int]:
    directory = directory_of(session, job)
    ends = []
    for stream, file, begin in zip(("out", "err"), (printed.stdout, printed.stderr), done, strict=True):
        path = log_file(directory, attempt, stream)
        end = begin
        if path.exists():
            with path.open("rb") as source:
                source.seek(begin)
                while data := source.read(1 << 16):
                    file.write(data)
                    end += len(data)
            file.flush()
        ends.append(end)
    return ends[0], ends[1]


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
