"""What the queues of clusters have, in words: asked of node 0 of each, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloudgpu.control.clusters.engine import engine_of
from cloudgpu.control.session.session import Session
from cloudgpu.core.clusters.layout import cluster_id, engine_of_machine
from cloudgpu.core.clusters.members import clusters
from cloudgpu.core.clusters.state import EngineState
from cloudgpu.core.model.machine import Machine
from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Pool

AT_ONCE = 16  # queues that are asked side by side


def queues_of(session: Session, machines: Sequence[Machine]) -> Mapping[str, str]:
    """Return what the queue of each cluster has that runs, in words, by the cluster's id.

    One that does not answer is said to, with why: it keeps no other one from being asked. Machines of their own, and
    clusters without an engine, are not asked.
    """
    asked = [nodes for nodes in clusters(machines) if engine_of_machine(nodes[0]) == "slurm" and _runs(nodes)]
    if not asked:
        return {}

    def ask(nodes: Sequence[Machine]) -> str:
        with session.beside() as own:
            return _queue(own, nodes)

    with Pool(min(AT_ONCE, len(asked)), "queues") as pool:
        return {cluster_id(nodes[0]): said for nodes, said in zip(asked, pool.map(ask, asked), strict=True)}


def _runs(nodes: Sequence[Machine]) -> bool:
    return nodes[0].gang is not None and nodes[0].terminated_at is None and nodes[0].state == "running"


def _queue(session: Session, nodes: Sequence[Machine]) -> str:
    try:
        return queue_text(engine_of(session, nodes))
    except CloudgpuError as error:
        return f"its queue did not answer ({error.message.rstrip('.')})"


def queue_text(state: EngineState) -> str:
    """Return what a queue has: how many jobs run and wait, and how many nodes can run some."""
    if not state.alive:
        return f"its queue did not answer ({state.why.rstrip('.')})"
    jobs = f"{state.running} job{'s' * (state.running != 1)} running, {state.waiting} waiting"
    return f"{jobs}; {state.usable} of {len(state.nodes)} nodes can run jobs"
