"""Connects to the database of a PostgreSQL ledger, with the methods of a connection of sqlite3.

It uses the first schema of the search path.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import psycopg
    from psycopg import Connection

    from cloudgpu.ledger.log.sql import Rows
    from cloudgpu.ledger.postgresql.address import Address

# The clock of a server that nobody can set right is left out by ALTER DATABASE ... SET cloudgpu.clock = 'off'
DATABASE_TIME = "CASE WHEN current_setting('cloudgpu.clock', true) = 'off' THEN NULL ELSE clock_timestamp() END"
# First: is the first schema of the search path open to this user? PostgreSQL passes over a closed one without a word,
# and a ledger would be looked for, and made, in the next.
_SET_UP_SESSION = f"""
SELECT nspname::text, has_schema_privilege(pg_namespace.oid, 'USAGE')
FROM unnest(string_to_array(current_setting('search_path'), ',')) WITH ORDINALITY AS part (written, at)
JOIN pg_namespace ON nspname = CASE
    WHEN trim(written) = '"$user"' THEN current_user
    WHEN trim(written) LIKE '"%"' THEN replace(substr(trim(written), 2, length(trim(written)) - 2), '""', '"')
    ELSE lower(trim(written))
END WHERE current_setting('search_path') !~ '"[^"]*,[^"]*"' ORDER BY at LIMIT 1;
SELECT set_config('tcp_keepalives_idle', '60', false), set_config('tcp_keepalives_interval', '15', false),
    set_config('tcp_keepalives_count', '4', false);
-- What is temporary comes last: whoever may write lines could hide the ledger's tables from their guards by it.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', false);
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
-- A wait for a lock has its own limit (lock_timeout), and a ledger that is copied is one long transaction.
SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN
    ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout');
SELECT current_schema(), current_setting('server_encoding'), {DATABASE_TIME}"""  # noqa: S608


def connect_to_ledger(address: Address) -> tuple[Connection[Any], str, datetime | None]:
    """Return a psycopg connection outside of any transaction, its schema, and the database's time.

    What the database commits for it is on the disk, and every name means the first schema of its search path.
    Raises psycopg.Error; InvalidRequest for a database that cannot hold a ledger, LedgerDenied where this user may not
    use its schema.
    """
    from cloudgpu.ledger.postgresql.silence import connect

    raw = connect(address.conninfo)
    try:
        return raw, *_schema_and_time(raw, address)
    except BaseException:
        raw.close()
        raise


def _schema_and_time(raw: Connection[Any], address: Address) -> tuple[str, datetime | None]:
    cursor = raw.execute(_SET_UP_SESSION)
    schema_access = cursor.fetchone()
    while cursor.nextset():
        pass
    if schema_access is not None and not schema_access[1]:
        from cloudgpu.ledger.postgresql.denied import missing_rights_error

        raise missing_rights_error(Adapter(raw), address, schema_access[0])
    schema, encoding, database_now = cursor.fetchone() or (None, "", None)
    if schema is None or encoding != "UTF8":
        raise _unsuitable_error(address, schema, encoding)
    return str(schema), database_now


def _unsuitable_error(address: Address, schema: str | None, encoding: str) -> InvalidRequest:
    if schema is None:
        sentence = (
            f"The database {address.location} has no schema for the ledger: its search_path names none that exists."
        )
        remedy = "Create it: CREATE SCHEMA cloudgpu; or take the search_path out of CLOUDGPU_LEDGER."
    else:
        sentence = f"The database {address.location} is encoded in {encoding}, and a ledger needs UTF8."
        remedy = "Make one for it: CREATE DATABASE ledger ENCODING 'UTF8' TEMPLATE template0;"
    return InvalidRequest(sentence, field="CLOUDGPU_LEDGER", value=address.location, next=remedy)


class Adapter:
    """A psycopg connection that takes `?` for each value, as sqlite3's does."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self._raw = raw

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        """Execute one statement."""
        if not parameters:
            return self._raw.execute(sql.encode())
        return self._raw.execute(_translated(sql), parameters)

    def executemany(self, sql: str, parameters: Any, /) -> None:
        """Execute one statement for each row of values."""
        with self._raw.cursor() as cursor:
            cursor.executemany(_translated(sql), parameters)


@lru_cache(maxsize=256)
def _translated(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()
