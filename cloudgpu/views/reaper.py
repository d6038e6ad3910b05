"""A run of the reaper as the plain value that `-o json` prints, and why a machine counts as in use, idle or unknown."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.activity.idle import UNKNOWN
from cloudgpu.core.model.machine import may_be_running
from cloudgpu.core.policies.guards import end_reason_of
from cloudgpu.core.policies.schedule import next_scheduled_end
from cloudgpu.core.reaper.decisions import Decision, Evidence, MachineView, activity_evidence, up_since
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.views.machines import queried_accounts_document

if TYPE_CHECKING:
    from cloudgpu.core.activity.idle import ActivityVerdict, Signal
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.core.reaper.result import EndedItem, GivenWarning, NotEnded, ReaperRun
    from cloudgpu.views.documents.automation.activity import (
        ActivityPolicy,
        ActivitySignal,
        GivenWarning as RuleWarning,
        ReapVerdict,
        RuleEnds,
        WhyDocument,
    )
    from cloudgpu.views.documents.automation.reap import (
        ExecutedAction,
        GivenNotice,
        MachineDecision,
        ReapDocument,
        Renewal,
        UnconfirmedAction,
    )


def run_document(run: ReaperRun, *, explain: bool = False) -> ReapDocument:
    """Return a run; with `explain` also, for each machine, why it counts as active, idle or unknown."""
    return {
        "started_at": iso(run.begun_at),
        "took_s": round(run.duration.total_seconds(), 3),
        "dry_run": run.dry_run,
        "busy": run.busy or None,
        "exit_code": run.exit_code,
        "decided": run.decided,
        "decisions": [_decision(view, decision) for view, decision in zip(run.views, run.decisions, strict=True)],
        "ended": [_ended_document(item) for item in run.ended],
        "renewed": [_renewal_document(item) for item in run.renewed],
        "warned": [_warning_document(item) for item in run.warned],
        "skipped": [_unfinished_document(item) for item in run.skipped],
        "unconfirmed": [_unfinished_document(item) for item in run.unconfirmed],
        "unanswered": [{"scope": account.scope, "why": account.why} for account in run.unanswered],
        "errors": list(run.faults),
        "notes": list(run.sentences),
        "undelivered": list(run.undelivered),
        **queried_accounts_document(run.queried, run.not_queried),
        "explained": explanations(run) if explain else [],
    }


def explanations(run: ReaperRun) -> list[WhyDocument]:
    """Return why each machine counts as active, idle or unknown, signal by signal, and what follows from it."""
    return [
        why_document(
            view, decision, run.begun_at, at=view.reached_at, how="none" if view.reached_at is None else "live"
        )
        for view, decision in zip(run.views, run.decisions, strict=True)
    ]


def _decision(view: MachineView, decision: Decision) -> MachineDecision:
    machine = view.machine
    return {
        "machine": decision.machine,
        "name": decision.name,
        "provider": machine.provider,
        "account": machine.account,
        "region": machine.region,
        "state": machine.state,
        "activity": decision.activity,
        **decision_document(decision),
    }


def _ended_document(ended: EndedItem) -> ExecutedAction:
    return {
        "machine": ended.machine,
        "name": ended.name,
        "do": str(ended.do),
        "rule": str(ended.rule),
        "why": ended.why,
        "state": ended.now,
    }


def _renewal_document(renewed: EndedItem) -> Renewal:
    return {
        "machine": renewed.machine,
        "name": renewed.name,
        "do": str(renewed.do),
        "rule": str(renewed.rule),
        "why": renewed.why,
        "expires": renewed.now,
    }


def _warning_document(warning: GivenWarning) -> GivenNotice:
    return {
        "machine": warning.machine,
        "name": warning.name,
        "rule": str(warning.rule),
        "why": warning.why,
        "due": None if warning.due is None else iso(warning.due),
        "how": list(warning.how),
    }


def _unfinished_document(not_ended: NotEnded) -> UnconfirmedAction:
    return {"machine": not_ended.machine, "name": not_ended.name, "do": str(not_ended.do), "why": not_ended.why}


NAME_UNITS = {"busy kernel": "kernels", "running job": "jobs"}  # the signals whose values are names, and their units
_UNITS = {"GPU": "percent", "CPU": "cores", "network": "bytes_per_s", "disk": "bytes_per_s", **NAME_UNITS}
_AGENT_REASONS = {  # why an agent ends its machine
    "idle": "idle time ended it",
    "lease": "its lease was over and nobody used it",
    "renew-until": "its renew-until had come",
    "schedule": "its schedule ended it",
}
AGE_UNIT = "seconds"  # the unit of every other signal: how long ago it showed life


def why_document(
    view: MachineView,
    decision: Decision,
    now: datetime,
    *,
    at: datetime | None,
    how: str,
    judged: ActivityVerdict | None = None,
    stop_reason: str | None = None,
) -> WhyDocument:
    """Return whether one machine is in use, signal by signal, and what follows from it.

    `at` is when the signals were measured (None: none are known), and `how` they came here: `live` now, from the
    `samples` kept here, or `none`. `judged` has the signals if they are too old to decide by; `stop_reason` is why a
    machine that does not run was stopped. Times are UTC text, durations seconds.
    """
    machine, is_running = view.machine, may_be_running(view.machine)
    evidence = (
        activity_evidence(view, now)
        if is_running
        else Evidence(UNKNOWN, _stopped_text(machine, stop_reason), asked=False)
    )
    return {
        "machine": machine.id,
        "name": machine.name,
        "running": is_running,
        "activity": evidence.activity,
        "why": evidence.why,
        "quiet_s": None if evidence.unused_for is None else round(evidence.unused_for.total_seconds()),
        "source": {
            "how": how,
            "at": None if at is None else iso(at),
            "error": view.unknown_reason,
            "signals_at": None if at is None else iso(at),
        },
        "signals": signals_document(judged or view.judged),
        "last_active_at": None if view.last_active is None else iso(view.last_active),
        "up_since": iso(up_since(machine)),
        "scratch": [{"path": path, "bytes": size} for path, size in view.scratch],
        "policy": _policy(view),
        "decision": decision_document(decision),
        "warnings": _warnings(machine),
        "ends": _rule_ends(view, now, evidence.activity, evidence.unused_for),
    }


def _stopped_text(machine: Machine, stop_reason: str | None) -> str:
    """Return that a machine does not run, and why: `it is stopped: idle time ended it`."""
    reason = end_reason_of(machine)
    why = stop_reason if reason in (None, "asked") else _AGENT_REASONS.get(reason, reason)
    return f"it is {machine.state}" + (f": {why}" if why else "")


def signals_document(judged: ActivityVerdict | None) -> list[ActivitySignal]:
    """Return each signal that was checked; none where nothing is known."""
    return [] if judged is None else [_signal(signal) for signal in judged.signals]


def _signal(signal: Signal) -> ActivitySignal:
    names = signal.value if isinstance(signal.value, list) else []
    return {
        "what": signal.what,
        "unit": _UNITS.get(signal.what, AGE_UNIT),
        "value": len(names) if signal.what in NAME_UNITS else signal.value,
        "names": list(names),
        "limit": signal.limit,
        "ago_s": None if signal.ago < 0 else round(signal.ago),
        "active": signal.counts,
    }


def decision_document(decision: Decision) -> ReapVerdict:
    """Return a decision: what is done, by which rule, why, and when it would be ended if nothing changes."""
    return {
        "do": str(decision.do),
        "rule": str(decision.rule),
        "why": decision.why,
        "at": None if decision.at is None else iso(decision.at),
        "after": None if decision.after is None else iso(decision.after),
        "urgent": decision.urgent,
    }


def _policy(view: MachineView) -> ActivityPolicy:
    policy = view.policy
    if policy is None:
        return {"name": view.machine.policy, "why": view.why_policy, "idle": None}
    idle = policy.idle
    after_s, grace_s = idle.after.total_seconds(), idle.grace.total_seconds()
    return {
        "name": policy.name,
        "why": view.why_policy,
        "idle": {"do": str(idle.do), "after_s": after_s, "grace_s": grace_s},
    }


def _warnings(machine: Machine) -> list[RuleWarning]:
    warnings = machine.warnings
    return [
        {"rule": rule, "at": warning.at, "due": warning.due, "count": warning.times}
        for rule, warning in warnings.items()
    ]


def _rule_ends(view: MachineView, now: datetime, activity: str, unused_for: timedelta | None) -> RuleEnds:
    """Return when each rule by itself would end the machine, as things stand; null where it would not."""
    machine, policy = view.machine, view.policy
    scheduled_end = None if policy is None else next_scheduled_end(policy.schedules, now)
    return {
        "idle": _idle_end(view, now, activity, unused_for),
        "lease": machine.expires,
        "renew_until": machine.renew_until,
        "schedule": None if scheduled_end is None else iso(scheduled_end),
        "held_until": machine.hold_until if machine.hold_until and from_iso(machine.hold_until) > now else None,
    }


def _idle_end(view: MachineView, now: datetime, activity: str, unused_for: timedelta | None) -> str | None:
    """Return the earliest time at which idle time could end it if it is not used from now on."""
    policy = view.policy
    if policy is None or policy.idle.do != "stop" or activity == UNKNOWN:
        return None
    idle_policy = policy.idle
    idle_at = now if activity == "IDLE" else now - (unused_for or timedelta(0)) + idle_policy.after
    idle_warning = view.machine.warnings.get("idle")
    warned_at = from_iso(idle_warning.at) if idle_warning and idle_warning.due else max(idle_at, now)
    return iso(max(warned_at + idle_policy.grace, now))
