"""The hosts of an ssh account, checked: every error names `accounts.<account>.hosts[<number>].<key>`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any

from cloudgpu.access.ssh.client_files import is_public_key, public_key
from cloudgpu.core.values.naming import NAME, NAME_RULE, closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest

_ACCOUNT_KEYS = ("hosts", "queue_for")
_WORD = re.compile(r"[^\s\x00-\x1f\x7f'\"\\-][^\s\x00-\x1f\x7f'\"\\]*")
_LOGIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_MAX_NUMBER = 1_000_000
_HIGHEST_PORT = 65535
EXAMPLE = 'hosts = [{name = "bigbox", host = "10.0.0.5", user = "ada"}]'


@dataclass(frozen=True, slots=True)
class Host:
    """One machine of the user's: how it is reached, its hardware and its prices (None: queried, or not known).

    `key` is the file of a private key. `python` is the interpreter that runs agent and Jupyter there. `watts` is what
    it draws while it works. `usd_per_gpu_hour` is the price of a GPU of the Slurm cluster that it submits to. `field`
    is its key in the settings: `accounts.lab.hosts[0]`.
    """

    name: str
    host: str
    field: str
    port: int = 22
    user: str | None = None
    key: Path | None = None
    host_key: str | None = None
    python: str = "python3"
    gpu: str | None = None
    gpu_count: int = 1
    gpu_memory_gib: float | None = None
    watts: Decimal | None = None
    usd_per_kwh: Decimal | None = None
    usd_per_gpu_hour: Decimal | None = None


def ssh_hosts(account: str, options: Mapping[str, Any]) -> tuple[Host, ...]:
    """Return the account's hosts; raise InvalidRequest for the first unknown key or wrong value."""
    for key in options:
        if key not in _ACCOUNT_KEYS:
            raise _unknown_setting_error(f"accounts.{account}.{key}", str(key), _ACCOUNT_KEYS)
    _check_queue_for(f"accounts.{account}.queue_for", options.get("queue_for", []))
    field = f"accounts.{account}.hosts"
    tables = options.get("hosts", [])
    if not isinstance(tables, list):
        raise _error(field, tables, "has to be a list of tables", EXAMPLE)
    hosts = tuple(_host(f"{field}[{number}]", table) for number, table in enumerate(tables))
    for number, host in enumerate(hosts):
        if host.name in [other.name for other in hosts[:number]]:
            raise _error(f"{host.field}.name", host.name, "is the name of another host, too", "Give each its own name.")
    return hosts


def _check_queue_for(field: str, logins: object) -> None:
    """Raise InvalidRequest unless `logins` is a list of login names: those whose jobs a queue on these hosts runs."""
    if not isinstance(logins, list):
        raise _error(field, logins, "has to be a list of login names", 'Write it like queue_for = ["ada", "ben"].')
    for login in logins:
        if not isinstance(login, str) or not _LOGIN.fullmatch(login):
            raise _error(field, login, "is not a login name", 'Write it like queue_for = ["ada", "ben"].')


def _host(field: str, table: object) -> Host:
    if not isinstance(table, dict):
        raise _error(field, table, "has to be a table", EXAMPLE)
    for key in table:
        if key not in _READERS:
            raise _unknown_setting_error(f"{field}.{key}", str(key), _READERS)
    for key in ("name", "host"):
        if key not in table:
            raise _error(f"{field}.{key}", None, "is missing", EXAMPLE)
    if "gpu" not in table:
        for key in ("gpu_count", "gpu_memory_gib"):
            if key in table:
                raise _error(f"{field}.{key}", table[key], "says nothing without gpu", f"Add gpu, or drop {key}.")
    values = {key: _READERS[key](f"{field}.{key}", value) for key, value in table.items()}
    return Host(field=field, **values)


def _error(field: str, value: object, problem: str, remedy: str) -> InvalidRequest:
    value_text = None if value is None else str(value)[:80]
    return InvalidRequest(
        f"config.toml: {field} {problem}" + "." * (not problem.endswith("?")),
        field=field,
        value=value_text,
        next=remedy,
    )


def _unknown_setting_error(field: str, key: str, known: Iterable[str]) -> InvalidRequest:
    problem = f"is not a setting{did_you_mean(closest_match(key, known))}"
    return _error(field, key, problem, f"Its settings are {', '.join(known)}.")


def _name(field: str, value: object) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise _error(field, value, f"cannot be {value!r}", f"{NAME_RULE[0].upper()}{NAME_RULE[1:]}.")
    return value


def _word(field: str, value: object) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        remedy = "Write one word in quotes, without blanks, and not beginning with a hyphen."
        raise _error(field, value, f"cannot be {value!r}", remedy)
    return value


def _path(field: str, value: object) -> Path:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise _error(field, value, "has to be the path of a private key", 'Write it like key = "~/.ssh/id_ed25519".')
    path = Path(value)
    try:
        path = path.expanduser()
    except RuntimeError:
        raise _error(field, value, "names the home of an unknown user", "Write the full path.") from None
    if not path.is_absolute():
        raise _error(field, value, "has to begin with / or ~", f'Write it like key = "~/{value}".')
    return path


def _host_key(field: str, value: object) -> str:
    if not isinstance(value, str) or not is_public_key(value):
        remedy = "Give the line of that machine's /etc/ssh/ssh_host_ed25519_key.pub."
        raise _error(field, value, "is not an OpenSSH public key", remedy)
    return public_key(value)


def _number(field: str, value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_NUMBER:
        raise _error(
            field, value, f"must be a number from 0 to {_MAX_NUMBER}, not {value!r}", "Write it without quotes."
        )
    return Decimal(str(value))


def _positive_integer(field: str, value: object, maximum: int) -> int:
    if type(value) is not int or not 1 <= value <= maximum:
        raise _error(
            field, value, f"must be a whole number from 1 to {maximum}, not {value!r}", "Write it without quotes."
        )
    return value


# What checks the value of each key of a host; it is called with `Host.field` and the key, and the value.
_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "name": _name,
    "host": _word,
    "port": lambda field, value: _positive_integer(field, value, _HIGHEST_PORT),
    "user": _word,
    "key": _path,
    "host_key": _host_key,
    "python": _word,
    "gpu": _word,
    "gpu_count": lambda field, value: _positive_integer(field, value, 1024),
    "gpu_memory_gib": lambda field, value: float(_number(field, value)),
    "watts": _number,
    "usd_per_kwh": _number,
    "usd_per_gpu_hour": _number,
}
KEYS = tuple(host_field.name for host_field in fields(Host) if host_field.name != "field")
