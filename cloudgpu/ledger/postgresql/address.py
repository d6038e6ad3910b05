"""Reads the URL of a PostgreSQL ledger, and connects: what is said of it never holds its password."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from cloudgpu.errors import InvalidRequest, LedgerDenied, MissingExtra

if TYPE_CHECKING:
    from psycopg import Connection

SCHEMES = frozenset({"postgresql", "postgres", "postgresql+psycopg", "postgres+psycopg"})
EXAMPLE = "CLOUDGPU_LEDGER=postgresql://USER@HOST/DATABASE"
_SECRET = ("password", "sslpassword")
_PUBLIC = ("options", "service", "sslmode", "target_session_attrs")
_USUAL_PORT = "5432"
# A connection whose other end is gone is noticed within a minute or two, by both ends.
_USUAL = {
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "client_encoding": "utf8",
}
# First: is the first schema of the search path open to this user? PostgreSQL passes over a closed one without a word,
# and a ledger would be looked for, and made, in the next.
_SESSION = """
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
SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout';
SELECT current_schema(), current_setting('server_encoding')"""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a ledger stands. `place` names it for people; `identity` is the same for every spelling of one place.

    `public` is its URL for anybody: without a user, and with nothing that is secret or of this computer alone.
    """

    place: str
    identity: str
    public: str
    conninfo: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


def address_of(url: str) -> Address:
    """Return the address that a URL names. Raises MissingExtra without psycopg, InvalidRequest for what is no URL."""
    conninfo = _library().conninfo
    text = "postgresql://" + url.partition("://")[2]
    try:
        given: dict[str, Any] = conninfo.conninfo_to_dict(text)
    except _library().ProgrammingError:  # its words repeat the URL, and with it the password
        raise InvalidRequest(
            "The ledger's URL cannot be read (it is not shown, since it may hold a password).",
            field="CLOUDGPU_LEDGER",
            value="postgresql://...",
            next=f"Write it as {EXAMPLE}; signs like @ : / # in a name or password as %40 %3A %2F %23.",
        ) from None
    parts = {name: str(value) for name, value in given.items()}
    usual = {name: value for name, value in _USUAL.items() if name not in parts}
    who = f"cloudgpu {os.getpid()} on {socket.gethostname()}"[:63]
    full = conninfo.make_conninfo(text, **usual, application_name=parts.get("application_name", who))
    secrets = tuple(parts[name] for name in _SECRET if parts.get(name))
    return Address(_place(parts), _identity(parts), _public(parts), full, secrets)


def connected(address: Address) -> tuple[Connection[Any], str]:
    """Return a connection outside of any transaction, and the schema it works in. Raises psycopg.Error.

    What the database commits for it is on the disk, and every name means the first schema of its search path.
    Raises InvalidRequest for a database that no ledger can stand in, LedgerDenied where its schema is closed.
    """
    from cloudgpu.ledger.postgresql.silence import connect

    raw = connect(address.conninfo)
    try:
        return raw, _schema_of(raw, address)
    except BaseException:
        raw.close()
        raise


def _schema_of(raw: Connection[Any], address: Address) -> str:
    cursor = raw.execute(_SESSION)
    first = cursor.fetchone()
    while cursor.nextset():
        pass
    if first is not None and not first[1]:
        raise _closed(raw, address, first[0])
    schema, encoding = cursor.fetchone() or (None, "")
    if schema is None or encoding != "UTF8":
        raise _unfit(address, schema, encoding)
    return str(schema)


def _closed(raw: Connection[Any], address: Address, schema: str) -> LedgerDenied:
    from cloudgpu.ledger.postgresql.denied import denied
    from cloudgpu.ledger.postgresql.speaking import Speaking

    return denied(Speaking(raw), address, schema)


def _library() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as fault:
        raise MissingExtra(
            "A ledger in PostgreSQL needs the extra cloudgpu[postgresql], which is not installed.",
            field="CLOUDGPU_LEDGER",
            value="postgresql://...",
            next="Run: pip install 'cloudgpu[postgresql]'",
        ) from fault
    return psycopg


def _place(parts: dict[str, str]) -> str:
    who = f"{parts['user']}@" if "user" in parts else ""
    port = parts.get("port", _USUAL_PORT)
    where = parts.get("host", parts.get("hostaddr", "")) + (f":{port}" if port != _USUAL_PORT else "")
    return f"postgresql://{who}{where}/{parts.get('dbname', '')}"


def _public(parts: dict[str, str]) -> str:
    """Return the URL that another member can use: who logs in, and how, is their own affair."""
    kept = {name: parts[name] for name in _PUBLIC if name in parts}
    return _place({name: value for name, value in parts.items() if name != "user"}) + (
        f"?{urlencode(kept, quote_via=quote)}" if kept else ""
    )


def _identity(parts: dict[str, str]) -> str:
    """Return what tells this place from another one, whoever logs in and however."""
    where = parts.get("host", parts.get("hostaddr", parts.get("service", "")))
    return "\n".join((where, parts.get("port", _USUAL_PORT), parts.get("dbname", ""), parts.get("options", "")))


def _unfit(address: Address, schema: str | None, encoding: str) -> InvalidRequest:
    if schema is None:
        sentence = f"The database {address.place} has no schema to stand in: its search_path names none that exists."
        way = "Create it: CREATE SCHEMA cloudgpu; or take the search_path out of CLOUDGPU_LEDGER."
    else:
        sentence = f"The database {address.place} is encoded in {encoding}, and a ledger needs UTF8."
        way = "Make one for it: CREATE DATABASE ledger ENCODING 'UTF8' TEMPLATE template0;"
    return InvalidRequest(sentence, field="CLOUDGPU_LEDGER", value=address.place, next=way)
