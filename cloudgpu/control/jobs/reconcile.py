"""Reconciles jobs: observes one, decides the next step, does it, and repeats that until there is something to wait for.

Any process may do it at any time, on any computer that shares the ledger, while it holds the job's lock. A step that
was done and not recorded, because its process was killed in between, is repeated and has no second effect.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cloudgpu.access.computer import hostname
from cloudgpu.control.jobs import ending, remote_results
from cloudgpu.control.jobs.attempt import (
    check_before_launch,
    find_launched_machine,
    is_connection_lost,
    launch_attempt,
    market_of,
    replacement_event,
    request_end_before_move,
    retry_market,
    start_command,
)
from cloudgpu.control.jobs.buckets.data import check_data_readable
from cloudgpu.control.jobs.deadline.choice import noticed_at
from cloudgpu.control.jobs.notices import show_end, update_machine_alert, update_stall_alert
from cloudgpu.control.jobs.observer import JobObserver
from cloudgpu.control.jobs.slurm.gang import (
    ended_nodes_events,
    has_living_node,
    machine_assigned_events,
    nodes_of,
    terminate_gang,
)
from cloudgpu.control.jobs.store import directory_of, job_by_id, restore_missing_events
from cloudgpu.control.lifecycle.lease import set_hold
from cloudgpu.control.session.guarding import NO_GUARD_OPTION
from cloudgpu.control.spot.history import record_interruption
from cloudgpu.core.events import job_events
from cloudgpu.core.jobs.job import Attempt, Job, State
from cloudgpu.core.jobs.reconcile_result import REQUEUE_LATER, REQUEUE_SOON, ReconcileResult, waiting_text
from cloudgpu.core.jobs.remote_state import Phase
from cloudgpu.core.jobs.steps import JobAction, Step, end_without_machine, is_stopped, next_step
from cloudgpu.core.jobs.waiting import gives_up
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import (
    BudgetRefused,
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    LockBusy,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    Unreachable,
    internal_error,
)

# How long a cancelled command has to end by itself, and Slurm to end a cancelled job, before they are killed.
GRACE_S, SLURM_GRACE_S = 10.0, 120.0
MAX_STEPS = 50  # in one `reconcile`: more would be an endless loop


@dataclass
class JobReconciler(JobObserver):
    """Reconciles one job, like a controller of Kubernetes."""

    def reconcile(self) -> ReconcileResult:
        """Do what can be done now, and return what the job waits for.

        Raises what the launch of a job's first machine raises: the job is over then. Raises LedgerUnavailable.
        """
        try:
            with self.session.lock(f"job-{self.id}", wait=False):
                return self._reconcile()
        except LockBusy:
            return ReconcileResult(job_by_id(self.session, self.id), "Another process manages this job.", REQUEUE_SOON)

    def _reconcile(self) -> ReconcileResult:
        self.remote, self.fetch_failed, self.start_failed, self.sold_out = None, False, False, False
        if not self.ledger_completed:
            restore_missing_events(self.session, self.id)
            self.ledger_completed = True
        for _ in range(MAX_STEPS):
            job = job_by_id(self.session, self.id)
            step = next_step(job, self._observed_state(job), self.session.clock())
            result = self._execute(job, step)
            if result is not None:
                return result
        return ReconcileResult(
            job, internal_error(f"the job makes no progress after {MAX_STEPS} steps").message, REQUEUE_LATER
        )

    def _execute(self, job: Job, step: Step) -> ReconcileResult | None:
        """Execute a step; return what the job waits for then, None where the next step can be taken at once."""
        if step.action is JobAction.WAIT and step.kept_until is None:
            return ReconcileResult(job, step.why, REQUEUE_SOON if job.is_open else REQUEUE_LATER, self.remote)
        try:
            if step.kept_until is not None:
                return self._hold_machine(job, step, step.kept_until)
            action: Callable[[Job, Step], ReconcileResult | None] = getattr(self, f"_execute_{step.action}")
            return action(job, step)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            if isinstance(error, Unreachable):  # it may be gone
                self.close()
                machine = self._machine(job)
                if machine is not None:
                    self._refresh_machine(job, machine)
            if step.action is JobAction.LAUNCH:
                return self._handle_launch_error(job, error)
            return ReconcileResult(job, error.message, REQUEUE_LATER, self.remote, error)

    def _hold_machine(self, job: Job, step: Step, until: datetime) -> ReconcileResult:
        """Hold the machine of a failed job (`--keep`), so that no policy ends it before somebody has looked at it."""
        machine = self._require_machine(job)
        if machine.hold_until is None or from_iso(machine.hold_until) < until.replace(microsecond=0):
            set_hold(self.session, machine, until, is_by_user=False)  # agreed to with the job's --keep
        return ReconcileResult(job, step.why, REQUEUE_LATER, self.remote, kept_until=until)

    def _execute_schedule(self, job: Job, step: Step) -> None:
        """Record the next attempt: with a new launch key, or on the last one's machine where that is still there."""
        last_machine = self._machine(job)
        runs_on = last_machine is not None and last_machine.terminated_at is None and not is_stopped(last_machine)
        if not runs_on:  # the start on one that runs is tried for an hour, then that machine ends
            self._check_can_begin(job)
        if job.attempt is not None:  # nothing was launched for it, and it is to run elsewhere by now
            self._append(replacement_event(job, job.attempt, step, self.session.clock()))
            return
        number, machine = len(job.attempts) + 1, job.spec["machine"]
        key = None if machine is not None else f"{job.id}-{number}"
        if last_machine is not None and runs_on:
            machine, key = last_machine.id, job.attempts[-1].key  # it is tried again where it was
        elif last_machine is not None and key is not None:
            self._terminate_interrupted(job, last_machine)
        market = market_of(step) if machine is None else retry_market(job, last_machine)
        self._append(
            job_events.job_placed(job.id, number, self.session.clock(), key=key, machine=machine, market=market)
        )
        self.remote = None  # it was the state of the last attempt

    def _terminate_interrupted(self, job: Job, machine: Machine) -> None:
        """End an interrupted machine and its resources; what cannot be deleted yet is deleted at the job's end."""
        try:
            self._terminate_gang(job, machine)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            if has_living_node(self.session, machine):
                raise
            self.session.report(f"{job.name}: {error.message}")

    def _terminate_gang(self, job: Job, machine: Machine) -> None:
        ending.terminate(self.session, job, machine)
        self.removed_machine_ids.update(node.id for node in nodes_of(self.session, machine))

    def _execute_launch(self, job: Job, _step: Step) -> ReconcileResult | None:
        """Launch the machine of the open attempt, and record it."""
        attempt = job.attempts[-1]
        try:
            # The attempt may have been scheduled on another computer.
            check_before_launch(self.session, job, attempt, lambda: self._check_can_begin(job))
            check_before_launch(self.session, job, attempt, lambda: check_data_readable(self.session, job))
        except InvalidRequest as error:
            return ReconcileResult(job, error.message, REQUEUE_LATER, None, error)
        machine = launch_attempt(self.session, job, attempt)
        if machine is None:  # it was cancelled before anything was launched
            why = job.cancel[1] if job.cancel else ""
            self._append(self._end_event(job, Step(JobAction.END, why, State.CANCELLED)))
        else:
            self._append(*machine_assigned_events(self.session, job, attempt, machine, self.session.clock()))
            self._clear_secret_alert(job)
        if job.waits is not None or job.deadline is not None or any(attempt.nothing_made for attempt in job.attempts):
            update_machine_alert(self.session, job, None)
        return None

    def _handle_launch_error(self, job: Job, error: CloudgpuError) -> ReconcileResult:
        """Return why a machine could not be launched. Where the first one is refused, end the job and raise the error.

        An error that may pass is waited out, for a day at most; with a deadline, until a day after that.
        """
        attempt, now = job.attempts[-1], self.session.clock()
        machine = find_launched_machine(self.session, job, attempt)
        if (
            machine is not None and machine.cluster_node is not None and has_living_node(self.session, machine)
        ):  # settled later
            return ReconcileResult(job, error.message, REQUEUE_LATER, None, error)
        is_given_up = gives_up(job, now)
        is_final = not isinstance(error, ProviderUnavailable) or is_given_up
        self._append(*ended_nodes_events(self.session, job, attempt, now))
        if machine is not None:
            self._append(*machine_assigned_events(self.session, job, attempt, machine, now))
            # Its image lacks Slurm, or its nodes differ in versions, clocks or user ids: a person has to look first.
            if machine.cluster_node is not None and isinstance(error, InvalidRequest):
                self._append(self._end_event(job, Step(JobAction.END, error.message, State.NOT_LAUNCHED)))
            update_machine_alert(self.session, job, None)
            self._clear_secret_alert(job)
        elif job.deadline is not None and isinstance(error, (NoCapacity, QuotaExceeded)) and not is_given_up:
            return self._requeue_sold_out(job, attempt, error)
        elif attempt.number == 1 and is_final:
            end_step = Step(JobAction.END, error.message, State.NOT_LAUNCHED)
            if is_given_up and job.deadline is not None:
                end_step = end_without_machine(job, error.message, now)
            self._append(self._end_event(job, end_step))
            self._append(*ending.close_job(self.session, job_by_id(self.session, self.id), None, error.message))
            raise error
        elif is_given_up or (isinstance(error, (BudgetRefused, InvalidRequest)) and error.field != NO_GUARD_OPTION):
            self._append(self._end_event(job, end_without_machine(job, error.message, now)))
        else:
            self._append(job_events.job_waits(job.id, attempt.number, error.message, now))
            update_machine_alert(self.session, job_by_id(self.session, self.id), error.message)
        return ReconcileResult(job_by_id(self.session, self.id), error.message, REQUEUE_LATER, None, error)

    def _requeue_sold_out(self, job: Job, attempt: Attempt, error: CloudgpuError) -> ReconcileResult:
        """Have a job with a deadline choose a market again at the next run; raise an alert if on demand is sold out."""
        if attempt.market != "on_demand":
            return ReconcileResult(job, error.message, REQUEUE_SOON, None, error)
        if attempt.waits is None:
            self._append(job_events.job_waits(job.id, attempt.number, error.message, self.session.clock()))
        update_machine_alert(self.session, job, error.message)
        return ReconcileResult(job_by_id(self.session, self.id), error.message, REQUEUE_LATER, None, error)

    def _execute_start(self, job: Job, _step: Step) -> ReconcileResult | None:
        """Begin the command on its machine, if this computer has the job's secrets; else wait for one that has."""
        self._clear_secret_alert(job)
        remote = self.remote_job(job, self._require_machine(job))
        try:
            self.remote = start_command(self.session, job, remote, lambda: self._secret_values(job), self._append)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            is_first_try = job.attempts[-1].stuck is None  # its wait begins now, whatever an earlier attempt waited for
            if is_first_try or is_connection_lost(error) or not gives_up(job, self.session.clock()):
                raise
            self.start_failed = True
        return None

    def _execute_watch(self, job: Job, _step: Step) -> ReconcileResult | None:
        """Record what the running command does, and copy what it wrote where that is due."""
        remote, attempt = self.remote, job.attempts[-1]
        if remote is None:
            return None
        if remote.phase in (Phase.RUNNING, Phase.ORPHANED):
            self._record_begin(attempt, remote)
        self._record_slurm_state(job, remote)
        self._record_progress(job, remote)
        if job.spec["stall_s"] is not None:
            last_output_s = remote.last_output_at
            update_stall_alert(
                self.session,
                job,
                None if last_output_s is None else datetime.fromtimestamp(last_output_s, UTC),
                remote.progress,
            )
        machine = self._machine(job)
        if machine is not None:
            with self._recording_work(job, remote):
                remote_results.sync_if_due(self.session, job, lambda: self.remote_job(job, machine), remote)
            self._record_upload(job, remote)
        return ReconcileResult(job_by_id(self.session, self.id), waiting_text(remote), REQUEUE_SOON, remote)

    def _execute_cancel(self, job: Job, step: Step) -> ReconcileResult:
        """Record that the command is to end, if that is new, and have its machine end it."""
        outcome = job.cancel[0] if job.cancel else (step.outcome or State.CANCELLED).value
        if job.cancel is None:
            self._append(job_events.job_cancel_requested(job.id, outcome, step.why, hostname(), self.session.clock()))  # type: ignore[arg-type]
        machine = self._require_machine(job)
        grace_s = SLURM_GRACE_S if job.slurm_record else GRACE_S  # a killed command could not cancel its job in Slurm
        self.remote_job(job, machine).cancel(outcome, grace_s=grace_s)
        return ReconcileResult(job, "its command is being ended", timedelta(seconds=1), self.remote)

    def _execute_move(self, job: Job, step: Step) -> ReconcileResult | None:
        """End the command, make a last copy, then end its machine and confirm that: the job continues on another."""
        attempt, now = job.attempts[-1], self.session.clock()
        if attempt.move is None:
            self._append(
                job_events.job_move_requested(
                    job.id, attempt.number, market_of(step), step.why, now, interrupted=step.interrupted
                )
            )
            return None
        if not attempt.move.interrupted:
            self._check_can_begin(job)
        machine = self._require_machine(job)
        if machine.state == "running" and self.remote is not None:
            with suppress(Unreachable, InvalidRequest):  # then the job continues from the last copy
                if request_end_before_move(self.remote_job(job, machine), self.remote, now - attempt.move.at):
                    return ReconcileResult(
                        job, "its command is being ended, and continues elsewhere", timedelta(seconds=1)
                    )
                wait_reason = self._make_last_copy(job, machine, self.remote)
                if wait_reason is not None:
                    return ReconcileResult(job, wait_reason, timedelta(seconds=1), self.remote)
        self.close()
        terminate_gang(self.session, machine, f"the job {job.name} continues elsewhere: {step.why}")
        self.remote = None
        return None

    def _execute_retry(self, job: Job, step: Step) -> ReconcileResult | None:
        """Copy what the attempt wrote and record that it is over; the next step is another attempt."""
        machine, now = self._machine(job), self.session.clock()
        if machine is not None and machine.state == "running" and self.remote is not None:
            wait_reason = self._make_last_copy(job, machine, self.remote)
            if wait_reason is not None:
                return ReconcileResult(job, wait_reason, timedelta(seconds=1), self.remote)
        self._record_stored_work(job)
        attempt, status = job.attempts[-1], None if step.exit is None else step.exit.status
        if machine is not None and step.interrupted:
            for node in nodes_of(self.session, machine):
                record_interruption(self.session, node, noticed_at(directory_of(self.session, job), attempt))
            if job.deadline is not None and machine.terminated_at is not None and attempt.key is not None:
                self._terminate_interrupted(job, machine)  # it may be long before the job gets another one
        also: job_events.Flag | None = "moved" if attempt.move is not None and not step.interrupted else None
        self._append(
            job_events.job_try_ended(
                job.id,
                attempt.number,
                now,
                interrupted=step.interrupted,
                status=status,
                why=step.why,
                also="nothing_made" if step.nothing_made else also,
            )
        )
        if step.nothing_made and len(job.attempts) > 1 and job.attempts[-2].nothing_made:
            update_machine_alert(self.session, job_by_id(self.session, job.id), f"{step.why[0].upper()}{step.why[1:]}.")
        self.remote = None
        return None

    def _execute_end(self, job: Job, step: Step) -> None:
        """Record the last state of the command, and that the job is over."""
        remote = self.remote
        if remote is not None:
            if job.attempts:
                self._record_begin(job.attempts[-1], remote)
            self._record_slurm_state(job, remote)
            self._record_progress(job, remote, is_last=True)
        elif self.results is not None:
            self._append(*remote_results.started_events(self.session, job, self.results))
        self._append(self._end_event(job, step))

    def _execute_fetch(self, job: Job, _step: Step) -> ReconcileResult | None:
        """Fetch the results of the ended command, or have the machine upload them to their bucket."""
        machine = self._require_machine(job)
        try:
            event = ending.fetch_results(self.session, job, machine, lambda: self.remote_job(job, machine))
            if event is None:
                return ReconcileResult(job, "its results are being uploaded", timedelta(seconds=1))
            self._append(event)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            self._append(*ending.cannot_store_results_events(self.session, job, error))
            self.fetch_failed = True
            if next_step(job, self._observed_state(job), self.session.clock()).action is not JobAction.STOP:
                raise
        return None

    def _execute_record_stored(self, job: Job, _step: Step) -> None:
        """Record that the results are complete in their bucket."""
        machine = self._machine(job)
        is_running = machine is not None and machine.state == "running"
        remote = (lambda: self.remote_job(job, self._require_machine(job))) if is_running else None
        if self.results is not None:
            self._append(*remote_results.bucket_results_fetched(self.session, job, self.results, remote))

    def _execute_resume(self, job: Job, step: Step) -> None:
        """Start the stopped machine again, to fetch the results that are on it."""
        machine, now = self._require_machine(job), self.session.clock()
        event = job_events.job_resumed(job.id, job.attempts[-1].number, job.resumes + 1, machine.id, step.why, now)
        try:
            ending.resume(self.session, job, machine)
        except (NoCapacity, QuotaExceeded):  # nothing was started, so it does not count
            self.sold_out = True
            if next_step(job, self._observed_state(job), now).action is JobAction.RESUME:
                raise
            return
        except CloudgpuError as error:  # refused here, nothing was asked of the cloud: to try again costs nothing
            if not isinstance(error, (LedgerUnavailable, BudgetRefused)) and error.field != NO_GUARD_OPTION:
                self._append(event)
            raise
        self._append(event)

    def _execute_stop(self, job: Job, step: Step) -> None:
        """Stop the machine with results that could not be fetched in time, and record that."""
        machine = self._require_machine(job)
        self.close()
        ending.stop(self.session, job, machine, step.why)
        self._append(ending.results_not_fetched_event(self.session, job, step.why))

    def _execute_terminate(self, job: Job, _step: Step) -> None:
        self.close()
        self._terminate_gang(job, self._require_machine(job))

    def _execute_close(self, job: Job, step: Step) -> None:
        """Clean up after the job and record that it is closed."""
        machine, is_launched = self._machine(job), job.spec["machine"] is None
        remote = None
        for launched in self._launched_machines(job):
            if launched.terminated_at is not None and launched.id not in self.removed_machine_ids:
                self._terminate_gang(job, launched)  # its disk, or its timer, may be there
        if machine is not None and not is_launched and machine.state == "running":
            with suppress(CloudgpuError):  # the next job there cleans up, too
                remote = self.remote_job(job, machine)
                self._dequeue_from_slurm(job)
                self._record_external_jobs(job)
        self._append(*ending.close_job(self.session, job, remote, step.why))
        show_end(self.session, job_by_id(self.session, self.id), self.environ)

    def _execute_observe(self, job: Job, _step: Step) -> ReconcileResult:
        """Wait for a run of the reaper to query the machine."""
        return ReconcileResult(job, "Its machine has not been queried yet.", REQUEUE_SOON)
