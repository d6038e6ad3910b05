"""A job in a world of its own: machines that vanish, commands that end, watchers that are killed between two steps.

The decision (`core.jobs.steps`) and the fold (`core.jobs.job`) are the real ones; the world is what they decide about.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from cloudgpu.core.events import job_events as lines
from cloudgpu.core.events.log import EventSummary
from cloudgpu.core.jobs.job import Job, State, jobs_of
from cloudgpu.core.jobs.remote_state import Exit, Phase, RemoteState
from cloudgpu.core.jobs.steps import ObservedState, next_step
from cloudgpu.core.model.facts import UnrequestedStop
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso

START = datetime(2026, 11, 1, 9, tzinfo=UTC)


def spec(**more):
    """A job's spec with the usual values."""
    usual = {
        "argv": ["true"],
        "workdir": "/home/ada/work",
        "snapshot": "0" * 64,
        "files": 1,
        "bytes": 1,
        "machine": None,
        "launch": {},
        "setup": None,
        "environment": {},
        "env_file": None,
        "secrets": [],
        "data": [],
        "ports": [],
        "results": "results",
        "results_to": None,
        "checkpoint": None,
        "every_s": 600,
        "timeout_s": None,
        "max_cost": None,
        "stall_s": None,
        "retries": 0,
        "restarts": 2,
        "keep_s": 0,
        "results_wait_s": 7200,
        "owner": "ada",
        "project": "",
        "planned_max": None,
    }
    return {**usual, **more}


def machine(id_, *, state="running", terminated_at=None, **more):
    """A machine's row with nothing in it but what the decision reads."""
    empty = Machine(*[None] * (len(Machine._fields) - len(Machine._field_defaults)))
    return empty._replace(id=id_, name=id_, state=state, terminated_at=terminated_at, **more)


def lines_to_events(drafts):
    """The lines as a ledger would have them, with a number each."""
    return [
        EventSummary(number, iso(one.occurred_at), one.kind, one.subject, one.dedupe, one.body)
        for number, one in enumerate(drafts, 1)
    ]


@dataclass
class World:
    """One job, its machines, and what runs on them. `runs` counts the commands that were begun, by attempt."""

    spec: dict
    now: datetime = START
    drafts: list = field(default_factory=list)
    unfetched: bool = False  # a fetch has just failed
    unbegun: bool = False  # its machine could just not begin it
    machines: dict = field(default_factory=dict)  # by id
    remotes: dict = field(default_factory=dict)  # by attempt number
    begun: list = field(default_factory=list)  # (attempt, machine)
    ended_machines: list = field(default_factory=list)
    whole: set = field(default_factory=set)  # attempts whose results were brought back whole
    spent: Money | None = None
    resumed: int = 0
    sold_out: bool = False  # a stopped machine cannot be started again now

    def __post_init__(self):
        self.write(lines.job_requested("job-1", "otter", None, "desk", self.spec, self.now))

    @property
    def job(self) -> Job:
        return jobs_of(lines_to_events(self.drafts))["job-1"]

    def write(self, *drafts):
        known = {one.dedupe for one in self.drafts}
        self.drafts += [one for one in drafts if one.dedupe not in known]

    def machine_of(self, job):
        attempt = job.attempts[-1] if job.attempts else None
        return None if attempt is None or attempt.machine is None else self.machines.get(attempt.machine)

    def seen(self, job):
        there = self.machine_of(job)
        remote = silent = None
        if there is not None and there.state == "running":
            remote = self.remotes.get(job.attempts[-1].number, RemoteState(Phase.ABSENT, self.now.timestamp()))
        elif there is not None:
            silent = "it does not answer"
        return ObservedState(
            there,
            remote,
            silent,
            self.spent,
            fetch_failed=self.unfetched,
            start_failed=self.unbegun,
            sold_out=self.sold_out,
        )

    def step(self, *, killed=False):
        """Do one step of a watcher; `killed`: it dies when the step is done and not written down."""
        job = self.job
        step = next_step(job, self.seen(job), self.now)
        getattr(self, f"do_{step.action.value}")(job, step, killed=killed)
        return step

    def running(self):
        """The attempts whose command runs now, on machines that are there."""
        found = []
        for number, where in self.begun:
            alive = self.machines[where].state == "running"
            if alive and self.remotes[number].phase in (Phase.RUNNING, Phase.ORPHANED):
                found.append(number)
        return found

    # -- steps

    def do_wait(self, job, step, *, killed):
        self.now += timedelta(minutes=1)

    do_watch = do_observe = do_wait

    def do_schedule(self, job, step, *, killed):
        number, last = len(job.attempts) + 1, job.attempts[-1] if job.attempts else None
        where, key = self.spec["machine"], None if self.spec["machine"] else f"key-{number}"
        there = None if last is None else self.machines.get(last.machine)
        if there is not None and there.terminated_at is None and there.state == "stopped":
            self.machines[there.id] = there._replace(state="terminated", terminated_at=iso(self.now))
        elif there is not None and there.terminated_at is None:
            where, key = there.id, last.key
        if not killed:
            self.write(lines.job_placed("job-1", number, self.now, key=key, machine=where))

    def do_launch(self, job, step, *, killed):
        attempt = job.attempts[-1]
        if job.cancel and f"m-{attempt.key}" not in self.machines:
            self.write(lines.job_ended("job-1", attempt.number, "cancelled", self.now))
            return
        made = self.machines.setdefault(f"m-{attempt.key}", machine(f"m-{attempt.key}"))
        if not killed:
            self.write(lines.job_machine("job-1", attempt.number, made.id, self.now))

    def do_start(self, job, step, *, killed):
        attempt = job.attempts[-1]
        if attempt.number in self.remotes:
            return
        assert not self.running(), "two commands of one job at once"
        assert attempt.number not in {number for number, _ in self.begun}, "an attempt began twice"
        self.begun.append((attempt.number, attempt.machine))
        self.remotes[attempt.number] = RemoteState(Phase.RUNNING, self.now.timestamp(), started_at=self.now.timestamp())

    def do_cancel(self, job, step, *, killed):
        reason = job.cancel[0] if job.cancel else step.outcome.value
        if job.cancel is None:
            self.write(lines.job_cancel_requested("job-1", reason, step.why, "desk", self.now))
        self.ends(job.attempts[-1].number, signal=15, reason=reason)

    def do_retry(self, job, step, *, killed):
        status = step.exit.status if step.exit else None
        number = job.attempts[-1].number
        if not killed:
            self.write(
                lines.job_try_ended(
                    "job-1",
                    number,
                    self.now,
                    interrupted=step.interrupted,
                    status=status,
                    why=step.why,
                    also="nothing_made" if step.nothing_made else None,
                )
            )

    def do_end(self, job, step, *, killed):
        number = len(job.attempts)
        if job.attempts and number in self.remotes and not killed:
            self.write(lines.job_began("job-1", number, None, self.now))
        said = {} if step.exit is None else {"status": step.exit.status, "signal": step.exit.signal}
        if not killed:
            self.write(lines.job_ended("job-1", number, step.outcome.value, self.now, why=step.why, **said))

    def do_fetch(self, job, step, *, killed):
        self.whole.add(job.attempts[-1].number)
        if not killed:
            self.write(lines.job_results_fetched("job-1", 1, 1, "/here", "desk", self.now, whole=True))

    def do_terminate(self, job, step, *, killed):
        there = self.machine_of(job)
        assert job.outcome is not None, "a machine was ended under a job that is not over"
        if not killed:
            self.machines[there.id] = there._replace(state="terminated", terminated_at=iso(self.now))
            self.ended_machines.append(there.id)

    def do_stop(self, job, step, *, killed):
        there = self.machine_of(job)
        self.machines[there.id] = there._replace(state="stopped", since=iso(self.now))
        if not killed:
            self.write(lines.job_results_fetched("job-1", 0, 0, "/here", "desk", self.now, whole=False, why=step.why))

    def do_resume(self, job, step, *, killed):
        there = self.machine_of(job)
        if self.sold_out:
            return
        self.write(lines.job_resumed("job-1", len(job.attempts), job.resumes + 1, there.id, step.why, self.now))
        self.machines[there.id] = there._replace(state="running", parked=False, terminated_at=None, since=iso(self.now))
        self.resumed += 1

    def do_close(self, job, step, *, killed):
        if not killed:
            self.write(lines.job_closed("job-1", step.why, self.now))

    # -- what happens

    def ends(self, number, *, status=None, signal=None, reason="exited"):
        """Let the command of an attempt end."""
        if number in self.remotes and self.remotes[number].phase is Phase.RUNNING:
            ended = Exit(status, signal, reason, self.now.timestamp())
            self.remotes[number] = replace(self.remotes[number], phase=Phase.EXITED, exit=ended)

    def vanishes(self):
        """Let the machine of the open attempt go away."""
        there = self.machine_of(self.job)
        if there is not None and there.terminated_at is None:
            self.machines[there.id] = there._replace(state="terminated", terminated_at=iso(self.now))

    def taken(self):
        """Let the cloud stop the spot machine of the open attempt, and keep its disk."""
        self.reboots()
        there = self.machine_of(self.job)
        seen = UnrequestedStop(iso(self.now), 1)
        self.machines[there.id] = there._replace(state="stopped", state_reason="interrupted", unrequested_stop=seen)

    def reboots(self):
        """Let the machine of the open attempt start anew: what ran there runs no more."""
        number = len(self.job.attempts)
        if number in self.remotes and self.remotes[number].phase is Phase.RUNNING:
            self.remotes[number] = replace(self.remotes[number], phase=Phase.LOST)

    def carry(self, most=200):
        """Take steps until the job is closed."""
        for _ in range(most):
            if not self.job.is_open:
                return
            self.step()
            if self.running() and self.job.state is State.RUNNING:
                return
