"""Gives clusters as plain values: what is of all nodes summed, what is of one of them as its first node's."""

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

# Of nodes that differ, the one that costs most says what the cluster is.
_STATES = ("running", "pending", "stopping", "unknown", "stopped", "deallocated", "terminated")


def cluster_value(
    nodes: Sequence[Machine], values: Sequence[MachineDocument], *, queue: str | None = None
) -> ClusterDocument:
    """Return the cluster with these nodes, whose own values these are, in the same order.

    Amounts of money are those of all nodes, null where one of them has none. `queue` is what its queue has, in words.
    """
    cluster, complete = not_none(nodes[0].cluster), status(nodes)
    return {
        **values[0],
        "id": cluster.id,
        "name": cluster.name,
        "state": min((machine["state"] for machine in values), key=_STATES.index),
        "billed": any(machine["billed"] for machine in values),
        "price": price_of(values),
        "spent_usd": sum_of(machine["spent_usd"] for machine in values),
        "unpriced": _unique(name for machine in values for name in machine["unpriced"]),
        "retained": [part for machine in values for part in machine["retained"]],
        "retained_usd_per_month": sum_of(machine["retained_usd_per_month"] for machine in values),
        "attached_costs": _attached(values),
        "stopped_usd_per_month": sum_of(machine["stopped_usd_per_month"] for machine in values),
        "shared": list({one["key"]: one for value in values for one in value["shared"]}.values()),
        "gpu_users": _unique(use for machine in values for use in machine["gpu_users"]),
        "launch_uncertain": any(machine["launch_uncertain"] for machine in values),
        "last_active_at": max((machine["last_active_at"] or "" for machine in values), default="") or None,
        "seen_at": min((machine["seen_at"] or "" for machine in values), default="") or None,
        "expires": min((machine["expires"] or "" for machine in values), default="") or None,
        "renew_until": min((machine.get("renew_until") or "" for machine in values), default="") or None,
        "held_until": min((machine["held_until"] or "" for machine in values), default="") or None,
        "taken_at": min((machine["taken_at"] for machine in values if machine["taken_at"]), default=None),
        "parked": any(machine["parked"] for machine in values),
        "terminated_at": max((not_none(machine["terminated_at"]) for machine in values), default=None)
        if all(machine["terminated_at"] for machine in values)
        else None,
        "there": complete.there,
        "degraded": complete.degraded,
        "queue": queue,
        "nodes": [machine["id"] for machine in values],
    }


def sum_of(amounts: Iterable[str | None]) -> str | None:
    """Return the sum of decimal amounts in USD; None where one of them is not known."""
    known = list(amounts)
    return None if None in known else f"{sum((Decimal(one) for one in known if one is not None), Decimal()):f}"


def price_of(values: Sequence[MachineDocument]) -> Price | None:
    """Return what an hour of all these nodes costs; the source and the day are the first node's."""
    prices = [machine["price"] for machine in values]
    total = sum_of(None if price is None else price["usd_per_hour"] for price in prices)
    return None if prices[0] is None or total is None else {**prices[0], "usd_per_hour": total}


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))


def _attached(values: Sequence[MachineDocument]) -> list[AttachedCost] | None:
    """Return the attached costs of all nodes, summed by kind; None if those of one node are not known."""
    by_kind: dict[tuple[object, ...], AttachedCost] = {}
    for value in values:
        if value["attached_costs"] is None:
            return None
        for one in value["attached_costs"]:
            kind = (one["what"], one["at_most"], one["while_running"], one["while_stopped"])
            cost = by_kind.get(kind)
            costs = one["usd_per_month"] if cost is None else sum_of((cost["usd_per_month"], one["usd_per_month"]))
            by_kind[kind] = {**one, "usd_per_month": costs}
    return list(by_kind.values())
