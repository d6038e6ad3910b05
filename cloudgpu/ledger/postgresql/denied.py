"""Why the database refused a client: which role its user lacks, or what only the tables' owner may do."""

from __future__ import annotations

import re
from shlex import quote
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

from cloudgpu.errors import LedgerDenied
from cloudgpu.ledger.postgresql import rights

if TYPE_CHECKING:
    from cloudgpu.ledger.log.sql import Connection
    from cloudgpu.ledger.postgresql.address import Address

_OWNER_OF_TABLES = """
SELECT pg_get_userbyid(relowner)::text, pg_has_role(session_user, relowner, 'USAGE')
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE relname = 'line' AND nspname = ?"""
# The roles' names are in a table that this user may be unable to read; who has rights on tables, everybody can read.
_ROLES_WITH_RIGHTS = """
SELECT rolname::text FROM pg_class, aclexplode(relacl) JOIN pg_roles ON pg_roles.oid = grantee
WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = ?) AND grantee <> relowner
    AND NOT rolcanlogin
GROUP BY rolname ORDER BY count(*) DESC, 1"""
_MAY_USE_SCHEMA = "SELECT has_schema_privilege(session_user, ?, 'USAGE')"
_HAS_RIGHT = """
SELECT has_table_privilege(session_user, pg_class.oid, ?) FROM pg_class WHERE relname = ?
AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = ?)"""
_SEARCH_PATH = re.compile(r"search_path=([^\s,]+)")  # its first schema; the last such option counts
_UNQUOTED = re.compile(r"[a-z_][a-z0-9_]*")
Explanation = tuple[str, str]  # a sentence, and what to do


def denied_error(address: Address, sentence: str, remedy: str) -> LedgerDenied:
    """Return the error that says why the database refused, and what to do."""
    return LedgerDenied(sentence, field="CLOUDGPU_LEDGER", value=address.location, next=remedy)


def missing_rights_error(connection: Connection, address: Address, schema_name: str) -> LedgerDenied:
    """Return the error for a user who lacks rights on the schema of this name, or on its tables."""
    (person,) = connection.execute("SELECT session_user::text").fetchone()
    return denied_error(address, *_explanation(connection, address.location, person, schema_name))


def not_connected_error(address: Address) -> LedgerDenied:
    """Return the error for a user who may not connect to the database: its roles can then only be guessed."""
    parameters = conninfo_to_dict(address.conninfo)
    person, database = str(parameters.get("user", "")), str(parameters.get("dbname", ""))
    schema_names = _SEARCH_PATH.findall(str(parameters.get("options") or ""))
    role = rights.role_name("members", database, schema_names[-1] if schema_names else "public")
    statement = f"GRANT {role} TO {_quoted(person)};"
    return denied_error(
        address,
        f"The database user {person} may not connect to the database of the ledger {address.location}.",
        f"Let {rights.ADMINISTRATOR} give that user the role of its members, usually: {statement}",
    )


def _quoted(name: str) -> str:
    """Return a name quoted for a statement; there is no server to ask how."""
    return name if _UNQUOTED.fullmatch(name) else f'"{name.replace(chr(34), chr(34) * 2)}"'


def older_schema_error(connection: Connection, address: Address, schema_name: str) -> LedgerDenied:
    """Return the error for a ledger whose tables are an older version's, and another user's."""
    (owner, _) = connection.execute(_OWNER_OF_TABLES, (schema_name,)).fetchone()
    return denied_error(
        address,
        f"The ledger {address.location} was made by an older cloudgpu, and only {owner} may bring it up to date.",
        f"Let {owner} run with this version: cloudgpu ledger init --team",
    )


def _explanation(connection: Connection, location: str, person: str, schema_name: str) -> Explanation:
    ownership = connection.execute(_OWNER_OF_TABLES, (schema_name,)).fetchone()
    if ownership is None:
        return (
            f"The database user {person} may not make a ledger in the schema {schema_name} of {location}.",
            f"Let whoever owns the database run: cloudgpu ledger init --team --member {quote(person)}",
        )
    owner, is_owner = ownership
    members_role = next((role for (role,) in connection.execute(_ROLES_WITH_RIGHTS, (schema_name,))), None)
    if is_owner:
        return f"The ledger {location} does not let its owner {owner} do this.", "Run: cloudgpu doctor"
    if members_role is None:
        return (
            f"The ledger {location} belongs to the database user {owner}, no team shares it, and {person} may not.",
            f"Let {owner} run: cloudgpu ledger init --team --member {quote(person)}",
        )
    missing = rights.missing_membership(connection, person, members_role)
    if missing is not None:
        return (
            f"{missing.message.removesuffix('.')} of the ledger {location}.",
            f"Let {missing.grantor} run: {missing.statement}",
        )
    return _role_lacks_error_text(connection, location, members_role, owner, schema_name)


def _role_lacks_error_text(
    connection: Connection, location: str, members_role: str, owner: str, schema_name: str
) -> Explanation:
    """Return which rights the role itself lacks; if it lacks none, that only the owner may do this."""
    missing = [] if _is_true(connection, _MAY_USE_SCHEMA, schema_name) else [f"USAGE on the schema {schema_name}"]
    for table, needed in rights.RIGHTS.items():
        missing += [
            f"{right} on {table}" for right in needed if not _is_true(connection, _HAS_RIGHT, right, table, schema_name)
        ]
    if missing:
        return (
            f"The role {members_role} of the ledger {location} lacks {', '.join(missing)}.",
            f"Let {owner} run: cloudgpu ledger init --team",
        )
    return (
        f"Only {owner} may do this: the tables of the ledger {location} are that user's.",
        f"Let {owner} run the same.",
    )


def _is_true(connection: Connection, query: str, *values: str) -> bool:
    found = connection.execute(query, values).fetchone()
    return found is None or bool(found[0])
