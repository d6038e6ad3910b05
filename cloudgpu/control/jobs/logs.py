"""Prints what a job's command has written: from its machine while that answers, else from the copy in this home."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, cast

from cloudgpu.access.computer import hostname
from cloudgpu.access.jobs.remote_attempt import output_sizes_at
from cloudgpu.control.access.reach import connected_to
from cloudgpu.control.jobs.store import directory_of, job_by_id, log_file, print_output
from cloudgpu.core.jobs.remote_state import Phase
from cloudgpu.errors import InstanceNotFound, LedgerUnavailable, ProviderUnavailable, Unreachable, WrongHostKey

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Attempt, Job
    from cloudgpu.core.model.machine import Machine

POLL_EVERY_S = 5.0  # between two checks of a job that has no machine, or whose machine does not answer
ENDED_PHASES = (Phase.EXITED, Phase.LOST)


def logs(
    session: Session, job: Job, out: IO[bytes], err: IO[bytes], *, follow: bool = False, since: datetime | None = None
) -> Job:
    """Write a job's stdout to `out` and its stderr to `err`, attempt after attempt; return the job as it stands then.

    With `follow`, until its command is over. `since` leaves out what was written before, by the machine's clock.
    While the machine of a job does not answer, the latest copy is shown, and a report says so. Raises InstanceNotFound
    where this computer has no copy of any attempt, the machine's error where it has no copy of the last attempt, and
    WrongHostKey.
    """
    if follow and job.outcome is None:
        return _LogReader(session, job, out, err, since).follow()
    running_attempt = _running_attempt(session, job)
    if running_attempt is None:
        print_copies(session, job, out, err, since=since)
        return job
    print_copies(session, job, out, err, since=since, before=running_attempt[0].number, is_required=False)
    _LogReader(session, job, out, err, since).print_attempt(job, running_attempt)
    return job


def print_copies(
    session: Session,
    job: Job,
    out: IO[bytes],
    err: IO[bytes],
    *,
    since: datetime | None = None,
    before: int | None = None,
    is_required: bool = True,
) -> None:
    """Write the copies in this home, of attempts with a number below `before`, without those that ended before `since`.

    Raises InstanceNotFound where there is no copy at all, if `is_required`.
    """
    directory, any_copy = directory_of(session, job), False
    for attempt in job.attempts:
        has_copy = log_file(directory, attempt.number, "out").exists()
        any_copy = any_copy or has_copy
        is_over = since is not None and attempt.ended_at is not None and attempt.ended_at < since
        is_over = is_over and not log_file(directory, attempt.number, "times").exists()  # which tells it exactly
        if has_copy and not is_over and (before is None or attempt.number < before):
            _print_attempt(session, job, attempt.number, out, err, since=since)
    if is_required and not any_copy:
        raise _no_copy_error(job)


def _print_attempt(
    session: Session,
    job: Job,
    number: int,
    out: IO[bytes],
    err: IO[bytes],
    *,
    starts: tuple[int, int] = (0, 0),
    since: datetime | None = None,
) -> None:
    """Write the copies of one attempt from byte offsets `starts` on, without what was written before `since`.

    Where a copy lacks the index of times, all of it is shown, and a report says so.
    """
    directory = directory_of(session, job)
    if since is not None:
        times = log_file(directory, number, "times")
        if not times.exists() and log_file(directory, number, "out").exists():
            session.report("This copy does not say when each line was written: all of it is shown.")
        out_start, err_start = output_sizes_at(times, since.timestamp())
        starts = max(starts[0], out_start), max(starts[1], err_start)
    print_output(directory, number, (out, err), starts)


def _no_copy_error(job: Job) -> InstanceNotFound:
    message, remedy = f"This computer has no output of {job.name}.", f"It was run on {job.host}: look there."
    if not any(attempt.began_at is not None for attempt in job.attempts):
        message = f"{job.name} has not begun: it is {job.state}."
        remedy = f"See why: cloudgpu show job:{job.name}"
    elif job.host == hostname():
        remedy = "It comes with the next cloudgpu reap."
    return InstanceNotFound(message, field="NAME", value=job.name, next=remedy)


def _running_attempt(session: Session, job: Job) -> tuple[Attempt, Machine] | None:
    """Return the open attempt and its machine; None where there is none, or the machine does not run."""
    attempt = job.attempt
    if job.outcome is not None or attempt is None or attempt.machine is None:
        return None
    machine = session.ledger.machine(attempt.machine)
    return None if machine is None or machine.state != "running" else (attempt, machine)


class _LogReader:
    """Writes a job's output over lost connections and further attempts, each byte once."""

    def __init__(self, session: Session, job: Job, out: IO[bytes], err: IO[bytes], since: datetime | None) -> None:
        self._session, self._id, self._since = session, job.id, since
        self._out, self._err = CountingStream(out), CountingStream(err)
        self._attempt_number, self._last_reported = 0, ""  # the number of the attempt that is printed, and a sentence
        self._is_since_applied = False  # whether what this attempt wrote before `since` is counted as shown

    def print_attempt(self, job: Job, running_attempt: tuple[Attempt, Machine]) -> None:
        """Write what one attempt has written until now; the rest from the copy, if its machine does not answer."""
        self._attempt_number = running_attempt[0].number
        try:
            self._tail_live(job, running_attempt, follow=False)
        except (WrongHostKey, LedgerUnavailable):
            raise
        except (Unreachable, InstanceNotFound, ProviderUnavailable) as error:
            if not log_file(directory_of(self._session, job), self._attempt_number, "out").exists():
                raise
            self._report(f"{error.message} This is the copy that was last fetched.")
            self._catch_up(job, self._attempt_number + 1)

    def follow(self) -> Job:
        """Write the output until the command ends; return the job's state then."""
        while True:
            job = job_by_id(self._session, self._id)
            running_attempt = _running_attempt(self._session, job)
            if job.outcome is not None:
                if job.attempts:  # what the copies have beyond what was shown
                    self._catch_up(job, job.attempts[-1].number + 1)
                return job
            if running_attempt is None:
                self._report(f"{job.name} is {job.state}")
            elif self._tail(job, running_attempt) in ENDED_PHASES:
                return self._report_over()
            self._session.pause(POLL_EVERY_S)

    def _tail(self, job: Job, running_attempt: tuple[Attempt, Machine]) -> Phase | None:
        """Follow one attempt; return its phase at the end, None where its machine did not answer."""
        self._catch_up(job, running_attempt[0].number)
        try:
            return self._tail_live(job, running_attempt, follow=True)
        except (WrongHostKey, LedgerUnavailable):
            raise
        except (Unreachable, InstanceNotFound, ProviderUnavailable) as error:
            self._report(error.message)
            return None

    def _tail_live(self, job: Job, running_attempt: tuple[Attempt, Machine], *, follow: bool) -> Phase:
        """Write what an attempt writes, from where its output was left off; at first from `since` on."""
        from cloudgpu.access.jobs.remote import RemoteJob

        attempt, machine = running_attempt
        with connected_to(self._session, machine) as connection:
            remote = RemoteJob(connection, job.id, attempt.number)
            if self._since is not None and not self._is_since_applied:
                self._out.count, self._err.count = remote.offsets_at(self._since.timestamp())
                self._is_since_applied = True
            starts = self._out.count, self._err.count
            out, err = self._out.file, self._err.file
            return remote.tail(out, err, out_from=starts[0], err_from=starts[1], follow=follow).phase

    def _catch_up(self, job: Job, number: int) -> None:
        """Write the copies of attempts before this one that were not shown yet."""
        if number == self._attempt_number:
            return
        out, err = self._out.file, self._err.file
        for attempt_number in range(max(1, self._attempt_number), number):
            starts = (self._out.count, self._err.count) if attempt_number == self._attempt_number else (0, 0)
            since = None if attempt_number == self._attempt_number and self._is_since_applied else self._since
            _print_attempt(self._session, job, attempt_number, out, err, starts=starts, since=since)
        self._attempt_number, self._out.count, self._err.count, self._is_since_applied = number, 0, 0, False

    def _report_over(self) -> Job:
        """Report that a job's command is over on its machine, which a watcher records, and return the job."""
        job = job_by_id(self._session, self._id)
        if job.outcome is None:
            self._report(f"The command of {job.name} is over. Its results come with the next cloudgpu reap or watch.")
        return job

    def _report(self, sentence: str) -> None:
        if sentence != self._last_reported:
            self._session.report(sentence)
            self._last_reported = sentence


class CountingStream:
    """A stream that counts the bytes written to it: where to continue after a connection was lost."""

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
