"""Reads the URL of a PostgreSQL ledger; what is shown of it never contains its password."""

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
    """Where a ledger is. `location` is for people; `identity` is the same for every spelling of one place.

    `public` is its URL for others: without a user, and without what is secret or only of this computer.
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
    defaults = {name: value for name, value in _DEFAULT.items() if name not in parts}
    application = f"cloudgpu {os.getpid()} on {socket.gethostname()}"[:63]
    full = conninfo.make_conninfo(text, **defaults, application_name=parts.get("application_name", application))
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
    """Return the URL that another member can use, without user and login options."""
    kept = {name: parts[name] for name in _PUBLIC if name in parts}
    return _location({name: value for name, value in parts.items() if name != "user"}) + (
        f"?{urlencode(kept, quote_via=quote)}" if kept else ""
    )


def _identity(parts: dict[str, str]) -> str:
    """Return what identifies the place, whoever logs in and however."""
    where = parts.get("host", parts.get("hostaddr", parts.get("service", "")))
    return "\n".join((where, parts.get("port", _DEFAULT_PORT), parts.get("dbname", ""), parts.get("options", "")))
