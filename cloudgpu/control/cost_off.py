"""What `cost` says beside its amounts: credits, sustained use discounts, and how long each budget lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.core.billing.charges import money
from cloudgpu.core.values.times import iso
from cloudgpu.views.machines import usd

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from cloudgpu.control.session import Session
    from cloudgpu.core.billing.cost_groups import Asked
    from cloudgpu.core.billing.discounts import AfterCredits
    from cloudgpu.ledger.log.base import View

Row = dict[str, Any]
Document = dict[str, Any]


def deducted(session: Session, rows: list[Row], asked: Asked, now: datetime) -> Document:
    """Return `sustained_use` and `credits`: what comes off, and is in no amount. Reads uses only where one is due."""
    if not session.settings.credits and not any(row["provider"] == "gcp" for row in rows):
        return {"sustained_use": [], "credits": None}
    # Read apart from the rows, a use that ends in between would be in both, or be of a machine that is in none.
    return session.ledger.read(lambda view: _deducted(session, view, asked, now))


def _deducted(session: Session, view: View, asked: Asked, now: datetime) -> Document:
    found: Document = {"sustained_use": [], "credits": None}
    rows = view.bills()

    def ended(since: datetime | None) -> Iterable[tuple[str, Row]]:
        return view.uses("" if since is None else iso(since))

    if any(row["provider"] == "gcp" for row in rows):
        from cloudgpu.core.billing.deductions import sustained

        discounts = sustained(rows, ended, now, asked.since, asked.until)
        found["sustained_use"] = [
            {name: getattr(one, name) for name in ("account", "region", "what", "month", "reason")}
            | {"usd": usd(money(one.amount))}
            for one in discounts
        ]
    if session.settings.credits:
        from cloudgpu.core.billing.deductions import after_credits

        given = session.settings.credits
        found["credits"] = _credits(after_credits(given, rows, ended, now, asked.since, asked.until))
    return found


def _credits(found: AfterCredits) -> Document:
    uses = [{"name": one.credit.name, "used_usd": usd(one.used), "left_usd": usd(one.left)} for one in found.uses]
    return {"before_usd": usd(found.before), "after_usd": usd(found.after), "uses": uses}


def lasting(session: Session, now: datetime) -> list[Document]:
    """Return how each budget stands and when it will be empty if what runs now goes on.

    `empty_at` null: it lasts to the end of its period, or for ever.
    """
    from cloudgpu.control.budgets import budgets, standings

    found = budgets(session)
    return [
        {
            "name": one.budget.name,
            "limit_usd": usd(one.budget.limit),
            "left_usd": usd(one.left),
            "empty_at": None if one.empty_in is None else iso(now + one.empty_in),
        }
        for one in (standings(session, found) if found else ())
    ]
