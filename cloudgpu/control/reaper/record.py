"""Writes what a run decided, where that is news, and that it has ended.

A nightly pass also says how many resources are left over, and what they go on costing.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.control.session.guarding import own_home
from cloudgpu.control.session.last_run import earlier
from cloudgpu.core.events.annotations import not_before_last
from cloudgpu.core.events.general_lines import reap_failed, reap_finished
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_lines import decision_made
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.reaper.decisions import Decision
from cloudgpu.core.reaper.result import ReaperRun
from cloudgpu.core.resources.orphan import Cleanup, CleanupOptions
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, LedgerUnavailable

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session


def left_over(session: Session) -> tuple[str, ...]:
    """Return the sentence of what `cloudgpu orphans --clean` would remove; none where that is nothing. Removes nothing.

    What did not answer is no error here: the run has named it.
    """
    from cloudgpu.control.resources.orphans import survey

    try:
        found = [one for one in survey(session, CleanupOptions(spare=True)).orphans if one.do is not Cleanup.STAY]
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        return (f"which resources are orphaned is not known: {error.message}",)
    if not found:
        return ()
    costs = [one.cost.per_month for one in found]
    total = Money(sum(cost.nanos for cost in costs if cost is not None))
    more = f", and {costs.count(None)} without a known price" if None in costs else ""
    resources = "1 thing is" if len(found) == 1 else f"{len(found)} things are"
    return (f"{resources} orphaned, {total.text()} a month{more}: see cloudgpu orphans",)


def record_decisions(session: Session, decisions: Iterable[Decision], machines: Mapping[str, Machine]) -> None:
    """Write a line for each decision that is another one than the last of its machine, which its row has: what and why.

    An end is written each time that it is decided: it is why the machine is asked to stop now.
    """
    now = session.clock()
    news = [(one, machines[one.machine]) for one in decisions if one.ends or _is_news(machines[one.machine], one)]
    if news:
        session.ledger.append([_line(one, not_before_last(row, now)) for one, row in news])


def _is_news(machine: Machine, one: Decision) -> bool:
    known = machine.decision
    if known is None or (known.do, known.rule, known.activity) != (one.do, one.rule, one.activity):
        return True
    at = known.at
    return (from_iso(at) if at else None) != one.at


def _line(one: Decision, now: datetime) -> Draft:
    return decision_made(
        one.machine,
        now,
        do=str(one.do),
        rule=str(one.rule),
        why=one.why,
        activity=one.activity,
        at=one.at,
        host=platform.node(),
    )


def record_run(session: Session, run: ReaperRun, *, cron: bool, sweep: bool, verb: str = "reap") -> None:
    """Write that the run has ended, and how."""
    now, ok = session.clock(), run.is_complete_here
    before = earlier(session, ok=ok, sweep=sweep, now=now, read=run.credits)
    line = reap_finished(
        verb,
        now,
        ok=ok,
        machines=len(run.decisions),
        decided=run.decided,
        stopped=len(run.ended),
        warned=len(run.warned),
        unproved=len(run.unconfirmed),
        unanswered=[one.scope for one in run.unanswered],
        took_s=round(run.duration.total_seconds(), 3),
        host=platform.node(),
        home=own_home(session),
        cron=cron,
        sweep=sweep,
        ok_at=before.ok_at,
        sweep_at=before.sweep_at,
        runs=before.runs,
        left=before.left,
    )
    session.ledger.append([line])


def record_failure(session: Session, why: str, *, cron: bool, sweep: bool) -> None:
    """Write that a run has broken off before it could judge anything."""
    now = session.clock()
    before = earlier(session, ok=False, sweep=sweep, now=now)
    line = reap_failed(
        "reap",
        why,
        now,
        host=platform.node(),
        home=own_home(session),
        cron=cron,
        sweep=sweep,
        ok_at=before.ok_at,
        sweep_at=before.sweep_at,
        runs=before.runs,
        left=before.left,
    )
    session.ledger.append([line])
