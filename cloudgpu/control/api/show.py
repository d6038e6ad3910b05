"""Answers `show`: one machine, why it counts as what it does, and all lines of the ledger about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.control.inventory.listing import machine

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session

Row = dict[str, Any]
Document = dict[str, Any]


def shown(
    session: Session, name: str | None, *, refresh: bool = False, history: bool = False, why: bool = False
) -> Document:
    """Return the answer of `show`; ask the machine's provider first where `refresh` says so, and for `why` itself."""
    row = session.find(name, ended=True)
    if refresh and row["provider_id"] and not row["ended"]:
        from cloudgpu.control.inventory.sync import refresh as look

        row = look(session, row, note=True)
    document = machine(session, row)
    if why:
        from cloudgpu.control.reaper.explain import explained

        document["why"] = explained(session, row, refresh=refresh)
    if history:
        document["history"] = [_line(event) for event in _lines_about(session, row)]
    return document


def _lines_about(session: Session, row: Row) -> list[Any]:
    """Return the lines about a machine by seq: its own, and where it was let past a budget."""
    past = (one for one in session.ledger.events("budgets") if one.body.get("machine") == row["id"])
    return sorted([*session.ledger.events(row["id"]), *past], key=lambda one: one.seq)


def _line(event: Any) -> Document:
    names = ("seq", "occurred_at", "clock", "recorded_at", "actor", "kind")
    return {**{name: getattr(event, name) for name in names}, "body": dict(event.body)}
