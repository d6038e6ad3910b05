"""One query of a cluster's engine: its queue, and when its last job ended.

It is queried together with the agent of node 0, in one command: the queue follows a line `QUEUE_HEADER`. A cluster
whose engine does not answer does not count as idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from cloudgpu.core.clusters.layout import CONTROLLER, engine_directory
from cloudgpu.core.clusters.queue import COMMAND, Queue, QueuedJob, read_queue
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.naming import first_few

QUEUE_HEADER = "# queue"
SQUEUE_S = 5  # the timeout of squeue, which retries if the controller does not answer
_END_MARKER = "# end "  # begins the last line: exit status, time now, time of the last job record
_MESSAGE_PREFIXES = ("squeue: ", "slurm_")  # prefixes of Slurm's messages, which are not entries of the queue
_MAX_NAMED = 3  # jobs that are named one by one


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine's answer: its queue, None if it did not answer (`fault` says why, a clause).

    `ended_ago` is how long ago its last job ended, by its own clock; None if none has, or that is not known.
    `was_queried`: it was queried at all.
    """

    queue: Queue | None
    fault: str = ""
    ended_ago: timedelta | None = None
    was_queried: bool = True


def has_engine(machine: Machine) -> bool:
    """Say whether a machine is a node of a cluster whose jobs an engine schedules."""
    return machine.cluster is not None and machine.cluster.engine == "slurm"


def is_queried(machine: Machine) -> bool:
    """Return whether a machine is the node of its cluster on which the engine is queried."""
    return has_engine(machine) and machine.cluster is not None and machine.cluster.node == CONTROLLER


def with_queue(command: str, cluster: str) -> str:
    """Return a shell script that runs `command`, then prints the queue of a cluster; it ends as `command` does."""
    squeue = " ".join(f"'{word}'" if "%" in word else word for word in COMMAND)
    return (
        f"{command}; status=$?; echo; echo '{QUEUE_HEADER}'; "
        f'cd "$HOME/{engine_directory(cluster)}" && SLURM_CONF="$PWD/slurm.conf" timeout {SQUEUE_S} {squeue} 2>&1; '
        f'echo "{_END_MARKER}$? $(date +%s) $(test -s jobcomp && stat -c %Y jobcomp)"; exit $status'
    )


def split_answer(answer: bytes) -> tuple[bytes, str]:
    """Return what the command of `with_queue` printed, and what follows QUEUE_HEADER."""
    printed, _, engine_text = answer.partition(f"\n{QUEUE_HEADER}\n".encode())
    return printed, engine_text.decode("utf-8", "replace")


def read_engine(text: str) -> EngineStatus:
    """Return the parsed output of the engine; without a queue if it cannot be parsed."""
    body, mark, end = text.rpartition(_END_MARKER)
    words = end.split()
    if not mark or not words:
        return EngineStatus(None, "the engine's answer is not whole")
    lines = [line for line in body.splitlines() if line.strip()]
    if words[0] != "0":
        return EngineStatus(None, _fault(words[0], lines))
    try:
        queue = read_queue("\n".join(line for line in lines if not line.startswith(_MESSAGE_PREFIXES)))
    except ValueError as error:
        return EngineStatus(None, str(error))
    numbers = [int(word) for word in words[1:] if word.isdecimal()]
    ended = timedelta(seconds=max(0, numbers[0] - numbers[1])) if len(numbers) > 1 else None
    return EngineStatus(queue, ended_ago=ended)


def _fault(status: str, lines: Sequence[str]) -> str:
    if status == "124":
        return f"the engine did not answer within {SQUEUE_S} s"
    answer = lines[-1].strip()[:120] if lines else f"status {status}"
    return f"the engine did not answer ({answer})"


def queue_sentence(queue: Queue) -> str:
    """Return a queue in words: `jobs 12, 13 run, job 14 waits`; `no job runs or waits` for an empty one."""
    parts = [_jobs_text(jobs, verb) for jobs, verb in ((queue.running, "run"), (queue.waiting, "wait")) if jobs]
    if parts:
        return ", ".join(parts)
    stuck = [f"job {job.id} {_stuck_text(job)}" for job in queue.hopeless]
    more = f" and {len(stuck) - _MAX_NAMED} more like it" if len(stuck) > _MAX_NAMED else ""
    return "no job runs or waits" + (f" ({', '.join(stuck[:_MAX_NAMED])}{more})" if stuck else "")


def _stuck_text(job: QueuedJob) -> str:
    reason = f": {job.reason}" if job.reason else ""
    return f"is held{reason}" if job.why_never_runs == "held" else f"can never run{reason}"


def _jobs_text(jobs: Sequence[QueuedJob], verb: str) -> str:
    names = first_few([job.id for job in jobs], _MAX_NAMED)
    return f"job {names} {verb}s" if len(jobs) == 1 else f"jobs {names} {verb}"
