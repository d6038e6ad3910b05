"""What the library does with jobs: commands that are run to their end, with their results brought back."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Unpack

from cloudgpu.control.api.capability import Capability
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
    """What a job's command has written, all attempts one after the other. A stream that went to a file is empty."""

    stdout: bytes
    stderr: bytes


class Jobs(Capability):
    """`connect().jobs`: run commands to their end, watch them, read their output, cancel them.

    A job is named by its name, key or id: the one that lives, else the latest. Somebody has to carry a job on: `run`
    and `wait` do while they last, `reap` and `cloudgpu watch` do for all.
    """

    def plan(self, argv: Sequence[str], **asked: Unpack[JobOptions]) -> PlannedJobDocument:
        """Return what `run` would do with the same arguments, or the living job that it would follow.

        Keeps a snapshot of the workdir in the home; launches nothing. Raises what `run` raises before it begins, but
        BudgetRefused: `plan["launch"]["budgets"]` says what fits.
        """
        from cloudgpu.control.jobs.listing import attached
        from cloudgpu.control.jobs.plan import plan_run

        session, request = self._session, self._request(argv, asked)
        job = attached(session, request)
        if job is not None:
            return {"plan": None, "existing": self._job(job)}
        return {"plan": _plan_value(session, plan_run(session, request, self._opened.environ)), "existing": None}

    def run(
        self,
        argv: Sequence[str],
        *,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
        detach: bool = False,
        **asked: Unpack[JobOptions],
    ) -> JobDocument:
        """Run a command on a machine of its own, bring its results back, end the machine; return the job.

        This spends money without asking: `plan` says how much. A command that fails raises nothing: look at `state` and
        `exit`. What it writes goes to the binary files `stdout` and `stderr` while it runs; `logs` has it afterwards.
        With `detach`, return once the command has begun. The name or key of a living job follows that job.

        Raises InvalidRequest for what cannot be meant or is busy, BudgetRefused, what the launch of its machine raises
        (NoCapacity, ...), and LedgerUnavailable. KeyboardInterrupt leaves the job running.
        """
        job = self._begun(argv, asked)
        try:
            return self._job(self._follow(job, stdout, stderr, detach=detach))
        except CloudgpuError:
            self._close_refused(job)
            raise

    def submit(self, argv: Sequence[str], **asked: Unpack[JobOptions]) -> JobDocument:
        """Write that a job is wanted, and return it at once: `wait`, `reap` or `cloudgpu watch` launch its machine.

        So several start side by side. The name or key of a living job returns that job. Raises InvalidRequest,
        BudgetRefused, LedgerUnavailable; what its launch meets later is its `state` and `why`.
        """
        return self._job(self._begun(argv, asked))

    def wait(self, *names: str, timeout: timedelta | str | None = None) -> JobDocuments:
        """Carry jobs on, side by side, until nothing is left to do for any of them; without names, all that live.

        Return them as they stand then, in this order. After `timeout` some have `living`: they go on. A job that fails
        raises nothing. Raises InstanceNotFound for one that there is not, before anything is done, and
        LedgerUnavailable.
        """
        from cloudgpu.control.inputs.launch_request import duration
        from cloudgpu.control.jobs.store import the_job
        from cloudgpu.control.jobs.watch import living, reconcile_to_end

        session, span = self._session, duration(timeout, "timeout")
        until = None if span is None else session.clock() + span
        jobs = [self._find(name) for name in names] if names else living(session)
        reconcile_to_end(session, jobs, self._opened.environ, until=until)
        return [self._job(the_job(session, job.id)) for job in jobs]

    def list(self, *, ended: bool = False, mine: bool = False) -> JobsDocument:
        """Return the living jobs (with `ended` every one), as last seen; with `mine` those of the settings' owner."""
        from cloudgpu.control.jobs.listing import list_jobs

        return list_jobs(self._session, ended=ended, mine=mine)

    def show(self, name: str) -> JobDocument:
        """Return one job, ended ones too; raise InstanceNotFound for one that there is not."""
        return self._job(self._find(name))

    def logs(
        self,
        name: str,
        *,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
        follow: bool = False,
        since: Moment | None = None,
    ) -> JobOutput:
        """Return what a job's command has written: from its machine while it runs there, else from the copy here.

        A stream for which there is a binary file goes there piece by piece; the other is held in memory. `follow` goes
        on until the command is over, and needs somebody who carries the job on. `since` goes by the machine's clock,
        to the second. Raises InstanceNotFound where this computer has no output of it,
        InvalidRequest for a time that is none.
        """
        from cloudgpu.config.files.user_files import zone_of
        from cloudgpu.control.inputs.periods import moment_of
        from cloudgpu.control.jobs.logs import logs

        session, out, err = self._session, BytesIO(), BytesIO()
        job, zone = self._find(name), zone_of(session.settings.tz)
        begin = None if since is None else moment_of(since, "--since", session.clock(), zone)
        logs(session, job, stdout or out, stderr or err, follow=follow, since=begin)
        return JobOutput(out.getvalue(), err.getvalue())

    def cancel(self, name: str) -> CancelDocument:
        """End a job's command, bring back its results, end its machine; a machine that was there stays.

        `waits` says why it is not over yet: whoever watches ends it then. One whose command is over is left as it is.
        Raises InstanceNotFound, RoleNeeded where it is somebody else's, LedgerUnavailable.
        """
        from cloudgpu.control.jobs.cancel import cancel

        return cancel(self._session, name, self._opened.environ)

    def _find(self, name: str) -> Job:
        from cloudgpu.control.jobs.listing import find

        return find(self._session, name)

    def _job(self, job: Job) -> JobDocument:
        from cloudgpu.control.jobs.listing import job_value

        return job_value(self._session, job)

    def _request(self, argv: Sequence[str], options: JobOptions) -> RunRequest:
        from cloudgpu.control.jobs.inputs.request import parse_run

        return parse_run(environ=self._opened.environ, argv=argv, **options)

    def _begun(self, argv: Sequence[str], options: JobOptions) -> Job:
        """Return the job that is written down: the living one that is meant, else a new one."""
        from cloudgpu.control.jobs.listing import attached
        from cloudgpu.control.jobs.plan import plan_run, record_request
        from cloudgpu.control.launch.budget_preview import check_budgets

        session, request = self._session, self._request(argv, options)
        job = attached(session, request)
        if job is not None:
            return job
        planned = plan_run(session, request, self._opened.environ)
        if planned.prepared is not None:
            check_budgets(session, planned.prepared)
        session.check_launchable()
        return record_request(session, planned)

    def _follow(self, job: Job, stdout: IO[bytes] | None, stderr: IO[bytes] | None, *, detach: bool) -> Job:
        from cloudgpu.control.jobs.follow import follow, reconcile_until_begun
        from cloudgpu.control.jobs.ports import ForwardedPorts

        session, environ = self._session, self._opened.environ
        if detach:
            return reconcile_until_begun(session, job, environ)
        with ExitStack() as stack:
            nowhere = stack.enter_context(Path(os.devnull).open("wb"))
            stack.enter_context(ForwardedPorts(session, job))
            return follow(session, job, environ, stdout=stdout or nowhere, stderr=stderr or nowhere)

    def _close_refused(self, job: Job) -> None:
        """Settle a job that got no machine, so that its name is free; what can be raised was raised."""
        from cloudgpu.control.jobs.reconcile import JobReconciler
        from cloudgpu.control.jobs.store import the_job

        with suppress(CloudgpuError):
            if the_job(self._session, job.id).outcome is not None:
                with JobReconciler(self._session, job.id, self._opened.environ) as carrier:
                    carrier.reconcile()


def _plan_value(session: Session, planned: PlannedRun) -> JobPlan:
    from cloudgpu.control.launch.budget_preview import plan_document as launch_of
    from cloudgpu.core.values.money import usd
    from cloudgpu.views.jobs import notice_value, traffic_value

    request, snapshot = planned.request, planned.snapshot
    return {
        "name": request.name,
        "command": [*request.argv],
        "machine": None if planned.machine is None else planned.machine.name,
        "launch": None if planned.prepared is None else launch_of(session, planned.prepared)["plan"],
        "files": len(snapshot.files),
        "bytes": snapshot.total_bytes,
        "left_out": [{"path": one.path, "bytes": one.size} for one in snapshot.left_out],
        "secrets": [*snapshot.secrets],
        "results": request.results_to or str(request.workdir / request.results / request.name),
        "data": [
            {
                "source": one.source,
                "target": one.target,
                "objects": one.objects,
                "bytes": one.bytes,
                "region": one.region,
                "traffic": one.traffic,
            }
            for one in planned.data
        ],
        "traffic": None if planned.traffic is None else traffic_value(planned.traffic),
        "notice": None if planned.fit is None else notice_value(planned.fit),
        "planned_max_usd": None if planned.planned_max is None else usd(planned.planned_max),
    }
