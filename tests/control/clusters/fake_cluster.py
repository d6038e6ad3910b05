"""A cluster on the fake cloud, as its launch leaves it: its nodes' rows, machines, tags and one lease."""

from __future__ import annotations

from dataclasses import replace

from cloudgpu.control.launch.launch import launch
from cloudgpu.core.model.cluster import node_key, node_name
from cloudgpu.core.model.facts import ClusterNode


def launched(lab, nodes=4, name="train", **more):
    """Launch so many machines as the nodes of one cluster, and return their rows."""
    return tuple(_node(lab, nodes, name, node, more) for node in range(nodes))


def _node(lab, nodes, name, node, more):
    key = node_key(f"key-{name}", node)
    prepared = lab.prepare(name=node_name(name, node), key=key, **more)
    cluster = ClusterNode(name, f"cg-{name}", node, nodes, "slurm", "wait")
    each = tuple(replace(one, request=replace(one.request, cluster=cluster)) for one in prepared.candidates.each)
    return launch(
        lab.session, replace(prepared, candidates=replace(prepared.candidates, each=each)), wait=False
    ).machine
