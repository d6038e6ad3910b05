"""The ledger lines of jobs: a type for each body, and the function that makes each line, with its dedupe text.

All of them have the subject `jobs`, name their job by id, and hold no value of a secret. A second line with the same
dedupe text is not written, so two watchers of one job write one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NotRequired, TypedDict

from cloudgpu.core.events.bodies import Nanos, Time
from cloudgpu.core.events.log import MACHINE, OWN_CLOCK, Draft
from cloudgpu.core.values.times import iso

SUBJECT = "jobs"  # of every line about a job
Outcome = Literal["succeeded", "failed", "setup_failed", "timed_out", "over_cost", "cancelled", "lost", "not_launched"]


class DataRecord(TypedDict):
    """Existing data: a volume, a bucket or a path (`source`), and where the command finds it (`target`)."""

    source: str
    target: str


Market = Literal["spot", "on_demand"]


class DeadlineRecord(TypedDict):
    """A job's deadline: `work_s` seconds of its command's run time have to be done by `at`, with this spot policy.

    `spot` and `on_demand` are the hourly prices at the request, which the policy compares. On-demand was planned at
    `provider` and `account`, and budgets count `budget_per_hour` for an hour of it, disk included.
    """

    at: Time
    work_s: int
    policy: str
    spot: Nanos
    on_demand: Nanos
    provider: NotRequired[str]
    account: NotRequired[str]
    budget_per_hour: NotRequired[Nanos]


class SlurmRecord(TypedDict):
    """The options for Slurm: `minutes` is its --time; `after` is the id of a Slurm job that has to succeed first.

    `cluster` is the cloudgpu cluster whose Slurm it is, null for another Slurm; `members` are the ids of its machines,
    node 0 first. `name` is a prefix of the job's name in Slurm. `once`: the command runs only on the first node.
    `usd_per_gpu_hour` is the tariff of another Slurm, in nano-dollars; `per_hour` is the planned cost of an hour, if
    --max-cost sets the time limit.
    """

    cluster: str | None
    members: list[str]
    name: str
    nodes: int
    minutes: int
    gpus_per_node: int | None
    array: str | None
    after: str | None
    partition: str | None
    account: str | None
    once: bool
    usd_per_gpu_hour: NotRequired[Nanos]
    per_hour: NotRequired[Nanos]


class JobSpec(TypedDict):
    """The specification of a job: all that a restart needs, except the snapshot's files and the values of secrets.

    `launch` are options of `up`; `machine` is an existing machine's id (null: one is launched). `environment` has the
    values of --env, `env_file` only a path. `results_to` is the bucket or volume for results and checkpoints (null: the
    watching computer). `planned_max` is its highest cost by its plan (null: no limit). A `gang` launches so many
    machines per attempt as one cluster, with `slurm` as options. Seconds: `every_s` between copies of checkpoints,
    `stall_s` of silence until it is stalled, `keep_s` for a failed job's machine, `results_wait_s` for results.
    """

    argv: list[str]
    workdir: str
    snapshot: str
    files: int
    bytes: int
    machine: str | None
    launch: dict[str, str | bool]
    setup: str | None
    environment: dict[str, str]
    env_file: str | None
    secrets: list[str]
    data: list[DataRecord]
    ports: list[int]
    results: str
    results_to: str | None
    checkpoint: str | None
    every_s: int
    timeout_s: int | None
    max_cost: Nanos | None
    stall_s: int | None
    retries: int  # of a failed command
    restarts: int  # after an interruption
    keep_s: int
    results_wait_s: int
    owner: str
    project: str
    planned_max: Nanos | None
    deadline: NotRequired[DeadlineRecord | None]
    slurm: NotRequired[SlurmRecord]
    gang: NotRequired[int]


class JobRequested(TypedDict):
    """A job is requested, before anything is launched; `key` is its idempotency key, `host` the requesting computer."""

    job: str
    name: str
    key: str | None
    host: str
    spec: JobSpec


class JobPlaced(TypedDict):
    """An attempt is to run on `machine`, or on a machine that is about to be launched with the key `key`.

    `market` is set for a job with a deadline. If its launch made no machine, the same attempt is placed again with
    another key: `turn` counts that.
    """

    job: str
    attempt: int
    key: str | None
    machine: str | None
    market: NotRequired[Market]
    turn: NotRequired[int]


class JobMachine(TypedDict):
    """The machine of an attempt is known: of a gang node 0; then `members` are all nodes of `cluster`, in order."""

    job: str
    attempt: int
    machine: str
    cluster: NotRequired[str]
    members: NotRequired[list[str]]


class JobBegan(TypedDict):
    """The command has begun, by the machine's clock; its setup took `setup_s` seconds (null: it needed none)."""

    job: str
    attempt: int
    setup_s: float | None


class JobProgressed(TypedDict):
    """A job's progress, as its command reported it: `done` of `of`."""

    job: str
    attempt: int
    done: float
    of: float | None


class JobWorkSaved(TypedDict):
    """A checkpoint was copied here: it holds `work_s` seconds of the command's run time, in all."""

    job: str
    attempt: int
    checkpoint: str
    work_s: float


class JobMoveRequested(TypedDict):
    """An attempt's machine is about to be ended, and its command continues on the market `to` (null: later).

    `interrupted`: the provider has taken the machine, and only its resources are ended.
    """

    job: str
    attempt: int
    to: Market | None
    interrupted: bool
    why: str


Flag = Literal["moved", "nothing_made"]  # an optional flag of `JobTryEnded`


class JobTryEnded(TypedDict):
    """An attempt has ended and another one follows: its command failed, or its machine is gone (`interrupted`).

    `moved`: its machine was ended for a job that continues elsewhere. `nothing_made`: its launch made no machine.
    """

    job: str
    attempt: int
    interrupted: bool
    status: int | None
    why: str
    moved: NotRequired[Literal[True]]
    nothing_made: NotRequired[Literal[True]]


class JobEnded(TypedDict):
    """A job has ended, with its command's exit status (null: not known, or the command never began)."""

    job: str
    attempt: int
    outcome: Outcome
    status: int | None
    signal: int | None
    why: str


class JobCancelRequested(TypedDict):
    """A job's end was requested; `outcome` is `cancelled` or `over_cost`."""

    job: str
    outcome: Outcome
    why: str
    host: str


class JobResultsFetched(TypedDict):
    """Results are in `directory` on the computer `host`; `whole`: complete, with the machine's sizes and hashes.

    With an empty `host`, `directory` is the address of a bucket (`whole`: it has all files of its list) or of a volume.
    """

    job: str
    files: int
    bytes: int
    directory: str
    host: str
    whole: bool
    why: str


class JobClosed(TypedDict):
    """Nothing is left to do for a job: its machine is proved ended, or existed before the job and stays."""

    job: str
    why: str


class JobResumed(TypedDict):
    """A stopped machine is about to be started again, for the results of a job that are on it."""

    job: str
    attempt: int
    machine: str
    why: str


class SlurmTask(TypedDict):
    """One job of Slurm, or one element of an array: on which machines it runs or ran, and when.

    `reason` is why it waits, as Slurm calls it.
    """

    id: str
    state: str
    machines: list[str]
    begin: Time | None
    end: Time | None
    reason: NotRequired[str]


class JobInSlurm(TypedDict):
    """The state of a job in Slurm, under Slurm's id."""

    job: str
    attempt: int
    id: str
    tasks: list[SlurmTask]


class SlurmJobRecorded(TypedDict):
    """A job that was submitted directly to a cluster's Slurm (sbatch, srun) has ended, by Slurm's accounting.

    `members` are the machines of the cluster, `task` says on which it ran; `status` is its exit status.
    """

    cluster: str
    members: list[str]
    user: str
    name: str
    status: int | None
    task: SlurmTask


class JobWaits(TypedDict):
    """An attempt waits for a machine: its launch was refused for the first time, for this reason."""

    job: str
    attempt: int
    why: str


class JobGangRefused(TypedDict):
    """A cluster launch failed in part: `members` came up for this attempt, and were ended again."""

    job: str
    attempt: int
    members: list[str]


def _line(kind: str, body: Mapping[str, object], at: datetime, what: str, *, clock: str = OWN_CLOCK) -> Draft:
    """Return a line about a job; a second line with the same `what` about that job is not written."""
    return Draft(kind, SUBJECT, body, at, f"job:{body['job']}:{what}", clock)


def job_requested(job: str, name: str, key: str | None, host: str, spec: JobSpec, now: datetime) -> Draft:
    """Return the line that requests a job, before anything is launched for it."""
    return _line("job_requested", JobRequested(job=job, name=name, key=key, host=host, spec=spec), now, "requested")


def job_placed(
    job: str,
    attempt: int,
    now: datetime,
    *,
    key: str | None,
    machine: str | None,
    market: Market | None = None,
    turn: int = 0,
) -> Draft:
    """Return the line that assigns an attempt to an existing machine, or to one that will be launched with this key.

    `market` and `turn` are for a job with a deadline: see `JobPlaced`.
    """
    body: JobPlaced = {"job": job, "attempt": attempt, "key": key, "machine": machine}
    if market is not None:
        body |= {"market": market, "turn": turn}
    turn_suffix = f":{turn}" if turn else ""
    return _line("job_placed", body, now, f"{attempt}:placed{turn_suffix}")


def job_machine(
    job: str, attempt: int, machine: str, now: datetime, *, cluster: str | None = None, members: Sequence[str] = ()
) -> Draft:
    """Return the line that names the machine that was launched for an attempt, or the nodes of its cluster."""
    body: JobMachine = {"job": job, "attempt": attempt, "machine": machine}
    if cluster is not None:
        body |= {"cluster": cluster, "members": list(members)}
    return _line("job_machine", body, now, f"{attempt}:machine")


def job_began(job: str, attempt: int, setup_s: float | None, at: datetime) -> Draft:
    """Return the line that the command has begun; `at` is the machine's own time."""
    body = JobBegan(job=job, attempt=attempt, setup_s=setup_s)
    return _line("job_began", body, at, f"{attempt}:began", clock=MACHINE)


def job_progressed(job: str, attempt: int, done: float, of: float | None, now: datetime) -> Draft:
    """Return the line of a job's progress."""
    body = JobProgressed(job=job, attempt=attempt, done=done, of=of)
    return _line("job_progressed", body, now, f"{attempt}:progressed:{iso(now)}")


def job_work_saved(job: str, attempt: int, checkpoint: str, work_s: float, now: datetime) -> Draft:
    """Return the line that a checkpoint was copied here, with the seconds of work that it holds."""
    body = JobWorkSaved(job=job, attempt=attempt, checkpoint=checkpoint, work_s=round(work_s, 3))
    return _line("job_work_saved", body, now, f"{attempt}:saved:{iso(now)}")


def job_move_requested(
    job: str, attempt: int, to: Market | None, why: str, now: datetime, *, interrupted: bool = False
) -> Draft:
    """Return the line that is written before a machine is ended whose job continues elsewhere."""
    body = JobMoveRequested(job=job, attempt=attempt, to=to, interrupted=interrupted, why=why)
    return _line("job_move_requested", body, now, f"{attempt}:move")


def job_try_ended(
    job: str, attempt: int, now: datetime, *, interrupted: bool, status: int | None, why: str, also: Flag | None = None
) -> Draft:
    """Return the line that an attempt is over and another one follows."""
    body: JobTryEnded = {"job": job, "attempt": attempt, "interrupted": interrupted, "status": status, "why": why}
    if also is not None:
        body[also] = True
    return _line("job_try_ended", body, now, f"{attempt}:try-ended")


def job_ended(
    job: str,
    attempt: int,
    outcome: Outcome,
    at: datetime,
    *,
    status: int | None = None,
    signal: int | None = None,
    why: str = "",
    is_machine_time: bool = False,
) -> Draft:
    """Return the line that a job is over; `is_machine_time`: `at` is the machine's own time."""
    body = JobEnded(job=job, attempt=attempt, outcome=outcome, status=status, signal=signal, why=why)
    return _line("job_ended", body, at, "ended", clock=MACHINE if is_machine_time else OWN_CLOCK)


def job_cancel_requested(job: str, outcome: Outcome, why: str, host: str, now: datetime) -> Draft:
    """Return the line that somebody asked for a job's end."""
    body = JobCancelRequested(job=job, outcome=outcome, why=why, host=host)
    return _line("job_cancel_requested", body, now, "cancel")


def job_results_fetched(
    job: str, files: int, size: int, directory: str, host: str, now: datetime, *, whole: bool, why: str = ""
) -> Draft:
    """Return the line that says where results are, and whether they are whole; `size` is in bytes."""
    body = JobResultsFetched(job=job, files=files, bytes=size, directory=directory, host=host, whole=whole, why=why)
    return _line("job_results_fetched", body, now, "fetched" if whole else f"fetched:{iso(now)}")


def job_resumed(job: str, attempt: int, number: int, machine: str, why: str, now: datetime) -> Draft:
    """Return the line that a stopped machine is about to be started again for a job's results, for the n-th time."""
    body = JobResumed(job=job, attempt=attempt, machine=machine, why=why)
    return _line("job_resumed", body, now, f"resumed:{attempt}:{number}")


def job_in_slurm(job: str, attempt: int, id_: str, tasks: list[SlurmTask], now: datetime) -> Draft:
    """Return the line that says where a job is in Slurm."""
    body: JobInSlurm = {"job": job, "attempt": attempt, "id": id_, "tasks": tasks}
    what = "+".join(f"{task['id']}{task['state']}{task['begin']}{task['end']}" for task in tasks)
    repeat_suffix = f":{iso(now)}" * any("reason" in task for task in tasks)  # it may wait for the same once more
    return _line("job_in_slurm", body, now, f"{attempt}:slurm:{id_}:{what}{repeat_suffix}")


def slurm_job_recorded(record: SlurmJobRecorded, at: datetime) -> Draft:
    """Return the line of a job that somebody gave to a cluster's Slurm; `at` is when it ended."""
    task = record["task"]
    return Draft("slurm_job_recorded", SUBJECT, record, at, f"slurm:{record['cluster']}:{task['id']}:{task['begin']}")


def job_waits(job: str, attempt: int, why: str, now: datetime, what: str = "waits") -> Draft:
    """Return the line that an attempt waits for a machine, or ("start") that its machine cannot begin it."""
    return _line("job_waits", JobWaits(job=job, attempt=attempt, why=why), now, f"{attempt}:{what}")


def job_gang_refused(job: str, attempt: int, members: Sequence[str], now: datetime) -> Draft:
    """Return the line that names the machines that came up for an attempt, and were ended because others did not."""
    body = JobGangRefused(job=job, attempt=attempt, members=list(members))
    return _line("job_gang_refused", body, now, f"{attempt}:refused:{'+'.join(sorted(members))}")


def job_closed(job: str, why: str, now: datetime) -> Draft:
    """Return the line that nothing is left to do for a job."""
    return _line("job_closed", JobClosed(job=job, why=why), now, "closed")
