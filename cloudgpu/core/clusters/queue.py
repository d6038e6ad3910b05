"""Parses Slurm's queue and its records of ended jobs.

It tells which jobs run, start or wait, and which waiting ones can never run. `COMMAND` prints the queue. A job that is
held, or waits for what its cluster does not have, is no activity: it would keep a cluster running for ever. Names of
states and reasons are those of Slurm 21.08 to 25.05 (`man squeue`, "JOB STATE CODES", "JOB REASON CODES"). The record
has a line for each job, as the plugin jobcomp/filetxt writes them, with times in the controller's time zone, which the
caller gives as an offset from UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

FORMAT = "%i|%T|%u|%P|%D|%r|%j"  # the name is last, as it may contain the separator
COMMAND = ("squeue", "--noheader", "--all", "--format", FORMAT)
_FIELD_COUNT = 7
_PENDING = "PENDING"
_HELD_STATES = frozenset(("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_ENDED_STATES = frozenset(
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
_HELD_REASONS = ("jobheld", "requeued held", "requeued in held state", "reservationdeleted")
_IMPOSSIBLE_REASONS = (
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


_REASON_TEXTS = {
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
}  # by the begin of a reason; the longest match counts
_NAME = re.compile(r"(?:^| )Name=(.*?) JobState=")
_WORD = re.compile(r"(?:^| )([A-Za-z]+)=(\S*)")
_GROUP = re.compile(r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)(?:,|$)")
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"
MAX_NODES = 65_536


def waits_text(reasons: Iterable[str]) -> str:
    """Return for what a job waits in Slurm's queue, in words, by Slurm's reasons: each once, with what it means."""
    known = dict.fromkeys(reason for reason in reasons if reason and reason != "None")
    text = ", ".join(f"{one}{_meaning(one)}" for one in known)
    return f"waits in Slurm's queue{': ' * bool(text)}{text}"


def _meaning(reason: str) -> str:
    text = reason.lower().replace("_", " ").strip("()")
    found = [one for one in _REASON_TEXTS if text.startswith(one)]
    return f" ({_REASON_TEXTS[max(found, key=len)]})" if found else ""


class QueuedJob(NamedTuple):
    """One line of Slurm's queue: `id` as Slurm writes it (12, 12_3, 12_[4-9%4]); `reason` is why it waits."""

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
    def why_never_runs(self) -> str:
        """Why it never runs without intervention: `held` or `impossible`; empty if it may run."""
        text = self.reason.lower().replace("_", " ").strip("()")
        if self.state in _HELD_STATES or (self.state == _PENDING and any(one in text for one in _HELD_REASONS)):
            return "held"
        if self.state != _PENDING:
            return ""
        return "impossible" if any(one in text for one in _IMPOSSIBLE_REASONS) else ""

    @property
    def is_active(self) -> bool:
        """Whether it runs, starts, or waits and may run. An unknown state counts as active."""
        return self.state not in _ENDED_STATES and not self.why_never_runs


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of a cluster's engine."""

    jobs: tuple[QueuedJob, ...] = ()

    @property
    def is_busy(self) -> bool:
        """Whether a job runs, starts, or waits and may run."""
        return any(job.is_active for job in self.jobs)

    @property
    def running(self) -> tuple[QueuedJob, ...]:
        """The jobs that run or start."""
        return tuple(job for job in self.jobs if job.is_active and not job.waits)

    @property
    def waiting(self) -> tuple[QueuedJob, ...]:
        """The jobs that wait and may run."""
        return tuple(job for job in self.jobs if job.is_active and job.waits)

    @property
    def hopeless(self) -> tuple[QueuedJob, ...]:
        """The jobs that are held, or can never run here."""
        return tuple(job for job in self.jobs if job.why_never_runs)


def read_queue(text: str) -> Queue:
    """Return the queue that `COMMAND` printed. Raises ValueError for an invalid line."""
    return Queue(tuple(_job(line) for line in text.splitlines() if line.strip()))


def _job(line: str) -> QueuedJob:
    parts = line.split("|", _FIELD_COUNT - 1)
    if len(parts) != _FIELD_COUNT or not parts[0].strip()[:1].isdecimal() or not parts[1]:
        raise ValueError(f"{line[:200]!r} is not a line of squeue")
    id_, state, user, partition, nodes, reason, name = parts
    count = nodes.strip()
    return QueuedJob(
        id_.strip(), state.strip(), user, partition, int(count) if count.isdecimal() else 0, reason.strip(), name
    )


class AccountingRecord(NamedTuple):
    """A job of Slurm that has ended: who ran it where, from when to when, and its exit status (128 + n: signal n).

    `begin` is None for one that never began.
    """

    id: str
    user: str
    name: str
    state: str
    nodes: tuple[str, ...]
    begin: datetime | None
    end: datetime
    status: int | None


def read_records(text: str, utc_offset: timedelta) -> tuple[AccountingRecord, ...]:
    """Return the jobs of these lines, in their order; an incomplete line is left out.

    `utc_offset` is what the controller's clock is ahead of UTC.
    """
    return tuple(record for line in text.splitlines() if (record := _record(line, utc_offset)) is not None)


def _record(line: str, offset: timedelta) -> AccountingRecord | None:
    words, name = dict(_WORD.findall(line)), _NAME.search(line)
    end = _time(words.get("EndTime", ""), offset)
    if name is None or end is None or not words.get("JobId", "").isdecimal() or "ExitCode" not in words:
        return None
    user = words.get("UserId", "").partition("(")[0]
    nodes = tuple(node_names(words.get("NodeList", "")))
    begin = _time(words.get("StartTime", ""), offset) if nodes else None
    return AccountingRecord(
        words["JobId"], user, name[1], words.get("JobState", ""), nodes, begin, end, status_of(words["ExitCode"])
    )


def status_of(text: str) -> int | None:
    """Return the exit status that Slurm writes as `STATUS:SIGNAL`; None for any other text."""
    status, colon, number = text.partition(":")
    if not colon or not status.isdecimal() or not number.isdecimal():
        return None
    return int(status) or (128 + int(number) if int(number) else 0)


def _time(text: str, offset: timedelta) -> datetime | None:
    try:
        return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC) - offset
    except ValueError:
        return None


def node_names(text: str) -> Iterator[str]:
    """Yield the names of nodes that Slurm writes as `train-[0-2,5],head`; none for `(null)`, at most 65,536."""
    if text in ("", "(null)", "None", "None assigned"):
        return
    remaining = MAX_NODES
    for before, numbers, after in _GROUP.findall(text):
        if not before and not numbers and not after:
            continue
        for number in _numbers(numbers) if numbers else ("",):
            if not remaining:
                return
            remaining -= 1
            yield f"{before}{number}{after}"


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash or not first.isdecimal() or not last.isdecimal():
            yield part
            continue
        for number in range(int(first), min(int(last), int(first) + MAX_NODES) + 1):
            yield str(number).zfill(len(first))
