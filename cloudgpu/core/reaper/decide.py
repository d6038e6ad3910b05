"""Decides what to do with each machine that a run has observed, and why: by the strongest rule that acts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloudgpu.core.activity.idle import UNKNOWN
from cloudgpu.core.budgets.enforcement import PlannedStop
from cloudgpu.core.model.machine import Machine, may_be_running
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.reaper.cases import Case, RuleResult, Stage, clock_text
from cloudgpu.core.reaper.clusters import (
    NO_CLUSTER,
    ClusterState,
    decisions_per_node,
    group_by_cluster,
    joint_stop,
    joint_view,
    read_cluster_states,
)
from cloudgpu.core.reaper.decisions import (
    ENDINGS,
    Decision,
    Evidence,
    MachineView,
    WithdrawnWarning,
    activity_evidence,
    hangs_in_stop,
    image_since,
    stopped_since,
    up_since,
)
from cloudgpu.core.reaper.rules import RULES, finders_at
from cloudgpu.core.values.times import from_iso

MAX_IDLE_STOPS = 20  # of a run: what was judged wrongly for all of them must not stop all of them
RUN_INTERVAL = timedelta(minutes=10)  # between two scheduled runs, by default
_BY_IDLENESS = (Rule.IDLE, Rule.UNLABELLED)
_PRECEDENCE = {reaper_rule.rule: index for index, reaper_rule in enumerate(RULES)}  # 0 for the strongest


def decide(
    views: Sequence[MachineView],
    stops: Sequence[PlannedStop],
    now: datetime,
    *,
    interval: timedelta,
    max_idle_stops: int = MAX_IDLE_STOPS,
    machines: Iterable[Machine] = (),
) -> list[Decision]:
    """Return one decision per machine, in their order; "keep" has its reason, too.

    The nodes of a cluster are evaluated as one (`core.reaper.clusters`). `machines` are all that the ledger knows,
    those that have ended, too: what is missing of a cluster, and what was lost, is in them.

    `stops` are what budgets that are passed do (`core.budgets.enforcement`), `interval` is how often runs come. The
    rules are tried in the order of RULES. Idle time, with a label missing or without, ends at most `max_idle_stops`
    machines in a run, those that are idle longest; a cluster whole, even where it alone is more than that.
    """
    stops_by_machine = {stop.machine_id: stop for stop in stops}
    cluster_states, groups = read_cluster_states(machines, views, now), group_by_cluster(views)
    units = [_unit(group, stops_by_machine, cluster_states, now, interval) for group in groups]
    postponed = _over_idle_limit([unit for group_units in units for unit in group_units], now, max_idle_stops)
    decisions_by_machine = {
        decision.machine: decision for group_units in units for unit in group_units for decision in unit.decisions
    }
    decisions_by_machine |= {
        machine_id: _postponed(decisions_by_machine[machine_id], now + interval, max_idle_stops)
        for machine_id in postponed
    }
    return [decisions_by_machine[view.machine.id] for view in views]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Machines that are ended together or not at all (a cluster, or one machine), with a decision for each."""

    view: MachineView
    decisions: Sequence[Decision]


def _unit(
    group: Sequence[MachineView],
    stops_by_machine: Mapping[str, PlannedStop],
    cluster_states: Mapping[str, ClusterState],
    now: datetime,
    interval: timedelta,
) -> list[_Unit]:
    """Evaluate one machine, or as one the nodes of a cluster at the same stage; other nodes are left as they are."""
    cluster = group[0].machine.cluster
    if cluster is None:
        (view,) = group
        stop, started = stops_by_machine.get(view.machine.id), _started(view.machine)
        return [
            _Unit(view, [_decide_unmanaged(view, now) or _decide_by_rules(view, stop, now, interval, started=started)])
        ]
    unmanaged = [_Unit(view, [decision]) for view in group if (decision := _decide_unmanaged(view, now)) is not None]
    managed = [view for view in group if _decide_unmanaged(view, now) is None]
    stage = next((stage for stage in Stage if any(_stage(view.machine) is stage for view in managed)), None)
    nodes = [view for view in managed if _stage(view.machine) is stage]
    if not nodes:
        return unmanaged
    cluster_state = cluster_states.get(cluster.id, NO_CLUSTER)
    stop = joint_stop([stops_by_machine[view.machine.id] for view in nodes if view.machine.id in stops_by_machine])
    joint = joint_view(nodes, now)
    started = max(_started(node.machine) for node in nodes)
    decision = _decide_by_rules(joint, stop, now, interval, cluster_state=cluster_state, started=started)
    others = [node for node in managed if node not in nodes]
    if cluster_state.ends_all_nodes and decision.rule is Rule.PART and decision.ends:
        nodes, others = nodes + [node for node in others if _stage(node.machine) is not Stage.IMAGE], []
    left_stopped = [_Unit(node, [_keep(node, "it rests, and other nodes of its cluster run")]) for node in others]
    return [*unmanaged, *left_stopped, _Unit(joint, decisions_per_node(decision, nodes))]


def _decide_unmanaged(view: MachineView, now: datetime) -> Decision | None:
    """Return the decision for a machine that is left as it is without trying its rules; None for any other."""
    machine = view.machine
    if machine.terminated_at is not None and image_since(machine) is None:
        return _keep(view, f"it ended {clock_text(from_iso(machine.terminated_at), now)}")
    if machine.launch_status == "open":
        return _keep(view, "the outcome of its launch is not known yet; the next sync finds out")
    if machine.state == "stopping" and not hangs_in_stop(machine, now):
        return _keep(view, "it is stopping")
    return None


def _decide_by_rules(
    view: MachineView,
    stop: PlannedStop | None,
    now: datetime,
    interval: timedelta,
    *,
    started: datetime,
    cluster_state: ClusterState = NO_CLUSTER,
) -> Decision:
    case = _case(view, stop, now, interval, started, cluster_state)
    if not view.answered:
        ends_at = case.time("renew_until") if may_be_running(view.machine) else None  # by the machine's own timer
        return replace(_keep(view, f"{case.evidence.why}: it is left alone"), at=ends_at)
    finders = finders_at(case.stage, held=case.held_until is not None)
    return _join(case, [result for find in finders if (result := find(case)) is not None])


def _started(machine: Machine) -> datetime:
    """Return since when a machine has been in its stage."""
    kept = image_since(machine) if _stage(machine) is Stage.IMAGE else None
    return kept or (up_since(machine) if may_be_running(machine) else stopped_since(machine))


def _case(
    view: MachineView,
    stop: PlannedStop | None,
    now: datetime,
    interval: timedelta,
    started: datetime,
    cluster_state: ClusterState,
) -> Case:
    machine, stage = view.machine, _stage(view.machine)
    held = from_iso(machine.hold_until) if machine.hold_until else None
    return Case(
        view=view,
        stage=stage,
        evidence=activity_evidence(view, now)
        if may_be_running(machine)
        else Evidence(UNKNOWN, "it is stopped", asked=False),
        started=started,
        budget_stop=stop,
        now=now,
        interval=interval,
        held_until=held if held is not None and held > now else None,
        cluster_state=cluster_state,
    )


def _stage(machine: Machine) -> Stage:
    if machine.terminated_at is not None or machine.is_named_resource:
        return Stage.IMAGE
    return Stage.RUNNING if may_be_running(machine) else Stage.STOPPED


def _join(case: Case, results: Sequence[RuleResult]) -> Decision:
    """Return the decision by the results of the rules: the strongest end, else a renewal, else a warning, else keep."""
    warnings = [result.warning for result in results if result.warning is not None]
    first = min(results, key=_precedence, default=None)
    base = Decision(
        machine=case.view.machine.id,
        name=case.view.machine.name,
        do=ReaperAction.KEEP,
        rule=Rule.NONE,
        why=case.evidence.why,
        at=min(
            (result.at for result in results if result.at is not None and result.do is not ReaperAction.RENEW),
            default=None,
        ),
        activity=case.evidence.activity,
        runs=case.stage is Stage.RUNNING,
        withdrawn=tuple(_withdrawn_warnings(case, results)) if case.view.machine.warnings else (),
    )
    if first is not None and first.do in ENDINGS:
        return _with_policy(case, replace(_apply(base, first), at=first.at, after=first.after, withdrawn=()))
    if first is not None and first.do is ReaperAction.RENEW:
        return _with_policy(case, replace(_apply(base, first), at=first.at, warnings=tuple(warnings)))
    if first is not None and first.warning_stands:
        do = ReaperAction.WARN if warnings else ReaperAction.KEEP
        return _with_policy(case, replace(_apply(base, first), do=do, after=first.after, warnings=tuple(warnings)))
    held = [replace(base, rule=Rule.HOLD, why=result.why) for result in results if result.rule is Rule.HOLD]
    return _with_policy(case, held[0] if held else base)


def _precedence(result: RuleResult) -> tuple[int, float, int]:
    """Return a sort key: ends and a renewal by strength, then warnings of now, then earlier ones, by their times."""
    group = (
        0
        if result.do in ENDINGS
        else 1
        if result.do is ReaperAction.RENEW
        else 2
        if result.warning
        else 3
        if result.warning_stands
        else 4
    )
    soon = 0.0 if group <= 1 else result.at.timestamp() if result.at else math.inf
    return group, soon, _PRECEDENCE[result.rule]


def _apply(base: Decision, result: RuleResult) -> Decision:
    return replace(base, do=result.do, rule=result.rule, why=result.why, urgent=result.urgent)


def _with_policy(case: Case, decision: Decision) -> Decision:
    """Add to the reason that only the lease counts, if no policy can be resolved."""
    if case.policy is not None:
        return decision
    return replace(
        decision, why=f"{decision.why}; only its lease counts, as {case.view.why_policy or 'it has no policy'}"
    )


def _withdrawn_warnings(case: Case, results: Sequence[RuleResult]) -> Iterator[WithdrawnWarning]:
    """Yield the warnings that no longer apply, each with the reason."""
    holding = {result.rule for result in results if result.warning_stands or result.do in ENDINGS}
    for rule in map(Rule, case.view.machine.warnings):
        if rule not in holding:
            yield WithdrawnWarning(rule, _why_withdrawn(case, rule))


def _why_withdrawn(case: Case, rule: Rule) -> str:
    if case.held_until is not None and (rule is Rule.SCHEDULE or _PRECEDENCE[rule] > _PRECEDENCE[Rule.HOLD]):
        return f"it is held until {clock_text(case.held_until, case.now)}"
    if rule in (Rule.RENEW_UNTIL, Rule.SCHEDULE, Rule.BUDGET):
        return {Rule.BUDGET: "no budget is passed any more"}.get(rule, f"its {rule} is another one now")
    return f"{case.evidence.activity}: {case.evidence.why}"


def _keep(view: MachineView, why: str) -> Decision:
    machine = view.machine
    runs = _stage(machine) is Stage.RUNNING and machine.state != "stopping"
    return Decision(machine.id, machine.name, ReaperAction.KEEP, Rule.NONE, why, runs=runs)


def _over_idle_limit(units: Sequence[_Unit], now: datetime, max_stops: int) -> set[str]:
    """Return the machines that idle time would end beyond `max_stops` of a run: those that are idle shortest.

    A cluster is put off as a whole. Machines that are idle longest end even where their cluster alone has more nodes.
    """
    ends = [
        (activity_evidence(unit.view, now).unused_for or timedelta.max, unit.view.machine.id, ids)
        for unit in units
        if (ids := [decision.machine for decision in unit.decisions if decision.rule in _BY_IDLENESS and decision.ends])
    ]
    stop_count, put_off = 0, set[str]()
    for _, _, ids in sorted(ends, reverse=True):
        if stop_count + len(ids) <= max_stops or (stop_count == 0 and max_stops > 0):
            stop_count += len(ids)
        else:
            put_off.update(ids)
    return put_off


def _postponed(decision: Decision, retry_at: datetime, max_stops: int) -> Decision:
    why = f"{decision.why}; it waits for a later run, as one run stops at most {max_stops} machines for idle time"
    return replace(decision, do=ReaperAction.KEEP, why=why, at=retry_at, after=None)
