"""Runs the jobs of `watch` when they are due by the ledger, until it is ended; an error of a job does not end it.

`watch --status` says which processes do so on this computer, since when, and when the next run is due.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.notify import notify_outage_once
from cloudgpu.control.scheduler.cron import last_run_document
from cloudgpu.control.scheduler.due import clocks_diverged, run_due_at
from cloudgpu.control.scheduler.jobs import REAPER_LOCK, WatchJob, watch_jobs
from cloudgpu.control.session.base import Report, utc_now
from cloudgpu.control.session.last_run import overdue_sentence, read_last_run
from cloudgpu.control.session.session import Session
from cloudgpu.core.values.times import iso
from cloudgpu.errors import CloudgpuError, LedgerMoved, LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.log import files
from cloudgpu.ledger.log.storage_errors import LedgerAway

if TYPE_CHECKING:
    from cloudgpu.views.documents.automation.cron import WatchDocument


TICK_S = 1.0
# An overdue job is run, however late, and once (APScheduler 3 drops it with a warning where a second is the grace).
JOB_DEFAULTS: Mapping[str, Any] = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
_AFTER_RUN = timedelta(
    seconds=1
)  # until a run that was requested during another: the scheduler skips one that overlaps


class Watch:
    """The jobs of one process. `fault_counts` counts the errors of each job, `run_counts` how often each was run.

    `tell` reports a sentence to the user.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        every: timedelta,
        price_interval: timedelta | None,
        tell: Report,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._environ, self._tell, self._clock = environ, tell, clock
        self._watch_ending = threading.Event()
        self._run_lock = threading.Lock()  # held while a run is being made
        self._machine_ending = threading.Event()  # a machine is being ended
        self._jobs_at_work: set[str] = set()
        self._schedule_lock = threading.Lock()
        self._requested_jobs: set[str] = set()  # jobs that are to run soon, and have not begun since
        self._report_lock = threading.Lock()
        self._last_errors: dict[str, str] = {}  # the last reported error of each failing job
        self._jobs_finding_move: set[str] = set()  # jobs that found the ledger moved, and try once more
        self.ledger_moved: LedgerMoved | None = None  # why the watch ended by itself
        self.run_counts: dict[str, int] = {}
        self.fault_counts: dict[str, int] = {}
        self.jobs = watch_jobs(every, price_interval, run_at_once=lambda: self._run_soon("pass"))
        self._scheduler = new_scheduler()

    def run(self) -> bool:
        """Run the jobs until `end`; a stop that is under way then is confirmed first.

        Returns whether no job is running any more. One that still is (a sync, a price list) does no harm if the process
        ends.
        """
        for job in self.jobs:
            trigger = IntervalTrigger(seconds=max(1, job.every.total_seconds()), timezone=UTC)
            self._scheduler.add_job(self._run_if_due, trigger, args=[job], id=job.name, next_run_time=datetime.now(UTC))
        self._scheduler.start()
        try:
            self._wait_for_end()
        finally:  # Ctrl-C waits for nothing, and begins no further stop
            self._watch_ending.set()
            self._scheduler.shutdown(wait=False)
        if self._machine_ending.is_set():
            with self._run_lock:
                pass
        return not self._jobs_at_work

    def end(self) -> None:
        """Make `run` return soon. May be called from a signal handler and from any thread."""
        self._watch_ending.set()

    def metrics(self) -> str:
        """Return the current metrics, as Prometheus reads them. Raises LedgerUnavailable."""
        from cloudgpu.control.scheduler.metrics import exposition

        with self._open_session() as session:
            return exposition(session, dict(self.run_counts), dict(self.fault_counts))

    def _wait_for_end(self) -> None:
        """Wait for the end; after the computer slept, or its clock was set, check at once what is due."""
        wall, monotonic = self._clock(), time.monotonic()
        while not self._watch_ending.wait(TICK_S):
            previous, (wall, monotonic) = (wall, monotonic), (self._clock(), time.monotonic())
            if clocks_diverged((previous[0], wall), (previous[1], monotonic)):
                for job in self.jobs:
                    self._run_soon(job.name)

    def _run_soon(self, name: str) -> None:
        """Have the scheduler check at once whether this job is due."""
        with self._schedule_lock:
            self._requested_jobs.add(name)
            self._scheduler.modify_job(name, next_run_time=datetime.now(UTC))

    def _run_if_due(self, job: WatchJob) -> None:
        """Do a job if it is due, and schedule it again; report its errors."""
        wait = job.retry
        with self._schedule_lock:
            self._requested_jobs.discard(job.name)
        try:
            with self._open_session(job) as session:
                if job.due(session) <= session.clock():
                    self._do_job(job, session)
                self._last_errors.pop(job.name, None)
                self._jobs_finding_move.discard(job.name)
                until_due = job.due(session) - session.clock()
                wait = min(until_due, job.every) if until_due > timedelta() else job.retry
        except LedgerMoved as error:
            self._handle_move(job, error)
        except CloudgpuError as error:
            self._record_fault(job, f"{error.message} {error.next or ''}", for_all=isinstance(error, LedgerAway))
        except Exception as error:  # noqa: BLE001  (one job's defect must not end the others)
            self._record_fault(job, f"a defect: {type(error).__name__}: {error}")
        if self._watch_ending.is_set():
            return
        with self._schedule_lock:
            if job.name in self._requested_jobs:
                wait = min(wait, _AFTER_RUN)
            self._scheduler.modify_job(job.name, next_run_time=datetime.now(UTC) + wait)

    def _begin_change(self) -> None:
        """Raise ProviderUnavailable where the watch is to end: no further machine is ended then.

        The end of a machine that has begun is confirmed first.
        """
        self._machine_ending.set()
        if self._watch_ending.is_set():
            raise ProviderUnavailable(
                "The watch was ended before everything was done.", next="The next run continues with it."
            )

    def _do_job(self, job: WatchJob, session: Session) -> None:
        self.run_counts[job.name] = self.run_counts.get(job.name, 0) + 1
        self._jobs_at_work.add(job.name)
        try:
            with self._run_lock if job.name == "pass" else nullcontext():
                sentence = job.work(session)
        finally:
            self._jobs_at_work.discard(job.name)
            if job.name == "pass":
                self._machine_ending.clear()
        if sentence:
            self._tell(sentence)

    def _record_fault(self, job: WatchJob, message: str, *, for_all: bool = False) -> None:
        """Count the error of a job, and report it if it is new; `for_all`: all jobs have it; one report is enough."""
        self.fault_counts[job.name] = self.fault_counts.get(job.name, 0) + 1
        with self._report_lock:  # a lasting error is reported once; that the ledger is away, once for all jobs
            is_known = message in (self._last_errors.values() if for_all else [self._last_errors.get(job.name)])
            self._last_errors[job.name] = message
        if not is_known:
            self._tell(f"{job.name} failed and is tried again: {message.strip()}")

    def _handle_move(self, job: WatchJob, error: LedgerMoved) -> None:
        """End the watch where the ledger has moved, but try once again: config.toml is changed after the move."""
        if job.name in self._jobs_finding_move:
            self.ledger_moved = error
            self.end()
        self._jobs_finding_move.add(job.name)

    @contextmanager
    def _open_session(self, job: WatchJob | None = None) -> Iterator[Session]:
        """Yield a new session: the settings are read again, and a ledger that was away is found again."""
        session = open_session(self._environ, clock=self._clock, tell=self._tell)
        try:
            session.check_home_exists()
            with _notifying_owners(job, session):
                session.ledger.check_in_use()
                session.before_change = self._begin_change
                yield session
        finally:
            session.ledger.close()


@contextmanager
def _notifying_owners(job: WatchJob | None, session: Session) -> Iterator[None]:
    """Notify owners, once for each outage, that no run can be made: the ledger, which stores alerts, is unavailable."""
    try:
        yield
    except LedgerUnavailable as error:
        if job is not None and job.name == "pass":
            notify_outage_once(session, error)
        raise


@contextmanager
def announce_and_serve(
    watch: Watch, session: Session, every: timedelta, address: tuple[str, int] | None
) -> Iterator[str | None]:
    """Announce this process to others of this home, and serve its metrics at `address`, if given.

    Yields their URL. Raises InvalidRequest for an address that is taken.
    """
    from cloudgpu.control.scheduler.metrics_server import serve_metrics

    with ExitStack() as stack:
        metrics_url = None if address is None else stack.enter_context(serve_metrics(address, watch.metrics))
        stack.enter_context(announce_process(session, every=every, metrics=metrics_url))
        yield metrics_url


def new_scheduler() -> BackgroundScheduler:
    """Return a scheduler without state on disk: the ledger says what is due."""
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)  # jobs report their own errors
    return BackgroundScheduler(
        timezone=UTC, executors={"default": _DaemonExecutor()}, job_defaults=dict(JOB_DEFAULTS), daemon=True
    )


class _DaemonExecutor(BaseExecutor):  # type: ignore[misc]  # APScheduler 3 has no types
    """Runs each job on a daemon thread: the threads of APScheduler's own pool would be joined when the process ends."""

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        def work() -> None:
            try:
                events = run_job(job, job._jobstore_alias, run_times, self._logger.name)  # noqa: SLF001
            except BaseException as error:  # noqa: BLE001  (as its own pools do)
                self._run_job_error(job.id, error, error.__traceback__)
            else:
                self._run_job_success(job.id, events)

        threading.Thread(target=work, name=f"watch-{job.id}", daemon=True).start()


@contextmanager
def ended_by_signals(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` on SIGTERM and SIGHUP, where they are not ignored (nohup); a second one waits for nothing."""
    previous_handlers: dict[signal.Signals, Any] = {}

    def exit_at_once(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    def on_signal(_number: int, _frame: object) -> None:
        for number in previous_handlers:
            signal.signal(number, exit_at_once)
        end()

    handled_signals = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN
    ]
    for number in handled_signals:
        previous_handlers[number] = signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class WatchProcess:
    """A process that watches: its pid, since when (ISO time), the seconds between runs, the URL of its metrics."""

    pid: int
    since: str
    every_s: float
    metrics: str | None


@contextmanager
def announce_process(session: Session, *, every: timedelta, metrics: str | None) -> Iterator[None]:
    """Announce this process in a file while it lives; its lock proves that the file is current."""
    process = WatchProcess(os.getpid(), iso(session.clock()), every.total_seconds(), metrics)
    directory = session.home.root / "watch"
    with files.lock(session.home.locks, _process_lock(process.pid), wait=5):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = directory / f"{process.pid}.json"
        file.write_text(json.dumps(asdict(process)), encoding="utf-8")
        try:
            yield
        finally:  # the directory stays: another watch may be about to write into it
            file.unlink(missing_ok=True)


def find_watch_processes(session: Session) -> list[WatchProcess]:
    """Return the processes of this home that watch now, the oldest first; files of dead ones are removed."""
    processes = []
    for file in _process_files(session.home.root / "watch"):
        with suppress(OSError, ValueError, TypeError):
            process = WatchProcess(**json.loads(file.read_text(encoding="utf-8")))
            if files.is_locked(session.home.locks, _process_lock(process.pid)):
                processes.append(process)
            else:
                file.unlink(missing_ok=True)
    return sorted(processes, key=lambda process: (process.since, process.pid))


def status_document(session: Session, every: timedelta) -> WatchDocument:
    """Return which processes watch here, whether a run is under way, when the last was, and when the next is due."""
    processes, now = find_watch_processes(session), session.clock()
    interval = min((timedelta(seconds=process.every_s) for process in processes), default=every)
    machines, last = session.ledger.machines(), read_last_run(session.ledger)
    return {
        "watching": [
            {"pid": process.pid, "since": process.since, "every_s": process.every_s, "metrics": process.metrics}
            for process in processes
        ],
        "running": session.is_locked(REAPER_LOCK),
        "last_run": last_run_document(session),
        "next_at": iso(max(now, run_due_at(last, machines, interval, now))) if processes else None,
        "overdue": overdue_sentence(session, machines),
    }


def _process_files(directory: Path) -> list[Path]:
    try:
        return sorted(directory.glob("*.json"))
    except OSError:
        return []


def _process_lock(pid: int) -> str:
    return f"watch-{pid}"
