"""Reads the URL of a PostgreSQL ledger: what is said of it never holds its password."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from cloudgpu.errors import InvalidRequest, MissingExtra

SCHEMES = frozenset({"postgresql", "postgres", "postgresql+psycopg", "postgres+psycopg"})
EXAMPLE = "CLOUDGPU_LEDGER=postgresql://USER@HOST/DATABASE"
_SECRET = ("password", "sslpassword")
_PUBLIC = ("options", "service", "sslmode", "target_session_attrs")
_DEFAULT_PORT = "5432"
# A connection whose other end is gone is noticed within a minute or two, by both ends.
_DEFAULT = {
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "client_encoding": "utf8",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a ledger stands. `place` names it for people; `identity` is the same for every spelling of one place.

    `public` is its URL for anybody: without a user, and with nothing that is secret or of this computer alone.
    """

    location: str
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
    usual = {name: value for name, value in _DEFAULT.items() if name not in parts}
    who = f"cloudgpu {os.getpid()} on {socket.gethostname()}"[:63]
    full = conninfo.make_conninfo(text, **usual, application_name=parts.get("application_name", who))
    secrets = tuple(parts[name] for name in _SECRET if parts.get(name))
    return Address(_location(parts), _identity(parts), _public(parts), full, secrets)


def _library() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise MissingExtra(
            "A ledger in PostgreSQL needs the extra cloudgpu[postgresql], which is not installed.",
            field="CLOUDGPU_LEDGER",
            value="postgresql://...",
            next="Run: pip install 'cloudgpu[postgresql]'",
        ) from error
    return psycopg


def _location(parts: dict[str, str]) -> str:
    who = f"{parts['user']}@" if "user" in parts else ""
    port = parts.get("port", _DEFAULT_PORT)
    where = parts.get("host", parts.get("hostaddr", "")) + (f":{port}" if port != _DEFAULT_PORT else "")
    return f"postgresql://{who}{where}/{parts.get('dbname', '')}"


def _public(parts: dict[str, str]) -> str:
    """Return the URL that another member can use: who logs in, and how, is their own affair."""
    kept = {name: parts[name] for name in _PUBLIC if name in parts}
    return _location({name: value for name, value in parts.items() if name != "user"}) + (
        f"?{urlencode(kept, quote_via=quote)}" if kept else ""
    )


def _identity(parts: dict[str, str]) -> str:
    """Return what tells this place from another one, whoever logs in and however."""
    where = parts.get("host", parts.get("hostaddr", parts.get("service", "")))
    return "\n".join((where, parts.get("port", _DEFAULT_PORT), parts.get("dbname", ""), parts.get("options", "")))
