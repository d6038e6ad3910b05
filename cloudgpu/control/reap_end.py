"""Ends what a pass has decided to end: looks again first, and lets go of whatever has come to life meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudgpu.control.look_again import look_again
from cloudgpu.control.reap_batch import goes_in_batches, stop_together
from cloudgpu.control.reap_carry import LOCK, Item, Judge, Outcome
from cloudgpu.control.reap_look import AGAIN_AFTER_S
from cloudgpu.control.reap_seen import probe_twice, with_report
from cloudgpu.control.reap_single import end_each
from cloudgpu.control.samples import Report
from cloudgpu.control.tidy import tidy
from cloudgpu.control.traffic import record
from cloudgpu.core.decisions import Decision, Do, Seen
from cloudgpu.core.facts import State, Unanswered
from cloudgpu.core.times import from_iso

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

Row = dict[str, Any]


def carry_out(session: Session, seen: Sequence[Seen], decisions: Sequence[Decision], judge: Judge) -> Outcome:
    """Carry out the ends among these decisions, one for each of `seen`; return what came of each.

    A warning that runs out within a minute is waited for. Each machine is looked at again, with its samples of now, and
    judged again by them: what came to life is spared. The caller holds the reaper's lock.
    """
    items = [Item(one, decision) for one, decision in zip(seen, decisions, strict=True) if decision.ends]
    if not items:
        return Outcome()
    _wait_out(session, items)
    outcome = Outcome()
    fresh = _seen_again(session, items, outcome)
    again = [Item(one, decision) for one, decision in zip(fresh, judge(fresh), strict=True)]
    kept = [one for one in again if not one.decision.ends]
    outcome.spared += [one.left(one.decision.why) for one in kept]
    outcome.again += [one.decision for one in kept]
    outcome.add(_ended(session, [one for one in again if one.decision.ends], judge))
    return outcome


def _ended(session: Session, items: Sequence[Item], judge: Judge) -> Outcome:
    def check() -> None:
        session.check_hold(LOCK)

    together, apart = list[Item](), list[Item]()
    for one in items:
        batched = one.decision.do is Do.STOP and goes_in_batches(session, one.row)
        (together if batched else apart).append(one)
    outcome = stop_together(session, together, judge, check)
    outcome.add(end_each(session, apart, judge, check))
    if outcome.ended:
        tidy(session)
    return outcome


def _wait_out(session: Session, items: Sequence[Item]) -> None:
    """Wait for warnings that run out within seconds, rather than leave their machines to the next pass."""
    ends = [one.decision.after for one in items if one.decision.after is not None]
    left = max(((end - session.clock()).total_seconds() for end in ends), default=0.0)
    if left > 0:
        session.pause(left)


def _seen_again(session: Session, items: Sequence[Item], outcome: Outcome) -> list[Seen]:
    """Return what is known now of those that answered again; the others are named, and left alone."""
    living = [one for one in items if one.row["ended"] is None and not one.row.get("thing")]
    silent = look_again(session, [one.row for one in living])
    if silent:
        session.pause(AGAIN_AFTER_S)
        silent = look_again(session, [one.row for one in living if one.id in silent])
    outcome.unanswered += [Unanswered(one.row["name"], silent[one.id].message) for one in living if one.id in silent]
    left = [one for one in items if one.id not in silent]
    rows = {one.id: session.ledger.machine(one.id) or one.row for one in left}
    running = [row for row in rows.values() if row["state"] == State.RUNNING and row["ended"] is None]
    reports = probe_twice(session, running)
    _count_traffic(session, rows, reports)
    return [with_report(_now(one.seen, rows[one.id]), reports.get(one.id)) for one in left]


def _count_traffic(session: Session, rows: Mapping[str, Row], reports: Mapping[str, Report]) -> None:
    """Write the bytes out that the machines' counters show, before they end; what one says wrongly ends no pass."""
    for machine, report in reports.items():
        if report.answer is not None:
            with suppress(ValueError, KeyError, TypeError):
                record(session, rows[machine], report.answer)


def _now(seen: Seen, row: Row) -> Seen:
    last = from_iso(row["last_active"]) if row["last_active"] else None
    return replace(seen, row=row, last_active=last)
