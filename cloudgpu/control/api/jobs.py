"""The library's methods for jobs: commands that run to their end, and whose results are brought back."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Unpack

from cloudgpu.control.api.namespace import Namespace
from cloudgpu.errors import CloudgpuError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from cloudgpu.control.inputs.periods import Moment
    from cloudgpu.control.jobs.inputs.request import JobOptions, RunRequest
    from cloudgpu.control.jobs.plan import PlannedRun
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.views.documents.jobs.jobs import (
        CancelDocument,
        JobDocument,
        JobPlan,
        JobsDocument,
        PlannedJobDocument,
    )

    JobDocuments = list[JobDocument]  # `list` is a method below


@dataclass(frozen=True, slots=True)
class JobOutput:
    """The output of a job's command, of all attempts in order. Empty for a stream that was written to a file."""

    stdout: bytes
    stderr: bytes


class Jobs(Namespace):
    """`connect().jobs`: run commands to their end, watch them, read their output, cancel them.

    A job is named by its name, key or id: the living job of this name (not closed yet), else the latest. A job only
    proceeds while a process works on it: `run` and `wait` do for theirs, `reap` and `cloudgpu watch` do for all jobs.
    """

    def plan(self, argv: Sequence[str], **options: Unpack[JobOptions]) -> PlannedJobDocument:
        """Return what `run` would do with the same arguments, or the living job that it would follow.

        Stores a snapshot of the workdir in the home; launches nothing. Raises as `run` before it begins, except
        BudgetRefused: `plan["launch"]["budgets"]` says what fits.
        """
        from cloudgpu.control.jobs.listing import find_same_living_job
        from cloudgpu.control.jobs.plan import plan_run

        session, request = self._session, self._parse_request(argv, options)
        job = find_same_living_job(session, request)
        if job is not None:
            return {"plan": None, "existing": self._job_document(job)}
        return {
            "plan": _plan_document(session, plan_run(session, request, self._client_session.environ)),
            "existing": None,
        }

    def run(
        self,
        argv: Sequence[str],
        *,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
        detach: bool = False,
        **options: Unpack[JobOptions],
    ) -> JobDocument:
        """Run a command on a machine of its own, bring its results back, end the machine; return the job.

        This spends money without confirmation: `plan` says how much. A command that fails raises nothing: look at
        `state` and `exit`. Its output is written to the binary files `stdout` and `stderr` while it runs; `logs` has it
        afterwards. With `detach`, return once the command has begun. With the name or key of a living job, follow it.

        Raises InvalidRequest for invalid options or a machine that is busy, BudgetRefused, the errors of its machine's
        launch (NoCapacity, ...), and LedgerUnavailable. KeyboardInterrupt leaves the job running.
        """
        job = self._find_or_request(argv, options)
        try:
            return self._job_document(self._follow(job, stdout, stderr, detach=detach))
        except CloudgpuError:
            self._close_refused(job)
            raise

    def submit(self, argv: Sequence[str], **options: Unpack[JobOptions]) -> JobDocument:
        """Record the request of a job, and return it at once: `wait`, `reap` or `cloudgpu watch` launch its machine.

        So several jobs start in parallel. With the name or key of a living job, return that job. Raises InvalidRequest,
        BudgetRefused, LedgerUnavailable; if its launch fails later, its `state` and `why` say so.
        """
        return self._job_document(self._find_or_request(argv, options))

    def wait(self, *names: str, timeout: timedelta | str | None = None) -> JobDocuments:
        """Work on jobs in parallel until each has ended; without names, on all living jobs. Return them in this order.

        After `timeout` some may still be `living`: they continue. A job that fails raises nothing. Raises
        InstanceNotFound for an unknown job, before anything is done, and LedgerUnavailable.
        """
        from cloudgpu.control.inputs.launch_request import parse_optional_duration
        from cloudgpu.control.jobs.store import job_by_id
        from cloudgpu.control.jobs.watch import living_jobs, reconcile_to_end

        session, max_wait = self._session, parse_optional_duration(timeout, "timeout")
        until = None if max_wait is None else session.clock() + max_wait
        jobs = [self._find(name) for name in names] if names else living_jobs(session)
        reconcile_to_end(session, jobs, self._client_session.environ, until=until)
        return [self._job_document(job_by_id(session, job.id)) for job in jobs]

    def list(self, *, ended: bool = False, mine: bool = False) -> JobsDocument:
        """Return the living jobs (with `ended` all), as last recorded; with `mine` those of the settings' owner."""
        from cloudgpu.control.jobs.listing import list_jobs

        return list_jobs(self._session, ended=ended, mine=mine)

    def show(self, name: str) -> JobDocument:
        """Return one job, also an ended one. Raises InstanceNotFound for an unknown job."""
        return self._job_document(self._find(name))

    def logs(
        self,
        name: str,
        *,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
        follow: bool = False,
        since: Moment | None = None,
    ) -> JobOutput:
        """Return the output of a job's command: from its machine while it runs there, else from the copy here.

        A stream with a binary file is written to it as it arrives; otherwise it is collected in memory. `follow`
        continues until the command has ended, which needs a process that works on the job. `since` is by the machine's
        clock, to the second. Raises InstanceNotFound if this computer has no output of the job, InvalidRequest for an
        invalid time.
        """
        from cloudgpu.config.files.user_files import zone_of
        from cloudgpu.control.inputs.periods import parse_past_moment
        from cloudgpu.control.jobs.logs import logs

        session, out, err = self._session, BytesIO(), BytesIO()
        job, zone = self._find(name), zone_of(session.settings.tz)
        begin = None if since is None else parse_past_moment(since, "--since", session.clock(), zone)
        logs(session, job, stdout or out, stderr or err, follow=follow, since=begin)
        return JobOutput(out.getvalue(), err.getvalue())

    def cancel(self, name: str) -> CancelDocument:
        """End a job's command, bring back its results, end the machine that was launched for it.

        `waits` says why that is not complete: `reap` or `cloudgpu watch` completes it. A job whose command has ended is
        left as it is. Raises InstanceNotFound, RoleNeeded for another member's job, LedgerUnavailable.
        """
        from cloudgpu.control.jobs.cancel import cancel

        return cancel(self._session, name, self._client_session.environ)

    def _find(self, name: str) -> Job:
        from cloudgpu.control.jobs.listing import find

        return find(self._session, name)

    def _job_document(self, job: Job) -> JobDocument:
        from cloudgpu.control.jobs.listing import job_document

        return job_document(self._session, job)

    def _parse_request(self, argv: Sequence[str], options: JobOptions) -> RunRequest:
        from cloudgpu.control.jobs.inputs.request import parse_run

        return parse_run(environ=self._client_session.environ, argv=argv, **options)

    def _find_or_request(self, argv: Sequence[str], options: JobOptions) -> Job:
        """Return the living job of this request, or record a new one."""
        from cloudgpu.control.jobs.listing import find_same_living_job
        from cloudgpu.control.jobs.plan import plan_run, record_request
        from cloudgpu.control.launch.budget_preview import check_budgets

        session, request = self._session, self._parse_request(argv, options)
        job = find_same_living_job(session, request)
        if job is not None:
            return job
        planned = plan_run(session, request, self._client_session.environ)
        if planned.prepared is not None:
            check_budgets(session, planned.prepared)
        session.check_launchable()
        return record_request(session, planned)

    def _follow(self, job: Job, stdout: IO[bytes] | None, stderr: IO[bytes] | None, *, detach: bool) -> Job:
        from cloudgpu.control.jobs.follow import follow, reconcile_until_begun
        from cloudgpu.control.jobs.ports import ForwardedPorts

        session, environ = self._session, self._client_session.environ
        if detach:
            return reconcile_until_begun(session, job, environ)
        with ExitStack() as stack:
            devnull = stack.enter_context(Path(os.devnull).open("wb"))
            stack.enter_context(ForwardedPorts(session, job))
            return follow(session, job, environ, stdout=stdout or devnull, stderr=stderr or devnull)

    def _close_refused(self, job: Job) -> None:
        """Close a job that got no machine, so that its name is free. Raises nothing: its error was raised already."""
        from cloudgpu.control.jobs.reconcile import JobReconciler
        from cloudgpu.control.jobs.store import job_by_id

        with suppress(CloudgpuError):
            if job_by_id(self._session, job.id).outcome is not None:
                with JobReconciler(self._session, job.id, self._client_session.environ) as reconciler:
                    reconciler.reconcile()


def _plan_document(session: Session, planned: PlannedRun) -> JobPlan:
    from cloudgpu.control.launch.budget_preview import build_plan_document as launch_plan_document
    from cloudgpu.core.values.money import usd
    from cloudgpu.views.jobs import notice_document, traffic_document

    request, snapshot = planned.request, planned.snapshot
    return {
        "name": request.name,
        "command": [*request.argv],
        "machine": None if planned.machine is None else planned.machine.name,
        "launch": None if planned.prepared is None else launch_plan_document(session, planned.prepared)["plan"],
        "files": len(snapshot.files),
        "bytes": snapshot.total_bytes,
        "left_out": [{"path": file.path, "bytes": file.size} for file in snapshot.left_out],
        "secrets": [*snapshot.secrets],
        "results": request.results_to or str(request.workdir / request.results / request.name),
        "data": [
            {
                "source": entry.source,
                "target": entry.target,
                "objects": entry.objects,
                "bytes": entry.bytes,
                "region": entry.region,
                "traffic": entry.traffic,
            }
            for entry in planned.data
        ],
        "traffic": None if planned.traffic is None else traffic_document(planned.traffic),
        "notice": None if planned.notice_fit is None else notice_document(planned.notice_fit),
        "planned_max_usd": None if planned.planned_max is None else usd(planned.planned_max),
    }
