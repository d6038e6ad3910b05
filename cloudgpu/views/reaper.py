"""A pass of the reaper as the plain value that `-o json` prints and the library returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.values.times import iso
from cloudgpu.views.activity import decision_value, why_value
from cloudgpu.views.machines import queried_accounts_value

if TYPE_CHECKING:
    from cloudgpu.core.reaper.decisions import Decision, MachineView
    from cloudgpu.core.reaper.result import Ended, GivenWarning, NotEnded, Pass
    from cloudgpu.views.documents.automation.activity import WhyDocument
    from cloudgpu.views.documents.automation.reap import (
        DoneEnd,
        GivenNotice,
        MachineDecision,
        ReapDocument,
        Renewal,
        UnfinishedEnd,
    )


def run_value(found: Pass, *, explain: bool = False) -> ReapDocument:
    """Return a pass; with `explain` also, for each machine, why it counts as what it does."""
    return {
        "started_at": iso(found.begun_at),
        "took_s": round(found.took.total_seconds(), 3),
        "dry_run": found.dry_run,
        "busy": found.busy or None,
        "exit_code": found.exit_code,
        "decided": found.decided,
        "decisions": [_decision(seen, one) for seen, one in zip(found.seen, found.decisions, strict=True)],
        "ended": [_done(one) for one in found.ended],
        "renewed": [_renewed(one) for one in found.renewed],
        "warned": [_told(one) for one in found.warned],
        "skipped": [_left(one) for one in found.spared],
        "unconfirmed": [_left(one) for one in found.unproved],
        "unanswered": [{"scope": gap.scope, "why": gap.why} for gap in found.unanswered],
        "errors": list(found.faults),
        "notes": list(found.sentences),
        "undelivered": list(found.undelivered),
        **queried_accounts_value(found.asked, found.closed),
        "explained": explained(found) if explain else [],
    }


def explained(found: Pass) -> list[WhyDocument]:
    """Return why each machine counts as what it does, signal by signal, and what follows from it."""
    return [
        why_value(seen, one, found.begun_at, at=seen.reached_at, how="none" if seen.reached_at is None else "live")
        for seen, one in zip(found.seen, found.decisions, strict=True)
    ]


def _decision(seen: MachineView, one: Decision) -> MachineDecision:
    machine = seen.machine
    return {
        "machine": one.machine,
        "name": one.name,
        "provider": machine.provider,
        "account": machine.account,
        "region": machine.region,
        "state": machine.state,
        "activity": one.activity,
        **decision_value(one),
    }


def _done(one: Ended) -> DoneEnd:
    return {
        "machine": one.machine,
        "name": one.name,
        "do": str(one.do),
        "rule": str(one.rule),
        "why": one.why,
        "state": one.now,
    }


def _renewed(one: Ended) -> Renewal:
    return {
        "machine": one.machine,
        "name": one.name,
        "do": str(one.do),
        "rule": str(one.rule),
        "why": one.why,
        "expires": one.now,
    }


def _told(one: GivenWarning) -> GivenNotice:
    return {
        "machine": one.machine,
        "name": one.name,
        "rule": str(one.rule),
        "why": one.why,
        "due": None if one.due is None else iso(one.due),
        "how": list(one.how),
    }


def _left(one: NotEnded) -> UnfinishedEnd:
    return {"machine": one.machine, "name": one.name, "do": str(one.do), "why": one.why}
