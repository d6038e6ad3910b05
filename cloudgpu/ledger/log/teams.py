"""How several people share a ledger: the two roles of its database, what they lack, and what puts that right."""

from __future__ import annotations

from dataclasses import dataclass

from cloudgpu.core.team.rights import Role
from cloudgpu.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Team:
    """The roles of a team, by their names in the database: `members` may write, `payers` may also decide."""

    members: str
    payers: str


@dataclass(frozen=True, slots=True)
class TeamRequest:
    """What somebody wants a team to be; None for a role: the one that it has, or a name made from the database's."""

    members: str | None = None
    payers: str | None = None
    new_members: tuple[str, ...] = ()
    new_payers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that a team lacks, or one `of_person`. `statement` is the SQL that gives it, which `by` may run."""

    message: str
    statement: str
    by: str
    of_person: bool = False


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a ledger in a database is shared, as its user `person` finds it. `team` is None where nobody shares it.

    `owner` is the database user to whom the tables belong: the database's rules do not bind that one. `stands`: the
    team is written down, and the rules hold; else it is only requested for. `is_whole`: its roles have all they need.
    `members` are all who may write.
    """

    location: str
    person: str
    owner: str
    role: Role
    team: Team | None
    stands: bool
    members: tuple[str, ...]
    payers: tuple[str, ...]
    missing: tuple[Missing, ...]
    remarks: tuple[str, ...]
    is_whole: bool


def not_shareable(location: str) -> InvalidRequest:
    """Return the error for a ledger in a file."""
    return InvalidRequest(
        f"A team shares a ledger in PostgreSQL, and {location} is a file.",
        field="--team",
        value=location,
        next="Set CLOUDGPU_LEDGER=postgresql://USER@HOST/DATABASE, then run the same again.",
    )
