"""The rights that the two roles of a team lack in the database, or should not have: each with its SQL statement."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from cloudgpu.ledger.log.sql import Connection
from cloudgpu.ledger.log.teams import MissingRight, Team, TeamRequest

# The least that appending, folding and a rebuild of the projections take. A table that is made later gets its rights
# from here, in the migration that makes it: default privileges would open every other table of the schema as well.
RIGHTS: dict[str, tuple[str, ...]] = {
    "ledger_schema": ("SELECT",),
    "ledger_team": ("SELECT",),
    "line": ("SELECT", "INSERT"),
    "machine": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "ended_usage": ("SELECT", "INSERT", "DELETE"),
}
ADMINISTRATOR = "the administrator of the database server"
_MAX_NAME_BYTES = 63  # PostgreSQL cuts longer names
_UNQUOTED_NAME = re.compile(r"[a-z][a-z0-9]*")

_DATABASE_AND_OWNERS = """
SELECT current_database()::text, current_schema()::text, pg_get_userbyid(datdba)::text, pg_get_userbyid(nspowner)::text,
    (SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE oid = 'line'::regclass)
FROM pg_database, pg_namespace WHERE datname = current_database() AND nspname = current_schema()"""
_QUOTE_NAME = "SELECT quote_ident(?)"
_ROLE = "SELECT oid FROM pg_roles WHERE rolname = ?"
_INHERITS_ROLE = f"SELECT coalesce(pg_has_role(({_ROLE}), ({_ROLE}), 'USAGE'), false)"
_IS_MEMBER = f"SELECT coalesce(pg_has_role(({_ROLE}), ({_ROLE}), 'MEMBER'), false)"
_MAY_CONNECT = f"""
SELECT coalesce(has_database_privilege(({_ROLE}), current_database(), 'CONNECT'),
    has_database_privilege('public', current_database(), 'CONNECT'))"""
_MAY_USE_SCHEMA = f"""
SELECT coalesce(has_schema_privilege(({_ROLE}), current_schema(), 'USAGE'),
    has_schema_privilege('public', current_schema(), 'USAGE'))"""
_HAS_TABLE_RIGHT = f"SELECT coalesce(has_table_privilege(({_ROLE}), ?::regclass, ?), false)"
_WRITE_GRANTS = f"""
SELECT relname::text, CASE grantee WHEN 0 THEN '' ELSE pg_get_userbyid(grantee)::text END, privilege_type FROM (
    SELECT oid, (aclexplode(relacl)).* FROM pg_class
    UNION SELECT attrelid, (aclexplode(attacl)).* FROM pg_attribute
) AS given JOIN pg_class USING (oid)
WHERE oid = ANY (ARRAY[{", ".join(map(repr, RIGHTS))}]::regclass[])
    AND grantee <> relowner AND privilege_type <> 'SELECT' ORDER BY 1, 2, 3"""  # noqa: S608  (tables of ours)
_MAY_CREATE = """
SELECT CASE grantee WHEN 0 THEN '' ELSE pg_get_userbyid(grantee)::text END
FROM pg_namespace, aclexplode(coalesce(nspacl, acldefault('n', nspowner)))
WHERE nspname = current_schema() AND privilege_type = 'CREATE' AND grantee <> nspowner"""


def requested_team(connection: Connection, request: TeamRequest, present_team: Team | None) -> Team:
    """Return the requested team: with the requested names, else the present ones, else names from the database's."""
    if present_team is None:
        database, schema = connection.execute(_DATABASE_AND_OWNERS).fetchone()[:2]
        present_team = Team(role_name("members", database, schema), role_name("payers", database, schema))
    return Team(request.members or present_team.members, request.payers or present_team.payers)


def role_name(group: str, database: str, schema: str) -> str:
    """Return a role name that is unique to this ledger, as roles belong to all databases of a server."""
    name_parts = [database] if schema == "public" else [database, schema]
    name = "_".join(("cloudgpu", group, *name_parts))
    if all(_UNQUOTED_NAME.fullmatch(part) for part in name_parts) and len(name) <= _MAX_NAME_BYTES:
        return name
    digest = hashlib.sha256(f"{database}\n{schema}".encode()).hexdigest()[:8]
    prefix = re.sub(r"[^a-z0-9]+", "_", name.lower())[: _MAX_NAME_BYTES - len(digest) - 1].strip("_")
    return f"{prefix}_{digest}"


def missing_rights(connection: Connection, team: Team, request: TeamRequest) -> Iterator[MissingRight]:
    """Yield the missing rights of a team, in the order of their grants; `request` names people to add."""
    yield from _role_problems(connection, team)
    yield from _connection_problems(connection, team)
    yield from table_right_problems(connection, team)
    for names, role in ((request.new_members, team.members), (request.new_payers, team.payers)):
        yield from _membership_problems(connection, names, role)


def missing_membership(connection: Connection, person: str, role: str) -> MissingRight | None:
    """Return why a database user does not have the rights of a role; None if it has them."""
    if _is_true(connection, _INHERITS_ROLE, person, role):
        return None
    user, quoted_role = quoted(connection, person), quoted(connection, role)
    if _is_true(connection, _IS_MEMBER, person, role):
        message = f"The database user {person} has the role {role} and does not inherit its rights."
        statement = f"REVOKE {quoted_role} FROM {user}; ALTER ROLE {user} INHERIT; GRANT {quoted_role} TO {user};"
        return MissingRight(message, statement, ADMINISTRATOR, is_of_person=True)
    return MissingRight(
        f"The database user {person} lacks the role {role}.",
        f"GRANT {quoted_role} TO {user};",
        ADMINISTRATOR,
        is_of_person=True,
    )


def exists(connection: Connection, role: str) -> bool:
    """Return whether the server has a role, or a user, of this name."""
    return connection.execute(_ROLE, (role,)).fetchone() is not None


def _role_problems(connection: Connection, team: Team) -> Iterator[MissingRight]:
    for role in (team.members, team.payers):
        if not exists(connection, role):
            statement = f"CREATE ROLE {quoted(connection, role)} NOLOGIN;"
            yield MissingRight(f"The role {role} does not exist.", statement, ADMINISTRATOR)
    if not _is_true(connection, _INHERITS_ROLE, team.payers, team.members):
        statement = f"GRANT {quoted(connection, team.members)} TO {quoted(connection, team.payers)};"
        yield MissingRight(f"The role {team.payers} lacks the role {team.members}.", statement, ADMINISTRATOR)


def _connection_problems(connection: Connection, team: Team) -> Iterator[MissingRight]:
    database, schema, owner, schema_owner, _ = connection.execute(_DATABASE_AND_OWNERS).fetchone()
    role = quoted(connection, team.members)
    if not _is_true(connection, _MAY_CONNECT, team.members):
        statement = f"GRANT CONNECT ON DATABASE {quoted(connection, database)} TO {role};"
        yield MissingRight(f"The role {team.members} may not connect to the database {database}.", statement, owner)
    if not _is_true(connection, _MAY_USE_SCHEMA, team.members):
        statement = f"GRANT USAGE ON SCHEMA {quoted(connection, schema)} TO {role};"
        yield MissingRight(f"The role {team.members} may not use the schema {schema}.", statement, schema_owner)
    for (grantee,) in connection.execute(_MAY_CREATE).fetchall():
        if grantee in ("", team.members, team.payers):
            statement = f"REVOKE CREATE ON SCHEMA {quoted(connection, schema)} FROM {_grantee(connection, grantee)};"
            yield MissingRight(
                f"{_grantee_label(grantee)} may make tables in the schema {schema}.", statement, schema_owner
            )


def table_right_problems(connection: Connection, team: Team) -> Iterator[MissingRight]:
    """Yield the rights that members lack on the ledger's tables, and those that others have on them."""
    owner, role = connection.execute(_DATABASE_AND_OWNERS).fetchone()[4], quoted(connection, team.members)
    for table, rights in RIGHTS.items():
        missing_names = ", ".join(
            one for one in rights if not _is_true(connection, _HAS_TABLE_RIGHT, team.members, table, one)
        )
        if missing_names:
            message = f"The role {team.members} lacks {missing_names} on the table {table}."
            yield MissingRight(
                message, f"GRANT {missing_names} ON {_qualified_table(connection, table)} TO {role};", owner
            )
    grants = connection.execute(_WRITE_GRANTS).fetchall()
    excess_grants = [one for one in grants if one[1] != team.members or one[2] not in RIGHTS[one[0]]]
    for (table, grantee), found in groupby(excess_grants, key=lambda one: one[:2]):
        excess_rights = ", ".join(right for _, _, right in found)
        statement = (
            f"REVOKE {excess_rights} ON {_qualified_table(connection, table)} FROM {_grantee(connection, grantee)};"
        )
        yield MissingRight(
            f"{_grantee_label(grantee)} has {excess_rights} on the table {table} besides the roles.", statement, owner
        )


def _membership_problems(connection: Connection, names: Iterable[str], role: str) -> Iterator[MissingRight]:
    for name in names:
        if not exists(connection, name):
            grantee = quoted(connection, name)
            message, statement = f"The database user {name} does not exist.", f"CREATE ROLE {grantee} LOGIN;"
            yield MissingRight(message, statement, ADMINISTRATOR, is_of_person=True)
        found = missing_membership(connection, name, role)
        if found is not None:
            yield found


def _is_true(connection: Connection, query: str, *values: str) -> bool:
    return bool(connection.execute(query, values).fetchone()[0])


def quoted(connection: Connection, name: str) -> str:
    """Return a name quoted for a statement of this server."""
    return str(connection.execute(_QUOTE_NAME, (name,)).fetchone()[0])


def _qualified_table(connection: Connection, name: str) -> str:
    (schema,) = connection.execute("SELECT quote_ident(current_schema())").fetchone()
    return f"{schema}.{quoted(connection, name)}"


def _grantee(connection: Connection, name: str) -> str:
    return quoted(connection, name) if name else "PUBLIC"


def _grantee_label(name: str) -> str:
    return name or "Everybody (PUBLIC)"
