"""When something was last known to be there: by the lines of the looks in which it was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.control.view import scope_of
from cloudgpu.core.facts import State
from cloudgpu.core.times import iso

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.core.events import Event
    from cloudgpu.core.facts import Instance
    from cloudgpu.ledger.base import Ledger

Row = dict[str, Any]


def scopes_of(provider: str, account: str) -> tuple[str, str]:
    """Return the subjects under which looks at an account are written: those wholly answered, and the others."""
    scope = scope_of(provider, account)
    return scope, f"gap:{scope}"


def alive_at(ledger: Ledger, row: Row) -> str | None:
    """Return the latest time at which a machine or a kept thing is proved to have been there; None: no look saw it.

    A look proves it for all that it does not name as unseen. The machine's own word counts too.
    """
    proved = _latest_proof(ledger, row, things=row["thing"], before=None)
    return max(filter(None, (proved, row["last_active"], row["seen_at"])), default=None)


def kept_until(ledger: Ledger, row: Row, before: datetime) -> str | None:
    """Return when all that is kept of a machine was last known to be there; None unknown.

    By a look before `before`, or by the line that says what is kept, which whoever made the latest of it wrote.
    """
    told = (line.occurred_at for line in ledger.events(row["id"]) if line.kind == "kept_observed")
    return max(filter(None, (_latest_proof(ledger, row, things=True, before=iso(before)), *told)), default=None)


def before_its_end(ledger: Ledger, row: Row, instance: Instance) -> str | None:
    """Return when a machine was last known to be there that is billed no more, and of which nobody says since when.

    So too of one that runs as before, but only since later: it was stopped in between, unseen. None for every other.
    """
    ended = row["billed"] and not instance.billed and instance.since is None
    return alive_at(ledger, row) if ended or _runs_anew(row, instance) else None


def _runs_anew(row: Row, instance: Instance) -> bool:
    began = row["since"] if row["billed"] and row["state"] == State.RUNNING == instance.state else None
    return began is not None and instance.since is not None and iso(instance.since) > began


def _latest_proof(ledger: Ledger, row: Row, *, things: bool, before: str | None) -> str | None:
    scopes = scopes_of(row["provider"] or "", row["account"] or "")
    lines = [line for scope in scopes if (line := ledger.last(scope)) is not None]
    seen = [line.occurred_at for line in lines if _proves(line, row, things=things, before=before)]
    if not seen and lines:  # the latest looks missed it already, or were not answered where it is
        every = (line for scope in scopes for line in ledger.events(scope))
        seen = [line.occurred_at for line in every if _proves(line, row, things=things, before=before)]
    return max(seen, default=None)


def _proves(line: Event, row: Row, *, things: bool, before: str | None) -> bool:
    unseen = line.body.get("unseen")  # missing in the lines of earlier versions: they prove nothing of one machine
    if unseen is None or line.occurred_at < row["intended_at"] or (before is not None and line.occurred_at >= before):
        return False
    return row["id"] not in unseen and (not things or bool(line.body.get("things")))
