"""What a watcher of one job knows of it: its machine, the connection to it, and what was seen there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from shlex import quote
from types import TracebackType
from typing import Self

from cloudgpu.access.jobs.remote import RemoteJob
from cloudgpu.access.ssh.connection import Connection
from cloudgpu.control.access.reach import open_connection
from cloudgpu.control.cost.cost import job_spent
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.jobs import remote_results
from cloudgpu.control.jobs.attempt import has_files, may_have_launched, packed_files_of, settle_launch
from cloudgpu.control.jobs.buckets.data import check_data_readable
from cloudgpu.control.jobs.buckets.results import job_bucket
from cloudgpu.control.jobs.deadline.choice import choice_of, recording_saved_work
from cloudgpu.control.jobs.inputs.env_file import missing_secrets, secret_values
from cloudgpu.control.jobs.notices import update_secret_alert
from cloudgpu.control.jobs.slurm.events import append_external_jobs, slurm_state_event
from cloudgpu.control.jobs.slurm.gang import refresh_nodes, silent_node_name
from cloudgpu.control.jobs.store import append, directory_of
from cloudgpu.control.session.session import Session
from cloudgpu.core.clusters.layout import engine_paths
from cloudgpu.core.events import job_events
from cloudgpu.core.events.log import Draft
from cloudgpu.core.jobs.deadline import MarketChoice, stored_work
from cloudgpu.core.jobs.job import Attempt, Job, State
from cloudgpu.core.jobs.remote_state import RemoteState
from cloudgpu.core.jobs.steps import ObservedState, Step, has_failed
from cloudgpu.core.jobs.stored import StoredResults
from cloudgpu.core.model.machine import Machine
from cloudgpu.errors import CloudgpuError, LedgerUnavailable, ProviderUnavailable
from cloudgpu.providers.shared.calls import result_or_error

NODE_QUERY_EVERY = timedelta(seconds=30)  # between two questions about the other nodes of a gang
PROGRESS_EVERY = timedelta(minutes=10)  # how often progress is written to the ledger
# How long a failed command waits for its provider to report the loss of a node that does not answer.
LOST_AFTER = timedelta(minutes=3)


@dataclass
class JobObserver:
    """Observes one job. `environ` has the values of its secrets; the connection to its machine stays open."""

    session: Session
    id: str
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    connection: Connection | None = None
    connected_machine_id: str | None = None  # the id of that machine
    remote: RemoteState | None = None  # what the machine last reported of the attempt
    fetch_failed: bool = False  # whether a fetch of the results has just failed
    results: StoredResults | None = None  # those that are complete in the job's bucket
    ledger_completed: bool = False  # whether the ledger has all events of the job that this computer has
    start_failed: bool = False  # whether its machine could not begin it just now
    sold_out: bool = False  # whether its stopped machine could not be started now, for want of capacity or quota
    has_files: bool = False  # whether this computer could begin the job on another machine
    # When the last upload was made of which the ledger knows the work: seconds since 1970 by the machine's clock.
    recorded_upload_at: float | None = None
    # Machines of which this process has confirmed that nothing is left.
    removed_machine_ids: set[str] = field(default_factory=set)
    nodes_queried_at: datetime | None = None  # when the other nodes of a gang were asked about
    node_silent_since: datetime | None = None  # since when the command is over, and one of them does not answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the job's machine."""
        if self.connection is not None:
            self.connection.close()
        self.connection = self.connected_machine_id = None

    def _observed_state(self, job: Job) -> ObservedState:
        """Return what is known of a job now; the machine of its open attempt is asked, if that runs."""
        machine = self._machine(job)
        silence_reason = None
        is_open = job.outcome is None and job.attempt is not None  # its command is not known to be over
        if machine is not None and machine.state == "running" and self.remote is None and is_open:
            try:
                self.remote = self.remote_job(job, machine).state()
            except CloudgpuError as error:  # after any error, nothing is known of what runs there
                self.close()
                machine, silence_reason = self._refresh_machine(job, machine), error.message
        if machine is not None and machine.state in ("pending", "unknown"):
            machine = self._refresh_machine(job, machine)
            silence_reason = silence_reason or f"{machine.name} is {machine.state}"
        other_nodes, doubt_reason = self._other_nodes(job, machine)
        self.results, unread_reason = remote_results.find_stored_results(self.session, job, machine)
        return ObservedState(
            machine,
            remote=self.remote,
            why_silent=silence_reason,
            spent=None if job.spec["max_cost"] is None else job_spent(self.session, job),
            fetch_failed=self.fetch_failed,
            start_failed=self.start_failed,
            sold_out=self.sold_out,
            stored=self.results,
            why_bucket_unread=unread_reason,
            choice=self._placement_choice(job, machine),
            launch_was_sent=may_have_launched(self.session, job),
            other_nodes=other_nodes,
            why_node_doubtful=doubt_reason,
        )

    def _placement_choice(self, job: Job, machine: Machine | None) -> MarketChoice | None:
        """Return where a job with a deadline is to run now; None for another one, and for one that is over.

        None, too, on a computer that could not begin it there: it leaves the job where it is.
        """
        if job.deadline is None or job.outcome is not None:
            return None
        self.has_files = self.has_files or has_files(self.session, job)
        # It may run well, though its machine does not answer this computer.
        if not self.has_files and machine is not None and self.remote is None:
            return None
        choice = choice_of(self.session, job, machine, self.remote, directory_of(self.session, job))
        leaves = machine is not None and job.attempt is not None and choice.mode != job.attempt.market
        if not self.has_files:
            return None
        if (leaves or choice.moves) and result_or_error(check_data_readable, self.session, job) is not None:
            return None
        only_waits = machine is None and choice.mode == "wait"
        return choice if only_waits or not missing_secrets(job.spec, self.environ) else None

    def _check_can_begin(self, job: Job) -> None:
        """Raise InvalidRequest on a computer that lacks the files of a job or its secrets: it could not begin it.

        So it launches no machine, which would be billed until another computer begins the job there.
        """
        packed_files_of(self.session, job)
        self._secret_values(job)

    def _secret_values(self, job: Job) -> dict[str, str]:
        """Return the values of a job's secrets; raise InvalidRequest where some are missing here, and alert people.

        The alert is not cleared: while there is no capacity, computers with and without them would do so in turn.
        """
        missing = missing_secrets(job.spec, self.environ)
        if missing:
            update_secret_alert(self.session, job, missing)
        return secret_values(job.spec, self.environ)

    def _clear_secret_alert(self, job: Job) -> None:
        """Clear the alert that a job waits for secrets, where it has a machine and this computer has them."""
        has_secrets = job.spec["secrets"] or job.spec["env_file"] is not None
        if has_secrets and not missing_secrets(job.spec, self.environ):
            update_secret_alert(self.session, job, ())

    def _machine(self, job: Job) -> Machine | None:
        """Return the machine of the open attempt, else of the last one; None where there is none."""
        attempt = job.attempt or (job.attempts[-1] if job.attempts else None)
        return None if attempt is None or attempt.machine is None else self.session.ledger.machine(attempt.machine)

    def _other_nodes(self, job: Job, machine: Machine | None) -> tuple[tuple[Machine, ...], str | None]:
        """Return the other nodes of a gang, and why it is not known whether one of them is lost; None for no doubt.

        Their provider is asked every NODE_QUERY_EVERY, and whenever the command has failed or does not answer.
        """
        attempt = job.attempts[-1] if job.attempts else None
        ids = () if attempt is None or machine is None else (id_ for id_ in attempt.members if id_ != machine.id)
        nodes = tuple(filter(None, map(self.session.ledger.machine, ids)))
        now, remote = self.session.clock(), self.remote
        if not nodes or job.outcome is not None or job.attempt is None:
            return nodes, None
        is_failure = has_failed(remote)
        if (
            remote is None
            or is_failure
            or self.nodes_queried_at is None
            or now - self.nodes_queried_at >= NODE_QUERY_EVERY
        ):
            nodes, self.nodes_queried_at = refresh_nodes(self.session, nodes), now
        silent_name = silent_node_name(self.session, nodes) if is_failure else None
        self.node_silent_since = None if silent_name is None else self.node_silent_since or now
        if silent_name is None or self.node_silent_since is None or now - self.node_silent_since >= LOST_AFTER:
            return nodes, None
        return nodes, f"its command failed, and {silent_name} does not answer: it may be lost"

    def _require_machine(self, job: Job) -> Machine:
        """Return the machine of a job for a decision (`Step`) that is only made where there is one."""
        machine = self._machine(job)
        if machine is None:
            raise ProviderUnavailable(f"The ledger lost the machine of {job.name}.", field="ledger", value=job.name)
        return machine

    def _refresh_machine(self, job: Job, machine: Machine) -> Machine:
        """Return a machine as its provider has it now, or as the ledger has it where that cannot be found out.

        Of an interrupted launch it is first settled whether it made the machine.
        """
        try:
            settled = settle_launch(self.session, job, machine)
            return refresh(self.session, settled) if settled.provider_id and settled.terminated_at is None else settled
        except LedgerUnavailable:
            raise
        except CloudgpuError:
            return self.session.ledger.machine(machine.id) or machine

    def remote_job(self, job: Job, machine: Machine) -> RemoteJob:
        """Return the open attempt on its machine, over a connection that stands. Raises Unreachable."""
        if self.connection is None or self.connected_machine_id != machine.id or not self.connection.is_open:
            self.close()
            self.connection, self.connected_machine_id = open_connection(self.session, machine), machine.id
        return RemoteJob(self.connection, job.id, job.attempts[-1].number)

    def _append(self, *drafts: Draft) -> None:
        append(self.session, self.id, drafts)

    def _launched_machines(self, job: Job) -> list[Machine]:
        """Return the machines that were launched for a job."""
        ids = job.machines if job.spec["machine"] is None else ()
        return [
            machine for machine in map(self.session.ledger.machine, ids) if machine is not None and machine.provider_id
        ]

    def _recording_work(self, job: Job, state: RemoteState) -> AbstractContextManager[None]:
        """Return a context in which results are copied here; its end records the work in their newest checkpoint.

        It records only for a job with a deadline, and not on a computer without the job's files: that could not begin
        it on another machine with those copies.
        """
        if not self.has_files:
            return nullcontext()

        def write(checkpoint: str, work_s: float) -> None:
            self._append(
                job_events.job_work_saved(job.id, job.attempts[-1].number, checkpoint, work_s, self.session.clock())
            )

        return recording_saved_work(job, state, directory_of(self.session, job), write)

    def _record_stored_work(self, job: Job) -> None:
        """Record how much of its work the bucket of a job with a deadline holds, where that is more than was known.

        Record nothing where the bucket cannot be read: then less work counts as done than was done, until the next
        upload. There is one at each `--every`, also where nothing is new.
        """
        if job.deadline is None:
            return
        try:
            bucket = job_bucket(self.session, job)
            newest_list = None if bucket is None else bucket.state(len(job.attempts))  # parsed, and as it was read
        except LedgerUnavailable:
            raise
        except CloudgpuError:
            return
        saved = None if newest_list is None else stored_work(job, newest_list[0], self.session.clock())
        if saved is not None and saved[1] > (0.0 if job.saved is None else job.saved.work_s):  # seconds of work
            # Under the number of the last attempt; the checkpoint may be of an earlier one.
            self._append(job_events.job_work_saved(job.id, len(job.attempts), *saved))

    def _record_upload(self, job: Job, state: RemoteState) -> None:
        """Record the work in an upload that is newer than the last one that was recorded."""
        uploaded_at = None if state.uploads is None else state.uploads.at
        if uploaded_at not in (None, self.recorded_upload_at):
            self._record_stored_work(job)
            self.recorded_upload_at = uploaded_at

    def _record_slurm_state(self, job: Job, state: RemoteState) -> None:
        """Record the state of a job in Slurm, where it has changed."""
        slurm = job.slurm_record
        if slurm is None or state.engine is None or not job.attempts:
            return
        nodes = filter(None, map(self.session.ledger.machine, slurm["members"]))
        event = slurm_state_event(job, state.engine, {node.name: node.id for node in nodes}, self.session.clock())
        if event is not None:
            self._append(event)

    def _record_begin(self, attempt: Attempt, remote: RemoteState) -> None:
        """Record when the command of an attempt began, where the ledger does not have it."""
        if attempt.began_at is None and remote.started_at is not None:
            began_at = self._local_time(remote, remote.started_at)
            self._append(job_events.job_began(self.id, attempt.number, remote.setup_s, began_at))

    def _record_progress(self, job: Job, remote: RemoteState, *, is_last: bool = False) -> None:
        """Record new progress of a command, once in PROGRESS_EVERY; at once if the command is over (`is_last`)."""
        progress, now = remote.progress, self.session.clock()
        if progress is None or (job.progress is not None and job.progress[:2] == progress):
            return
        if is_last or job.progress is None or now - job.progress[2] >= PROGRESS_EVERY:
            self._append(job_events.job_progressed(job.id, len(job.attempts), *progress, now))

    def _end_event(self, job: Job, step: Step) -> Draft:
        """Return the event that a job is over, with the outcome and the exit of its command that this decision gives.

        A `Step` is a decision of the watcher, not a step of Slurm.
        """
        command_exit, ended_at = step.exit, self.session.clock()
        status = signal = None
        if command_exit is not None:
            status, signal = command_exit.status, command_exit.signal
            ended_at = remote_results.capped_at_now(self.session, command_exit.ended_at)
            if self.remote is not None:
                ended_at = self._local_time(self.remote, command_exit.ended_at)
        outcome = (step.outcome or State.FAILED).value
        exit_ = {"status": status, "signal": signal, "is_machine_time": command_exit is not None}
        return job_events.job_ended(job.id, len(job.attempts), outcome, ended_at, **exit_, why=step.why)  # type: ignore[arg-type]

    def _record_external_jobs(self, job: Job) -> None:
        """Record the jobs that people submitted to the cluster's Slurm themselves, by the completion log on node 0."""
        members = job.slurm_record["members"] if job.slurm_record else ()
        nodes = list(filter(None, map(self.session.ledger.machine, members)))
        if nodes and self.connection is not None:
            append_external_jobs(self.session, self.connection, nodes)

    def _dequeue_from_slurm(self, job: Job) -> None:
        """Cancel in Slurm a job that is lost to cloudgpu, and that Slurm may still have in its queue."""
        slurm = job.slurm_record
        if slurm is None or job.outcome is not State.LOST or job.slurm_id is None or self.connection is None:
            return
        conf_clause = (
            "" if slurm["cluster"] is None else f'export SLURM_CONF="$HOME/{engine_paths(slurm["cluster"]).conf}"; '
        )
        shell = "sh -c" if conf_clause else '"${SHELL:-sh}" -lc'
        self.connection.capture(f"{shell} {quote(f'{conf_clause}scancel {quote(job.slurm_id)}')}", timeout=60)

    def _make_last_copy(self, job: Job, machine: Machine, state: RemoteState) -> str | None:
        """Copy what an attempt has written; return what the next one must wait for, in words, or None.

        Raises InvalidRequest on a computer without the job's files: the next attempt begins where the copies are.
        """
        if not remote_results.stores_remotely(job):
            packed_files_of(self.session, job)
        with self._recording_work(job, state):
            return remote_results.last_copy(self.session, job, self.remote_job(job, machine), state)

    def _local_time(self, remote: RemoteState, epoch_s: float) -> datetime:
        """Return a time of the machine's clock (seconds since 1970) by this computer's: they may differ by hours."""
        return self.session.clock() - timedelta(seconds=max(0.0, remote.now - epoch_s))
