"""`down` of clusters: each is one line before the question, and one after it where all its nodes are gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudgpu.cli.clusters.answer import as_one
from cloudgpu.core.clusters.members import clusters
from cloudgpu.core.model.cluster import node_name
from cloudgpu.views.clusters import cluster_value, sum_of
from cloudgpu.views.machines import machine_value

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.views.documents.machines.machines import DownDocument, MachineDocument


def as_questions(session: Session, machines: Sequence[Machine]) -> list[MachineDocument]:
    """Return what the question shows: the machines of their own, and each cluster as one."""
    now = session.clock()
    values = [machine_value(machine, now) for machine in machines if machine.gang is None]
    return values + [
        as_one(cluster_value(nodes, [machine_value(node, now) for node in nodes])) for nodes in clusters(machines)
    ]


def as_ended(document: DownDocument) -> list[MachineDocument]:
    """Return what is said to be gone: a cluster as one where none of its nodes failed, else each node."""
    failed = {fault["value"] for fault in document["failed"]}
    whole: dict[str, list[MachineDocument]] = {}
    for value in document["terminated"]:
        cluster = value["cluster"]
        names = [node_name(cluster["name"], node) for node in range(cluster["nodes"])] if cluster else []
        alone = cluster is None or len(names) == 1 or not failed.isdisjoint(names)
        whole.setdefault(value["id"] if cluster is None or alone else cluster["id"], []).append(value)
    return [_one(values) for values in whole.values()]


def _one(values: Sequence[MachineDocument]) -> MachineDocument:
    first = values[0]
    if len(values) == 1 or first["cluster"] is None:
        return first
    name = f"{first['cluster']['name']} with all its {len(values)} nodes"
    unpriced = list(dict.fromkeys(one for value in values for one in value["unpriced"]))
    return {**first, "name": name, "spent_usd": sum_of(value["spent_usd"] for value in values), "unpriced": unpriced}
