"""The rules by which a run decides about a machine: `RULES`, in the order in which they are tried. Pure.

Each rule says what it finds of one machine; `core.reaper.decide` makes one decision of all that was found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.budgets import enforcement as budget_stops
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.resources import Kind
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
    clock,
    end_after_warning,
    erasure_text,
    node_loss,
    notify_again,
    part_of_cluster,
    part_of_start,
    queue_remedy,
    warn_before_end,
    warn_only,
    why_spared,
)
from cloudgpu.core.reaper.decisions import ACTIVE, IDLE, SHUT_DOWN, UNKNOWN, Warned, window
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import duration_text, from_iso

NOTICE = timedelta(days=1)  # before a deletion: it cannot be undone, and waiting costs little
RETENTION_REPEAT_AFTER = timedelta(days=7)  # warnings about stopped machines and images that end nothing
_REAPER_ACTION_OF = {
    RuleAction.IMAGE: ReaperAction.IMAGE,
    RuleAction.TERMINATE: ReaperAction.TERMINATE,
    RuleAction.REMOVE: ReaperAction.REMOVE,
}


def stopped_since(machine: Machine) -> datetime:
    """Return when a machine stopped: at the latest when it was seen so."""
    return from_iso(machine.since or machine.seen_at or machine.intended_at)


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
    costlier = [one for one in machine.attached_costs or () if one.kept and not one.running]
    at = case.time("renew_until")
    if not costlier or at is None:
        return None
    cost = " and ".join(f"{one.what} costs {_monthly(one.nanos_per_month)} a month" for one in costlier)
    why = f"it is stopped, and {cost} until it is started or ended"
    warned = case.warning_times(rule)
    if case.now >= at - NOTICE:  # else it was extended since the end was announced
        if warned is not None and warned[2] is not None:
            return end_after_warning(case, rule, max(at, warned[2]), why, ReaperAction.TERMINATE)
        return warn_only(case, rule, max(at, case.now + NOTICE), why, ReaperAction.TERMINATE)
    return notify_again(
        case, rule, f"{why}; its renew-until ends it {clock(at, case.now)}{erasure_text(ReaperAction.TERMINATE)}"
    )


def _monthly(nanos: int | None) -> str:
    return "an unknown amount" if nanos is None else Money(nanos).text()


def image_since(machine: Machine) -> datetime | None:
    """Return since when the newest image of a machine that is gone, or one that is kept by name, is there."""
    made = [entry.made_at for entry in machine.retained if entry.kind == Kind.IMAGE]
    known: list[Any] = [text for text in made if text]
    return (
        from_iso(max(known))
        if known
        else from_iso(not_none(machine.terminated_at or machine.seen_at))
        if made
        else None
    )


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
    warned, do = case.warning_times(rule), _REAPER_ACTION_OF[retention.do]
    if warned is None or warned[2] is None:
        return warn_only(case, rule, case.now + NOTICE, why, do)
    return end_after_warning(case, rule, warned[2], why, do)


RENEWED_BY = timedelta(hours=1)  # by how much a run extends the lease of a machine in use


def requested_end(case: Case) -> RuleResult | None:
    """Finish the stop or end that a user requested of one machine, and that was cut off or not confirmed.

    A newer command has taken that back, or what protects the machine. What a run decided itself is decided anew.
    """
    machine, last = case.view.machine, case.view.machine.last_request
    what = None if machine.cluster_node is not None or last is None or last.judged else last.what
    if what == "terminate" and machine.discard:
        return RuleResult(
            Rule.REQUESTED, ReaperAction.TERMINATE, "its end was requested and is not done", case.now, urgent=True
        )
    if what == machine.pending_action == "stop" and case.stage is Stage.RUNNING:
        return RuleResult(
            Rule.REQUESTED, ReaperAction.STOP, "its stop was requested and is not done", case.now, urgent=True
        )
    return None


def budget(case: Case) -> RuleResult | None:
    """Budgets of the lab, then what the policy lets one machine cost. It ends in the gentlest way that there is."""
    if case.stop is not None:
        return _budget_result(case, case.stop.why, only_warns=case.stop.do is budget_stops.BudgetAction.WARN)
    limit = case.policy and case.policy.budget
    if not limit or (cost := spent_until_now(case.view.machine, case.now)) < limit.limit:
        return None
    why = f"it has cost {cost.text()}, and its policy allows a machine {limit.limit.text()}"
    if limit.do is RuleAction.WARN:
        return notify_again(case, Rule.BUDGET, why)
    warned = case.view.machine.warnings.get(Rule.BUDGET)
    count = warned.times if warned else 0
    spared = case.held is not None and count < budget_stops.WARNINGS
    more = f"; held, warning {count + 1} of {budget_stops.WARNINGS}" if spared else ""
    return _budget_result(case, why + more, only_warns=spared)


def _budget_result(case: Case, why: str, *, only_warns: bool) -> RuleResult:
    if only_warns:
        return RuleResult(Rule.BUDGET, ReaperAction.KEEP, why, warn=Warned(Rule.BUDGET, None, why), urgent=True)
    ending = guards.gentlest_ending(case.view.machine)
    if ending is ReaperAction.TERMINATE and guards.NOTHING_GENTLER not in why:  # a budget of the lab says it by itself
        why += f"; {guards.NOTHING_GENTLER}"
    return RuleResult(Rule.BUDGET, ending, why, case.now, urgent=True)


def renew_until(case: Case) -> RuleResult | None:
    """No machine lives longer than that, whoever uses it."""
    at = case.time("renew_until")
    if at is None:
        return None
    end = guards.ending_at_renew_until(case.view.machine, case.policy)
    if at <= case.now:
        return RuleResult(Rule.RENEW_UNTIL, end, f"its renew-until, {clock(at, case.now)}, is over", at, urgent=True)
    return warn_before_end(case, Rule.RENEW_UNTIL, at, "its renew-until ends it", end)


def schedule(case: Case) -> RuleResult | None:
    """Off times: a missed one catches up, a start after it outlives it. They end a machine that is in use, too."""
    if case.policy is None or not case.policy.schedules:
        return None
    missed = missed_off(case.policy.schedules, case.started, case.now)
    off = missed or next_scheduled_end(case.policy.schedules, case.now)
    if off is None:
        return None
    why = f"its schedule has it off at {clock(off, case.now)}"
    ending = guards.automatic_ending(case.view.machine, case.policy)
    if ending is None or guards.only_warned(case.view.machine, case.policy):
        return notify_again(case, Rule.SCHEDULE, why + why_spared(case)) if missed else None
    grace = case.policy.idle.grace
    warned = case.warning_times(Rule.SCHEDULE)
    due = warned[2] if warned and warned[2] is not None and warned[2] >= off else None
    if due is None and (missed or off - grace - case.interval <= case.now):
        return warn_only(case, Rule.SCHEDULE, max(off, case.now + grace), why, ending)
    if due is None:
        return RuleResult(Rule.SCHEDULE, ReaperAction.KEEP, why, off, stands=False)
    return end_after_warning(case, Rule.SCHEDULE, due, why, ending)


def scheduled_off(case: Case) -> RuleResult | None:
    """End what was started while its schedule keeps machines off, once a warning is waited out; a hold outlives it."""
    if case.policy is None or case.held is not None:
        return None
    until = off_until(case.policy.schedules, case.now)
    if until is None or missed_off(case.policy.schedules, case.started, case.now) is not None:
        return None
    why = f"its schedule keeps it off until {clock(until, case.now)}"
    ending = guards.automatic_ending(case.view.machine, case.policy)
    if ending is None or guards.only_warned(case.view.machine, case.policy):
        return notify_again(case, Rule.SCHEDULE, why + why_spared(case))
    warned = case.warning_times(Rule.SCHEDULE)
    due = warned[2] if warned and warned[2] is not None and case.started <= warned[2] < until else None
    if due is None:
        return warn_only(case, Rule.SCHEDULE, case.now + case.policy.idle.grace, why, ending)
    return end_after_warning(case, Rule.SCHEDULE, due, why, ending)


def hold(case: Case) -> RuleResult | None:
    """Report until when a machine is held, if no rule acts on it."""
    if case.held is None:
        return None
    return RuleResult(
        Rule.HOLD, ReaperAction.KEEP, f"held until {clock(case.held, case.now)}; {case.evidence.why}", stands=False
    )


def shut_down(case: Case) -> RuleResult | None:
    """Shut down and billed on, it ends at once: nobody can be at it, so there is nobody to warn."""
    machine = case.view.machine
    if machine.state not in SHUT_DOWN or machine.stoppable is False:
        return None
    return RuleResult(Rule.IDLE, ReaperAction.STOP, case.evidence.why, case.now)


def lease(case: Case) -> RuleResult | None:
    """Its end: who is in use, or may be, is renewed by the hour up to renew-until; a hold outlives it."""
    at, last = case.time("expires"), case.time("renew_until")
    if at is None or (last is not None and at >= last):
        return None
    renews_unknown = case.policy is None or case.policy.unknown is Unknown.RENEW
    if case.evidence.activity == ACTIVE or (case.evidence.activity == UNKNOWN and renews_unknown):
        return _renewal(case, at, last)
    end, over = guards.automatic_ending(case.view.machine, case.policy), at <= case.now
    why = f"its lease ended {clock(at, case.now)}, and there is no sign of use: {case.evidence.why}"
    if end is None:
        return notify_again(case, Rule.LEASE, why + why_spared(case)) if over else None
    if over:
        return RuleResult(Rule.LEASE, end, why, at, urgent=True)
    return warn_before_end(case, Rule.LEASE, at, "unless it is used, its lease ends it", end)


def idle(case: Case) -> RuleResult | None:
    """Time that nobody uses: warned, the warning waited out, then ended; nothing of this where anything is unknown."""
    policy, evidence = case.policy, case.evidence
    if policy is None or policy.idle.do is RuleAction.DISABLED or evidence.activity == ACTIVE:
        return None
    if evidence.activity == UNKNOWN:
        return _still_warned(case)
    spent_idle = (
        duration_text(evidence.quiet) if evidence.quiet is not None else f"over {duration_text(policy.idle.after)}"
    )
    why = f"idle for {spent_idle} (limit {duration_text(policy.idle.after)}): {evidence.why}"
    spared = _spared(case, policy)
    if spared or policy.idle.do is RuleAction.WARN:
        return notify_again(case, Rule.IDLE, why + (spared or "; its policy only warns of that"))
    return _ended_when_waited(case, Rule.IDLE, policy, why)


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
    if rule.do is RuleAction.WARN or case.evidence.activity != IDLE or _spared(case, policy):
        return notify_again(case, Rule.UNLABELLED, why)
    return _ended_when_waited(case, Rule.UNLABELLED, policy, f"{why}, and nobody uses it: {case.evidence.why}")


def silence(case: Case) -> RuleResult | None:
    """Tell of a machine of which runs know nothing for as long as idleness takes; it is never ended for that."""
    before = case.view.machine.decision
    if case.evidence.activity != UNKNOWN or not case.evidence.asked or before is None or before.activity != UNKNOWN:
        return None
    span = case.now - max(from_iso(before.activity_since), case.started)
    queueless = queue_remedy(case)
    if span < (QUEUE_TIMEOUT if queueless else window(case.view)):
        return None
    why = f"whether it is used is not known for {duration_text(span)}: {case.evidence.why}{queueless}"
    return notify_again(case, Rule.NONE, why)


@dataclass(frozen=True, slots=True)
class ReaperRule:
    """One of RULES: what it does, in a clause, and the functions that find what it says of one machine.

    It is tried at these stages alone, and not of a machine that is held where it `waits` for the end of a hold.
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
        "shut down and is still billed is stopped at once",
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
    """Return what finds something of a machine at this stage, held or not, in the order of RULES."""
    return tuple(find for rule in RULES if stage in rule.stages and not (rule.waits and held) for find in rule.find)


def _spared(case: Case, policy: Policy) -> str:
    """Return why idle time does not end this machine, empty where it does."""
    if guards.only_warned(case.view.machine, case.policy):
        return why_spared(case)
    full = ", ".join(f"{path} ({size / 1e9:.1f} GB)" for path, size in case.view.scratch)
    return (
        f"; a stop would erase {full}, so it is only warned" if full and policy.idle.scratch is RuleAction.WARN else ""
    )


def _ended_when_waited(case: Case, rule: Rule, policy: Policy, why: str) -> RuleResult:
    """End it once a warning is as old as the grace and older than nothing that anybody did since."""
    warned, ending = case.warning_times(rule), guards.ending_at_renew_until(case.view.machine, case.policy)
    quiet_since = case.now - case.evidence.quiet if case.evidence.quiet is not None else None
    if warned is None or warned[2] is None or (quiet_since is not None and quiet_since > warned[0]):
        return warn_only(case, rule, case.now + policy.idle.grace, why, ending)
    return end_after_warning(case, rule, max(warned[0] + policy.idle.grace, warned[2]), why, ending)


def _still_warned(case: Case) -> RuleResult | None:
    """Let a warning stand where a sync learns nothing, while it is no older than what counts as lately."""
    warned = case.warning_times(Rule.IDLE)
    if warned is None or warned[2] is None or case.now - warned[0] >= window(case.view):
        return None
    return RuleResult(Rule.IDLE, ReaperAction.KEEP, f"warned {clock(warned[0], case.now)}, but {case.evidence.why}")


def _renewal(case: Case, at: datetime, last: datetime | None) -> RuleResult | None:
    """Renew shortly before the end: the machine's own timer must not be the faster one."""
    if at > case.now + min(case.interval, LAST_WARNING):
        return None
    end = max(at, case.now) + RENEWED_BY
    end = end if last is None else min(end, last)
    unknown = case.evidence.activity == UNKNOWN
    state = "whether it is used is not known" if unknown else "it is in use"
    why = f"its lease is extended to {clock(end, case.now)}, as {state}: {case.evidence.why}"
    return RuleResult(Rule.LEASE, ReaperAction.RENEW, why, end, stands=False, urgent=unknown)
