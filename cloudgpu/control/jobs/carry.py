"""Carries jobs on: asks what comes next for one, does it, and asks again until there is something to wait for.

Any process may do it at any time, on any computer that shares the ledger: one at a time holds the job's lock. What was
done and not written down, because a process was killed in between, is done again and has no second effect.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.access.computer import node
from cloudgpu.control.access.reach import open_connection
from cloudgpu.control.cost.job_cost import job_spent
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.jobs import elsewhere
from cloudgpu.control.jobs.attempt import launched, made_for, settled, snapshot_of, started
from cloudgpu.control.jobs.ending import closed, fetched, not_fetched, resumed, stopped, terminated
from cloudgpu.control.jobs.inputs.env_file import secret_values
from cloudgpu.control.jobs.notices import note_machine, note_secrets, note_stall, show_end
from cloudgpu.control.jobs.store import append, put_back, the_job
from cloudgpu.control.lifecycle.lease import set_hold
from cloudgpu.core.events import job_lines as lines
from cloudgpu.core.jobs.carried import LATER, SOON, Carried, data_text
from cloudgpu.core.jobs.job import Job, State
from cloudgpu.core.jobs.remote_state import Phase
from cloudgpu.core.jobs.steps import CAPACITY_WAIT, Do, Seen, Step, gives_up, next_step
from cloudgpu.core.values.times import duration_text, from_iso
from cloudgpu.errors import (
    BudgetRefused,
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    Unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from cloudgpu.access.jobs.remote import RemoteJob
    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.jobs.remote_state import RemoteState
    from cloudgpu.core.jobs.stored import StoredResults
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.core.values.money import Money

PROGRESS_EVERY = timedelta(minutes=10)  # how often progress is a line of the ledger
MOST_STEPS = 50  # in one go: more would be a circle


@dataclass
class Carrier:
    """Carries one job on. `environ` has the values of its secrets; the connection to its machine is kept."""

    session: Session
    id: str
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    connection: Connection | None = None
    connected_to: str | None = None
    remote: RemoteState | None = None
    unfetched: bool = False
    results: StoredResults | None = None  # that are whole in the job's bucket
    compared: bool = False  # whether the ledger has all lines of the job that this computer has
    sold_out: bool = False
    cleared: set[str] = field(default_factory=set)  # machines of which this process has seen that nothing is left

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
        self.connection = self.connected_to = None

    def carry(self) -> Carried:
        """Do what can be done now and return what is waited for.

        Raises what the launch of a job's first machine raises: the job is over then. Raises LedgerUnavailable.
        """
        try:
            with self.session.hold(f"job-{self.id}", wait=False):
                return self._carried()
        except LedgerUnavailable:
            raise
        except ProviderUnavailable as other:
            if other.field != "lock":
                raise
            return Carried(the_job(self.session, self.id), "another process carries it on", SOON)

    def _carried(self) -> Carried:
        self.remote, self.unfetched, self.sold_out = None, False, False
        if not self.compared:
            put_back(self.session, self.id)
            self.compared = True
        for _ in range(MOST_STEPS):
            job = the_job(self.session, self.id)
            step = next_step(job, self._seen(job), self.session.clock())
            waits = self._done(job, step)
            if waits is not None:
                return waits
        return Carried(job, "it goes round in a circle; please report that", LATER)

    # -- what is known

    def _seen(self, job: Job) -> Seen:
        machine = self._machine(job)
        silent = None
        if machine is not None and machine.state == "running" and self.remote is None and _asks(job):
            try:
                self.remote = self.at(job, machine).look()
            except CloudgpuError as error:  # whatever it is, of what runs there nothing is known
                self.close()
                machine, silent = self._refreshed(job, machine), error.message
        if machine is not None and machine.state in ("pending", "unknown"):
            machine = self._refreshed(job, machine)
            silent = silent or f"{machine.name} is {machine.state}"
        self.results, unread = elsewhere.stored_or_why(self.session, job, machine)
        spent = self._spent(job)
        return Seen(machine, self.remote, silent, spent, self.unfetched, self.sold_out, self.results, unread)

    def _machine(self, job: Job) -> Machine | None:
        attempt = job.attempt or (job.attempts[-1] if job.attempts else None)
        return None if attempt is None or attempt.machine is None else self.session.ledger.machine(attempt.machine)

    def _there(self, job: Job) -> Machine:
        """Return the machine of a step that is only taken where there is one."""
        machine = self._machine(job)
        if machine is None:
            raise ProviderUnavailable(f"The ledger lost the machine of {job.name}.", field="ledger", value=job.name)
        return machine

    def _refreshed(self, job: Job, machine: Machine) -> Machine:
        """Return a machine as its provider has it now; one whose launch was interrupted is settled first."""
        try:
            found = settled(self.session, job, machine)
            return refresh(self.session, found) if found.provider_id and found.terminated_at is None else found
        except LedgerUnavailable:
            raise
        except CloudgpuError:
            return self.session.ledger.machine(machine.id) or machine

    def _spent(self, job: Job) -> Money | None:
        """Return what the job has cost so far, as `cost --by job` says it; not asked where that bounds nothing."""
        return None if job.spec["max_cost"] is None else job_spent(self.session, job)

    def at(self, job: Job, machine: Machine) -> RemoteJob:
        """Return the open attempt on its machine, over a connection that stands. Raises Unreachable."""
        from cloudgpu.access.jobs.remote import RemoteJob

        if self.connection is None or self.connected_to != machine.id or not self.connection.is_open:
            self.close()
            self.connection, self.connected_to = open_connection(self.session, machine), machine.id
        return RemoteJob(self.connection, job.id, job.attempts[-1].number)

    # -- what is done

    def _done(self, job: Job, step: Step) -> Carried | None:
        """Do a step; return what is waited for then, None where the next one can be taken at once."""
        if step.do is Do.WAIT and step.kept_until is None:
            return Carried(job, step.why, SOON if job.is_living else LATER, self.remote)
        try:
            if step.kept_until is not None:
                return self._kept(job, step, step.kept_until)
            act: Callable[[Job, Step], Carried | None] = getattr(self, f"_{step.do}")
            return act(job, step)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            if isinstance(error, Unreachable):  # it may be gone
                self.close()
                machine = self._machine(job)
                if machine is not None:
                    self._refreshed(job, machine)
            if step.do is Do.LAUNCH:
                return self._not_launched(job, error)
            return Carried(job, error.message, LATER, self.remote, error)

    def _kept(self, job: Job, step: Step, until: datetime) -> Carried:
        """Hold the machine of a failed job, so that no idle time ends it before the look."""
        machine = self._there(job)
        if machine.hold_until is None or from_iso(machine.hold_until) < until.replace(microsecond=0):
            set_hold(self.session, machine, until)
        return Carried(job, step.why, LATER, self.remote, kept_until=until)

    def _append(self, *drafts: Draft) -> None:
        append(self.session, self.id, drafts)

    def _place(self, job: Job, _step: Step) -> None:
        snapshot_of(self.session, job)  # who cannot begin it launches nothing for it
        number, last = len(job.attempts) + 1, job.attempts[-1] if job.attempts else None
        machine = job.spec["machine"]
        key = None if machine is not None else f"{job.id}-{number}"
        there = None if last is None or last.machine is None else self.session.ledger.machine(last.machine)
        if last is not None and there is not None and there.terminated_at is None and not _is_stopped(there):
            machine, key = there.id, last.key  # it is tried again where it was
        elif there is not None and key is not None:
            self._given_up(job, there)
        self._append(lines.job_placed(job.id, number, self.session.clock(), key=key, machine=machine))
        self.remote = None  # what was seen was another attempt

    def _given_up(self, job: Job, machine: Machine) -> None:
        """End what is left of an interrupted machine: it costs money, and is of no use any more.

        Where one that is gone has left something that cannot be removed yet, the job goes on: its end tries again.
        """
        try:
            self._cleared(job, machine)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            if machine.terminated_at is None:
                raise
            self.session.tell(f"{job.name}: {error.message}")

    def _cleared(self, job: Job, machine: Machine) -> None:
        terminated(self.session, job, machine)
        self.cleared.add(machine.id)

    def _own_machines(self, job: Job) -> list[Machine]:
        """Return the machines that were made for a job."""
        own = job.machines if job.spec["machine"] is None else ()
        return [one for one in map(self.session.ledger.machine, own) if one is not None and one.provider_id]

    def _launch(self, job: Job, _step: Step) -> Carried | None:
        attempt = job.attempts[-1]
        if job.cancel is None and attempt.key is not None and made_for(self.session, attempt) is None:
            try:
                snapshot_of(self.session, job)  # whoever placed it has died, and may have been another computer
            except InvalidRequest as error:
                return Carried(job, error.message, LATER, None, error)
        machine = launched(self.session, job, attempt)
        if machine is None:  # it was cancelled before anything was launched
            self._append(self._ended(job, Step(Do.END, job.cancel[1] if job.cancel else "", State.CANCELLED)))
        else:
            self._append(lines.job_machine(job.id, attempt.number, machine.id, self.session.clock()))
        if job.waits is not None:
            note_machine(self.session, job, None)
        return None

    def _not_launched(self, job: Job, error: CloudgpuError) -> Carried:
        """Return why a machine could not be had. A first one that was refused ends the job, and raises.

        What may pass is waited for, a day at most.
        """
        attempt, now = job.attempts[-1], self.session.clock()
        made = made_for(self.session, attempt)
        final = not isinstance(error, ProviderUnavailable) or gives_up(attempt, now)
        if made is not None:
            self._append(lines.job_machine(job.id, attempt.number, made.id, now))
            note_machine(self.session, job, None)
        elif attempt.number == 1 and final:
            self._append(self._ended(job, Step(Do.END, error.message, State.NOT_LAUNCHED)))
            self._append(*closed(self.session, the_job(self.session, self.id), None, error.message))
            raise error
        elif isinstance(error, (BudgetRefused, InvalidRequest)) or gives_up(attempt, now):
            span = f" in {duration_text(CAPACITY_WAIT)}" if gives_up(attempt, now) else ""
            before = f"{job.attempts[-2].why}; " if attempt.number > 1 else ""
            why = f"{before}it got no other machine{span}: {error.message}"
            self._append(self._ended(job, Step(Do.END, why, State.LOST)))
        else:
            self._append(lines.job_waits(job.id, attempt.number, error.message, now))
            note_machine(self.session, the_job(self.session, self.id), error.message)
        return Carried(the_job(self.session, self.id), error.message, LATER, None, error)

    def _start(self, job: Job, _step: Step) -> Carried | None:
        try:
            values = secret_values(job.spec, self.environ)
        except InvalidRequest as error:
            missing = [name for name in job.spec["secrets"] if name not in self.environ]
            note_secrets(self.session, job, missing)
            return Carried(job, error.message, LATER, self.remote, error)
        if job.spec["secrets"]:
            note_secrets(self.session, job, ())
        machine = self._there(job)
        self.remote = started(self.session, job, self.at(job, machine), values)
        return None

    def _watch(self, job: Job, _step: Step) -> Carried | None:
        remote, attempt = self.remote, job.attempts[-1]
        if remote is None:
            return None
        if remote.phase in (Phase.RUNNING, Phase.ORPHANED) and attempt.began_at is None and remote.started is not None:
            at = self._at(remote, remote.started)
            self._append(lines.job_began(job.id, attempt.number, remote.setup_s, at))
        self._note_progress(job, remote)
        if job.spec["stall_s"] is not None:
            last = remote.last_output
            note_stall(self.session, job, None if last is None else datetime.fromtimestamp(last, UTC), remote.progress)
        machine = self._machine(job)
        if machine is not None:
            elsewhere.sync_if_due(self.session, job, lambda: self.at(job, machine), remote)
        return Carried(the_job(self.session, self.id), data_text(remote), SOON, remote)

    def _note_progress(self, job: Job, remote: RemoteState) -> None:
        said, now = remote.progress, self.session.clock()
        if said is None or (job.progress is not None and job.progress[:2] == said):
            return
        if job.progress is None or now - job.progress[2] >= PROGRESS_EVERY:
            self._append(lines.job_progressed(job.id, job.attempts[-1].number, *said, now))

    def _cancel(self, job: Job, step: Step) -> Carried | None:
        if job.cancel is None:
            outcome = (step.outcome or State.CANCELLED).value
            self._append(lines.job_cancel_requested(job.id, outcome, step.why, node(), self.session.clock()))  # type: ignore[arg-type]
        machine = self._there(job)
        self.at(job, machine).cancel(job.cancel[0] if job.cancel else (step.outcome or State.CANCELLED).value)
        return Carried(job, "its command is being ended", timedelta(seconds=1), self.remote)

    def _again(self, job: Job, step: Step) -> Carried | None:
        machine, now = self._machine(job), self.session.clock()
        if machine is not None and machine.state == "running" and self.remote is not None:
            waits = elsewhere.last_copy(self.session, job, self.at(job, machine), self.remote)
            if waits is not None:
                return Carried(job, waits, timedelta(seconds=1), self.remote)
        attempt, status = job.attempts[-1].number, None if step.exit is None else step.exit.status
        line = lines.job_try_ended(job.id, attempt, now, interrupted=step.interrupted, status=status, why=step.why)
        self._append(line)
        self.remote = None
        return None

    def _end(self, job: Job, step: Step) -> Carried | None:
        remote, attempt = self.remote, job.attempts[-1] if job.attempts else None
        if remote is not None and remote.started is not None and attempt is not None and attempt.began_at is None:
            at = self._at(remote, remote.started)
            self._append(lines.job_began(job.id, attempt.number, remote.setup_s, at))
        elif remote is None and self.results is not None:
            self._append(*elsewhere.began_by(self.session, job, self.results))
        if remote is not None and remote.progress is not None:
            self._append(lines.job_progressed(job.id, len(job.attempts), *remote.progress, self.session.clock()))
        self._append(self._ended(job, step))
        return None

    def _at(self, remote: RemoteState, moment: float) -> datetime:
        """Return when that was by this computer's clock: a machine's own clock may be hours off."""
        return self.session.clock() - timedelta(seconds=max(0.0, remote.now - moment))

    def _ended(self, job: Job, step: Step) -> Draft:
        ended, number = step.exit, len(job.attempts)
        remote = self.remote
        at = self.session.clock() if ended is None else elsewhere.at_most_now(self.session, ended.ended)
        if ended is not None and remote is not None:
            at = self._at(remote, ended.ended)
        outcome = (step.outcome or State.FAILED).value
        status, signal = (None, None) if ended is None else (ended.status, ended.signal)
        said = {"status": status, "signal": signal}
        by = ended is not None
        return lines.job_ended(job.id, number, outcome, at, **said, why=step.why, by_machine=by)  # type: ignore[arg-type]

    def _fetch(self, job: Job, _step: Step) -> Carried | None:
        machine = self._there(job)
        try:
            line = fetched(self.session, job, machine, lambda: self.at(job, machine))
            if line is None:
                return Carried(job, "its results are being uploaded", timedelta(seconds=1))
            self._append(line)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            known = job.fetched is not None and job.fetched.why == error.message
            if isinstance(error, InvalidRequest) and not known:  # this computer cannot take them
                self._append(not_fetched(self.session, job, error.message))
            self.unfetched = True
            if next_step(job, self._seen(job), self.session.clock()).do is not Do.STOP:
                raise
        return None

    def _stored(self, job: Job, _step: Step) -> Carried | None:
        machine = self._machine(job)
        runs = machine is not None and machine.state == "running"
        remote = (lambda: self.at(job, self._there(job))) if runs else None
        if self.results is not None:
            self._append(*elsewhere.stored(self.session, job, self.results, remote))
        return None

    def _resume(self, job: Job, step: Step) -> Carried | None:
        machine, now = self._there(job), self.session.clock()
        attempt, number = job.attempts[-1].number, job.resumes + 1
        line = lines.job_resumed(job.id, attempt, number, machine.id, step.why, now)
        try:
            resumed(self.session, job, machine)
        except (NoCapacity, QuotaExceeded):  # nothing was started, so it does not count
            self.sold_out = True
            if next_step(job, self._seen(job), now).do is Do.RESUME:
                raise
            return None
        except LedgerUnavailable:
            raise
        except CloudgpuError:
            self._append(line)
            raise
        self._append(line)
        return None

    def _stop(self, job: Job, step: Step) -> Carried | None:
        machine = self._there(job)
        self.close()
        stopped(self.session, job, machine, step.why)
        self._append(not_fetched(self.session, job, step.why))
        return None

    def _terminate(self, job: Job, _step: Step) -> Carried | None:
        machine = self._there(job)
        self.close()
        self._cleared(job, machine)
        return None

    def _close(self, job: Job, step: Step) -> Carried | None:
        machine, own = self._machine(job), job.spec["machine"] is None
        remote = None
        for one in self._own_machines(job):
            if one.terminated_at is not None and one.id not in self.cleared:  # its disk, or its timer, may be there
                self._cleared(job, one)
        if machine is not None and not own and machine.state == "running":
            with suppress(CloudgpuError):  # the next job there cleans up, too
                remote = self.at(job, machine)
        self._append(*closed(self.session, job, remote, step.why))
        show_end(self.session, the_job(self.session, self.id), self.environ)
        return None

    def _look(self, job: Job, _step: Step) -> Carried | None:
        return Carried(job, "its machine was not asked", SOON)


def _is_stopped(machine: Machine) -> bool:
    return machine.parked or machine.state in ("stopped", "deallocated")


def _asks(job: Job) -> bool:
    """Say whether the machine is to be asked: an attempt is open, and its command is not known to be over."""
    return job.outcome is None and job.attempt is not None
