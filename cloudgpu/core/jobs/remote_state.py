"""The state of a job's attempt on its machine, as observed. Times are epoch seconds by the machine's own clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cloudgpu.core.clusters.queue import waits_text


class Phase(StrEnum):
    """How far an attempt is on its machine."""

    ABSENT = "absent"  # the machine has no files of it
    CLAIMED = "claimed"  # its files are being copied there
    SETUP = "setup"
    RUNNING = "running"
    ORPHANED = "orphaned"  # it runs, but the supervisor that would record its exit status was killed
    EXITED = "exited"
    LOST = "lost"  # it ran and does not, and its exit status is not known: the machine was restarted, for example


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended: `reason` is exited, no_command, setup, data, start, timeout, lost, or why it was cancelled.

    `no_command`: the machine does not have it. `start`: it could not be started, as the disk was full, for example.
    `why` is an explanation.
    """

    status: int | None
    signal: int | None
    reason: str
    ended_at: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Uploads:
    """The state of uploads to a bucket: a process does them (`alive`), with a signed upload form valid `until` then.

    `at` is when everything so far had last arrived; `final`: the command is over, and all has arrived. `error` is what
    failed since then.
    """

    alive: bool
    until: float
    at: float | None
    final: bool
    error: str

    def is_good(self, now: float, least_s: float) -> bool:
        """Return whether a process uploads, with a form that is valid for longer than `least_s` from now on."""
        return self.alive and self.until - now > least_s


@dataclass(frozen=True, slots=True)
class EngineTask:
    """One job of Slurm, or one element (`task`) of an array: `nodes` by name, times as seconds since 1970."""

    id: str
    task: str
    state: str
    reason: str
    nodes: tuple[str, ...]
    begin: float | None
    end: float | None


@dataclass(frozen=True, slots=True)
class SlurmJobState:
    """What Slurm says of a job that was submitted to it under `name`."""

    id: str
    name: str
    tasks: tuple[EngineTask, ...]

    @property
    def text(self) -> str:
        """Where it is in Slurm, in words: `Slurm job 12 waits in Slurm's queue: Resources (...)`."""
        if self.tasks and all(task.state == "PENDING" for task in self.tasks):
            return f"Slurm job {self.id} {waits_text(one.reason for one in self.tasks)}"
        states = dict.fromkeys(task.state for task in self.tasks)
        return f"Slurm job {self.id}{': ' * bool(states)}{', '.join(states)}"


@dataclass(frozen=True, slots=True)
class RemoteState:
    """One observation of an attempt, at `now`. `progress` is what the command reported: (done, total).

    `out` and `err` are the sizes of its output streams; all sizes are in bytes.
    """

    phase: Phase
    now: float
    started_at: float | None = None
    setup_s: float | None = None
    exit: Exit | None = None
    out: int = 0
    err: int = 0
    last_output_at: float | None = None
    progress: tuple[float, float | None] | None = None
    free_disk_bytes: int | None = None
    results_bytes: int = 0
    checkpoints: tuple[str, ...] = ()
    data: tuple[int, int] | None = None  # bytes downloaded from buckets: (received, total)
    uploads: Uploads | None = None
    checkpointed_at: float | None = None  # when the newest finished checkpoint was last changed
    engine: SlurmJobState | None = None  # of a job that Slurm has
    notice: bool = False  # the provider has given notice that it takes the machine
