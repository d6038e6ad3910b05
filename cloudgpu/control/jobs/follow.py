"""Reconciles a job in the foreground until it is over; what its command writes is printed at once."""

from __future__ import annotations

import select
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Self

from cloudgpu.access.jobs.remote import RemoteJob
from cloudgpu.control.jobs.attempt import LIVING_PHASES
from cloudgpu.control.jobs.logs import CountingStream
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import directory_of, print_output
from cloudgpu.control.session.session import Session
from cloudgpu.core.jobs.job import Attempt, Job, State
from cloudgpu.core.jobs.reconcile_result import ReconcileResult
from cloudgpu.errors import CloudgpuError, InvalidRequest

_STATES_BEFORE_START = (State.PENDING, State.STARTING, State.QUEUED)
MAX_PAUSE_S = 5.0
RETRY_S = 0.5  # before the output of an attempt is followed again after a lost connection
STOP_CHECK_S = 0.1  # how often a thread that waits for a reader (of a pipe) checks whether it is to stop


def follow(session: Session, job: Job, environ: Mapping[str, str], *, stdout: IO[bytes], stderr: IO[bytes]) -> Job:
    """Reconcile a job until nothing is left to do for it now, and return it; its output goes to these binary files.

    The output is written by a thread, as it comes. What cannot be done now is reported (`session.report`) and tried
    again. KeyboardInterrupt passes: the job goes on. Raises what the launch of its first machine raises: the job is
    over then. Raises LedgerUnavailable, and the OSError with which writing the output failed.
    """
    last_reason = ""
    with JobReconciler(session, job.id, environ) as reconciler, _Printer(session, stdout, stderr) as printer:
        while True:
            result = reconciler.reconcile()
            printer.update(reconciler, result)
            if result.is_over:
                return result.job
            if result.why and result.why != last_reason:
                # Other errors than these pass by waiting.
                remedy = result.error.next if isinstance(result.error, InvalidRequest) else None
                session.report(f"{job.name}: {result.why}{f' {remedy}' if remedy else ''}")
            last_reason = result.why
            printer.wait(min(result.wait.total_seconds(), MAX_PAUSE_S))


class _Printer:
    """Prints the output of each attempt: live while it runs; once it has ended, the rest from the local copies."""

    def __init__(self, session: Session, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._session, self._files = session, (stdout, stderr)
        self._offsets: dict[int, tuple[int, int]] = {}  # by attempt: the printed bytes of stdout and stderr
        self._live: _LiveOutput | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, reconciler: JobReconciler, result: ReconcileResult) -> None:
        """Begin to follow the open attempt, unless that has begun, and print the rest of ended ones."""
        job, remote = result.job, result.remote
        for attempt in job.attempts:
            if attempt.ended_at is not None:
                self._finish(attempt.number)
                directory, offsets = directory_of(self._session, job), self._offsets.get(attempt.number, (0, 0))
                self._offsets[attempt.number] = print_output(directory, attempt.number, self._files, offsets)
            elif attempt is job.attempts[-1] and remote is not None and remote.phase in LIVING_PHASES:
                self._begin(reconciler, job, attempt)

    def wait(self, seconds: float) -> None:
        """Wait so many seconds for the next sync; less, where the output of the attempt has ended."""
        live = self._live
        if live is None:
            self._session.pause(seconds)
        elif live.finished.wait(seconds) and live.is_disconnected:
            self._session.pause(RETRY_S)

    def _begin(self, reconciler: JobReconciler, job: Job, attempt: Attempt) -> None:
        """Begin to print the output of an attempt live, unless that has begun."""
        if self._live is not None and not self._live.finished.is_set():
            return
        self._finish()
        machine = self._session.ledger.machine(attempt.machine or "")
        if machine is None:
            return
        try:
            remote = reconciler.remote_job(job, machine)
        except CloudgpuError:  # the next sync says what is wrong
            reconciler.close()
            return
        self._live = _LiveOutput(remote, self._files, self._offsets.get(attempt.number, (0, 0)))

    def _finish(self, number: int | None = None) -> None:
        """Wait for the live output of this attempt (None: of any) to end, and store its offsets. Raises its error."""
        live = self._live
        if live is not None and number in (None, live.attempt):
            live.finished.wait()
            self._offsets[live.attempt], self._live = live.offsets, None
            if live.error is not None:
                raise live.error


class _LiveOutput:
    """A thread that prints what an attempt writes until the attempt has ended, or the connection."""

    def __init__(self, remote: RemoteJob, files: tuple[IO[bytes], IO[bytes]], offsets: tuple[int, int]) -> None:
        self.attempt, self.is_disconnected = remote.attempt, False
        self.finished = threading.Event()
        self.error: Exception | None = None
        self._remote, self._stopped = remote, threading.Event()
        self._out, self._err = (
            _StoppableStream(file, offset, self._stopped) for file, offset in zip(files, offsets, strict=True)
        )
        threading.Thread(target=self._follow, name=f"follow-{remote.job}", daemon=True).start()

    @property
    def offsets(self) -> tuple[int, int]:
        """How many bytes of each stream are printed."""
        return self._out.count, self._err.count

    def stop(self) -> None:
        """End the thread and its connection; nothing is printed afterwards."""
        self._stopped.set()
        self._remote.connection.close()
        self.finished.wait()

    def _follow(self) -> None:
        offsets = self.offsets
        try:
            self._remote.tail(self._out.file, self._err.file, out_from=offsets[0], err_from=offsets[1], follow=True)
        except CloudgpuError:  # the next sync says what is wrong
            self.is_disconnected = True
        except _StopPrinting:
            pass
        except Exception as error:  # noqa: BLE001  (raised where this is waited for)
            self.error = error
        finally:
            self.finished.set()


class _StopPrinting(Exception):
    """Ends the thread of a `_LiveOutput`: nothing more is to be printed."""


class _StoppableStream(CountingStream):
    """A file that counts the bytes written to it, and that stops waiting for its reader once it is `stopped`."""

    def __init__(self, file: IO[bytes], count: int, stopped: threading.Event) -> None:
        super().__init__(file)
        self.count, self._stopped = count, stopped
        self._poll: select.poll | None = None
        with suppress(OSError, AttributeError):  # a file in memory has no descriptor
            descriptor = file.fileno()
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLOUT)

    def write(self, data: Any) -> int:
        """Write all of it, in pieces that a pipe takes at once. Raises _StopPrinting, OSError."""
        remaining = memoryview(data)
        while remaining:
            self._wait()
            written = self._stream.write(remaining[: select.PIPE_BUF] if self._poll else remaining)
            self.count += written
            remaining = remaining[written:]
        return len(data)

    def _wait(self) -> None:
        """Wait until the reader takes more; raise _StopPrinting once the thread is stopped."""
        while not self._stopped.is_set():
            if self._poll is None or self._poll.poll(STOP_CHECK_S * 1000):
                return
        raise _StopPrinting


def reconcile_until_begun(session: Session, job: Job, environ: Mapping[str, str]) -> Job:
    """Reconcile a job until its command runs, or is over, or Slurm has it in its queue, and return it.

    What cannot be done now is reported (`session.report`) and tried again. KeyboardInterrupt passes: the job keeps
    running. Raises what the launch of its first machine raises: the job is over then. Raises LedgerUnavailable.
    """
    last_reason = ""
    with JobReconciler(session, job.id, environ) as reconciler:
        while True:
            result = reconciler.reconcile()
            if result.job.state not in _STATES_BEFORE_START or result.job.slurm_id is not None:
                return result.job
            if result.why and result.why != last_reason:
                session.report(f"{job.name}: {result.why}")
            last_reason = result.why
            session.pause(min(result.wait.total_seconds(), RETRY_S if job.slurm_record else MAX_PAUSE_S))
