"""What the lines of jobs say: a type for each body. `core.events.kinds` has them by kind.

Every line is of the subject `jobs` and names its job by id. No value of a secret is in any of them.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from cloudgpu.core.events.bodies import Nanos, Time

Outcome = Literal["succeeded", "failed", "setup_failed", "timed_out", "over_cost", "cancelled", "lost", "not_launched"]


class DataRecord(TypedDict):
    """Data that is there already: a volume, a bucket or a path, and where the command finds it."""

    source: str
    target: str


class JobSpec(TypedDict):
    """What a job is: all that a restart needs, but for the snapshot's files and the values of secrets.

    Times are seconds. `launch` holds the options of `up` as text; `machine` is the id of a machine that was there
    (null: one is launched for the job). `environment` has the values of --env; of --env-file only the path.
    `dearest` is the most that the job may cost by its plan, null where that has no end.
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
    checkpoint: str | None
    every_s: int
    timeout_s: int | None
    max_cost: Nanos | None
    stall_s: int | None
    retries: int
    restarts: int
    keep_s: int
    results_wait_s: int
    owner: str
    project: str
    dearest: Nanos | None


class JobRequested(TypedDict):
    """A job is asked for, before anything is launched; `key` is what attaches to it, on the computer `host`."""

    job: str
    name: str
    key: str | None
    host: str
    spec: JobSpec


class JobPlaced(TypedDict):
    """An attempt is to run on `machine`, or on the one that is about to be launched with the key `key`."""

    job: str
    attempt: int
    key: str | None
    machine: str | None


class JobMachine(TypedDict):
    """The machine of an attempt is known."""

    job: str
    attempt: int
    machine: str


class JobBegan(TypedDict):
    """The command has begun, by the machine's clock; its setup took `setup_s` seconds (null: it needed none)."""

    job: str
    attempt: int
    setup_s: float | None


class JobProgressed(TypedDict):
    """How far a job is, by what its command wrote: `done` of `of`."""

    job: str
    attempt: int
    done: float
    of: float | None


class JobTryEnded(TypedDict):
    """An attempt is over and another one follows: its command failed, or its machine is gone (`interrupted`)."""

    job: str
    attempt: int
    interrupted: bool
    status: int | None
    why: str


class JobEnded(TypedDict):
    """A job is over, with its command's own exit status (null: it is not known, or the command never began)."""

    job: str
    attempt: int
    outcome: Outcome
    status: int | None
    signal: int | None
    why: str


class JobCancelRequested(TypedDict):
    """Somebody asked for a job's end; `outcome` is what it ends as, `cancelled` or `over_cost`."""

    job: str
    outcome: Outcome
    why: str
    host: str


class JobResultsFetched(TypedDict):
    """Results are in `directory` on the computer `host`; `whole`: sizes and hashes agree with the machine's."""

    job: str
    files: int
    bytes: int
    directory: str
    host: str
    whole: bool
    why: str


class JobClosed(TypedDict):
    """Nothing is left to do for a job: its machine is proved ended, or was there before and is left."""

    job: str
    why: str


class JobKept(TypedDict):
    """The machine of a failed job is kept until then, for a look."""

    job: str
    until: Time
