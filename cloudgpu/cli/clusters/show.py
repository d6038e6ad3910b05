"""`show` of a cluster: how complete it is, what it costs and when it ends, then its nodes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.clusters.listing import complete_text, what
from cloudgpu.cli.render import (
    dollars,
    facts,
    gpus,
    machines,
    paragraph,
    place,
    price_briefly,
    spent,
    when,
    without_price,
)

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.clusters import ShownClusterDocument
    from cloudgpu.views.documents.machines.machines import ShownDocument


def text(value: ShownClusterDocument, now: datetime, node: Callable[[ShownDocument], str] | None) -> str:
    """Return a cluster in few lines, then a table of its nodes, or each as `node` says it."""
    gone = value["terminated_at"]
    first = value["machines"][0]["cluster"]
    engine = first["engine"] if first else "none"
    lost = first["on_node_loss"] if first else "wait"
    billed = [one["price"] for one in value["machines"] if one["billed"]]
    hourly = sum((Decimal(one["usd_per_hour"]) for one in billed if one), Decimal())
    burns = "" if not billed else f", {dollars(None if None in billed else f'{hourly}', 4)} an hour"
    cost = f"{spent(value, 4)} so far{without_price(value)}"
    head = f"{value['name']}: {complete_text(value, value['machines'])}{burns}, {cost}."
    lines = facts(
        [
            ("what", f"{what(value)}, each with {gpus(value)}"),
            ("where", place(value)),
            ("price", None if gone else f"all nodes: {price_briefly(value['price'])}"),
            ("engine", None if engine == "none" else engine),
            ("queue", value["queue"]),
            ("lost node", {"wait": "the others run on", "stop": "the others are stopped"}[lost]),
            ("lease", None if gone else f"until {when(value['expires'], now)}"),
            ("held", when(value["held_until"], now) if value["held_until"] else None),
            ("owner", f"{value['owner']}, project {value['project']}"),
        ]
    )
    parts = [f"{paragraph(head)}\n{lines}"]
    parts += [node(one) for one in value["machines"]] if node else [machines(value["machines"], now)]
    return "\n\n".join(parts)
