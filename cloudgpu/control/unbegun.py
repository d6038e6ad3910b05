"""A start that was recorded and never begun: budgets count it until a line says that it has not."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.values.naming import lock_name
from cloudgpu.core.values.times import duration_text, from_iso, iso

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

Row = dict[str, Any]
RESTS = (State.STOPPED, State.DEALLOCATED)
BEGUN_WITHIN = timedelta(hours=1)  # no cloud shows a start that it took this late; the largest machines need minutes


def not_begun_line(row: Row, why: str, now: datetime) -> Draft:
    """Return the line that says that the start which was asked has surely not begun."""
    return Draft("start_refused", row["id"], {"why": why}, now, f"start_refused:{row['id']}:{iso(now)}")


def given_up(session: Session, row: Row, instance: Instance, now: datetime) -> list[Draft]:
    """Return the line that frees what a start holds back in budgets whose process has died before it was answered.

    Sure only where the provider shows the machine at rest an hour after it was asked, and no process is at it: a start
    that the provider took would have shown by then, whatever became of it since.
    """
    if row["asked"] != "start" or instance.billed or instance.state not in RESTS:
        return []
    asked = [line.occurred_at for line in session.ledger.events(row["id"]) if line.kind == "start_asked"]
    since = now - from_iso(max(asked)) if asked else BEGUN_WITHIN
    if since < BEGUN_WITHIN or session.held(lock_name(row["key"] or row["id"])):
        return []
    return [not_begun_line(row, f"the provider shows it {instance.state} {duration_text(since)} later", now)]
