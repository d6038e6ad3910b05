"""Who may write what in a ledger that a team shares: its members, its payers, and the lines that only payers write."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum

from cloudgpu.core.events import (
    BUDGET_OVERRIDDEN,
    BUDGET_REMOVED,
    BUDGET_SET,
    LEDGER_ARRIVED,
    LEDGER_MOVED,
    LEDGER_MOVING,
)
from cloudgpu.core.people import ASSIGNED
from cloudgpu.core.published import PUBLISHED, WITHDRAWN
from cloudgpu.errors import RoleNeeded

TEAM_SET = "team_set"
TEAM_SUBJECT = "team"

# A database of a team refuses these lines from everybody but its payers: the trigger is made from this set. Whoever
# changes it in a release adds a step to `ledger.postgresql.schema.MIGRATIONS`, which makes the trigger anew.
_DECIDED = frozenset({BUDGET_SET, BUDGET_REMOVED, BUDGET_OVERRIDDEN, PUBLISHED, WITHDRAWN, ASSIGNED, TEAM_SET})
PAYER_KINDS = _DECIDED | {LEDGER_MOVED, LEDGER_MOVING, LEDGER_ARRIVED}


class Role(StrEnum):
    """What somebody may do in a ledger."""

    ALONE = "alone"  # no team shares the ledger: whoever can write to it may do everything
    MEMBER = "member"  # launches and looks after machines
    PAYER = "payer"  # also decides about budgets, limits and what belongs to others


def may_write(role: Role, kind: str) -> bool:
    """Say whether this role may write a line of this kind."""
    return role is not Role.MEMBER or kind not in PAYER_KINDS


def payer_needed(what: str, person: str, payers: Collection[str]) -> RoleNeeded:
    """Return the error for what only a payer may do. `what` begins a sentence, as in "Removing a budget"."""
    who = ", ".join(payers)
    return RoleNeeded(
        f"{what} needs the payer's role, and {person} is a member.",
        field="role",
        value=person,
        next=f"Ask a payer: {who}." if who else "Ask whoever owns the ledger: it has no payer yet.",
    )


def check_payer(what: str, role: Role, person: str, payers: Callable[[], Collection[str]]) -> None:
    """Raise RoleNeeded where a member asks for what only a payer may do."""
    if role is Role.MEMBER:
        raise payer_needed(what, person, payers())
