"""Reads the URL of a PostgreSQL ledger; what is shown of it never contains its password."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from cloudgpu.errors import InvalidRequest, MissingExtra

SCHEMES = frozenset({"postgresql", "postgres", "postgresql+psycopg", "postgres+psycopg"})
EXAMPLE_SETTING = "CLOUDGPU_LEDGER=postgresql://USER@HOST/DATABASE"
# Parameters of a connection: secret ones, and those that another member of the team needs, too.
_SECRET_PARAMETERS = ("password", "sslpassword")
_PUBLIC_PARAMETERS = ("options", "service", "sslmode", "target_session_attrs")
_DEFAULT_PORT = "5432"
# A connection whose other end is gone is noticed within a minute or two, by both ends.
_DEFAULT_PARAMETERS = {
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

    `public_url` is its URL for others: without a user, and without what is secret or only of this computer.
    """

    location: str
    identity: str
    public_url: str
    conninfo: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


def address_of(url: str) -> Address:
    """Return the address that a URL names. Raises MissingExtra without psycopg, InvalidRequest for what is no URL."""
    conninfo = _library().conninfo
    text = "postgresql://" + url.partition("://")[2]
    try:
        parsed: dict[str, Any] = conninfo.conninfo_to_dict(text)
    except _library().ProgrammingError:  # its words repeat the URL, and with it the password
        raise InvalidRequest(
            "The ledger's URL cannot be read (it is not shown, since it may hold a password).",
            field="CLOUDGPU_LEDGER",
            value="postgresql://...",
            next=f"Write it as {EXAMPLE_SETTING}; signs like @ : / # in a name or password as %40 %3A %2F %23.",
        ) from None
    parameters = {name: str(value) for name, value in parsed.items()}
    defaults = {name: value for name, value in _DEFAULT_PARAMETERS.items() if name not in parameters}
    application = f"cloudgpu {os.getpid()} on {socket.gethostname()}"[:63]
    full_conninfo = conninfo.make_conninfo(
        text, **defaults, application_name=parameters.get("application_name", application)
    )
    secrets = tuple(parameters[name] for name in _SECRET_PARAMETERS if parameters.get(name))
    return Address(
        _location_of(parameters), _identity_of(parameters), _public_url_of(parameters), full_conninfo, secrets
    )


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


def _location_of(parameters: dict[str, str]) -> str:
    user_part = f"{parameters['user']}@" if "user" in parameters else ""
    port = parameters.get("port", _DEFAULT_PORT)
    host = parameters.get("host", parameters.get("hostaddr", "")) + (f":{port}" if port != _DEFAULT_PORT else "")
    return f"postgresql://{user_part}{host}/{parameters.get('dbname', '')}"


def _public_url_of(parameters: dict[str, str]) -> str:
    """Return the URL that another member can use, without user and login options."""
    public_parameters = {name: parameters[name] for name in _PUBLIC_PARAMETERS if name in parameters}
    database = quote(parameters.get("dbname", ""), safe="")
    options = f"?{urlencode(public_parameters, quote_via=quote)}" if public_parameters else ""
    return f"postgresql://{_servers_of(parameters)}/{database}{options}"


def _servers_of(parameters: dict[str, str]) -> str:
    """Return the servers as a URL has them: a socket's directory quoted, an IPv6 address in brackets, several ports."""
    hosts = parameters.get("host", parameters.get("hostaddr", "")).split(",")
    ports = parameters.get("port", "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return ",".join(
        (f"[{quote(host, safe=':')}]" if ":" in host and not host.startswith("/") else quote(host, safe=""))
        + (f":{port}" if port not in ("", _DEFAULT_PORT) else "")
        for host, port in zip(hosts, ports, strict=False)
    )


def _identity_of(parameters: dict[str, str]) -> str:
    """Return what identifies the place, whoever logs in and however."""
    host = parameters.get("host", parameters.get("hostaddr", parameters.get("service", "")))
    return "\n".join(
        (host, parameters.get("port", _DEFAULT_PORT), parameters.get("dbname", ""), parameters.get("options", ""))
    )
