"""The rules by which a run decides about a machine: `RULES`, in the order in which they are tried. Pure.

Each rule says what it finds of one machine; `core.reaper.decide` makes one decision of all that was found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from cloudgpu.core.activity.idle import ACTIVE, IDLE, UNKNOWN
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.budgets import enforcement as budget_stops
from cloudgpu.core.policies import guards
from cloudgpu.core.policies.description import HOLD
from cloudgpu.core.policies.policy import Policy, ReaperAction, Retention, Rule, RuleAction, Unknown
from cloudgpu.core.policies.schedule import missed_off, next_scheduled_end, off_until
from cloudgpu.core.reaper.cases import (
    LAST_WARNING,
    QUEUE_TIMEOUT,
    Case,
    RuleResult,
    Stage,
    announce_end,
    clock_text,
    end_after_warning,
    erasure_text,
    node_loss,
    notify_again,
    part_of_cluster,
    part_of_start,
    queue_remedy,
    warn_before_end,
    why_only_warned,
)
from cloudgpu.core.reaper.decisions import STOPPED_STATES, DueWarning, activity_window, hangs_in_stop
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import duration_text, from_iso

NOTICE = timedelta(days=1)  # a warning precedes a deletion by so much: that cannot be undone, and waiting costs little
RETENTION_REPEAT_AFTER = timedelta(days=7)  # warnings about stopped machines and images that end nothing
_REAPER_ACTION_OF = {
    RuleAction.IMAGE: ReaperAction.IMAGE,
    RuleAction.TERMINATE: ReaperAction.TERMINATE,
    RuleAction.REMOVE: ReaperAction.REMOVE,
}


def stopped(case: Case) -> RuleResult | None:
    """Tell of a machine that is stopped for long, or keep it as an image, or terminate it."""
    rule = case.policy and case.policy.stopped
    result = _retention_result(case, Rule.STOPPED, rule, case.started, "it is stopped") if rule else None
    return result or _costly_stop(case)


def _costly_stop(case: Case) -> RuleResult | None:
    """Tell daily of a stopped machine that costs what it does not cost while it runs; terminate it at its renew-until.

    A disk that is more expensive while its machine is stopped (RunPod's) has a price of its own for that. The end
    deletes the disk: it comes a day after it was announced at the earliest.
    """
    machine, rule = case.view.machine, Rule.STOPPED
    costlier = [cost for cost in machine.attached_costs or () if cost.kept and not cost.running]
    at = case.time("renew_until")
    if not costlier or at is None:
        return None
    cost = " and ".join(f"{entry.what} costs {_monthly(entry.nanos_per_month)} a month" for entry in costlier)
    why = f"it is stopped, and {cost} until it is started or ended"
    warned = case.warning_times(rule)
    if case.now >= at - NOTICE:  # else it was extended since the end was announced
        if warned is not None and warned.due is not None:
            return end_after_warning(case, rule, max(at, warned.due), why, ReaperAction.TERMINATE)
        return announce_end(case, rule, max(at, case.now + NOTICE), why, ReaperAction.TERMINATE)
    return notify_again(
        case, rule, f"{why}; its renew-until ends it {clock_text(at, case.now)}{erasure_text(ReaperAction.TERMINATE)}"
    )


def _monthly(nanos: int | None) -> str:
    return "an unknown amount" if nanos is None else Money(nanos).text()


def images(case: Case) -> RuleResult | None:
    """Tell of an image that is kept for long, or remove it."""
    rule = case.policy and case.policy.images
    return _retention_result(case, Rule.IMAGES, rule, case.started, "its image is kept") if rule else None


def _retention_result(case: Case, rule: Rule, retention: Retention, since: datetime, what: str) -> RuleResult | None:
    at = since + retention.after
    if case.now < at:
        return None
    why = f"{what} for {duration_text(case.now - since)} (limit {duration_text(retention.after)})"
    if retention.do is RuleAction.IMAGE and case.view.machine.parkable is False:
        return notify_again(
            case,
            rule,
            f"{why}; {case.view.machine.provider} keeps no images, so it is only warned of",
            RETENTION_REPEAT_AFTER,
        )
    if retention.do not in _REAPER_ACTION_OF:
        return notify_again(case, rule, why, RETENTION_REPEAT_AFTER)
    warned, action = case.warning_times(rule), _REAPER_ACTION_OF[retention.do]
    if warned is None or warned.due is None:
        return announce_end(case, rule, case.now + NOTICE, why, action)
    return end_after_warning(case, rule, warned.due, why, action)


RENEWED_BY = timedelta(hours=1)  # by how much a run extends the lease of a machine in use


def requested_end(case: Case) -> RuleResult | None:
    """Finish the stop or end that a user requested of one machine, and that was cut off or not confirmed.

    A newer command has taken that back, or what protects the machine. What a run decided itself is decided anew.
    """
    machine, last_request = case.view.machine, case.view.machine.last_request
    requested = (
        None if machine.cluster_node is not None or last_request is None or last_request.judged else last_request.what
    )
    if requested == "terminate" and machine.discard:
        return RuleResult(
            Rule.REQUESTED, ReaperAction.TERMINATE, "its end was requested and is not done", case.now, urgent=True
        )
    if requested == machine.pending_action == "stop" and case.stage is Stage.RUNNING:
        return RuleResult(
            Rule.REQUESTED, ReaperAction.STOP, "its stop was requested and is not done", case.now, urgent=True
        )
    return None


def budget(case: Case) -> RuleResult | None:
    """End, as gently as possible, what is over a budget of the lab or over what its policy lets one machine cost."""
    if case.budget_stop is not None:
        return _budget_result(case, case.budget_stop.why, only_warns=case.budget_stop.action is ReaperAction.WARN)
    limit = case.policy and case.policy.budget
    if not limit or (cost := spent_until_now(case.view.machine, case.now)) < limit.limit:
        return None
    why = f"it has cost {cost.text()}, and its policy allows a machine {limit.limit.text()}"
    if limit.do is RuleAction.WARN:
        return notify_again(case, Rule.BUDGET, why)
    warned = case.view.machine.warnings.get(Rule.BUDGET)
    count = warned.times if warned else 0
    is_spared = case.held_until is not None and count < budget_stops.MAX_WARNINGS
    held_text = f"; held, warning {count + 1} of {budget_stops.MAX_WARNINGS}" if is_spared else ""
    return _budget_result(case, why + held_text, only_warns=is_spared)


def _budget_result(case: Case, why: str, *, only_warns: bool) -> RuleResult:
    if only_warns:
        return RuleResult(Rule.BUDGET, ReaperAction.KEEP, why, warning=DueWarning(Rule.BUDGET, None, why), urgent=True)
    ending = guards.gentlest_ending(case.view.machine)
    if ending is ReaperAction.TERMINATE and guards.NOTHING_GENTLER not in why:  # a budget of the lab says it by itself
        why += f"; {guards.NOTHING_GENTLER}"
    return RuleResult(Rule.BUDGET, ending, why, case.now, urgent=True)


def renew_until(case: Case) -> RuleResult | None:
    """End a machine at its renew-until, whoever uses it; warn before."""
    at = case.time("renew_until")
    if at is None:
        return None
    end = guards.ending_at_renew_until(case.view.machine, case.policy)
    if at <= case.now:
        return RuleResult(
            Rule.RENEW_UNTIL, end, f"its renew-until, {clock_text(at, case.now)}, is over", at, urgent=True
        )
    return warn_before_end(case, Rule.RENEW_UNTIL, at, "its renew-until ends it", end)


def schedule(case: Case) -> RuleResult | None:
    """End at an off time, also one that runs have missed, unless it was started after that; also while it is in use."""
    if case.policy is None or not case.policy.schedules:
        return None
    missed = missed_off(case.policy.schedules, case.started, case.now)
    off = missed or next_scheduled_end(case.policy.schedules, case.now)
    if off is None:
        return None
    why = f"its schedule has it off at {clock_text(off, case.now)}"
    ending = guards.automatic_ending(case.view.machine, case.policy)
    if ending is None or guards.only_warned(case.view.machine, case.policy):
        return notify_again(case, Rule.SCHEDULE, why + why_only_warned(case)) if missed else None
    grace = case.policy.idle.grace
    warned = case.warning_times(Rule.SCHEDULE)
    due = warned.due if warned and warned.due is not None and warned.due >= off else None
    if due is None and (missed or off - grace - case.interval <= case.now):
        return announce_end(case, Rule.SCHEDULE, max(off, case.now + grace), why, ending)
    if due is None:
        return RuleResult(Rule.SCHEDULE, ReaperAction.KEEP, why, off, warning_stands=False)
    return end_after_warning(case, Rule.SCHEDULE, due, why, ending)


def scheduled_off(case: Case) -> RuleResult | None:
    """End what was started while its schedule keeps machines off, once a warning is waited out; a hold outlives it."""
    if case.policy is None or case.held_until is not None:
        return None
    until = off_until(case.policy.schedules, case.now)
    if until is None or missed_off(case.policy.schedules, case.started, case.now) is not None:
        return None
    why = f"its schedule keeps it off until {clock_text(until, case.now)}"
    ending = guards.automatic_ending(case.view.machine, case.policy)
    if ending is None or guards.only_warned(case.view.machine, case.policy):
        return notify_again(case, Rule.SCHEDULE, why + why_only_warned(case))
    warned = case.warning_times(Rule.SCHEDULE)
    due = warned.due if warned and warned.due is not None and case.started <= warned.due < until else None
    if due is None:
        return announce_end(case, Rule.SCHEDULE, case.now + case.policy.idle.grace, why, ending)
    return end_after_warning(case, Rule.SCHEDULE, due, why, ending)


def hold(case: Case) -> RuleResult | None:
    """Report until when a machine is held, if no rule acts on it."""
    if case.held_until is None:
        return None
    return RuleResult(
        Rule.HOLD,
        ReaperAction.KEEP,
        f"held until {clock_text(case.held_until, case.now)}; {case.evidence.why}",
        warning_stands=False,
    )


def shut_down(case: Case) -> RuleResult | None:
    """Stop at once a machine that is shut down, or hangs in its stop, and is billed: nobody is on it, to be warned."""
    machine = case.view.machine
    is_down = machine.state in STOPPED_STATES or hangs_in_stop(machine, case.now)
    if not is_down or machine.stoppable is False:
        return None
    return RuleResult(Rule.IDLE, ReaperAction.STOP, case.evidence.why, case.now)


def lease(case: Case) -> RuleResult | None:
    """End it with its lease; renew the lease by the hour, up to renew-until, while it is or may be in use."""
    at, renew_until_ = case.time("expires"), case.time("renew_until")
    if at is None or (renew_until_ is not None and at >= renew_until_):
        return None
    renews_unknown = case.policy is None or case.policy.unknown is Unknown.RENEW
    if case.evidence.activity == ACTIVE or (case.evidence.activity == UNKNOWN and renews_unknown):
        return _renewal(case, at, renew_until_)
    end, is_over = guards.automatic_ending(case.view.machine, case.policy), at <= case.now
    why = f"its lease ended {clock_text(at, case.now)}, and there is no sign of use: {case.evidence.why}"
    if end is None:
        return notify_again(case, Rule.LEASE, why + why_only_warned(case)) if is_over else None
    if is_over:
        return RuleResult(Rule.LEASE, end, why, at, urgent=True)
    return warn_before_end(case, Rule.LEASE, at, "unless it is used, its lease ends it", end)


def idle(case: Case) -> RuleResult | None:
    """Warn of a machine that nobody uses, and end it once the warning is waited out; never while its use is unknown."""
    policy, evidence = case.policy, case.evidence
    if policy is None or policy.idle.do is RuleAction.DISABLED or evidence.activity == ACTIVE:
        return None
    if evidence.activity == UNKNOWN:
        return _still_warned(case)
    spent_idle = (
        duration_text(evidence.unused_for)
        if evidence.unused_for is not None
        else f"over {duration_text(policy.idle.after)}"
    )
    why = f"idle for {spent_idle} (limit {duration_text(policy.idle.after)}): {evidence.why}"
    why_spared = _why_not_ended_for_idle(case, policy)
    if why_spared or policy.idle.do is RuleAction.WARN:
        return notify_again(case, Rule.IDLE, why + (why_spared or "; its policy only warns of that"))
    return _end_after_grace(case, Rule.IDLE, policy, why)


def unlabelled(case: Case) -> RuleResult | None:
    """Tell of a machine that does not say whose it is or what for; end it only when nobody uses it."""
    policy = case.policy
    rule = policy and policy.unlabelled
    if policy is None or not rule:
        return None
    missing = [name for name in rule.require if not getattr(case.view.machine, name)]
    begun = case.time("launched_at") or case.time("intended_at") or case.now
    if not missing or case.now < begun + rule.after:
        return None
    why = f"it runs for {duration_text(case.now - begun)} without {' and '.join(missing)}"
    if rule.do is RuleAction.WARN or case.evidence.activity != IDLE or _why_not_ended_for_idle(case, policy):
        return notify_again(case, Rule.UNLABELLED, why)
    return _end_after_grace(case, Rule.UNLABELLED, policy, f"{why}, and nobody uses it: {case.evidence.why}")


def silence(case: Case) -> RuleResult | None:
    """Warn of a machine whose use has not been known for as long as idle time takes; it is never ended for that."""
    last_decision = case.view.machine.decision
    if (
        case.evidence.activity != UNKNOWN
        or not case.evidence.asked
        or last_decision is None
        or last_decision.activity != UNKNOWN
    ):
        return None
    unknown_for = case.now - max(from_iso(last_decision.activity_since), case.started)
    queue_text = queue_remedy(case)
    if unknown_for < (QUEUE_TIMEOUT if queue_text else activity_window(case.view)):
        return None
    why = f"whether it is used is not known for {duration_text(unknown_for)}: {case.evidence.why}{queue_text}"
    return notify_again(case, Rule.NONE, why)


@dataclass(frozen=True, slots=True)
class ReaperRule:
    """One of RULES: what it does, as a clause for the docs (`says`), and the functions that apply it to one machine.

    They are called only at these stages, and not for a held machine where the rule `waits` for the end of a hold.
    """

    rule: Rule
    says: str
    find: tuple[Callable[[Case], RuleResult | None], ...]
    stages: tuple[Stage, ...] = (Stage.RUNNING,)
    waits: bool = False


RULES = (
    ReaperRule(
        Rule.REQUESTED,
        "finishes at once a `stop` or `down` that was interrupted or not confirmed, even if the machine is in use or "
        "held; a later `start`, `up`, `extend` or `hold` of it takes that back",
        (requested_end,),
        stages=(Stage.RUNNING, Stage.STOPPED),
    ),
    ReaperRule(
        Rule.BUDGET,
        "ends a machine once a budget that stops machines is passed, or what the policy lets one machine cost; "
        "a held machine is warned twice first",
        (budget,),
    ),
    ReaperRule(Rule.RENEW_UNTIL, "ends a machine at its renew-until, even while it is in use", (renew_until,)),
    ReaperRule(
        Rule.PART,
        "terminates what is there of a cluster whose other machines were never made or have been terminated, "
        "10 minutes after its launch or that end, while no command works on it; one that has run before is stopped; "
        "a requested stop or end of a cluster that is not done is finished at once, unless a later command took it "
        "back; what an interrupted `start` has left of a cluster with a queue is stopped 10 minutes after a warning, "
        "unless it is in use or held",
        (part_of_cluster, part_of_start),
        stages=(Stage.RUNNING, Stage.STOPPED),
    ),
    ReaperRule(
        Rule.SCHEDULE,
        "ends a machine at its off time, even while it is in use; a machine that is started while its schedule keeps "
        "it off (`until`) is ended too, unless it is held",
        (schedule, scheduled_off),
    ),
    ReaperRule(Rule.HOLD, HOLD, (hold,), stages=tuple(Stage)),
    ReaperRule(
        Rule.NODE_LOSS,
        "ends the other machines of a cluster that has lost one, if it was launched with `--on-node-loss stop`",
        (node_loss,),
        waits=True,
    ),
    ReaperRule(
        Rule.LEASE,
        "ends a machine when its lease is over; while the machine is in use, or nobody knows whether it is "
        "(`unknown: renew`), the lease is renewed by the hour, up to renew-until",
        (lease,),
        waits=True,
    ),
    ReaperRule(
        Rule.IDLE,
        "ends a machine that nobody has used for `idle.after`, once a warning is `idle.grace` old; a machine that was "
        "shut down, or has been stopping for 30 minutes, and is still billed is stopped at once",
        (shut_down, idle),
        waits=True,
    ),
    ReaperRule(
        Rule.UNLABELLED,
        "ends an idle machine that does not say whose it is or what it is for, once a warning is `idle.grace` old; "
        "while the machine is in use, it only warns",
        (unlabelled,),
        waits=True,
    ),
    ReaperRule(
        Rule.STOPPED,
        "makes an image of a machine that is stopped for longer than the policy allows, or terminates it, "
        "a day after a warning; if its disk has a higher price while it is stopped, it warns daily and terminates the "
        "machine at its renew-until",
        (stopped,),
        stages=(Stage.STOPPED,),
        waits=True,
    ),
    ReaperRule(
        Rule.IMAGES,
        "removes an image that is kept for longer than the policy allows, a day after a warning",
        (images,),
        stages=(Stage.IMAGE,),
        waits=True,
    ),
    ReaperRule(
        Rule.NONE,
        "warns when nobody has known for `idle.after` whether a machine is used, or when a cluster's queue has not "
        "answered for 20 minutes; it ends nothing",
        (silence,),
    ),
)


@cache
def finders_at(stage: Stage, *, held: bool) -> tuple[Callable[[Case], RuleResult | None], ...]:
    """Return the functions of the rules that apply to a machine at this stage, held or not, in the order of RULES."""
    return tuple(find for rule in RULES if stage in rule.stages and not (rule.waits and held) for find in rule.find)


def _why_not_ended_for_idle(case: Case, policy: Policy) -> str:
    """Return why idle time does not end this machine, empty where it does."""
    if guards.only_warned(case.view.machine, case.policy):
        return why_only_warned(case)
    full_disks = ", ".join(f"{path} ({size / 1e9:.1f} GB)" for path, size in case.view.scratch)
    return (
        f"; a stop would erase {full_disks}, so it is only warned"
        if full_disks and policy.idle.scratch is RuleAction.WARN
        else ""
    )


def _end_after_grace(case: Case, rule: Rule, policy: Policy, why: str) -> RuleResult:
    """End it once a warning is as old as the grace, and nobody has used the machine since that warning."""
    warned, ending = case.warning_times(rule), guards.ending_at_renew_until(case.view.machine, case.policy)
    unused_since = case.now - case.evidence.unused_for if case.evidence.unused_for is not None else None
    if warned is None or warned.due is None or (unused_since is not None and unused_since > warned.first_at):
        return announce_end(case, rule, case.now + policy.idle.grace, why, ending)
    return end_after_warning(case, rule, max(warned.first_at + policy.idle.grace, warned.due), why, ending)


def _still_warned(case: Case) -> RuleResult | None:
    """Let a warning stand while its use is unknown, unless it is older than the time for which use counts."""
    warned = case.warning_times(Rule.IDLE)
    if warned is None or warned.due is None or case.now - warned.first_at >= activity_window(case.view):
        return None
    return RuleResult(
        Rule.IDLE, ReaperAction.KEEP, f"warned {clock_text(warned.first_at, case.now)}, but {case.evidence.why}"
    )


def _renewal(case: Case, at: datetime, last: datetime | None) -> RuleResult | None:
    """Renew shortly before the end: the machine's own timer must not be the faster one."""
    if at > case.now + min(case.interval, LAST_WARNING):
        return None
    end = max(at, case.now) + RENEWED_BY
    end = end if last is None else min(end, last)
    unknown = case.evidence.activity == UNKNOWN
    state = "whether it is used is not known" if unknown else "it is in use"
    why = f"its lease is extended to {clock_text(end, case.now)}, as {state}: {case.evidence.why}"
    return RuleResult(Rule.LEASE, ReaperAction.RENEW, why, end, warning_stands=False, urgent=unknown)
