"""What verbs say of a cluster before they ask, and after they acted on all its nodes: each fault, the gravest code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from cloudgpu.cli.clusters.listing import node_counts_text, nodes_text
from cloudgpu.cli.common import Format, emit, tell
from cloudgpu.control.clusters.together import worst_of
from cloudgpu.control.inventory.listing import cluster
from cloudgpu.core.clusters.members import clusters
from cloudgpu.core.model.cluster import node_name
from cloudgpu.views.clusters import cluster_value, sum_of
from cloudgpu.views.machines import machine_value

if TYPE_CHECKING:
    from cloudgpu.control.clusters.together import ClusterResult
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.errors import CloudgpuError
    from cloudgpu.views.documents.machines.ended import DownDocument
    from cloudgpu.views.documents.machines.machines import ClusterDocument, ClusterMachinesDocument, MachineDocument


def emit_all(
    session: Session, done: ClusterResult, output: Format, text_of: Callable[[ClusterMachinesDocument], str]
) -> None:
    """Print what came of all nodes, as `said` where all went well; leave with the exit code of the gravest fault."""
    value = cluster(session, done.machines, done.faults)
    emit(output, value, partial_text(value) if done.faults else text_of(value))
    exit_with_worst(done.faults)


def partial_text(value: ClusterMachinesDocument) -> str:
    """Return how the nodes stand where something failed at one of them."""
    return f"{value['name']}: {node_counts_text(value, value['machines'])}."


def exit_with_worst(errors: Sequence[CloudgpuError]) -> None:
    """Say each fault; leave with the exit code of the gravest, if there is one."""
    for error in errors:
        tell(f"error: {error.message} {error.next or ''}".rstrip())
    worst = worst_of(errors)
    if worst is not None:
        raise typer.Exit(worst.exit_code)


def cluster_as_machine(value: ClusterDocument) -> MachineDocument:
    """Return a cluster as a question shows a machine: of its type `4 x TYPE`."""
    return value | {"instance_type": nodes_text(value)}


def question_machines(session: Session, machines: Sequence[Machine]) -> list[MachineDocument]:
    """Return what the question shows: the machines of their own, and each cluster as one."""
    now = session.clock()
    values = [machine_value(machine, now) for machine in machines if machine.gang is None]
    return values + [
        cluster_as_machine(cluster_value(nodes, [machine_value(node, now) for node in nodes]))
        for nodes in clusters(machines)
    ]


def terminated_values(document: DownDocument) -> list[MachineDocument]:
    """Return what is said to be gone: a cluster as one where none of its nodes failed, else each node."""
    failed = {fault["value"] for fault in document["failed"]}
    whole: dict[str, list[MachineDocument]] = {}
    for value in document["terminated"]:
        cluster = value["cluster"]
        names = [node_name(cluster["name"], node) for node in range(cluster["nodes"])] if cluster else []
        alone = cluster is None or len(names) == 1 or not failed.isdisjoint(names)
        whole.setdefault(value["id"] if cluster is None or alone else cluster["id"], []).append(value)
    return [_as_machine(values) for values in whole.values()]


def _as_machine(values: Sequence[MachineDocument]) -> MachineDocument:
    first = values[0]
    if len(values) == 1 or first["cluster"] is None:
        return first
    name = f"{first['cluster']['name']} with all its {len(values)} nodes"
    unpriced = list(dict.fromkeys(one for value in values for one in value["unpriced"]))
    return {**first, "name": name, "spent_usd": sum_of(value["spent_usd"] for value in values), "unpriced": unpriced}
