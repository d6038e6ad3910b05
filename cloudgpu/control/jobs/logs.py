"""Prints what a job's command has written: from its machine while that answers, else from the copy in this home."""

from __future__ import annotations

from contextlib import suppress
from typing import IO, TYPE_CHECKING, cast

from cloudgpu.control.access.reach import reached
from cloudgpu.control.jobs.store import directory_of, the_job
from cloudgpu.core.jobs.remote_state import Phase
from cloudgpu.errors import InstanceNotFound, LedgerUnavailable, ProviderUnavailable, Unreachable, WrongHostKey

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from cloudgpu.access.jobs.remote import Tailed
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Attempt, Job
    from cloudgpu.core.model.machine import Machine

CHUNK = 256 * 1024
AGAIN_S = 5.0  # between two looks at a job that has no machine, or whose machine does not answer
OVER = (Phase.EXITED, Phase.LOST)


def logs(
    session: Session, job: Job, out: IO[bytes], err: IO[bytes], *, follow: bool = False, since: datetime | None = None
) -> Job:
    """Write a job's stdout to `out` and its stderr to `err`; return the job as it stands then.

    With `follow`, until its command is over. `since` leaves out what was written before, by the machine's clock.
    While the machine of a living job does not answer, the copy that was last fetched is shown, and that is said.
    Raises InstanceNotFound where this computer has no copy.
    """
    if follow and job.outcome is None:
        return _Following(session, job, out, err, since).to_the_end()
    found = _on_machine(session, job)
    if found is not None:
        try:
            _tail(session, job, found, out, err, since=since)
        except Unreachable as fault:
            session.tell(f"{fault.message} This is the copy that was last fetched.")
        else:
            return job
    print_copy(session, job, out, err, since=since)
    return job


def print_copy(
    session: Session, job: Job, out: IO[bytes], err: IO[bytes], *, since: datetime | None = None
) -> None:
    """Write the copy in this home; raise InstanceNotFound where there is none."""
    directory = directory_of(session, job)
    places = (0, 0) if since is None else _places(directory, since)
    if places is None:
        session.tell("When each line was written is not known for this copy: all of it is shown.")
        places = (0, 0)
    written = [_copy(directory / name, to, place) for name, to, place in zip(("out", "err"), (out, err), places, strict=True)]
    if any(written):
        return
    ran = any(one.began_at is not None for one in job.attempts)
    says = f"This computer has no output of {job.name}" if ran else f"{job.name} has not begun: it is {job.state}"
    raise InstanceNotFound(f"{says}.", field="NAME", value=job.name, next=_way(session, job, ran=ran))


def _way(session: Session, job: Job, *, ran: bool) -> str:
    from cloudgpu.access.computer import node

    if not ran:
        return f"See why: cloudgpu show job:{job.name}"
    return f"It was run on {job.host}: look there." if job.host != node() else "It comes with the next cloudgpu reap."


def _on_machine(session: Session, job: Job) -> tuple[Attempt, Machine] | None:
    """Return the open attempt and its machine, where that runs."""
    attempt = job.attempt
    if job.outcome is not None or attempt is None or attempt.machine is None:
        return None
    machine = session.ledger.machine(attempt.machine)
    return None if machine is None or machine.state != "running" else (attempt, machine)


def _tail(
    session: Session,
    job: Job,
    at: tuple[Attempt, Machine],
    out: IO[bytes],
    err: IO[bytes],
    *,
    since: datetime | None = None,
    places: tuple[int, int] = (0, 0),
    follow: bool = False,
) -> Tailed:
    from cloudgpu.access.jobs.remote import RemoteJob

    attempt, machine = at
    with reached(session, machine) as connection:
        remote = RemoteJob(connection, job.id, attempt.number)
        begin = None if since is None else since.timestamp()
        return remote.tail(out, err, out_from=places[0], err_from=places[1], since=begin, follow=follow)


class _Following:
    """Follows a job over lost connections and further attempts, each byte once."""

    def __init__(self, session: Session, job: Job, out: IO[bytes], err: IO[bytes], since: datetime | None) -> None:
        self._session, self._id, self._since = session, job.id, since
        self._out, self._err = _Counted(out), _Counted(err)
        self._attempt, self._told = 0, ""

    def to_the_end(self) -> Job:
        """Write what comes until the command is over; return the job as it stands then."""
        while True:
            job = the_job(self._session, self._id)
            found = _on_machine(self._session, job)
            if job.outcome is not None:
                self._rest(job)
                return job
            if found is None:
                self._tell(f"{job.name} is {job.state}")
            elif self._tailed(job, found) in OVER:
                return self._over()
            self._session.pause(AGAIN_S)

    def _tailed(self, job: Job, found: tuple[Attempt, Machine]) -> Phase | None:
        """Follow one attempt; return how far it is at the end, None where its machine did not answer."""
        if found[0].number != self._attempt:
            self._attempt, self._out.count, self._err.count = found[0].number, 0, 0
        places = self._out.count, self._err.count
        since = None if any(places) else self._since
        out, err = self._out.file, self._err.file
        try:
            return _tail(self._session, job, found, out, err, since=since, places=places, follow=True).phase
        except (WrongHostKey, LedgerUnavailable):
            raise
        except (Unreachable, InstanceNotFound, ProviderUnavailable) as fault:
            self._tell(fault.message)
            return None

    def _over(self) -> Job:
        """Return a job whose command is over on its machine: whoever watches writes that down."""
        job = the_job(self._session, self._id)
        if job.outcome is None:
            self._tell(f"The command of {job.name} is over. Its results come with the next cloudgpu reap or watch.")
        return job

    def _rest(self, job: Job) -> None:
        """Write what the copy has beyond what was shown, or all of it where nothing was."""
        if self._attempt == 0:
            with suppress(InstanceNotFound):  # it ended before it began
                print_copy(self._session, job, self._out.file, self._err.file, since=self._since)
        elif job.attempts[-1].number == self._attempt:
            directory = directory_of(self._session, job)
            _copy(directory / "out", self._out.file, self._out.count)
            _copy(directory / "err", self._err.file, self._err.count)

    def _tell(self, sentence: str) -> None:
        if sentence != self._told:
            self._session.tell(sentence)
            self._told = sentence


class _Counted:
    """A stream that counts what was written to it: where to go on after a connection was lost."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.count = stream, 0
        self.file = cast("IO[bytes]", self)  # it is only ever written to

    def write(self, data: bytes) -> int:
        """Write all of it."""
        self._stream.write(data)
        self.count += len(data)
        return len(data)

    def flush(self) -> None:
        """Have it shown."""
        self._stream.flush()


def _copy(path: Path, to: IO[bytes], begin: int) -> bool:
    """Write a file from a byte on; return whether there is such a file."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(begin)
        while data := file.read(CHUNK):
            to.write(data)
        to.flush()
        return True
    return False


def _places(directory: Path, since: datetime) -> tuple[int, int] | None:
    """Return how much of stdout and stderr was written by then, as the index beside them says; None without one."""
    found, moment = (0, 0), since.timestamp()
    try:
        with (directory / "times").open() as lines:
            for at, out, err in (line.split() for line in lines):
                if float(at) > moment:
                    break
                found = int(out), int(err)
    except (OSError, ValueError):
        return None
    return found
