"""The settings of a local account, checked: every fault names `accounts.<account>.<key>`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.times import parse_duration
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.electricity import SYSTEM_WATTS, USD_PER_KWH

NOTICE = timedelta(minutes=2)
START_TIMEOUT = timedelta(seconds=20)
_KEYS = ("watts", "usd_per_kwh", "interruption_notice", "machine_start_timeout")
_IGNORED_KEYS = ("provider",)  # says whose account it is; read by whoever made us


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a price is made of, and where it comes from."""

    value: Decimal
    source: str


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """`watts` is what this machine draws without its GPUs' share; the rest as named."""

    watts: Figure
    usd_per_kwh: Figure
    notice: timedelta
    start_timeout: timedelta


def local_options(account: str, options: Mapping[str, Any]) -> LocalOptions:
    """Return the account's settings with their defaults; raise InvalidRequest for an unknown key or a bad value."""
    for key in options:
        if key not in _KEYS + _IGNORED_KEYS:
            raise _unknown(account, str(key))
    return LocalOptions(
        watts=_figure(account, options, "watts", SYSTEM_WATTS),
        usd_per_kwh=_figure(account, options, "usd_per_kwh", USD_PER_KWH),
        notice=_duration(account, options, "interruption_notice", NOTICE),
        start_timeout=_duration(account, options, "machine_start_timeout", START_TIMEOUT),
    )


def _unknown(account: str, key: str) -> InvalidRequest:
    listed = f"Its settings are {', '.join(_KEYS)}."
    return unknown_word(
        f"A local account has no setting {key!r}", key, _KEYS, field=f"accounts.{account}.{key}", next=listed
    )


def _figure(account: str, options: Mapping[str, Any], key: str, default: Decimal) -> Figure:
    if key not in options:
        return Figure(default, f"default of accounts.{account}.{key}")
    found = options[key]
    value = _number(found)
    if value is None or not value.is_finite() or not 0 <= value <= 1_000_000:  # noqa: PLR2004
        raise InvalidRequest(
            f"accounts.{account}.{key} must be a number from 0 to 1000000, not {found!r}.",
            field=f"accounts.{account}.{key}",
            value=str(found),
            next=f"Write {key} = {default}",
        )
    return Figure(value, f"accounts.{account}.{key}")


def _number(found: Any) -> Decimal | None:
    if isinstance(found, bool) or not isinstance(found, int | float | Decimal):
        return None
    try:
        return Decimal(str(found))
    except InvalidOperation:
        return None


def _duration(account: str, options: Mapping[str, Any], key: str, default: timedelta) -> timedelta:
    found = options.get(key)
    if found is None:
        return default
    try:
        return parse_duration(found)
    except (ValueError, AttributeError):
        raise InvalidRequest(
            f"accounts.{account}.{key} must be a duration such as '20s' or '2m', not {found!r}.",
            field=f"accounts.{account}.{key}",
            value=str(found),
            next=f'Write {key} = "2m"',
        ) from None
