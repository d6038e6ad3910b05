"""Decides what to do with each machine that a run has observed, and why: by the strongest rule that acts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloudgpu.core.budgets.enforcement import Stop
from cloudgpu.core.model.machine import Machine, may_be_running
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.reaper.cases import Case, RuleResult, Stage, clock
from cloudgpu.core.reaper.clusters import (
    NO_GANG,
    Gang,
    cluster_machines,
    decisions_per_node,
    group_by_cluster,
    joint_stop,
    joint_view,
)
from cloudgpu.core.reaper.decisions import (
    ENDINGS,
    UNKNOWN,
    Decision,
    Evidence,
    Lifted,
    MachineView,
    activity_evidence,
    up_since,
)
from cloudgpu.core.reaper.rules import RULES, finders_at, image_since, stopped_since
from cloudgpu.core.values.times import from_iso

MAX_IDLE_STOPS = 20  # of a run: what was judged wrongly for all of them must not stop all of them
_BY_IDLENESS = (Rule.IDLE, Rule.UNLABELLED)
_STRENGTH = {one.rule: place for place, one in enumerate(RULES)}


def decide(
    views: Sequence[MachineView],
    stops: Sequence[Stop],
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
    stops_by_machine = {stop.machine: stop for stop in stops}
    gangs, groups = cluster_machines(machines, views, now), group_by_cluster(views)
    units = [_unit(group, stops_by_machine, gangs, now, interval) for group in groups]
    postponed = _over_idle_limit([unit for some in units for unit in some], now, max_idle_stops)
    found = {decision.machine: decision for some in units for unit in some for decision in unit.decisions}
    found |= {one: _postponed(found[one], now + interval, max_idle_stops) for one in postponed}
    return [found[view.machine.id] for view in views]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Machines that are ended together or not at all (a cluster, or one machine), with a decision for each."""

    seen: MachineView
    decisions: Sequence[Decision]


def _unit(
    group: Sequence[MachineView],
    stops_by_machine: Mapping[str, Stop],
    gangs: Mapping[str, Gang],
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
    unmanaged = [_Unit(view, [left]) for view in group if (left := _decide_unmanaged(view, now)) is not None]
    rest = [view for view in group if _decide_unmanaged(view, now) is None]
    stage = next((stage for stage in Stage if any(_stage(one.machine) is stage for one in rest)), None)
    nodes = [one for one in rest if _stage(one.machine) is stage]
    if not nodes:
        return unmanaged
    gang = gangs.get(cluster.id, NO_GANG)
    stop = joint_stop([stops_by_machine[one.machine.id] for one in nodes if one.machine.id in stops_by_machine])
    one = joint_view(nodes, now)
    started = max(_started(node.machine) for node in nodes)
    decision = _decide_by_rules(one, stop, now, interval, gang=gang, started=started)
    others = [node for node in rest if node not in nodes]
    if gang.ends_whole and decision.rule is Rule.PART and decision.ends:
        nodes, others = nodes + [node for node in others if _stage(node.machine) is not Stage.IMAGE], []
    resting = [_Unit(node, [_keep(node, "it rests, and other nodes of its cluster run")]) for node in others]
    return [*unmanaged, *resting, _Unit(one, decisions_per_node(decision, nodes))]


def _decide_unmanaged(view: MachineView, now: datetime) -> Decision | None:
    """Return the decision for a machine that is left as it is without trying its rules; None for any other."""
    machine = view.machine
    if machine.terminated_at is not None and image_since(machine) is None:
        return _keep(view, f"it ended {clock(from_iso(machine.terminated_at), now)}")
    if machine.launch_status == "open":
        return _keep(view, "the outcome of its launch is not known yet; the next sync finds out")
    if machine.state == "stopping":
        return _keep(view, "it is stopping")
    return None


def _decide_by_rules(
    view: MachineView, stop: Stop | None, now: datetime, interval: timedelta, *, started: datetime, gang: Gang = NO_GANG
) -> Decision:
    case = _case(view, stop, now, interval, started, gang)
    if not view.answered:
        at = case.time("renew_until") if may_be_running(view.machine) else None  # by the machine's own timer
        return replace(_keep(view, f"{case.evidence.why}: it is left alone"), at=at)
    finders = finders_at(case.stage, held=case.held is not None)
    return _join(case, [result for find in finders if (result := find(case)) is not None])


def _started(machine: Machine) -> datetime:
    """Return since when a machine has been in its stage."""
    kept = image_since(machine) if _stage(machine) is Stage.IMAGE else None
    return kept or (up_since(machine) if may_be_running(machine) else stopped_since(machine))


def _case(
    view: MachineView, stop: Stop | None, now: datetime, interval: timedelta, started: datetime, gang: Gang
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
        stop=stop,
        now=now,
        interval=interval,
        held=held if held is not None and held > now else None,
        gang=gang,
    )


def _stage(machine: Machine) -> Stage:
    if machine.terminated_at is not None or machine.is_named_resource:
        return Stage.IMAGE
    return Stage.RUNNING if may_be_running(machine) else Stage.STOPPED


def _join(case: Case, results: Sequence[RuleResult]) -> Decision:
    """Return the decision by the results of the rules: the strongest end, else a renewal, else a warning, else keep."""
    warnings = [result.warn for result in results if result.warn is not None]
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
        lifted=tuple(_lifted_warnings(case, results)) if case.view.machine.warnings else (),
    )
    if first is not None and first.do in ENDINGS:
        return _with_policy(case, replace(_apply(base, first), at=first.at, after=first.after, lifted=()))
    if first is not None and first.do is ReaperAction.RENEW:
        return _with_policy(case, replace(_apply(base, first), at=first.at, warnings=tuple(warnings)))
    if first is not None and first.stands:
        do = ReaperAction.WARN if warnings else ReaperAction.KEEP
        return _with_policy(case, replace(_apply(base, first), do=do, after=first.after, warnings=tuple(warnings)))
    held = [replace(base, rule=Rule.HOLD, why=result.why) for result in results if result.rule is Rule.HOLD]
    return _with_policy(case, held[0] if held else base)


def _precedence(result: RuleResult) -> tuple[int, float, int]:
    """Return a sort key: ends and a renewal by strength, then warnings of now, then earlier ones, by their times."""
    kind = (
        0
        if result.do in ENDINGS
        else 1
        if result.do is ReaperAction.RENEW
        else 2
        if result.warn
        else 3
        if result.stands
        else 4
    )
    soon = 0.0 if kind <= 1 else result.at.timestamp() if result.at else math.inf
    return kind, soon, _STRENGTH[result.rule]


def _apply(base: Decision, result: RuleResult) -> Decision:
    return replace(base, do=result.do, rule=result.rule, why=result.why, urgent=result.urgent)


def _with_policy(case: Case, decision: Decision) -> Decision:
    """Add to the reason that only the lease counts, if no policy can be resolved."""
    if case.policy is not None:
        return decision
    return replace(
        decision, why=f"{decision.why}; only its lease counts, as {case.view.why_policy or 'it has no policy'}"
    )


def _lifted_warnings(case: Case, results: Sequence[RuleResult]) -> Iterator[Lifted]:
    """Yield the warnings that no longer apply, each with the reason."""
    holding = {result.rule for result in results if result.stands or result.do in ENDINGS}
    for rule in map(Rule, case.view.machine.warnings):
        if rule not in holding:
            yield Lifted(rule, _why_lifted(case, rule))


def _why_lifted(case: Case, rule: Rule) -> str:
    if case.held is not None and (rule is Rule.SCHEDULE or _STRENGTH[rule] > _STRENGTH[Rule.HOLD]):
        return f"it is held until {clock(case.held, case.now)}"
    if rule in (Rule.RENEW_UNTIL, Rule.SCHEDULE, Rule.BUDGET):
        return {Rule.BUDGET: "no budget is passed any more"}.get(rule, f"its {rule} is another one now")
    return f"{case.evidence.activity}: {case.evidence.why}"


def _keep(view: MachineView, why: str) -> Decision:
    return Decision(view.machine.id, view.machine.name, ReaperAction.KEEP, Rule.NONE, why)


def _over_idle_limit(units: Sequence[_Unit], now: datetime, most: int) -> set[str]:
    """Return the machines that idle time would end beyond the number of a run: those that are idle shortest.

    A cluster is put off whole. The one that is idle longest is larger than the number, maybe, and ends all the same.
    """
    ends = [
        (activity_evidence(unit.seen, now).quiet or timedelta.max, unit.seen.machine.id, ids)
        for unit in units
        if (ids := [decision.machine for decision in unit.decisions if decision.rule in _BY_IDLENESS and decision.ends])
    ]
    taken, put_off = 0, set[str]()
    for _, _, ids in sorted(ends, reverse=True):
        if taken + len(ids) <= most or (taken == 0 and most > 0):
            taken += len(ids)
        else:
            put_off.update(ids)
    return put_off


def _postponed(decision: Decision, then: datetime, most: int) -> Decision:
    why = f"{decision.why}; it waits for a later run, as one run stops at most {most} machines for idle time"
    return replace(decision, do=ReaperAction.KEEP, why=why, at=then, after=None)
