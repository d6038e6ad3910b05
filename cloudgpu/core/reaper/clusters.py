"""Evaluates a cluster as one: its nodes become one case, whose decision applies to all of them.

Whether a cluster is used is asked of its engine's queue and of every node. A job that runs, starts or waits with a
chance, or any node in use, makes it ACTIVE; an engine or a node that is silent makes it UNKNOWN; else it is IDLE. Of
leases and holds the latest counts, of renew-untils the earliest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloudgpu.core.activity.idle import ACTIVE, IDLE, UNKNOWN
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.budgets import enforcement as budget_stops
from cloudgpu.core.clusters.completeness import (
    PartlyStarted,
    has_run_before,
    lost_nodes,
    partly_started,
    unfinished_end,
    unfinished_stop,
    why_incomplete,
)
from cloudgpu.core.clusters.engine import EngineStatus, has_engine, queue_sentence
from cloudgpu.core.model.facts import SentWarning
from cloudgpu.core.model.machine import Machine, by_cluster, may_be_running, node_of, not_none
from cloudgpu.core.policies.policy import ReaperAction
from cloudgpu.core.reaper.decisions import (
    STOPPED_STATES,
    Decision,
    Evidence,
    MachineView,
    activity_window,
    own_activity_evidence,
)
from cloudgpu.core.values.times import duration_text


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What the ledger knows of a cluster as a whole. The texts are sentences, empty where there is nothing to say.

    `unfinished_end` says of which nodes the end was requested and is not done, `unfinished_stop` of which the stop.
    `partly_started` is a start that was interrupted, `lost_nodes` has the names of lost nodes.
    """

    incomplete_reason: str = ""
    unfinished_end: str = ""
    unfinished_stop: str = ""
    partly_started: PartlyStarted | None = None
    lost_nodes: tuple[str, ...] = ()
    has_run: bool = False  # some node has run before, or was retained: it may hold somebody's work
    discard: bool = False  # it was requested to end for good

    @property
    def ends_all_nodes(self) -> bool:
        """Whether nodes that are stopped end with those that run."""
        return bool(self.incomplete_reason or self.unfinished_end)


NO_CLUSTER = ClusterState()


def read_cluster_states(
    machines: Iterable[Machine], views: Sequence[MachineView], now: datetime
) -> dict[str, ClusterState]:
    """Return what is known of each cluster, by its id: by the ledger's machines, or by their newer `views`.

    A cluster that the ledger does not have is left out: which of its nodes are missing is not known.
    """
    known = {machine.id: machine for machine in machines if machine.cluster is not None}
    latest = known | {view.machine.id: view.machine for view in views if view.machine.id in known}
    return {cluster_id: _cluster_state(nodes, now) for cluster_id, nodes in by_cluster(latest.values()).items()}


def _cluster_state(nodes: Sequence[Machine], now: datetime) -> ClusterState:
    machines = [machine for machine in nodes if machine.terminated_at is None]
    return ClusterState(
        why_incomplete(nodes, now),
        unfinished_end(nodes),
        unfinished_stop(nodes),
        partly_started(nodes),
        tuple(node.name for node in lost_nodes(nodes)),
        has_run=any(has_run_before(machine) for machine in machines),
        discard=any(machine.discard for machine in machines),
    )


def group_by_cluster(views: Sequence[MachineView]) -> list[list[MachineView]]:
    """Return the machines in groups that are evaluated as one: a cluster's nodes, or a single machine."""
    groups, clusters = list[list[MachineView]](), dict[str, list[MachineView]]()
    for view in views:
        cluster = view.machine.cluster
        if cluster is not None and cluster.id in clusters:
            clusters[cluster.id].append(view)
            continue
        groups.append([view])
        if cluster is not None:
            clusters[cluster.id] = groups[-1]
    for nodes in clusters.values():
        nodes.sort(key=lambda view: node_of(view.machine))
    return groups


def with_cluster_activity(views: Sequence[MachineView], now: datetime) -> list[MachineView]:
    """Return these machines, each node of a cluster with the evidence of the whole cluster's use."""
    evidence_by_machine: dict[str, Evidence] = {}
    for group in group_by_cluster(views):
        nodes = [view for view in group if view.machine.terminated_at is None and may_be_running(view.machine)]
        if nodes and nodes[0].machine.cluster is not None:
            evidence_by_machine |= dict.fromkeys((node.machine.id for node in nodes), cluster_activity(nodes, now))
    return [
        replace(view, cluster_evidence=evidence_by_machine[view.machine.id])
        if view.machine.id in evidence_by_machine
        else view
        for view in views
    ]


def cluster_activity(nodes: Sequence[MachineView], now: datetime) -> Evidence:
    """Return what is known of the use of a cluster by its nodes that run, in their order, and by its engine."""
    evidence_by_node = {view.machine.name: own_activity_evidence(view, now) for view in nodes}
    first = nodes[0]
    if not any(evidence.asked for evidence in evidence_by_node.values()):
        return next(iter(evidence_by_node.values()))
    engine = _engine(nodes)
    evidence_of_use = _used(evidence_by_node, engine, activity_window(first))
    if evidence_of_use is not None:
        return evidence_of_use
    if engine is not None and engine.queue is None:
        return Evidence(UNKNOWN, f"its queue is not known: {engine.fault}")
    silent = [
        f"{name} is not known to be idle: {evidence.why}"
        for name, evidence in evidence_by_node.items()
        if evidence.activity == UNKNOWN
    ]
    if silent:
        return Evidence(UNKNOWN, silent[0] + (f", and {len(silent) - 1} more" if len(silent) > 1 else ""))
    return _idle(evidence_by_node, engine)


def _used(
    evidence_by_node: Mapping[str, Evidence], engine: EngineStatus | None, window_length: timedelta
) -> Evidence | None:
    """Return what makes a cluster one in use: its queue, a node, or a job that ended within `window_length`."""
    if engine is not None and engine.queue is not None and engine.queue.is_busy:
        return Evidence(ACTIVE, f"in its queue {queue_sentence(engine.queue)}")
    used = [
        (evidence.unused_for or timedelta.max, name)
        for name, evidence in evidence_by_node.items()
        if evidence.activity == ACTIVE
    ]
    if used:
        name = min(used)[1]
        return evidence_by_node[name]._replace(why=f"{name} is in use: {evidence_by_node[name].why}")
    if engine is not None and engine.ended_ago is not None and engine.ended_ago < window_length:
        return Evidence(ACTIVE, f"its last job ended {duration_text(engine.ended_ago)} ago", engine.ended_ago)
    return None


def _idle(evidence_by_node: Mapping[str, Evidence], engine: EngineStatus | None) -> Evidence:
    ages = [evidence.unused_for for evidence in evidence_by_node.values() if evidence.unused_for is not None]
    ages += [engine.ended_ago] if engine is not None and engine.ended_ago is not None else []
    latest = next((named for named in evidence_by_node.items() if named[1].unused_for == min(ages, default=None)), None)
    queue_text = "" if engine is None or engine.queue is None else f"{queue_sentence(engine.queue)}; "
    last_use_text = (
        "nobody uses any node" if latest is None else f"the last node in use was {latest[0]}: {latest[1].why}"
    )
    return Evidence(IDLE, f"{queue_text}{last_use_text}", min(ages, default=None))


def _engine(nodes: Sequence[MachineView]) -> EngineStatus | None:
    """Return the answer of the cluster's engine; None if it has none."""
    if not has_engine(nodes[0].machine):
        return None
    answers = [view.engine for view in nodes if view.engine is not None]
    if answers:
        return answers[0]
    cluster = not_none(nodes[0].machine.cluster)
    head_runs = node_of(nodes[0].machine) == 0
    return EngineStatus(None, "it was not asked" if head_runs else f"{cluster.name}-0, which has it, does not run")


def joint_view(nodes: Sequence[MachineView], now: datetime) -> MachineView:
    """Return the nodes of one cluster (in their order) merged into one machine, based on the first that runs."""
    machines = [view.machine for view in nodes]
    first = min(nodes, key=lambda view: view.machine.state in STOPPED_STATES)
    without_policy = next((view for view in nodes if view.policy is None), first)
    silent = next((view for view in nodes if not view.answered), None)
    running = [view for view in nodes if view.machine.terminated_at is None and may_be_running(view.machine)]
    scratch = tuple((f"{view.machine.name}:{path}", size) for view in nodes for path, size in view.scratch)
    return replace(
        first,
        machine=_joint_machine(first.machine, machines, now),
        policy=without_policy.policy,
        why_policy=without_policy.why_policy,
        judged=None,
        last_active=None,
        scratch=scratch,
        answered=silent is None,
        unknown_reason="" if silent is None else own_activity_evidence(silent, now).why,
        cluster_evidence=None if silent is not None or not running else cluster_activity(running, now),
    )


def _joint_machine(first: Machine, machines: Sequence[Machine], now: datetime) -> Machine:
    costliest = max(machines, key=lambda row: spent_until_now(row, now).nanos)
    leases = [machine.expires for machine in machines]
    return first._replace(
        expires=None if None in leases else max(not_none(lease) for lease in leases),
        renew_until=min((renew_until for machine in machines if (renew_until := machine.renew_until)), default=None),
        hold_until=max((hold_until for machine in machines if (hold_until := machine.hold_until)), default=None),
        stoppable=_all_known_true(machine.stoppable for machine in machines),
        parkable=_all_known_true(machine.parkable for machine in machines),
        warnings=_warnings(machines),
        usage_totals=costliest.usage_totals,
        open_usage=costliest.open_usage,
    )


def _all_known_true(flags: Iterable[bool | None]) -> bool | None:
    known = list(flags)
    return False if False in known else None if None in known else True


def _warnings(machines: Sequence[Machine]) -> dict[str, SentWarning]:
    """Return the warnings that were given of any node: of two by one rule, the one that was told last."""
    warnings_by_rule: dict[str, SentWarning] = {}
    for machine in machines:
        for rule, warning in machine.warnings.items():
            if rule not in warnings_by_rule or warnings_by_rule[rule].last < warning.last:
                warnings_by_rule[rule] = warning
    return warnings_by_rule


def joint_stop(stops: Sequence[budget_stops.PlannedStop]) -> budget_stops.PlannedStop | None:
    """Return what budgets do with a cluster: an end of one node is an end of all."""
    return min(stops, key=lambda stop: stop.action is ReaperAction.WARN, default=None)


def decisions_per_node(decision: Decision, nodes: Sequence[MachineView]) -> list[Decision]:
    """Return the decision about a cluster for each node; people are notified once, by the first node's."""
    notified_id = nodes[0].machine.id
    return [
        replace(
            decision,
            machine=view.machine.id,
            name=view.machine.name,
            cluster=not_none(view.machine.cluster).name,
            urgent=decision.urgent and view.machine.id == notified_id,
            warnings=decision.warnings if view.machine.id == notified_id else (),
            withdrawn=tuple(withdrawn for withdrawn in decision.withdrawn if withdrawn.rule in view.machine.warnings),
        )
        for view in nodes
    ]


def blocked_by_other_nodes(ended_ids: Iterable[str], machines: Iterable[Machine]) -> frozenset[str]:
    """Return which of these machines, by id, are not to be ended: their clusters' other nodes that run would go on.

    `machines` are the latest ones of all nodes of these clusters.
    """
    to_end, blocked = frozenset(ended_ids), set[str]()
    for nodes in by_cluster(machines).values():
        running = [
            node
            for node in nodes
            if node.terminated_at is None and node.launch_status != "open" and may_be_running(node)
        ]
        ends = {node.id for node in nodes if node.id in to_end}
        if ends and any(machine.id not in ends and machine.state != "stopping" for machine in running):
            blocked |= ends
    return frozenset(blocked)
