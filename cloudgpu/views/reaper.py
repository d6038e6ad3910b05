"""A run of the reaper as the plain value that `-o json` prints and the library returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.values.times import iso
from cloudgpu.views.activity import decision_value, why_value
from cloudgpu.views.machines import queried_accounts_value

if TYPE_CHECKING:
    from cloudgpu.core.reaper.decisions import Decision, MachineView
    from cloudgpu.core.reaper.result import EndedItem, GivenWarning, NotEnded, ReaperRun
    from cloudgpu.views.documents.automation.activity import WhyDocument
    from cloudgpu.views.documents.automation.reap import (
        DoneEnd,
        GivenNotice,
        MachineDecision,
        ReapDocument,
        Renewal,
        UnfinishedEnd,
    )


def run_value(run: ReaperRun, *, explain: bool = False) -> ReapDocument:
    """Return a run; with `explain` also, for each machine, why it counts as what it does."""
    return {
        "started_at": iso(run.begun_at),
        "took_s": round(run.duration.total_seconds(), 3),
        "dry_run": run.dry_run,
        "busy": run.busy or None,
        "exit_code": run.exit_code,
        "decided": run.decided,
        "decisions": [_decision(seen, one) for seen, one in zip(run.seen, run.decisions, strict=True)],
        "ended": [_ended_value(one) for one in run.ended],
        "renewed": [_renewal_value(one) for one in run.renewed],
        "warned": [_warning_value(one) for one in run.warned],
        "skipped": [_unfinished_value(one) for one in run.skipped],
        "unconfirmed": [_unfinished_value(one) for one in run.unconfirmed],
        "unanswered": [{"scope": gap.scope, "why": gap.why} for gap in run.unanswered],
        "errors": list(run.faults),
        "notes": list(run.sentences),
        "undelivered": list(run.undelivered),
        **queried_accounts_value(run.queried, run.not_queried),
        "explained": explained(run) if explain else [],
    }


def explained(run: ReaperRun) -> list[WhyDocument]:
    """Return why each machine counts as what it does, signal by signal, and what follows from it."""
    return [
        why_value(seen, one, run.begun_at, at=seen.reached_at, how="none" if seen.reached_at is None else "live")
        for seen, one in zip(run.seen, run.decisions, strict=True)
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
        **decision_value(decision),
    }


def _ended_value(ended: EndedItem) -> DoneEnd:
    return {
        "machine": ended.machine,
        "name": ended.name,
        "do": str(ended.do),
        "rule": str(ended.rule),
        "why": ended.why,
        "state": ended.now,
    }


def _renewal_value(renewed: EndedItem) -> Renewal:
    return {
        "machine": renewed.machine,
        "name": renewed.name,
        "do": str(renewed.do),
        "rule": str(renewed.rule),
        "why": renewed.why,
        "expires": renewed.now,
    }


def _warning_value(warning: GivenWarning) -> GivenNotice:
    return {
        "machine": warning.machine,
        "name": warning.name,
        "rule": str(warning.rule),
        "why": warning.why,
        "due": None if warning.due is None else iso(warning.due),
        "how": list(warning.how),
    }


def _unfinished_value(not_ended: NotEnded) -> UnfinishedEnd:
    return {"machine": not_ended.machine, "name": not_ended.name, "do": str(not_ended.do), "why": not_ended.why}
