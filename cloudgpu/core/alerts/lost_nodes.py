"""Finds clusters that have lost a node, and those that ended by themselves: one finding for each cluster. Pure.

What is lost is told at once, with what the rest goes on costing: as a rule it works on nothing until somebody acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from cloudgpu.core.alerts.alerts import Finding
from cloudgpu.core.alerts.findings import ENDED, ENDED_FOR, LOST
from cloudgpu.core.clusters.completeness import by_cluster, lost_nodes
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, minute

_FEW = 3  # nodes that are named one by one


def lost_findings(machines: Iterable[Machine], now: datetime) -> Iterator[Finding]:
    """Yield which clusters have lost nodes while others are billed, and which have ended whole though nobody asked.

    `machines` are all machines, also those that have ended. A cluster that has lost a node is alerted on for as long as
    that is so, and anew for each further node; an end for three days, as that of a machine.
    """
    for nodes in by_cluster(machines).values():
        cluster = not_none(nodes[0].cluster)
        lost = lost_nodes(nodes)
        if lost and cluster.nodes > 1:
            yield _lost(cluster, lost, [row for row in nodes if row.billed and row not in lost])
        elif not any(row.billed for row in nodes) and all(row.unrequested_stop for row in nodes):
            at = _last(nodes)
            if now - from_iso(at) <= ENDED_FOR:
                yield _ended(cluster, nodes, at)


def _lost(cluster: ClusterNode, lost: Sequence[Machine], rest: Sequence[Machine]) -> Finding:
    names, why, at = _names(lost), lost[-1].state_reason, _last(lost)
    known = f"Reason: {why}." if why else "The cloud gives no reason."
    hourly = _hourly(rest)
    others = "The other machine costs" if len(rest) == 1 else f"The other {len(rest)} machines cost"
    if cluster.on_node_loss == "stop":
        next_ = "The next run of reap ends them (--on-node-loss stop)."
    else:
        next_ = f"Nothing ends them for that. To end them: cloudgpu stop {cluster.name}"
    return Finding(
        key=f"{LOST}:{cluster.id}:{at}",
        kind="node lost",
        title=f"{cluster.name} has lost {names}; the rest costs {hourly}",
        text=f"Neither a command nor the reaper asked for it. {known} Seen at {minute(at)}. "
        f"{others} {hourly}, and a job that needs all {cluster.nodes} cannot continue. {next_}",
        facts=_facts(cluster, rest or lost) | {"lost": names, "price": hourly},
        urgent=True,
    )


def _ended(cluster: ClusterNode, nodes: Sequence[Machine], at: str) -> Finding:
    over = "ended" if all(row.terminated_at for row in nodes) else "stopped"
    why = nodes[0].state_reason
    known = f"Reason: {why}." if why else "The cloud gives no reason."
    return Finding(
        key=f"{ENDED}:{cluster.id}:{at}",
        kind="machine ended",
        title=f"{cluster.name} has {over} by itself" + (f" ({why})" if why else ""),
        text=f"Neither a command nor the reaper asked for it. {known} Seen at {minute(at)}. "
        f"To see what happened: cloudgpu show {cluster.name} --history",
        facts=_facts(cluster, nodes),
    )


def _last(nodes: Sequence[Machine]) -> str:
    """Return when the latest of these nodes was seen to be lost."""
    return max(not_none(row.unrequested_stop).at for row in nodes)


def _names(nodes: Sequence[Machine]) -> str:
    more = f" and {len(nodes) - _FEW} more" if len(nodes) > _FEW else ""
    return ", ".join(row.name for row in nodes[:_FEW]) + more


def _hourly(nodes: Sequence[Machine]) -> str:
    known = [row.price.nanos_per_hour for row in nodes if row.price is not None]
    unknown = "" if len(known) == len(nodes) else "at least "
    return f"{unknown}{Money(sum(known)).text(4)}/h"


def _facts(cluster: ClusterNode, nodes: Sequence[Machine]) -> dict[str, str]:
    first = nodes[0]
    said = {"machine": cluster.name, "account": first.account, "owner": first.owner}
    return {name: value for name, value in said.items() if value}
