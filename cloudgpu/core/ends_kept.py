"""The rules of what is not running and costs all the same: machines long stopped, images long kept. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.cases import Case, Found, told, waited, warned
from cloudgpu.core.decisions import Row
from cloudgpu.core.policy import Act, Do, Kept, Rule
from cloudgpu.core.resources import Kind
from cloudgpu.core.times import duration_text, from_iso

NOTICE = timedelta(days=1)  # what is deleted does not come back, and costs little meanwhile
AGAIN = timedelta(days=7)
_DO = {Act.IMAGE: Do.IMAGE, Act.TERMINATE: Do.TERMINATE, Act.REMOVE: Do.REMOVE}


def stopped_since(row: Row) -> datetime:
    """Return when a machine stopped: at the latest when it was seen so."""
    return from_iso(row["since"] or row["seen_at"] or row["intended_at"])


def stopped(case: Case) -> Found | None:
    """Tell of a machine that is stopped for long, or keep it as an image, or terminate it."""
    rule = case.policy and case.policy.stopped
    return _kept(case, Rule.STOPPED, rule, case.started, "it is stopped") if rule else None


def image_since(row: Row) -> datetime | None:
    """Return since when the newest image of a machine that is gone, or one that is kept by name, is there."""
    made = [entry["made_at"] for entry in row["kept"] if entry["kind"] == Kind.IMAGE]
    known: list[Any] = [text for text in made if text]
    return from_iso(max(known)) if known else from_iso(row["ended"] or row["seen_at"]) if made else None


def images(case: Case) -> Found | None:
    """Tell of an image that is kept for long, or remove it."""
    rule = case.policy and case.policy.images
    return _kept(case, Rule.IMAGES, rule, case.started, "its image is kept") if rule else None


def _kept(case: Case, rule: Rule, kept: Kept, since: datetime, what: str) -> Found | None:
    at = since + kept.after
    if case.now < at:
        return None
    why = f"{what} for {duration_text(case.now - since)} (limit {duration_text(kept.after)})"
    if kept.do is Act.IMAGE and case.seen.row.get("parkable") is False:
        return told(case, rule, f"{why}; {case.seen.row['provider']} keeps no images, so it is only warned of", AGAIN)
    if kept.do not in _DO:
        return told(case, rule, why, AGAIN)
    given, do = case.given(rule), _DO[kept.do]
    if given is None or given[2] is None:
        return warned(case, rule, case.now + NOTICE, why, do)
    return waited(case, rule, given[2], why, do)
