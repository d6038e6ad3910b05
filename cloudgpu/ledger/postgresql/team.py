"""The team that shares a ledger: two roles of the database server, whose names stand in the ledger's own table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudgpu.core.roles import Role

if TYPE_CHECKING:
    from cloudgpu.ledger.sql import Connection

SIGNATURE = "SELECT session_user::text FROM ledger_team"
_TEAM = "SELECT members, payers FROM ledger_team"
# As the guard of the lines judges it: whoever owns the tables can do everything anyway.
_WHO = """
SELECT session_user::text,
    pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'line'::regclass), 'USAGE')
    OR EXISTS (SELECT 1 FROM pg_roles WHERE rolname = payers AND pg_has_role(session_user, oid, 'USAGE'))
FROM ledger_team"""
_PAYERS = """
SELECT person.rolname::text FROM ledger_team JOIN pg_roles AS payers ON payers.rolname = ledger_team.payers
JOIN pg_roles AS person ON pg_has_role(person.oid, payers.oid, 'USAGE')
WHERE person.rolcanlogin AND NOT person.rolsuper ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class Team:
    """The two roles, by their names: `members` may write, `payers` may also decide."""

    members: str
    payers: str


def team_of(connection: Connection) -> Team | None:
    """Return the team of this ledger; None where it has none."""
    found = connection.execute(_TEAM).fetchone()
    return Team(*found) if found else None


def who(connection: Connection) -> tuple[Role, str]:
    """Return the role and the name of this connection's user; ALONE and "" where the ledger has no team."""
    found = connection.execute(_WHO).fetchone()
    if found is None:
        return Role.ALONE, ""
    person, pays = found
    return Role.PAYER if pays else Role.MEMBER, str(person)


def payers(connection: Connection) -> tuple[str, ...]:
    """Return the names of those who log in and have the payer's role; whoever administers the server is left out."""
    return tuple(name for (name,) in connection.execute(_PAYERS))


def put(connection: Connection, team: Team) -> None:
    """Write down which roles the team has, inside the caller's transaction."""
    connection.execute("DELETE FROM ledger_team")
    connection.execute("INSERT INTO ledger_team (members, payers) VALUES (?, ?)", (team.members, team.payers))
