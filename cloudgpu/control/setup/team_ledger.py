"""A ledger that a team shares: the answer of `ledger init --team`, and what `doctor` says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cloudgpu.core.model.checks import Check, Verdict
from cloudgpu.core.team.rights import Role
from cloudgpu.errors import CloudgpuError, LedgerDenied
from cloudgpu.ledger.log.teams import Sharing, TeamRequest

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.setup.ledger import TeamLedgerDocument

_ROLE_TEXT = {Role.MEMBER: "a member", Role.PAYER: "a payer"}


def share_ledger(
    session: Session,
    *,
    members: Sequence[str] = (),
    payers: Sequence[str] = (),
    members_role: str | None = None,
    payers_role: str | None = None,
) -> TeamLedgerDocument:
    """Make the ledger a team's as far as this user may, and return how it stands and what others have to run.

    `members` and `payers` are users of the database who are to be in it; None for a role: the one it has, or a name
    made from the database's. Raises InvalidRequest for a ledger in a file, RoleNeeded for tables of another user.
    """
    return team_ledger_document(
        session.ledger.share(TeamRequest(members_role, payers_role, tuple(members), tuple(payers)))
    )


def team_ledger_document(sharing: Sharing) -> TeamLedgerDocument:
    """Return how a ledger is shared as the value that is printed."""
    return {
        "ledger": sharing.location,
        "owner": sharing.owner,
        "user": sharing.person,
        "members_role": None if sharing.team is None else sharing.team.members,
        "payers_role": None if sharing.team is None else sharing.team.payers,
        "ready": sharing.is_recorded,
        "members": list(sharing.members),
        "payers": list(sharing.payers),
        "missing": [
            {"message": step.message, "statement": step.statement, "by": step.grantor} for step in sharing.missing
        ],
        "notes": list(sharing.remarks),
    }


def team_checks(session: Session) -> Iterator[Check]:
    """Yield the checks of the team that shares the ledger; nothing for a ledger that no team can share."""
    try:
        sharing = session.ledger.sharing()
    except CloudgpuError:  # reported by the check of the ledger itself
        return
    if sharing is None:
        return
    for step in sharing.missing:
        yield Check(
            "team",
            Verdict.FAIL,
            step.message,
            f"Let {step.grantor} run: {step.statement or 'cloudgpu ledger init --team'}",
            LedgerDenied.exit_code,
        )
    if sharing.team is None:
        message = f"its tables belong to {sharing.owner}" if sharing.owner else "it has no tables yet"
        yield Check("team", Verdict.OK, f"nobody shares the ledger: {message}")
    elif not sharing.missing:
        payers = ", ".join(sharing.payers) or "none yet"
        yield Check("team", Verdict.OK, f"{sharing.person} is {_ROLE_TEXT[sharing.role]}; payers: {payers}")
    for remark in sharing.remarks:
        yield Check("team", Verdict.WARN, remark)
