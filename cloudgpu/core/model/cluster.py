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
_CLUSTER_TAG = re.compile(r"(\d+)-(slurm|none)-(wait|stop)")  # number of nodes, engine, what the loss of a node does


def node_name(cluster: str, node: int) -> str:
    """Return the name of a node's machine; its id follows from the cluster's in the same way."""
    return f"{cluster}-{node}"


def cluster_name(node: str) -> str:
    """Return the name of the cluster to which the node of this name belongs."""
    return node.rpartition("-")[0]


def node_id(cluster: ClusterNode) -> str:
    """Return the id of a node's machine; that of a cluster of one machine is the cluster's id."""
    return cluster.id if cluster.nodes == 1 else node_name(cluster.id, cluster.node)


def node_key(key: str, node: int) -> str:
    """Return the launch key of a node of the cluster with this key; all nodes share one `naming.lock_name`."""
    return f"{key}--{node}"


def node_keys(key: str, nodes: int) -> list[str]:
    """Return the launch keys of all nodes of a cluster with this key; for one machine the key itself."""
    return [key] if nodes == 1 else [node_key(key, node) for node in range(nodes)]


def request_of_node(request: LaunchRequest, ledger: str, node: int) -> LaunchRequest:
    """Return the request of one node of a cluster; a request for a single machine as it is."""
    cluster = request.cluster
    if cluster is None:
        return request
    this_node = cluster._replace(name=request.name, id=machine_id(ledger, request.key), node=node)
    if cluster.nodes == 1:
        return replace(request, cluster=this_node)
    return replace(request, key=node_key(request.key, node), name=node_name(request.name, node), cluster=this_node)


def shared_tags(tags: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the tags that one call sets on all nodes of a cluster: the cluster's id, name and key, no node's number.

    `tags` are those of the nodes, in their order, as separate launches would set them. `tags_of_node` is the inverse.
    """
    shared = dict(tags[0])
    del shared[TAG_NODE]
    return shared | {
        TAG_ID: shared[TAG_ID].removesuffix("-0"),
        TAG_NAME: shared[TAG_NAME].removesuffix("-0"),
        TAG_KEY: shared[TAG_KEY].removesuffix("--0"),
    }


def tags_of_node(tags: Mapping[str, str], index: int) -> Mapping[str, str]:
    """Return the tags of the machine with this index, if one call launched all nodes; any other tags as they are."""
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
    """Return which cluster node a machine is according to its tags; None for a machine that is in no cluster."""
    match, number = _CLUSTER_TAG.fullmatch(tags.get(TAG_CLUSTER, "")), tags.get(TAG_NODE, "")
    if match is None or not number.isdigit():
        return None
    suffix = "" if match[1] == "1" else f"-{number}"
    name, cluster_id = (tags.get(tag, "").removesuffix(suffix) for tag in (TAG_NAME, TAG_ID))
    engine, on_node_loss = cast("Engine", match[2]), cast("OnNodeLoss", match[3])
    return ClusterNode(name, cluster_id, int(number), int(match[1]), engine, on_node_loss)
