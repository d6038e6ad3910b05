"""Reads Slurm's queue: which jobs run, start, or wait, and which of those that wait have no chance to run. Pure.

`COMMAND` is what has to be run for it. A job that is held, or waits for what its cluster does not have, is no activity:
it would keep a cluster for ever. Names of states and reasons are those of Slurm 21.08 to 25.05 (`man squeue`,
"JOB STATE CODES", "JOB REASON CODES").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

FORMAT = "%i|%T|%u|%P|%D|%r|%j"  # the name last: it alone may hold a bar that is not ours
COMMAND = ("squeue", "--noheader", "--all", "--format", FORMAT)
_FIELDS = 7
_PENDING = "PENDING"
_HELD_STATES = frozenset(("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_OVER = frozenset(
    (
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "COMPLETING",  # its command has ended; on a dead node it may stay so
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    )
)
_HELD = ("jobheld", "requeued held", "requeued in held state", "reservationdeleted")
_IMPOSSIBLE = (
    "reqnodenotavail",
    "nodes required for job are down",
    "nodedown",
    "node down",
    "partitionnodelimit",
    "partitiontimelimit",
    "partitiondown",
    "partitioninactive",
    "partitionconfig",
    "badconstraints",
    "dependencyneversatisfied",
    "accountnotallowed",
    "accountinactive",
    "invalidaccount",
    "invalidqos",
    "qosnotallowed",
    "inactivelimit",
    "nonexistent",
    "cannot run",
    "never run",
    "perjob",  # a limit for each job, which waiting does not change: QOSMaxGRESPerJob, ...
    "requested node configuration is not available",
)


_IN_WORDS = {
    "resources": "what it asks for is in use",
    "priority": "other jobs come first",
    "dependency": "a job that it follows is not over",
    "dependencyneversatisfied": "the job that it follows has failed",
    "jobarraytasklimit": "as many elements run as the array allows at once",
    "begintime": "its time to begin has not come",
    "licenses": "a licence that it needs is in use",
    "reservation": "its reservation has not begun",
    "jobheld": "it is held, and never starts unless somebody releases it",
    "reqnodenotavail": "a node that it needs is down, drained or reserved",
    "nodes required for job are down": "nodes that it needs are down, drained or reserved",
    "partitiondown": "its partition is down",
    "partitioninactive": "its partition is not in use",
    "partitionnodelimit": "it asks for more nodes than its partition allows",
    "partitiontimelimit": "it asks for more time than its partition allows",
    "assoc": "a limit of its account is reached",
    "qos": "a limit of its quality of service is reached",
}  # what a reason begins with; the longest counts


def waits_text(reasons: Iterable[str]) -> str:
    """Return for what a job waits in Slurm's queue, in words, by Slurm's reasons: each once, with what it means."""
    known = dict.fromkeys(one for one in reasons if one and one != "None")
    said = ", ".join(f"{one}{_meaning(one)}" for one in known)
    return f"waits in Slurm's queue{': ' * bool(said)}{said}"


def _meaning(reason: str) -> str:
    said = reason.lower().replace("_", " ").strip("()")
    found = [one for one in _IN_WORDS if said.startswith(one)]
    return f" ({_IN_WORDS[max(found, key=len)]})" if found else ""


class QueuedJob(NamedTuple):
    """One line of Slurm's queue: `id` as Slurm writes it (12, 12_3, 12_[4-9%4]), `reason` why it waits."""

    id: str
    state: str
    user: str
    partition: str
    nodes: int
    reason: str
    name: str

    @property
    def waits(self) -> bool:
        """Whether it has not begun."""
        return self.state == _PENDING or self.state in _HELD_STATES

    @property
    def hopeless(self) -> str:
        """Why it never runs unless somebody does something: `held` or `impossible`; empty if it may."""
        said = self.reason.lower().replace("_", " ").strip("()")
        if self.state in _HELD_STATES or (self.state == _PENDING and any(one in said for one in _HELD)):
            return "held"
        if self.state != _PENDING:
            return ""
        return "impossible" if any(one in said for one in _IMPOSSIBLE) else ""

    @property
    def is_active(self) -> bool:
        """Whether it runs, starts, or waits with a chance. A state that nobody here knows counts as one of these."""
        return self.state not in _OVER and not self.hopeless


@dataclass(frozen=True, slots=True)
class Queue:
    """What a cluster's engine has to do."""

    jobs: tuple[QueuedJob, ...] = ()

    @property
    def busy(self) -> bool:
        """Whether a job runs, starts, or waits with a chance."""
        return any(one.is_active for one in self.jobs)

    @property
    def running(self) -> tuple[QueuedJob, ...]:
        """The jobs that run or start."""
        return tuple(one for one in self.jobs if one.is_active and not one.waits)

    @property
    def waiting(self) -> tuple[QueuedJob, ...]:
        """The jobs that wait with a chance."""
        return tuple(one for one in self.jobs if one.is_active and one.waits)

    @property
    def hopeless(self) -> tuple[QueuedJob, ...]:
        """The jobs that are held, or can never run here."""
        return tuple(one for one in self.jobs if one.hopeless)


def read_queue(text: str) -> Queue:
    """Return the queue that `COMMAND` printed. Raises ValueError for a line that is none of its lines."""
    return Queue(tuple(_job(line) for line in text.splitlines() if line.strip()))


def _job(line: str) -> QueuedJob:
    parts = line.split("|", _FIELDS - 1)
    if len(parts) != _FIELDS or not parts[0].strip()[:1].isdecimal() or not parts[1]:
        raise ValueError(f"{line[:200]!r} is not a line of squeue")
    id_, state, user, partition, nodes, reason, name = parts
    count = nodes.strip()
    return QueuedJob(
        id_.strip(), state.strip(), user, partition, int(count) if count.isdecimal() else 0, reason.strip(), name
    )
