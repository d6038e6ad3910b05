"""Reads what a launch of several machines asks for: how many nodes, which engine, what a lost node does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, get_args

from cloudgpu.core.model.cluster import MAX_NODES, node_key, node_name
from cloudgpu.core.model.facts import ClusterNode, Engine, OnNodeLoss
from cloudgpu.core.values.naming import NAME, unknown_word
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.core.model.launch import Setup

_LONGEST_KEY = 63
_LARGER = "AWS ParallelCluster, Google's cluster-toolkit, Azure CycleCloud, Kueue and SkyPilot"


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """So many machines under one name. `engine` None: as the template says, and Slurm where it says nothing."""

    nodes: int
    engine: Engine | None = None
    on_node_loss: OnNodeLoss = "wait"

    def node(self, usual: Engine | None) -> ClusterNode | None:
        """Return what the request of a launch says of it; None for one machine without an engine.

        `usual` is the engine of the template, None where that says nothing.
        """
        engine = self.engine or usual or ("slurm" if self.nodes > 1 else "none")
        if self.nodes == 1 and engine == "none":
            return None
        return ClusterNode("", "", 0, self.nodes, engine, self.on_node_loss)


def cluster_request(nodes: int | str | None, engine: str | None, on_node_loss: str | None) -> ClusterRequest | None:
    """Return what was asked for; None for nothing. Raises InvalidRequest for a word that cannot be read."""
    if nodes is None and engine is None and on_node_loss is None:
        return None
    return ClusterRequest(
        1 if nodes is None else _nodes(nodes),
        None if engine is None else cast("Engine", _word("--engine", engine, get_args(Engine))),
        "wait"
        if on_node_loss is None
        else cast("OnNodeLoss", _word("--on-node-loss", on_node_loss, get_args(OnNodeLoss))),
    )


def _nodes(nodes: int | str) -> int:
    text = str(nodes).strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) < len("1000000") else 0
    if 1 <= number <= MAX_NODES:
        return number
    more = text.isascii() and text.isdigit() and text.strip("0")
    raise InvalidRequest(
        f"{nodes} nodes are more than cloudgpu launches under one name, which is {MAX_NODES}."
        if more
        else f"{str(nodes)!r} is not a number of nodes, a whole number from 1 to {MAX_NODES}.",
        field="--nodes",
        value=str(nodes),
        next=f"For larger clusters there are {_LARGER}." if more else "For example --nodes 4",
    )


def _word(option: str, word: str, known: tuple[str, ...]) -> str:
    if word in known:
        return word
    raise unknown_word(f"{option} {word!r} is not known", word, known, field=option)


def check_cluster(cluster: ClusterRequest, name: str | None, key: str | None, setup: Setup) -> None:
    """Raise InvalidRequest for what several machines cannot share, and for names that leave no room for a number."""
    if cluster.nodes == 1:
        return
    last = cluster.nodes - 1
    if name is not None and NAME.fullmatch(name) and not NAME.fullmatch(node_name(name, last)):
        says = f"{name!r} is too long for a cluster: its last machine would be called {node_name(name, last)}."
        raise InvalidRequest(says, field="--name", value=name, next="Choose one of up to 37 characters.")
    if key is not None and len(node_key(key, last)) > _LONGEST_KEY:
        says = f"{key!r} is too long for the key of a cluster."
        raise InvalidRequest(says, field="--key", value=key, next="Choose one of up to 59 characters.")
    if setup.volume is not None:
        raise InvalidRequest(
            f"--volume {setup.volume.name} cannot be attached to {cluster.nodes} machines: a volume belongs to one.",
            field="--volume",
            value=setup.volume.name,
            next="Leave it out, and copy the data to every node, or read it from a bucket.",
        )
