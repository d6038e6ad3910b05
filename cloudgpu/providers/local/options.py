"""Reads and checks the settings of a local account: every error names `accounts.<account>.<key>`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.times import parse_duration
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.electricity import REST_OF_COMPUTER_WATTS, USD_PER_KWH

DEFAULT_NOTICE = timedelta(minutes=2)
DEFAULT_START_TIMEOUT = timedelta(seconds=20)
_KEYS = ("watts", "usd_per_kwh", "interruption_notice", "machine_start_timeout")
_IGNORED_KEYS = ("provider",)  # read by the registry of providers


@dataclass(frozen=True, slots=True)
class SourcedNumber:
    """A number that the price is calculated from, and where it comes from: the setting, or that it is a default."""

    value: Decimal
    source: str


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """The settings. `watts` is the power that this computer draws without its GPUs.

    `notice` is how long before its end a rehearsed interruption is announced, `start_timeout` how long a new machine
    may take until its SSH server answers.
    """

    watts: SourcedNumber
    usd_per_kwh: SourcedNumber
    notice: timedelta
    start_timeout: timedelta


def local_options(account: str, options: Mapping[str, Any]) -> LocalOptions:
    """Return the account's settings with their defaults; raise InvalidRequest for an unknown key or a bad value."""
    for key in options:
        if key not in _KEYS + _IGNORED_KEYS:
            raise _unknown_setting_error(account, str(key))
    return LocalOptions(
        watts=_sourced_number(account, options, "watts", REST_OF_COMPUTER_WATTS),
        usd_per_kwh=_sourced_number(account, options, "usd_per_kwh", USD_PER_KWH),
        notice=_duration(account, options, "interruption_notice", DEFAULT_NOTICE),
        start_timeout=_duration(account, options, "machine_start_timeout", DEFAULT_START_TIMEOUT),
    )


def _unknown_setting_error(account: str, key: str) -> InvalidRequest:
    settings_text = f"Its settings are {', '.join(_KEYS)}."
    return unknown_word(
        f"A local account has no setting {key!r}", key, _KEYS, field=f"accounts.{account}.{key}", next=settings_text
    )


def _sourced_number(account: str, options: Mapping[str, Any], key: str, default: Decimal) -> SourcedNumber:
    if key not in options:
        return SourcedNumber(default, f"default of accounts.{account}.{key}")
    raw_value = options[key]
    value = _number(raw_value)
    if value is None or not value.is_finite() or not 0 <= value <= 1_000_000:  # noqa: PLR2004
        raise InvalidRequest(
            f"accounts.{account}.{key} must be a number from 0 to 1000000, not {raw_value!r}.",
            field=f"accounts.{account}.{key}",
            value=str(raw_value),
            next=f"Write {key} = {default}",
        )
    return SourcedNumber(value, f"accounts.{account}.{key}")


def _number(raw_value: Any) -> Decimal | None:
    if isinstance(raw_value, bool) or not isinstance(raw_value, int | float | Decimal):
        return None
    try:
        return Decimal(str(raw_value))
    except InvalidOperation:
        return None


def _duration(account: str, options: Mapping[str, Any], key: str, default: timedelta) -> timedelta:
    raw_value = options.get(key)
    if raw_value is None:
        return default
    try:
        return parse_duration(raw_value)
    except (ValueError, AttributeError):
        raise InvalidRequest(
            f"accounts.{account}.{key} must be a duration such as '20s' or '2m', not {raw_value!r}.",
            field=f"accounts.{account}.{key}",
            value=str(raw_value),
            next=f'Write {key} = "2m"',
        ) from None
