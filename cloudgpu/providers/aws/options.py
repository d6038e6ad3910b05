"""The table of an aws account in config.toml."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.names import near
from cloudgpu.errors import InvalidRequest

HOME_REGION = "us-east-1"
SSH_PORT = 22
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
_REGION = re.compile(r"[a-z]{2,3}(-[a-z]+)+-\d{1,2}")
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class AwsOptions:
    """What an account's table says. `home_region` is asked for what no region owns; `regions` empty: all enabled."""

    profile: str | None = None
    home_region: str = HOME_REGION
    regions: tuple[str, ...] = ()
    exclude_regions: tuple[str, ...] = ()
    ssh_port: int = SSH_PORT
    instance_profile: str | None = None
    timer_role: str | None = None


def aws_options(account: str, table: Mapping[str, Any]) -> AwsOptions:
    """Return the options of an account's table; raise InvalidRequest for the first that is none or cannot be."""
    for key in table:
        if key not in _READERS:
            meant = near(key, _READERS)
            says = "is no option of an aws account" + (f"; did you mean {meant!r}?" if meant else ".")
            raise _fault(account, key, None, says, f"Options: {', '.join(_READERS)}.")
    return AwsOptions(**{key: read(account, key, table[key]) for key, read in _READERS.items() if key in table})


def _text(account: str, key: str, value: object) -> str:
    if isinstance(value, str) and value.strip() and value.isprintable():
        return value.strip()
    raise _fault(account, key, value, "has to be text.", f'Write it in quotes: {key} = "..."')


def _region(account: str, key: str, value: object) -> str:
    if isinstance(value, str) and _REGION.fullmatch(value):
        return value
    raise _fault(account, key, value, f"is {value!r}, which is no region.", "Write it like us-east-1.")


def _regions(account: str, key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(_region(account, key, one) for one in value)
    raise _fault(account, key, value, "has to be a list of regions.", f'Write it like {key} = ["us-east-1"].')


def _port(account: str, key: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _HIGHEST_PORT:
        return value
    raise _fault(account, key, value, f"is {value!r}, which is no port.", f"Write a number from 1 to {_HIGHEST_PORT}.")


def _role(account: str, key: str, value: object) -> str:
    if isinstance(value, str) and _ROLE.fullmatch(value):
        return value
    way = f'Write it like {key} = "arn:aws:iam::123456789012:role/cloudgpu-timer": cloudgpu init aws does.'
    raise _fault(account, key, value, "has to be the ARN of an IAM role.", way)


_READERS: dict[str, Callable[[str, str, object], Any]] = {
    "profile": _text,
    "home_region": _region,
    "regions": _regions,
    "exclude_regions": _regions,
    "ssh_port": _port,
    "instance_profile": _text,
    "timer_role": _role,
}


def _fault(account: str, key: str, value: object, says: str, way: str) -> InvalidRequest:
    name = f"config.toml: accounts.{account}.{key}"
    shown = None if value is None else str(value)[:80]
    return InvalidRequest(f"{name} {says}", field=name, value=shown, next=way)
