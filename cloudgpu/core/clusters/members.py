"""Which machines are the nodes of a cluster, according to the ledger, and how complete it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.identity import may_cost_money
from cloudgpu.core.model.machine import Machine, by_cluster, node_of, not_none
from cloudgpu.errors import InstanceNotFound, InvalidRequest


class ClusterStatus(NamedTuple):
    """How many (`existing`) of a cluster's `nodes` exist; `degraded`: one that was created is gone."""

    existing: int
    nodes: int
    degraded: bool

    def text(self) -> str:
        """Return it as `ls` has it: `4/4`, `3/4 degraded`, or `2/4` while a launch is uncertain."""
        return f"{self.existing}/{self.nodes}{' degraded' if self.degraded else ''}"


def members(machines: Iterable[Machine], name: str, *, ended: bool = False) -> tuple[Machine, ...]:
    """Return the nodes of the cluster with this name or id that exist or have retained resources, in their order.

    Of several clusters with this name, one that exists is preferred to one with only retained resources, and then the
    latest. With `ended`, if there is neither, all nodes of the latest one that has ended. Empty for none.
    """
    named_nodes = (
        one for one in machines if one.cluster_node is not None and name in (one.cluster_node.name, one.cluster_node.id)
    )
    groups = [*by_cluster(named_nodes).values()]
    for is_preferred in (lambda machine: machine.terminated_at is None, may_cost_money):
        found = [group for group in groups if any(is_preferred(one) for one in group)]
        if found:
            return tuple(one for one in found[-1] if may_cost_money(one))
    return tuple(groups[-1]) if groups and ended else ()


def clusters(machines: Iterable[Machine]) -> list[tuple[Machine, ...]]:
    """Return the nodes of each cluster among these machines, in the order of the clusters' first nodes.

    Nodes that are gone are left out, unless all nodes of the cluster are gone.
    """
    groups = by_cluster(machine for machine in machines if machine.cluster_node is not None).values()
    return [tuple([one for one in group if may_cost_money(one)] or group) for group in groups]


def status(nodes: Sequence[Machine]) -> ClusterStatus:
    """Return how complete the cluster with these nodes is. `nodes` are what `members` or `clusters` returns."""
    machines = [machine for machine in nodes if may_cost_money(machine)]
    total = _node(nodes[0]).nodes
    return ClusterStatus(
        len(machines), total, len(machines) < total and all(one.launch_status != "open" for one in machines)
    )


def first_node(nodes: Sequence[Machine]) -> Machine:
    """Return node 0: the machine that a cluster's name stands for in a command about one machine.

    Raises InstanceNotFound where it is gone: another node has neither its files nor its queue.
    """
    first = nodes[0]
    if node_of(first) == 0:
        return first
    cluster, names = _node(first), ", ".join(machine.name for machine in nodes[:8])
    raise InstanceNotFound(
        f"{cluster.name}-0 is gone, and {cluster.name} means that node here.",
        field="name",
        value=cluster.name,
        next=f"Name another node of it: {names}",
    )


def require_whole_cluster(machine: Machine, name: str | None, verb: str) -> None:
    """Raise InvalidRequest if `name` is that of one node: the command `verb` only works on a whole cluster."""
    cluster = machine.cluster_node
    if cluster is None or name not in (machine.name, machine.id):
        return
    raise InvalidRequest(
        f"{machine.name} is one of the {cluster.nodes} nodes of {cluster.name}, and a part of a cluster has no "
        f"{verb} of its own.",
        field="name",
        value=name,
        next=f"For all of it: cloudgpu {verb} {cluster.name}",
    )


def _node(machine: Machine) -> ClusterNode:
    return not_none(machine.cluster_node)
