"""Clusters as plain values: amounts are sums over all nodes; what is the same for all nodes is the first node's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.core.clusters.members import status
from cloudgpu.core.model.machine import Machine, not_none

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.machines import (
        ClusterDocument,
        MachineDocument,
    )
    from cloudgpu.views.documents.machines.plans import AttachedCost
    from cloudgpu.views.documents.parts import Price

# A cluster is in the first of these states that one of its nodes is in: they begin with those that cost most.
_STATES_BY_COST = ("running", "pending", "stopping", "unknown", "stopped", "deallocated", "terminated")


def cluster_document(
    nodes: Sequence[Machine], documents: Sequence[MachineDocument], *, queue: str | None = None
) -> ClusterDocument:
    """Return the cluster with these nodes; `documents` are the nodes' own, in the same order.

    Amounts of money are sums over all nodes, null where one node's is. `queue` describes the jobs in its queue.
    """
    cluster, node_status = not_none(nodes[0].cluster), status(nodes)
    return {
        **documents[0],
        "id": cluster.id,
        "name": cluster.name,
        "state": min((machine["state"] for machine in documents), key=_STATES_BY_COST.index),
        "billed": any(machine["billed"] for machine in documents),
        "price": price_of(documents),
        "spent_usd": sum_of(machine["spent_usd"] for machine in documents),
        "unpriced": _unique(name for machine in documents for name in machine["unpriced"]),
        "retained": [resource for machine in documents for resource in machine["retained"]],
        "retained_usd_per_month": sum_of(machine["retained_usd_per_month"] for machine in documents),
        "attached_costs": _attached_costs(documents),
        "stopped_usd_per_month": sum_of(machine["stopped_usd_per_month"] for machine in documents),
        "shared": list({access["key"]: access for machine in documents for access in machine["shared"]}.values()),
        "gpu_users": _unique(user for machine in documents for user in machine["gpu_users"]),
        "launch_uncertain": any(machine["launch_uncertain"] for machine in documents),
        "last_active_at": max((machine["last_active_at"] or "" for machine in documents), default="") or None,
        "seen_at": min((machine["seen_at"] or "" for machine in documents), default="") or None,
        "expires": min((machine["expires"] or "" for machine in documents), default="") or None,
        "renew_until": min((machine.get("renew_until") or "" for machine in documents), default="") or None,
        "held_until": min((machine["held_until"] or "" for machine in documents), default="") or None,
        "taken_at": min((machine["taken_at"] for machine in documents if machine["taken_at"]), default=None),
        "parked": any(machine["parked"] for machine in documents),
        "terminated_at": max((not_none(machine["terminated_at"]) for machine in documents), default=None)
        if all(machine["terminated_at"] for machine in documents)
        else None,
        "there": node_status.existing,
        "degraded": node_status.degraded,
        "queue": queue,
        "nodes": [machine["id"] for machine in documents],
    }


def sum_of(amounts: Iterable[str | None]) -> str | None:
    """Return the sum of decimal amounts in USD; None where one of them is not known."""
    texts = list(amounts)
    return None if None in texts else f"{sum((Decimal(text) for text in texts if text is not None), Decimal()):f}"


def price_of(documents: Sequence[MachineDocument]) -> Price | None:
    """Return what an hour of all these nodes costs; the source and the day are the first node's."""
    prices = [machine["price"] for machine in documents]
    total = sum_of(None if price is None else price["usd_per_hour"] for price in prices)
    return None if prices[0] is None or total is None else {**prices[0], "usd_per_hour": total}


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _attached_costs(documents: Sequence[MachineDocument]) -> list[AttachedCost] | None:
    """Return the attached costs of all nodes, summed by kind; None if those of one node are not known."""
    by_kind: dict[tuple[object, ...], AttachedCost] = {}
    for machine in documents:
        if machine["attached_costs"] is None:
            return None
        for attached in machine["attached_costs"]:
            key = (attached["what"], attached["at_most"], attached["while_running"], attached["while_stopped"])
            cost = by_kind.get(key)
            usd_per_month = (
                attached["usd_per_month"]
                if cost is None
                else sum_of((cost["usd_per_month"], attached["usd_per_month"]))
            )
            by_kind[key] = {**attached, "usd_per_month": usd_per_month}
    return list(by_kind.values())
