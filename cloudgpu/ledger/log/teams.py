"""How several people share a ledger: the two roles of its database, what they lack, and the SQL that grants it."""

from __future__ import annotations

from dataclasses import dataclass

from cloudgpu.core.team.rights import Role
from cloudgpu.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Team:
    """A team's two database roles, by name: `members` may write, `payers` may also set budgets, policies, limits.

    The people who have these roles are in `Sharing`.
    """

    members: str
    payers: str


@dataclass(frozen=True, slots=True)
class TeamRequest:
    """The requested team; `new_members` and `new_payers` are database users who are to get its roles.

    `members` and `payers` are the names of the roles; None: the present one, or a name made from the database's.
    """

    members: str | None = None
    payers: str | None = None
    new_members: tuple[str, ...] = ()
    new_payers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A right that a team, or one database user (`is_of_person`), lacks.

    `statement` is the SQL that grants it; the database user `grantor` may run it.
    """

    message: str
    statement: str
    grantor: str
    is_of_person: bool = False


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a ledger in a database is shared, as its user `person` sees it. `team` is None if it is not shared.

    `owner` is the database user who owns the tables and is not bound by the database's rules. `is_recorded`: the
    team is recorded, and the rules apply; else it is only requested. `roles_have_all_rights`: its roles lack no right.
    `members` are the database users who may write, `payers` those who may also change budgets, policies and limits.
    `remarks` are sentences for the user who shares it.
    """

    location: str
    person: str
    owner: str
    role: Role
    team: Team | None
    is_recorded: bool
    members: tuple[str, ...]
    payers: tuple[str, ...]
    missing: tuple[MissingRight, ...]
    remarks: tuple[str, ...]
    roles_have_all_rights: bool


def not_shareable_error(location: str) -> InvalidRequest:
    """Return the error for a ledger in a file."""
    return InvalidRequest(
        f"A team shares a ledger in PostgreSQL, and {location} is a file.",
        field="--team",
        value=location,
        next="Set CLOUDGPU_LEDGER=postgresql://USER@HOST/DATABASE, then run the same again.",
    )
