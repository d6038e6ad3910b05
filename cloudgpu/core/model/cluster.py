"""The nodes of a cluster: which machine is which, by name, id, key and tags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from cloudgpu.core.model.facts import ClusterNode, Engine, OnNodeLoss
from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_ID, TAG_KEY, TAG_NAME, TAG_NODE
from cloudgpu.core.model.launch import LaunchRequest
from cloudgpu.core.values.naming import machine_id

MAX_NODES = 64
_TAG = re.compile(r"(\d+)-(slurm|none)-(wait|stop)")


def node_name(cluster: str, node: int) -> str:
    """Return the name of a node's machine; its id follows from the cluster's in the same way."""
    return f"{cluster}-{node}"


def cluster_name(node: str) -> str:
    """Return the name of the cluster that a node of this name is of."""
    return node.rpartition("-")[0]


def node_id(cluster: ClusterNode) -> str:
    """Return the id of a node's machine; a cluster of one machine has that machine's."""
    return cluster.id if cluster.nodes == 1 else node_name(cluster.id, cluster.node)


def node_key(key: str, node: int) -> str:
    """Return the launch key of a node of the cluster with this key; `naming.lock_name` is the same for all of them."""
    return f"{key}--{node}"


def node_keys(key: str, nodes: int) -> list[str]:
    """Return the launch keys of all nodes of a cluster with this key; of a machine of its own that key alone."""
    return [key] if nodes == 1 else [node_key(key, node) for node in range(nodes)]


def request_of_node(request: LaunchRequest, ledger: str, node: int) -> LaunchRequest:
    """Return the request of one node of a cluster; that of a machine of its own as it is."""
    cluster = request.cluster
    if cluster is None:
        return request
    known = cluster._replace(name=request.name, id=machine_id(ledger, request.key), node=node)
    if cluster.nodes == 1:
        return replace(request, cluster=known)
    return replace(request, key=node_key(request.key, node), name=node_name(request.name, node), cluster=known)


def shared_tags(tags: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the tags that one call gives all nodes of a cluster: its own id, name and key, and no node's number.

    `tags` are those of the nodes, in their order, as one launch each would give them. `own_tags` is the way back.
    """
    first = dict(tags[0])
    del first[TAG_NODE]
    return first | {
        TAG_ID: first[TAG_ID].removesuffix("-0"),
        TAG_NAME: first[TAG_NAME].removesuffix("-0"),
        TAG_KEY: first[TAG_KEY].removesuffix("--0"),
    }


def own_tags(tags: Mapping[str, str], index: int) -> Mapping[str, str]:
    """Return the tags of the machine with this index in a launch of several; those of any other machine as they are."""
    if TAG_CLUSTER not in tags or TAG_NODE in tags or TAG_ID not in tags:
        return tags
    return {
        **tags,
        TAG_ID: node_name(tags[TAG_ID], index),
        TAG_NAME: node_name(tags.get(TAG_NAME, ""), index),
        TAG_KEY: node_key(tags.get(TAG_KEY, ""), index),
        TAG_NODE: str(index),
    }


def node_of_tags(tags: Mapping[str, str]) -> ClusterNode | None:
    """Return which node of which cluster the tags of a machine say that it is; None for a machine of its own."""
    said, number = _TAG.fullmatch(tags.get(TAG_CLUSTER, "")), tags.get(TAG_NODE, "")
    if said is None or not number.isdigit():
        return None
    suffix = "" if said[1] == "1" else f"-{number}"
    name, machine = (tags.get(tag, "").removesuffix(suffix) for tag in (TAG_NAME, TAG_ID))
    engine, loss = cast("Engine", said[2]), cast("OnNodeLoss", said[3])
    return ClusterNode(name, machine, int(number), int(said[1]), engine, loss)
