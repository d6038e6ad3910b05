"""One machine, or a cluster as one, as the rules see it; the result of a rule, and how people are warned.

The rules about whole clusters are here, too: incomplete ones, partly started ones, and lost nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from cloudgpu.core.activity.idle import ACTIVE
from cloudgpu.core.budgets import enforcement as budget_stops
from cloudgpu.core.clusters.completeness import LAUNCH_GRACE
from cloudgpu.core.model.machine import command_name, stop_command
from cloudgpu.core.policies import guards
from cloudgpu.core.policies.guards import ERASES
from cloudgpu.core.policies.policy import Policy, ReaperAction, Rule
from cloudgpu.core.reaper.clusters import NO_CLUSTER, ClusterState
from cloudgpu.core.reaper.decisions import DueWarning, Evidence, MachineView
from cloudgpu.core.values.times import from_iso

# Before the end of a lease its people are told, twice.
FIRST_WARNING, LAST_WARNING = timedelta(minutes=60), timedelta(minutes=10)
MAX_WAIT = timedelta(seconds=60)  # a run waits so long for an end that is due rather than leave it to the next run
REPEAT_AFTER = timedelta(days=1)  # a warning that ends nothing is repeated after that
SHOW_HOUR_ALONE_WITHIN = timedelta(hours=12)  # a time this near is shown without its date
_WARN_TO_KEEP_DISK = "; it cannot be stopped, and its policy only warns of that"


class Stage(StrEnum):
    """The stage of a machine when a run decides about it."""

    RUNNING = "a running machine"
    STOPPED = "a stopped machine"
    IMAGE = "a kept image"


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The result of one rule: what to do now (KEEP: nothing yet), and when it ends the machine (None: not by itself).

    `do` is the action and `at` the end just named, `after` when the warning time is over, `warning` one to send now.
    `warning_stands`: an earlier warning still applies. `urgent`: people should hear of it at once.
    """

    rule: Rule
    do: ReaperAction
    why: str
    at: datetime | None = None
    after: datetime | None = None
    warning: DueWarning | None = None
    warning_stands: bool = True
    urgent: bool = False


class WarningTimes(NamedTuple):
    """When people were first and last warned by one rule, and the end that was announced (None: none was)."""

    first_at: datetime
    last_at: datetime
    due: datetime | None


@dataclass(frozen=True, slots=True)
class Case:
    """One machine, or a cluster as one, with all that the rules need.

    `started` is since when it has been in its stage, `budget_stop` what a budget does with it, `interval` how often
    runs come, `held_until` the end of a hold that has not ended, and `cluster_state` what the ledger knows of its
    cluster.
    """

    view: MachineView
    stage: Stage
    evidence: Evidence
    started: datetime
    budget_stop: budget_stops.PlannedStop | None
    now: datetime
    interval: timedelta
    held_until: datetime | None
    cluster_state: ClusterState = NO_CLUSTER

    @property
    def policy(self) -> Policy | None:
        """Its policy, None if it cannot be resolved."""
        return self.view.policy

    def time(self, name: str) -> datetime | None:
        """Return a time of the machine by its field's name, or None."""
        text: str | None = getattr(self.view.machine, name)
        return from_iso(text) if text else None

    def warning_times(self, rule: Rule) -> WarningTimes | None:
        """Return when people were warned by this rule; None: never.

        A warning about an earlier run of the machine does not count.
        """
        warning = self.view.machine.warnings.get(rule)
        if warning is None or from_iso(warning.at) < self.started:
            return None
        return WarningTimes(
            from_iso(warning.at), from_iso(warning.last), from_iso(warning.due) if warning.due else None
        )


def clock_text(at: datetime, now: datetime) -> str:
    """Return a time for people: the hour alone where it is near."""
    text = at.isoformat(" ", "minutes")[:16]  # a fifth of what strftime takes
    return f"{text[11:] if abs(at - now) < SHOW_HOUR_ALONE_WITHIN else text} UTC"


def announce_end(case: Case, rule: Rule, due: datetime, why: str, do: ReaperAction) -> RuleResult:
    """Return the result that warns people that the action `do` ends the machine at `due`; it ends nothing now."""
    message = f"{why}; it ends {clock_text(due, case.now)}{erasure_text(do)}"
    return RuleResult(rule, ReaperAction.KEEP, message, due, due, DueWarning(rule, due, message), urgent=True)


def erasure_text(do: ReaperAction) -> str:
    """Return, as the end of a sentence, that this end deletes the machine's disk; empty if it does not."""
    return f"; {ERASES}" if do is ReaperAction.TERMINATE else ""


def end_after_warning(case: Case, rule: Rule, due: datetime, why: str, do: ReaperAction) -> RuleResult:
    """Return the result that ends a machine by `do` at `due`, after people were warned."""
    warning_times = case.warning_times(rule)
    message = f"{why}; warned {clock_text(warning_times.first_at, case.now)}" if warning_times else why
    if due <= case.now + MAX_WAIT:
        return RuleResult(rule, do, message, due, due)
    return RuleResult(rule, ReaperAction.KEEP, f"{message}, ends {clock_text(due, case.now)}", due, due)


def notify_again(case: Case, rule: Rule, why: str, repeat_after: timedelta = REPEAT_AFTER) -> RuleResult:
    """Return the result that only notifies people, and again after `repeat_after`; it ends nothing."""
    warning_times = case.warning_times(rule)
    due = warning_times is None or warning_times.due is not None or case.now - warning_times.last_at >= repeat_after
    return RuleResult(rule, ReaperAction.KEEP, why, warning=DueWarning(rule, None, why) if due else None)


def warn_before_end(case: Case, rule: Rule, at: datetime, what: str, do: ReaperAction) -> RuleResult:
    """Return the result that warns 60 and 10 minutes before an end; warnings about another end time do not count."""
    why, time_left = f"{what} {clock_text(at, case.now)}{erasure_text(do)}", at - case.now
    if time_left > FIRST_WARNING:
        return RuleResult(rule, ReaperAction.KEEP, why, at, warning_stands=False)
    warning_times = case.warning_times(rule)
    last_warned = warning_times.last_at if warning_times and warning_times.due == at else None
    due = last_warned is None or (time_left <= LAST_WARNING and last_warned < at - LAST_WARNING)
    return RuleResult(rule, ReaperAction.KEEP, why, at, warning=DueWarning(rule, at, why) if due else None, urgent=due)


QUEUE_TIMEOUT = timedelta(minutes=20)  # in which `up` or `start` sets a queue up, its packages installed, too


def part_of_cluster(case: Case) -> RuleResult | None:
    """End the machines of a cluster whose others never came or were terminated: terminate them, unless they were used.

    Finish a requested stop or end of the cluster that an interrupted command left undone.
    """
    cluster_state, machine = case.cluster_state, case.view.machine
    reason = cluster_state.unfinished_end or cluster_state.incomplete_reason or cluster_state.unfinished_stop
    if not reason:
        return None
    can_stop = not cluster_state.unfinished_end and (
        not cluster_state.incomplete_reason or (cluster_state.has_run and not cluster_state.discard)
    )
    why = f"{reason}, and a cluster is all of its machines or none"
    end = guards.ending_at_renew_until(machine, case.policy) if can_stop else ReaperAction.TERMINATE
    if end is ReaperAction.STOP and case.stage is Stage.STOPPED:
        return None
    return RuleResult(Rule.PART, end, why, case.now, urgent=True)


def part_of_start(case: Case) -> RuleResult | None:
    """Notify about a cluster whose start was interrupted; stop it after a warning if it has a queue and is not in use.

    Its queue comes up when all nodes have. Without one, or where nodes ran before, what runs may be of use, and is idle
    by its own rules.
    """
    cluster, started = case.view.machine.cluster, case.cluster_state.partly_started
    if cluster is None or started is None or case.stage is not Stage.RUNNING or case.held_until is not None:
        return None
    name = cluster.name
    why = f"{started.why}; cloudgpu start {name} continues it, {stop_command(case.view.machine)} ends the rest"
    if cluster.engine == "none" or started.ran_before or case.evidence.activity == ACTIVE:
        return notify_again(case, Rule.PART, why)
    end, warning_times = guards.ending_at_renew_until(case.view.machine, case.policy), case.warning_times(Rule.PART)
    if warning_times is None or warning_times.due is None or warning_times.first_at < started.at:
        return announce_end(case, Rule.PART, case.now + LAUNCH_GRACE, why, end)
    return end_after_warning(case, Rule.PART, warning_times.due, why, end)


def node_loss(case: Case) -> RuleResult | None:
    """End the other nodes of a cluster that has lost one, if it was launched with `--on-node-loss stop`."""
    cluster, lost = case.view.machine.cluster, case.cluster_state.lost_nodes
    if cluster is None or cluster.on_node_loss != "stop" or not lost:
        return None
    names = lost[0] if len(lost) == 1 else f"{len(lost)} nodes ({', '.join(lost[:3])}{', ...' * (len(lost) > 3)})"  # noqa: PLR2004  (as many as a line has room for)
    why = f"{names} was lost" if len(lost) == 1 else f"{names} were lost"
    ending = guards.ending_at_renew_until(case.view.machine, case.policy)
    return RuleResult(
        Rule.NODE_LOSS, ending, f"{why}, and {cluster.name} is to stop then (on-node-loss)", case.now, urgent=True
    )


def queue_remedy(case: Case) -> str:
    """Return the commands that set up a queue that does not answer, or stop its cluster, as a clause; else ""."""
    engine, machine = case.view.engine, case.view.machine
    if engine is None or engine.queue is not None or not engine.was_queried:
        return ""
    return f"; cloudgpu start {command_name(machine)} sets its queue up, {stop_command(machine)} ends it"


def why_only_warned(case: Case) -> str:
    """Return why a machine that only warns is not ended: it could only lose its disk, or its policy says so."""
    if not guards.only_warns_to_keep_disk(case.view.machine, case.policy):
        return _WARN_TO_KEEP_DISK
    last = case.time("renew_until")
    until = f"its renew-until, {clock_text(last, case.now)}, or a budget ends it" if last else "only a budget ends it"
    return f"; {guards.NOTHING_GENTLER}, and its policy is to keep its disk: {until}"
