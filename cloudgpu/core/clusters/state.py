"""The state of Slurm as an engine, from the output of `sinfo` and `squeue`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

SINFO = "%N|%T|%E"  # name, state, why it is not up
SQUEUE = "%i|%T|%r"  # id, state, why it waits
# `planned`: idle, and the backfill scheduler has planned it for a waiting job.
USABLE_STATES = ("idle", "planned", "mixed", "allocated", "completing")
_RUNNING_STATES = ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT")
# Reasons that Slurm itself gives and a restart ends; a node with a person's reason is left as it is.
SLURM_REASONS = (
    "duplicate jobid",
    "not responding",
    "node unexpectedly rebooted",
    "kill task failed",
    "batch job complete",
)


class NodeState(NamedTuple):
    """The state of a node, in Slurm's words (idle, mixed, allocated, down, drained, ...), and the reason for it."""

    name: str
    state: str
    reason: str
    responds: bool

    @property
    def is_usable(self) -> bool:
        """Whether jobs can run there."""
        return self.responds and self.state in USABLE_STATES


class EngineJob(NamedTuple):
    """A job that has not ended, in Slurm's words: `reason` says why it waits (`None`: it does not)."""

    id: str
    state: str
    reason: str

    @property
    def runs(self) -> bool:
        """Whether it has nodes: it runs, is beginning or ending, or is suspended or stopped on them."""
        return self.state in _RUNNING_STATES


class SlurmState(NamedTuple):
    """Whether the engine answers (if not, `why`), its nodes, and its jobs that have not ended."""

    answers: bool
    nodes: tuple[NodeState, ...] = ()
    jobs: tuple[EngineJob, ...] = ()
    why: str = ""

    @property
    def running_count(self) -> int:
        """How many jobs have nodes (see `EngineJob.runs`)."""
        return sum(job.runs for job in self.jobs)

    @property
    def waiting_count(self) -> int:
        """How many jobs wait, even if they can never run."""
        return len(self.jobs) - self.running_count

    @property
    def usable_nodes(self) -> int:
        """How many nodes can run jobs."""
        return sum(node.is_usable for node in self.nodes)


def read_sinfo(text: str) -> tuple[NodeState, ...]:
    """Return the nodes in what `sinfo -h -N -o '%N|%T|%E'` prints, each once. `*` after a state: no answer."""
    found: dict[str, NodeState] = {}
    for name, state, reason in _rows(text):
        word = state.rstrip("*~#!%$@^-+")
        found[name] = NodeState(name, word, "" if reason == "none" else reason, responds="*" not in state)
    return tuple(found.values())


def read_squeue(text: str) -> tuple[EngineJob, ...]:
    """Return the jobs in what `squeue -h -a -r -o '%i|%T|%r'` prints."""
    return tuple(EngineJob(*row) for row in _rows(text))


def _rows(text: str) -> Iterable[tuple[str, str, str]]:
    for line in text.splitlines():
        first, second, third = (*line.split("|", 2), "", "")[:3]
        if first.strip() and second:
            yield first.strip(), second.strip(), third.strip()


def missing_nodes(names: Sequence[str], nodes: Sequence[NodeState]) -> tuple[str, ...]:
    """Return the nodes of these names that cannot run jobs, each with its state, for a sentence."""
    by_name = {one.name: one for one in nodes}
    missing = []
    for name in names:
        one = by_name.get(name)
        if one is None:
            missing.append(f"{name} (unknown to Slurm)")
        elif not one.is_usable:
            state = one.state if one.responds else f"{one.state}, does not answer"
            missing.append(f"{name} ({state}{f': {one.reason}' if one.reason else ''})")
    return tuple(missing)


def nodes_to_resume(nodes: Sequence[NodeState]) -> tuple[str, ...]:
    """Return the nodes that Slurm itself took out of use for a reason that a restart ends."""
    return tuple(
        state.name
        for state in nodes
        if state.responds
        and state.state in ("down", "drained", "draining")
        and any(word in state.reason.lower() for word in SLURM_REASONS)
    )
