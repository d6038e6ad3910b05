"""The ledger lines of decisions: one where something else was decided than before, so that history stays readable."""

from __future__ import annotations

from datetime import datetime

from cloudgpu.core.decisions import Decision, Row
from cloudgpu.core.events import Draft
from cloudgpu.core.times import iso

_NEWS = ("do", "rule", "at", "activity")


def decision_line(row: Row, decision: Decision, now: datetime, host: str) -> Draft | None:
    """Return the line of this decision; None where the row says that the last one was the same."""
    body = {
        "do": str(decision.do),
        "rule": str(decision.rule),
        "why": decision.why,
        "activity": decision.activity,
        "at": decision.at and iso(decision.at),
        "host": host,
    }
    before = row.get("decision")
    if before is not None and all(before[name] == body[name] for name in _NEWS):
        return None
    dedupe = f"decided:{decision.machine}:{iso(now)}:{decision.do}:{decision.rule}"
    return Draft("decision_made", decision.machine, body, now, dedupe)
