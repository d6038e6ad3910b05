"""How old the ledger's view of the clouds is. Imports next to nothing: `ls` uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.session import Session, living

if TYPE_CHECKING:
    from typing import Any


def scope_of(provider: str, account: str) -> str:
    """Return the subject under which looks at one account are written."""
    return f"scope:{provider}/{account}"


def age_of_view(session: Session, rows: list[dict[str, Any]]) -> str | None:
    """Return when the least recently seen of the living machines was last looked at; None when there is none."""
    looked: dict[str, str] = {}
    ages = []
    for row in living(rows):
        scope = scope_of(row["provider"], row["account"])
        if scope not in looked:
            line = session.ledger.last(scope)
            looked[scope] = line.occurred_at if line else ""
        ages.append(max(row["seen_at"] or row["intended_at"], looked[scope]))
    return min(ages, default=None)
