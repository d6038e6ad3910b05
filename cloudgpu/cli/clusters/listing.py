"""What `ls` shows of clusters, a line each in its table, and what `show` says of one and its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.machine_text import lease_lines
from cloudgpu.cli.render import (
    dollars,
    gpus_text,
    labelled_lines,
    machine_row,
    machine_table,
    paragraph,
    place_text,
    price_briefly,
    spent_text,
    state_text,
    when,
    without_price,
)
from cloudgpu.views.clusters import price_of

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.machines import (
        ClusterDocument,
        LsDocument,
        MachineDocument,
        ShownClusterDocument,
        ShownDocument,
    )


def listing_table(document: LsDocument, now: datetime, *, me: str | None) -> str:
    """Return the table of `ls` with a row for each cluster in place of its nodes, and a line for each queue."""
    clusters = {cluster["id"]: cluster for cluster in document["clusters"]}
    nodes = {machine["id"]: machine for machine in document["machines"]}
    shown_by_id: dict[str, MachineDocument] = {}
    for machine in document["machines"]:
        cluster = machine["cluster"]
        machine_or_cluster = machine if cluster is None else clusters.get(cluster["id"], machine)
        shown_by_id.setdefault(machine_or_cluster["id"], machine_or_cluster)

    def row_of(machine: MachineDocument, now: datetime) -> list[str]:
        return (
            cluster_row(clusters[machine["id"]], nodes, now) if machine["id"] in clusters else machine_row(machine, now)
        )

    queues = [paragraph(f"{cluster['name']}: {cluster['queue']}.") for cluster in clusters.values() if cluster["queue"]]
    return "\n".join([machine_table(list(shown_by_id.values()), now, me=me, row=row_of), *queues])


def cluster_row(cluster: ClusterDocument, nodes: Mapping[str, MachineDocument], now: datetime) -> list[str]:
    """Return what the table of `ls` says of one cluster; `nodes` has its machines by id."""
    node_machines = [nodes[node_id] for node_id in cluster["nodes"]]
    billed = [machine for machine in node_machines if machine["billed"]]
    priced_cluster = cluster if len(billed) in (0, len(node_machines)) else cluster | {"price": price_of(billed)}
    name, _, place, _, *remaining_columns = machine_row(priced_cluster, now)
    return [name, node_counts_text(cluster, node_machines), place, nodes_text(cluster), *remaining_columns]


def nodes_text(cluster: ClusterDocument) -> str:
    """Return how many nodes of which type a cluster has now."""
    return f"{len(cluster['nodes'])} x {cluster['instance_type']}"


def node_counts_text(cluster: ClusterDocument, nodes: Sequence[MachineDocument]) -> str:
    """Return how many nodes there are, and their state where not all run: `4/4`, `3/4 degraded`, `4/4 stopped`."""
    if cluster["terminated_at"] and not cluster["there"]:
        return "terminated"
    total = nodes[0]["cluster"]["nodes"] if nodes[0]["cluster"] else len(nodes)
    counts_text = f"{cluster['there']}/{total}{' degraded' if cluster['degraded'] else ''}"
    states = [state_text(machine) for machine in nodes]
    distinct_states = list(dict.fromkeys(states))
    if distinct_states == ["running"]:
        return counts_text
    if len(distinct_states) == 1:
        return f"{counts_text}{',' if cluster['degraded'] else ''} {distinct_states[0]}"
    return f"{counts_text}: {', '.join(f'{states.count(state)} {state}' for state in distinct_states)}"


def shown_text(
    cluster: ShownClusterDocument, now: datetime, text_of_node: Callable[[ShownDocument], str] | None
) -> str:
    """Return a cluster in few lines, then a table of its nodes, or with `text_of_node` the text of each."""
    is_terminated = cluster["terminated_at"] is not None
    membership = cluster["machines"][0]["cluster"]
    engine = membership["engine"] if membership else "none"
    on_node_loss = membership["on_node_loss"] if membership else "wait"
    billed = [machine["price"] for machine in cluster["machines"] if machine["billed"]]
    usd_per_hour = sum((Decimal(machine["usd_per_hour"]) for machine in billed if machine), Decimal())
    hourly_text = "" if not billed else f", {dollars(None if None in billed else f'{usd_per_hour}', 4)} an hour"
    cost = f"{spent_text(cluster, 4)} so far{without_price(cluster)}"
    headline = f"{cluster['name']}: {node_counts_text(cluster, cluster['machines'])}{hourly_text}, {cost}."
    lines = labelled_lines(
        [
            ("what", f"{nodes_text(cluster)}, each with {gpus_text(cluster)}"),
            ("where", place_text(cluster)),
            ("price", None if is_terminated else f"all nodes: {price_briefly(cluster['price'])}"),
            ("engine", None if engine == "none" else engine),
            ("queue", cluster["queue"]),
            ("lost node", {"wait": "the others run on", "stop": "the others are stopped"}[on_node_loss]),
            ("lease", None if is_terminated else next(text for _, text in lease_lines(cluster, now))),
            ("held", when(cluster["held_until"], now) if cluster["held_until"] else None),
            ("owner", f"{cluster['owner']}, project {cluster['project']}"),
        ]
    )
    parts = [f"{paragraph(headline)}\n{lines}"]
    parts += (
        [text_of_node(machine) for machine in cluster["machines"]]
        if text_of_node
        else [machine_table(cluster["machines"], now)]
    )
    return "\n\n".join(parts)
