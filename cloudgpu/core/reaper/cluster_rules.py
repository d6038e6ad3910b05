"""The rules about a cluster as a whole: what is only a part of one, and what lost a node. Pure."""

from __future__ import annotations

from datetime import timedelta

from cloudgpu.core.clusters.completeness import GRACE
from cloudgpu.core.model.machine import command_name, stop_command
from cloudgpu.core.policies import guards
from cloudgpu.core.policies.policy import Do, Rule
from cloudgpu.core.reaper.cases import Case, RuleResult, Stage, end_after_warning, notify_again, warn_only
from cloudgpu.core.reaper.decisions import ACTIVE

QUEUE_TIMEOUT = timedelta(minutes=20)  # in which `up` or `start` sets a queue up, its packages installed, too


def part_of_cluster(case: Case) -> RuleResult | None:
    """End what is there of a cluster whose other machines never came, or were ended for good: for ever, unless used.

    A stop or an end that was requested of it is a promise: what a killed command has left of that is finished.
    """
    gang, machine = case.gang, case.view.machine
    reason = gang.unended or gang.part or gang.unstopped
    if not reason:
        return None
    stops = not gang.unended and (not gang.part or (gang.begun and not gang.discard))
    why = f"{reason}, and a cluster is all of its machines or none"
    end = guards.at_last(machine, case.policy) if stops else Do.TERMINATE
    if end is Do.STOP and case.stage is Stage.STOPPED:
        return None
    return RuleResult(Rule.PART, end, why, case.now, urgent=True)


def part_of_start(case: Case) -> RuleResult | None:
    """Tell of a cluster whose start was interrupted; stop it after a warning where it has a queue, and no use of it.

    Its queue comes up when all nodes have. Without one, or where nodes ran before, what runs may be of use, and is idle
    by its own rules.
    """
    cluster, started = case.view.machine.cluster, case.gang.started
    if cluster is None or started is None or case.stage is not Stage.RUNNING or case.held is not None:
        return None
    name = cluster.name
    why = f"{started.why}; cloudgpu start {name} continues it, {stop_command(case.view.machine)} ends the rest"
    if cluster.engine == "none" or started.ran_before or case.known.activity == ACTIVE:
        return notify_again(case, Rule.PART, why)
    end, given = guards.at_last(case.view.machine, case.policy), case.given(Rule.PART)
    if given is None or given[2] is None or given[0] < started.at:
        return warn_only(case, Rule.PART, case.now + GRACE, why, end)
    return end_after_warning(case, Rule.PART, given[2], why, end)


def node_loss(case: Case) -> RuleResult | None:
    """End the rest of a cluster that has lost a node, where its launch said so."""
    cluster, lost = case.view.machine.cluster, case.gang.lost
    if cluster is None or cluster.on_node_loss != "stop" or not lost:
        return None
    names = lost[0] if len(lost) == 1 else f"{len(lost)} nodes ({', '.join(lost[:3])}{', ...' * (len(lost) > 3)})"  # noqa: PLR2004  (as many as a line has room for)
    why = f"{names} was lost" if len(lost) == 1 else f"{names} were lost"
    end = guards.at_last(case.view.machine, case.policy)
    return RuleResult(
        Rule.NODE_LOSS, end, f"{why}, and {cluster.name} is to stop then (on-node-loss)", case.now, urgent=True
    )


def mended_by(case: Case) -> str:
    """Return what sets up a queue that does not answer, and what stops its cluster, as a clause; empty for no such."""
    engine, machine = case.view.engine, case.view.machine
    if engine is None or engine.queue is not None or not engine.asked:
        return ""
    return f"; cloudgpu start {command_name(machine)} sets its queue up, {stop_command(machine)} ends it"
