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


def table(document: LsDocument, now: datetime, *, me: str | None) -> str:
    """Return the table of `ls` with a row for each cluster in place of its nodes, and a line for each queue."""
    clusters = {cluster["id"]: cluster for cluster in document["clusters"]}
    nodes = {value["id"]: value for value in document["machines"]}
    shown: dict[str, MachineDocument] = {}
    for value in document["machines"]:
        cluster = value["cluster"]
        machine_or_cluster = value if cluster is None else clusters.get(cluster["id"], value)
        shown.setdefault(machine_or_cluster["id"], machine_or_cluster)

    def row(value: MachineDocument, now: datetime) -> list[str]:
        return cluster_row(clusters[value["id"]], nodes, now) if value["id"] in clusters else machine_row(value, now)

    queues = [paragraph(f"{cluster['name']}: {cluster['queue']}.") for cluster in clusters.values() if cluster["queue"]]
    return "\n".join([machine_table(list(shown.values()), now, me=me, row=row), *queues])


def cluster_row(value: ClusterDocument, nodes: Mapping[str, MachineDocument], now: datetime) -> list[str]:
    """Return what the table of `ls` says of one cluster; `nodes` has its machines by id."""
    values = [nodes[node] for node in value["nodes"]]
    billed = [one for one in values if one["billed"]]
    row_value = value if len(billed) in (0, len(values)) else value | {"price": price_of(billed)}
    name, _, at, _, *rest = machine_row(row_value, now)
    return [name, node_counts_text(value, values), at, nodes_text(value), *rest]


def nodes_text(value: ClusterDocument) -> str:
    """Return how many nodes of which type a cluster has now."""
    return f"{len(value['nodes'])} x {value['instance_type']}"


def node_counts_text(value: ClusterDocument, nodes: Sequence[MachineDocument]) -> str:
    """Return how many nodes there are, and their state where not all run: `4/4`, `3/4 degraded`, `4/4 stopped`."""
    if value["terminated_at"] and not value["there"]:
        return "terminated"
    total = nodes[0]["cluster"]["nodes"] if nodes[0]["cluster"] else len(nodes)
    counts = f"{value['there']}/{total}{' degraded' if value['degraded'] else ''}"
    states = [state_text(machine) for machine in nodes]
    distinct = list(dict.fromkeys(states))
    if distinct == ["running"]:
        return counts
    if len(distinct) == 1:
        return f"{counts}{',' if value['degraded'] else ''} {distinct[0]}"
    return f"{counts}: {', '.join(f'{states.count(one)} {one}' for one in distinct)}"


def shown_text(value: ShownClusterDocument, now: datetime, node_text: Callable[[ShownDocument], str] | None) -> str:
    """Return a cluster in few lines, then a table of its nodes, or the text of each by `node_text`."""
    has_ended = value["terminated_at"] is not None
    first = value["machines"][0]["cluster"]
    engine = first["engine"] if first else "none"
    on_node_loss = first["on_node_loss"] if first else "wait"
    billed = [machine["price"] for machine in value["machines"] if machine["billed"]]
    hourly = sum((Decimal(one["usd_per_hour"]) for one in billed if one), Decimal())
    hourly_text = "" if not billed else f", {dollars(None if None in billed else f'{hourly}', 4)} an hour"
    cost = f"{spent_text(value, 4)} so far{without_price(value)}"
    head = f"{value['name']}: {node_counts_text(value, value['machines'])}{hourly_text}, {cost}."
    lines = labelled_lines(
        [
            ("what", f"{nodes_text(value)}, each with {gpus_text(value)}"),
            ("where", place_text(value)),
            ("price", None if has_ended else f"all nodes: {price_briefly(value['price'])}"),
            ("engine", None if engine == "none" else engine),
            ("queue", value["queue"]),
            ("lost node", {"wait": "the others run on", "stop": "the others are stopped"}[on_node_loss]),
            ("lease", None if has_ended else next(text for _, text in lease_lines(value, now))),
            ("held", when(value["held_until"], now) if value["held_until"] else None),
            ("owner", f"{value['owner']}, project {value['project']}"),
        ]
    )
    parts = [f"{paragraph(head)}\n{lines}"]
    parts += (
        [node_text(machine) for machine in value["machines"]] if node_text else [machine_table(value["machines"], now)]
    )
    return "\n\n".join(parts)
