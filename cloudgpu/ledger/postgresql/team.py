"""The team that shares a ledger: two roles of the database server, whose names are in the ledger's own table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import psycopg

from cloudgpu.core.team.rights import Role
from cloudgpu.errors import InvalidRequest, RoleNeeded
from cloudgpu.ledger.log.sql import Connection
from cloudgpu.ledger.log.teams import MissingRight, Sharing, Team, TeamRequest
from cloudgpu.ledger.postgresql import rights
from cloudgpu.ledger.postgresql.connection import DATABASE_TIME

# The actor that each line must have (empty without a team), and the database's time.
REQUIRED_ACTOR = f"SELECT coalesce((SELECT session_user::text FROM ledger_team), ''), {DATABASE_TIME}"  # noqa: S608
_TEAM = "SELECT members, payers FROM ledger_team"
# As the trigger on the lines decides it: the owner of the tables can do everything anyway.
_SELECT_USER = """
SELECT session_user::text,
    pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'line'::regclass), 'USAGE')
    OR EXISTS (SELECT 1 FROM pg_roles WHERE rolname = payers AND pg_has_role(session_user, oid, 'USAGE'))
FROM ledger_team"""
_USERS_WITH_ROLE = """
SELECT person.rolname::text FROM pg_roles AS person, pg_roles AS role
WHERE role.rolname = ? AND pg_has_role(person.oid, role.oid, 'USAGE')
AND person.rolcanlogin AND (NOT person.rolsuper
    OR EXISTS (SELECT 1 FROM pg_auth_members WHERE roleid = role.oid AND member = person.oid)) ORDER BY 1"""
_OWNERSHIP = """
SELECT session_user::text, pg_get_userbyid(relowner)::text, pg_has_role(session_user, relowner, 'USAGE'),
    (SELECT rolsuper FROM pg_roles WHERE rolname = session_user)
FROM pg_class WHERE oid = 'line'::regclass"""
_HAS_ROLE = "SELECT pg_has_role(session_user, ?::name, 'USAGE')"
_OTHER_LEDGERS = """
SELECT quote_ident(nspname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relname = 'ledger_team' AND nspname NOT LIKE '%\\_before\\_%' AND has_schema_privilege(nspname, 'USAGE')
ORDER BY 1"""
_AND_MORE = " (and more)"
_NEW_USER_REMARK = "{0} is new, and has no password yet. In psql: \\password {0}"
_SKIPPED_ERRORS = (psycopg.errors.UndefinedObject, psycopg.errors.InsufficientPrivilege, psycopg.errors.DuplicateObject)


def team_of(connection: Connection) -> Team | None:
    """Return the team of this ledger; None where it has none."""
    found = connection.execute(_TEAM).fetchone()
    return Team(*found) if found else None


def current_role(connection: Connection) -> tuple[Role, str]:
    """Return the role and the name of this connection's user; ALONE and "" where the ledger has no team."""
    found = connection.execute(_SELECT_USER).fetchone()
    if found is None:
        return Role.ALONE, ""
    person, is_payer = found
    return Role.PAYER if is_payer else Role.MEMBER, str(person)


def members(connection: Connection) -> tuple[str, ...]:
    """Return the names of those who log in and have the members' role, as payers have too."""
    team = team_of(connection)
    return users_with_role(connection, team.members) if team else ()


def payers(connection: Connection) -> tuple[str, ...]:
    """Return the names of those who log in and have the payer's role; whoever administers the server is left out."""
    team = team_of(connection)
    return users_with_role(connection, team.payers) if team else ()


def users_with_role(connection: Connection, role: str) -> tuple[str, ...]:
    """Return the names of those who log in and have a role; superusers have all and are left out."""
    return tuple(name for (name,) in connection.execute(_USERS_WITH_ROLE, (role,)))


def remove(connection: Connection) -> None:
    """Delete the team, inside the caller's transaction."""
    connection.execute("DELETE FROM ledger_team")


def write_team(connection: Connection, team: Team) -> None:
    """Record the roles of the team, inside the caller's transaction."""
    remove(connection)
    connection.execute("INSERT INTO ledger_team (members, payers) VALUES (?, ?)", (team.members, team.payers))


def sharing(
    connection: Connection, location: str, missing_triggers: Iterable[str], request: TeamRequest | None = None
) -> Sharing:
    """Return how the ledger is shared; with a request, how it would be: `missing` is what that lacks yet."""
    person, owner, is_owner, _ = ownership = connection.execute(_OWNERSHIP).fetchone()
    present_team = team_of(connection)
    team = present_team if request is None else rights.requested_team(connection, request, present_team)
    missing: list[MissingRight] = []
    if team is not None:
        missing = [
            *rights.missing_rights(connection, team, request or TeamRequest()),
            *_missing_triggers(missing_triggers, owner),
        ]
        if not is_owner and request is None:
            own_missing = rights.missing_membership(connection, person, team.members)
            missing = [own_missing, *missing] if own_missing else missing
    role = current_role(connection)[0]
    remarks = tuple(_remarks(connection, team, ownership))
    is_recorded = present_team is not None and team == present_team
    roles_have_all_rights = team is not None and all(one.is_of_person for one in missing)
    roles = (team.members, team.payers) if team else ("", "")
    members, payers = (users_with_role(connection, one) for one in roles)
    return Sharing(
        location,
        person,
        owner,
        role,
        team,
        is_recorded,
        members,
        payers,
        tuple(missing),
        remarks,
        roles_have_all_rights,
    )


def missing_sharing(connection: Connection, location: str) -> Sharing:
    """Return the state without a ledger in this schema, with a hint if another schema has one."""
    person, here = connection.execute("SELECT session_user::text, quote_ident(current_schema())").fetchone()
    others = [name for (name,) in connection.execute(_OTHER_LEDGERS)]
    message = (
        f"The schema {here} has no ledger. Another one has: {others[0]}{_AND_MORE * (len(others) > 1)}. To use it, end "
        f"the ledger's URL with ?options=-csearch_path%3D{others[0]}"
        if others
        else ""
    )
    return Sharing(
        location, person, "", Role.ALONE, None, is_recorded=False, members=(), payers=(), missing=(),
        remarks=(message,) if message else (), roles_have_all_rights=False,
    )  # fmt: skip


def grant(connection: Connection, location: str, request: TeamRequest) -> Sharing:
    """Grant the two roles what they need, as far as this user may; return the resulting state.

    Raises RoleNeeded if the tables are not this user's, InvalidRequest for a name that no role can have. What
    another user has to grant first stays missing; calling this again does only the rest.
    """
    person, owner, is_owner, _ = connection.execute(_OWNERSHIP).fetchone()
    if not is_owner:
        raise RoleNeeded(
            f"The ledger {location} belongs to the database user {owner}, and {person} is not that one.",
            field="role",
            value=person,
            next=f"Let {owner} run the same.",
        )
    names = [name for name in (*request.new_members, *request.new_payers) if not rights.exists(connection, name)]
    for one in sharing(connection, location, (), request).missing:
        try:
            connection.execute(one.statement)
        except psycopg.errors.ReservedName as error:
            raise _reserved_name_error(str(error)) from None
        except _SKIPPED_ERRORS:
            continue
    new_sharing = sharing(connection, location, (), request)
    new_users = [rights.quoted(connection, name) for name in dict.fromkeys(names) if rights.exists(connection, name)]
    not_allowed = tuple(one for one in new_sharing.missing if not _is_allowed(connection, one))
    return replace(
        new_sharing,
        remarks=(*new_sharing.remarks, *map(_NEW_USER_REMARK.format, new_users)),
        missing=not_allowed or new_sharing.missing,
    )


def regrant_tables(connection: Connection) -> None:
    """Grant the roles their rights on tables that were created again, inside the caller's transaction."""
    team = team_of(connection)
    if team is not None and rights.exists(connection, team.members):
        for one in rights.table_right_problems(connection, team):
            connection.execute(one.statement)


def _is_allowed(connection: Connection, missing: MissingRight) -> bool:
    """Return whether this user may run a statement, once those of others have been run."""
    return rights.exists(connection, missing.grantor) and bool(
        connection.execute(_HAS_ROLE, (missing.grantor,)).fetchone()[0]
    )


def _missing_triggers(names: Iterable[str], owner: str) -> Iterator[MissingRight]:
    for name in names:
        yield MissingRight(f"The guard {name} was taken off the lines.", "", owner)


def _remarks(connection: Connection, team: Team | None, ownership: tuple[str, str, bool, bool]) -> Iterator[str]:
    person, owner, is_owner, is_super = ownership
    if team is None:
        return
    if is_super:
        yield f"{person} is a superuser: no rule of the database binds that user. Use another one for daily work."
    elif is_owner:
        yield f"The tables belong to {owner}: no rule of the database binds that user, who counts as a payer."
    elif owner in users_with_role(connection, team.members) and owner not in users_with_role(connection, team.payers):
        yield f"The tables belong to {owner}, a member: no rule of the database binds that user."


def _reserved_name_error(message: str) -> InvalidRequest:
    return InvalidRequest(
        f"A role cannot have that name: {' '.join(message.split())}.",
        field="--members-role",
        value=None,
        next="Choose another name for the role.",
    )
