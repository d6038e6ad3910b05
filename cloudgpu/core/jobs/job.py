"""Jobs as values, projected from the ledger's lines of the subject `jobs`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cloudgpu.core.clusters.queue import waits_text
from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.core.events.job_events import DeadlineRecord, JobSpec, Market, Outcome, SlurmRecord
    from cloudgpu.core.events.log import Line

EventBody = Mapping[str, Any]
_EMPTY_SPEC: JobSpec = {  # of a job that was submitted to Slurm directly, not by `run`
    "argv": [], "workdir": "", "snapshot": "", "files": 0, "bytes": 0, "machine": None, "launch": {}, "setup": None,
    "environment": {}, "env_file": None, "secrets": [], "data": [], "ports": [], "results": "results",
    "results_to": None, "checkpoint": None, "every_s": 600, "timeout_s": None, "max_cost": None, "stall_s": None,
    "retries": 0, "restarts": 0, "keep_s": 0, "results_wait_s": 0, "owner": "", "project": "", "planned_max": None,
}  # fmt: skip


class State(StrEnum):
    """The state of a job; from `SUCCEEDED` on, its command is over."""

    PENDING = "pending"  # it waits for a machine
    STARTING = "starting"  # its machine is being launched, files are copied, or the setup runs
    QUEUED = "queued"  # it waits in Slurm's queue
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SETUP_FAILED = "setup_failed"
    TIMED_OUT = "timed_out"
    OVER_COST = "over_cost"
    CANCELLED = "cancelled"
    LOST = "lost"  # its machine went away too often
    NOT_LAUNCHED = "not_launched"  # no machine could be had


_STATE_OF_SLURM = {"COMPLETED": State.SUCCEEDED, "CANCELLED": State.CANCELLED, "TIMEOUT": State.TIMED_OUT}
NOTHING_MADE = ("refused", "void")  # outcomes of a launch that made no machine


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a job on one machine. `machine` is None until its launch is known to have made one.

    `waits` is since when its launch is refused, `stuck` since when its machine cannot begin it, both with the first
    reason; else None. `nothing_made`: it ended because its launch made no machine. The next fields are for a job with a
    deadline. `market` is where it is launched; `turn` counts the launches of this attempt that made nothing;
    `work_before_s` is the work that it began with, in seconds. `move` is set once it is to continue on another machine;
    `moved`: that is how the attempt ended. Of a gang, `machine` is node 0, and `members` are all nodes of `cluster`, in
    order. `refused` are nodes that came up for it, and were ended as others were refused.
    """

    number: int
    key: str | None
    machine: str | None
    placed_at: datetime
    began_at: datetime | None = None
    setup_s: float | None = None
    ended_at: datetime | None = None
    interrupted: bool = False
    nothing_made: bool = False
    status: int | None = None
    why: str = ""
    waits: tuple[datetime, str] | None = None
    stuck: tuple[datetime, str] | None = None
    market: Market | None = None
    turn: int = 0
    work_before_s: float = 0.0
    move: JobMove | None = None
    moved: bool = False
    cluster: str | None = None
    members: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobMove:
    """A move of a job to another machine, on the market `to` (None: later); `interrupted`: as its spot machine was."""

    to: Market | None
    why: str
    at: datetime
    interrupted: bool


@dataclass(frozen=True, slots=True)
class SavedWork:
    """The newest copy of a checkpoint: how much of the work it holds, in seconds, and when it was copied."""

    checkpoint: str
    work_s: float
    at: datetime


@dataclass(frozen=True, slots=True)
class FetchedResults:
    """Where results are; `whole`: all, with the machine's sizes and hashes.

    An empty `host`: in a bucket or a volume.
    """

    files: int
    bytes: int
    directory: str
    host: str
    whole: bool
    why: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """One job of Slurm, or one element of an array: `machines` are where it ran from `begin` to `end`.

    `reason` is why it waits, as Slurm calls it; empty for one that does not.
    """

    id: str
    state: str
    machines: tuple[str, ...]
    begin: datetime | None
    end: datetime | None
    reason: str = ""

    @property
    def waits(self) -> bool:
        """Whether Slurm has not begun it yet."""
        return self.state == "PENDING" and self.begin is None


@dataclass(frozen=True, slots=True)
class Job:
    """A command with its directory, results and exit status. Times are aware UTC.

    `key` is its idempotency key. It was requested `by` a user on the computer `host`. `spec` is what was requested. It
    is closed when nothing is left to do for it, also for its results and its machine.
    """

    id: str
    name: str
    key: str | None
    host: str
    by: str
    spec: JobSpec
    requested_at: datetime
    attempts: tuple[Attempt, ...] = ()
    cancel: tuple[Outcome, str] | None = None  # what it is to end as, and why
    cancel_at: datetime | None = None
    outcome: State | None = None
    status: int | None = None
    signal: int | None = None
    why: str = ""
    ended_at: datetime | None = None
    fetched: FetchedResults | None = None
    resumes: int = 0  # how often the machine of the last attempt was started again
    closed_at: datetime | None = None
    progress: tuple[float, float | None, datetime] | None = None  # (done, total, reported at)
    saved: SavedWork | None = None
    slurm_id: str | None = None  # of the last attempt
    runs: tuple[SlurmRun, ...] = ()  # of all attempts
    slurm_at: datetime | None = None  # when its state in Slurm was last recorded

    @property
    def slurm_record(self) -> SlurmRecord | None:
        """Its options for Slurm, with the last attempt's cluster if it has its own; None without Slurm."""
        slurm, last = self.spec.get("slurm"), self.attempts[-1] if self.attempts else None
        if slurm is None or last is None or last.cluster is None:
            return slurm
        return {**slurm, "cluster": last.cluster, "members": list(last.members)}

    @property
    def gang_size(self) -> int:
        """How many machines each of its attempts launches as one cluster; 1 for any other job."""
        return self.spec.get("gang", 1)

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that is open, None before the first and between two."""
        last = self.attempts[-1] if self.attempts else None
        return None if last is None or (last.ended_at is not None and self.outcome is None) else last

    @property
    def waits(self) -> tuple[datetime, str] | None:
        """Since when it waits for a machine, or for that to begin it, and why at first; None where it does not."""
        one = None if self.outcome else self.attempt
        return None if one is None or one.began_at else one.waits if one.machine is None else one.stuck

    @property
    def deadline(self) -> DeadlineRecord | None:
        """When it has to be done, and how; None for a job without a deadline."""
        return self.spec.get("deadline")

    @property
    def is_open(self) -> bool:
        """Whether it is not closed: something is left to do for it, perhaps after its command has ended."""
        return self.closed_at is None

    @property
    def state(self) -> State:
        """Its state."""
        if self.outcome is not None:
            return self.outcome
        if self.attempt is None or self.attempt.machine is None:
            return State.PENDING
        if self.attempt.began_at is not None:
            return State.RUNNING
        return State.QUEUED if any(run.waits for run in self.runs) else State.STARTING

    @property
    def queue_reason(self) -> str:
        """Why it waits in Slurm's queue, as a clause; empty if it does not wait there."""
        if self.state is not State.QUEUED:
            return ""
        return waits_text(run.reason for run in self.runs if run.waits)

    @property
    def failed_tries(self) -> int:
        """How many attempts ended by a failing command."""
        return sum(one.ended_at is not None and not one.interrupted and not one.moved for one in self.attempts)

    @property
    def interruptions(self) -> int:
        """How many attempts ended because their machine was lost; not if it was never created."""
        return sum(one.interrupted and not one.nothing_made for one in self.attempts)

    @property
    def machines(self) -> tuple[str, ...]:
        """The ids of the machines that it ran on, each once, in order; that of its last attempt comes last.

        Of a gang these are all nodes, and node 0 comes last.
        """
        tried = [(one.members, one.machine) for one in self.attempts if one.machine is not None]
        placed = tuple(dict.fromkeys(id_ for ids, own in tried for id_ in (*(id_ for id_ in ids if id_ != own), own)))
        nodes = (machine for run in self.runs for machine in run.machines if machine not in placed)
        refused = (machine for one in self.attempts for machine in one.refused)
        return (*dict.fromkeys((*refused, *nodes)), *placed)

    @property
    def shell_status(self) -> int | None:
        """The exit status as in a shell: 128 + n after signal n; None if it is not known."""
        return 128 + self.signal if self.signal else self.status


def jobs_of(lines: Iterable[Line]) -> dict[str, Job]:
    """Return the jobs of these lines by id, in the order of their requests.

    A repeated line counts once. Lines of a job without a request line are left out.
    """
    jobs: dict[str, Job] = {}
    once = {line.dedupe: line for line in sorted(lines, key=lambda line: line.seq, reverse=True)}
    for line in sorted(once.values(), key=lambda line: line.seq):
        if line.kind == "job_requested":
            jobs.setdefault(line.body["job"], _requested(line))
            continue
        if line.kind == "slurm_job_recorded":
            recorded_job = _recorded(line)
            jobs.setdefault(recorded_job.id, recorded_job)
            continue
        job, step = jobs.get(line.body.get("job", "")), _STEPS.get(line.kind)
        if job is not None and step is not None:
            jobs[job.id] = step(job, line.body, from_iso(line.occurred_at))
    return jobs


def find_open_job(jobs: Iterable[Job], name: str) -> Job | None:
    """Return the job with this name or key that is not closed, or None."""
    return next((job for job in jobs if job.is_open and name in (job.name, job.key)), None)


def _requested(line: Line) -> Job:
    body, by = line.body, getattr(line, "actor", "")
    return Job(body["job"], body["name"], body["key"], body["host"], by, body["spec"], from_iso(line.occurred_at))


def _recorded(line: Line) -> Job:
    """Return a job that a user submitted to a cluster's Slurm directly: it is over, and cloudgpu never managed it."""
    body = line.body
    one, user = body["task"], body["user"]
    run, at = _run(one), from_iso(line.occurred_at)
    slurm: SlurmRecord = {
        "cluster": body["cluster"],
        "members": body["members"],
        "name": body["name"],
        "nodes": len(run.machines),
        "minutes": 0,
        "gpus_per_node": None,
        "array": None,
        "after": None,
        "partition": None,
        "account": None,
        "once": False,
    }
    outcome = _STATE_OF_SLURM.get(run.state, State.FAILED)
    return Job(
        f"slurm-{body['cluster']}-{run.id}",
        f"{body['name']}-{run.id}",
        None,
        "",
        user,
        {**_EMPTY_SPEC, "slurm": slurm, "owner": user},
        run.begin or at,
        outcome=outcome,
        status=body["status"],
        ended_at=at,
        closed_at=at,
        slurm_id=run.id,
        runs=(run,),
    )


def _run(body: EventBody) -> SlurmRun:
    begin, end = (None if body[name] is None else from_iso(body[name]) for name in ("begin", "end"))
    return SlurmRun(body["id"], body["state"], tuple(body["machines"]), begin, end, body.get("reason", ""))


def _in_slurm(job: Job, body: EventBody, at: datetime) -> Job:
    over = {run.id for run in job.runs if run.end is not None}  # a sync that is recorded late does not reopen them
    new = tuple(task for task in map(_run, body["tasks"]) if task.end is not None or task.id not in over)
    known = {one.id for one in new}
    runs = (*(run for run in job.runs if run.id not in known), *new)
    return replace(job, slurm_id=body["id"], runs=runs, slurm_at=at)


def _placed(job: Job, body: EventBody, at: datetime) -> Job:
    number, turn = body.get("attempt"), body.get("turn", 0)
    known = next((one for one in job.attempts if one.number == number), None)
    if job.outcome is not None or (known is not None and not _is_placed_again(known, turn)):
        return job
    base = 0.0 if job.saved is None else job.saved.work_s
    attempt = Attempt(
        int(number or 0), body["key"], body["machine"], at, market=body.get("market"), turn=turn, work_before_s=base
    )
    previous = next((one for one in job.attempts if one.machine is not None and one.machine == attempt.machine), None)
    if previous is not None:  # it runs again on the same machine
        attempt = replace(attempt, cluster=previous.cluster, members=previous.members)
    if known is not None:
        attempt = replace(attempt, refused=known.refused)
    return replace(job, attempts=(*(one for one in job.attempts if one.number != number), attempt), resumes=0)


def _is_placed_again(attempt: Attempt, turn: int) -> bool:
    """Return whether an attempt without a machine is placed once more."""
    return attempt.machine is None and attempt.ended_at is None and turn > attempt.turn


def _work_saved(job: Job, body: EventBody, at: datetime) -> Job:
    return replace(job, saved=SavedWork(body["checkpoint"], body["work_s"], at))


def _move(job: Job, body: EventBody, at: datetime) -> Job:
    move = JobMove(body["to"], body["why"], at, body["interrupted"])
    return _changed(job, body, lambda one: one if one.move else replace(one, move=move))


def _changed(job: Job, body: EventBody, change: Callable[[Attempt], Attempt]) -> Job:
    """Return the job with `change` applied to the attempt that a line is about."""
    return replace(
        job, attempts=tuple(change(one) if one.number == body.get("attempt") else one for one in job.attempts)
    )


def _machine(job: Job, body: EventBody, _at: datetime) -> Job:
    cluster, members = body.get("cluster"), tuple(body.get("members", ()))
    return _changed(job, body, lambda one: replace(one, machine=body["machine"], cluster=cluster, members=members))


def _began(job: Job, body: EventBody, at: datetime) -> Job:
    return _changed(job, body, lambda one: replace(one, began_at=at, setup_s=body["setup_s"]))


def _progressed(job: Job, body: EventBody, at: datetime) -> Job:
    return replace(job, progress=(body["done"], body["of"], at))


def _try_ended(job: Job, body: EventBody, at: datetime) -> Job:
    fields = {"interrupted": body["interrupted"], "status": body["status"], "why": body["why"]}
    fields |= {"moved": bool(body.get("moved")), "nothing_made": bool(body.get("nothing_made"))}
    return _changed(job, body, lambda one: replace(one, ended_at=at, **fields))


def _ended(job: Job, body: EventBody, at: datetime) -> Job:
    if job.outcome is not None:
        return job
    job = _changed(job, body, lambda one: replace(one, ended_at=at, status=body["status"]))
    fields = {"status": body["status"], "signal": body["signal"], "why": body["why"]}
    return replace(job, outcome=State(body["outcome"]), ended_at=at, **fields)


def _cancel(job: Job, body: EventBody, at: datetime) -> Job:
    return job if job.cancel else replace(job, cancel=(body["outcome"], body["why"]), cancel_at=at)


def _fetched(job: Job, body: EventBody, at: datetime) -> Job:
    if job.fetched is not None and job.fetched.whole:
        return job
    return replace(job, fetched=FetchedResults(at=at, **{name: value for name, value in body.items() if name != "job"}))


def _resumed(job: Job, _body: EventBody, _at: datetime) -> Job:
    return replace(job, resumes=job.resumes + 1)


def _gang_refused(job: Job, body: EventBody, _at: datetime) -> Job:
    return _changed(job, body, lambda one: replace(one, refused=tuple(dict.fromkeys((*one.refused, *body["members"])))))


def _waits(job: Job, body: EventBody, at: datetime) -> Job:
    now = (at, body["why"])
    return _changed(
        job,
        body,
        lambda one: (
            replace(one, waits=one.waits or now) if one.machine is None else replace(one, stuck=one.stuck or now)
        ),
    )


def _closed(job: Job, _body: EventBody, at: datetime) -> Job:
    return replace(job, closed_at=job.closed_at or at)


_STEPS: Mapping[str, Callable[[Job, EventBody, datetime], Job]] = {
    "job_placed": _placed,
    "job_machine": _machine,
    "job_began": _began,
    "job_progressed": _progressed,
    "job_work_saved": _work_saved,
    "job_move_requested": _move,
    "job_try_ended": _try_ended,
    "job_ended": _ended,
    "job_cancel_requested": _cancel,
    "job_results_fetched": _fetched,
    "job_resumed": _resumed,
    "job_waits": _waits,
    "job_gang_refused": _gang_refused,
    "job_in_slurm": _in_slurm,
    "job_closed": _closed,
}
