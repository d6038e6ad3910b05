"""Reconciles all living jobs in parallel: what every run of the reaper does, and `watch` once a minute."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from cloudgpu.control.jobs.store import JOB_ID_PREFIX, restore_missing_events
from cloudgpu.control.session.session import all_jobs
from cloudgpu.control.spot.history import record_interruptions
from cloudgpu.core.jobs.reconcile_result import REQUEUE_LATER, ReconcileResult
from cloudgpu.errors import CloudgpuError, LedgerUnavailable, internal_error
from cloudgpu.parallel import Pool, is_abandoned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from cloudgpu.control.jobs.reconcile import JobReconciler
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.core.reaper.result import ReaperRun
    from cloudgpu.parallel import Part

MAX_PARALLEL = 8
ROUND_TIME = timedelta(seconds=20)  # for which `watch` waits for the jobs of one round
MAX_BATCHES = 16  # of jobs in `reconcile_to_end`, each reconciled by a thread of its own
MIN_PAUSE, MAX_PAUSE = timedelta(seconds=0.5), timedelta(seconds=5)  # between two reconciliations of a job


def living_jobs(session: Session) -> list[Job]:
    """Return the jobs for which something is left to do."""
    return [job for job in all_jobs(session).values() if job.is_open]


def restore_unknown_jobs(session: Session) -> None:
    """Write the events of all jobs that have a directory in this home, and that the ledger does not know at all."""
    ids = {path.name for path in session.home.jobs.glob(f"{JOB_ID_PREFIX}*")}
    for job_id in sorted(ids - set(all_jobs(session)) if ids else ids):
        restore_missing_events(session, job_id)


def reconcile_all(session: Session, environ: Mapping[str, str]) -> list[tuple[Job, ReconcileResult]]:
    """Reconcile every living job once; return each as it was before, with the result.

    An error of one job is in its result, and does not stop the others. `environ` has the values of secrets. Raises
    LedgerUnavailable.
    """
    restore_unknown_jobs(session)
    jobs = living_jobs(session)
    if not jobs:
        return []
    with Pool(min(MAX_PARALLEL, len(jobs))) as pool:
        calls = [(job, pool.submit(_reconcile_in_thread, session, job, environ)) for job in jobs]
        return [(job, call.result()) for job, call in calls]


class JobRounds:
    """Rounds over all living jobs by a process that goes on: a job whose step takes long delays no other one.

    A copy of large results may take hours, in which another job may lose its machine, or reach its deadline.
    """

    def __init__(self, wait: timedelta = ROUND_TIME) -> None:
        self._wait = wait
        self._calls: dict[str, tuple[Job, Part[ReconcileResult]]] = {}  # those that are not collected yet, by job

    @property
    def is_at_work(self) -> bool:
        """Whether a result is still to come."""
        return bool(self._calls)

    def reconcile(self, session: Session, environ: Mapping[str, str]) -> list[tuple[Job, ReconcileResult]]:
        """Reconcile every living job that the last round has not left at work; return the results that are here.

        Waits for them so long at most. Each comes with its job as it was before. Raises LedgerUnavailable.
        """
        restore_unknown_jobs(session)
        jobs = [job for job in living_jobs(session) if job.id not in self._calls]
        if jobs:
            pool = Pool(min(MAX_PARALLEL, len(jobs)))  # its end is not waited for
            self._calls |= {job.id: (job, pool.submit(_reconcile_in_thread, session, job, environ)) for job in jobs}
        give_up_at = time.monotonic() + self._wait.total_seconds()
        for _, call in self._calls.values():
            call.wait(max(0.0, give_up_at - time.monotonic()))
        ended = [id_ for id_, (_, call) in self._calls.items() if call.wait(0)]
        return [(job, call.result()) for job, call in [self._calls.pop(id_) for id_ in ended]]


def _reconcile_in_thread(session: Session, job: Job, environ: Mapping[str, str]) -> ReconcileResult:
    """Reconcile a job with a connection to the ledger of its own. Raises LedgerUnavailable."""
    # A quarter of the CPU time of a run that has no job to continue.
    from cloudgpu.control.jobs.reconcile import JobReconciler

    with session.for_thread() as thread_session, JobReconciler(thread_session, job.id, environ) as reconciler:
        return _reconcile_or_error_result(reconciler, job)


def _reconcile_or_error_result(reconciler: JobReconciler, job: Job) -> ReconcileResult:
    """Reconcile a job; return the result, which holds an error if there was one. Raises LedgerUnavailable."""
    try:
        return reconciler.reconcile()
    except LedgerUnavailable:
        raise
    except CloudgpuError as caught:
        error = caught
    except OSError as refused:
        file_text = f" ({refused.filename})" if refused.filename else ""
        error = CloudgpuError(
            f"This computer's operating system refused: {refused.strerror or refused}{file_text}.",
            field="file",
            value=str(refused.filename) if refused.filename else None,
            next="Free space or correct the permissions: the next run continues the job.",
        )
    except Exception as bug:  # noqa: BLE001  (a defect of one job keeps no machine of another from its end)
        error = internal_error(bug, field="NAME", value=job.name)
    return ReconcileResult(job, error.message, REQUEUE_LATER, None, error)


def reconcile_to_end(
    session: Session, jobs: Sequence[Job], environ: Mapping[str, str], *, until: datetime | None = None
) -> None:
    """Reconcile these jobs in parallel until nothing is left to do for any of them, or until this time.

    A step that has begun by then is completed. An error of one job is reported (`session.report`), tried again, and
    does not stop the others. `environ` has the values of secrets. KeyboardInterrupt passes: the
    jobs keep running. Raises LedgerUnavailable.
    """
    from cloudgpu.control.jobs.reconcile import JobReconciler

    batches = [jobs[start::MAX_BATCHES] for start in range(min(MAX_BATCHES, len(jobs)))]

    def reconcile_batch(batch: Sequence[Job]) -> None:
        with session.for_thread() as thread_session, ExitStack() as stack:
            reconcilers = [stack.enter_context(JobReconciler(thread_session, job.id, environ)) for job in batch]
            _JobBatch(thread_session, list(zip(reconcilers, batch, strict=True)), until).reconcile_all_to_end()

    with Pool(max(1, len(batches))) as pool:
        for call in [pool.submit(reconcile_batch, batch) for batch in batches]:
            call.result()


class _JobBatch:
    """The jobs that one thread reconciles, each with its open connection: often at first, then less often."""

    def __init__(self, session: Session, pending: list[tuple[JobReconciler, Job]], until: datetime | None) -> None:
        self._session, self._pending, self._until = session, pending, until
        self._began, self._last_sentences = session.clock(), dict[str, str]()

    def reconcile_all_to_end(self) -> None:
        """Reconcile them until none is left, `until` has come, or nobody waits for this thread any more."""
        while self._pending and not is_abandoned():
            now = self._session.clock()
            if self._until is not None and now >= self._until:
                return
            results = [
                (reconciler, job, _reconcile_or_error_result(reconciler, job)) for reconciler, job in self._pending
            ]
            for _, job, result in results:
                self._report_changes(job, result)
            self._pending = [(reconciler, result.job) for reconciler, _, result in results if not result.is_over]
            if self._pending:
                self._pause([result for *_, result in results if not result.is_over], now)

    def _report_changes(self, job_before: Job, result: ReconcileResult) -> None:
        for sentence in sentences([(job_before, result)]):
            if self._last_sentences.get(job_before.id) != sentence:
                self._session.report(sentence)
                self._last_sentences[job_before.id] = sentence

    def _pause(self, results: Sequence[ReconcileResult], now: datetime) -> None:
        pause = min(MAX_PAUSE, *(result.wait for result in results))
        if any(result.error is None for result in results):
            pause = min(pause, max(MIN_PAUSE, (now - self._began) / 20))  # a short job is not made long
        if self._until is not None:
            pause = min(pause, max(timedelta(0), self._until - self._session.clock()))
        self._session.pause(pause.total_seconds())


def continue_jobs(session: Session, run: ReaperRun, environ: Mapping[str, str]) -> ReaperRun:
    """Reconcile jobs after a run of the reaper, unless that may change nothing; return the run with their changes."""
    if run.dry_run or run.busy:
        return run
    try:
        record_interruptions(session)
        job_sentences = sentences(reconcile_all(session, environ))
    except LedgerUnavailable as error:  # what the run itself has done is reported all the same
        return replace(run, faults=(*run.faults, f"jobs were left as they are: {error.message}"))
    return replace(run, sentences=(*run.sentences, *job_sentences))


def sentences(jobs: Sequence[tuple[Job, ReconcileResult]]) -> list[str]:
    """Return a sentence for each job that has changed, or that cannot continue; each job comes as it was before."""
    texts = []
    for job_before, result in jobs:
        job = result.job
        if job.state is not job_before.state or job.is_open is not job_before.is_open:
            texts.append(f"job {job.name}: {_state_text(job)}")
        elif result.error is not None:
            texts.append(f"job {job.name}: {result.error.message}")
    return texts


def _state_text(job: Job) -> str:
    """Return a job's state in words, with where its results are once it is over."""
    state = str(job.state).replace("_", " ")
    reason = job.why or job.queue_reason
    reason_clause = f" ({reason})" if reason else ""
    if job.is_open or job.fetched is None:
        return f"{state}{reason_clause}"
    incomplete_note = "" if job.fetched.whole else ", as far as they were copied"
    return f"{state}{reason_clause}; its results are in {job.fetched.directory}{incomplete_note}"
