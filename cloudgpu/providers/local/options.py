"""Reads and checks the settings of a local account: every error names `accounts.<account>.<key>`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from cloudgpu.core.values.times import parse_duration
from cloudgpu.providers.electricity import REST_OF_COMPUTER_WATTS, USD_PER_KWH
from cloudgpu.providers.registry import Reader, read_table, setting_error

DEFAULT_NOTICE = timedelta(minutes=2)
DEFAULT_START_TIMEOUT = timedelta(seconds=20)
_MAX_NUMBER = 1_000_000


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
    values = read_table("local", account, options, _READERS)

    def sourced(key: str, default: Decimal) -> SourcedNumber:
        source = f"accounts.{account}.{key}"
        return SourcedNumber(values.get(key, default), source if key in values else f"default of {source}")

    return LocalOptions(
        watts=sourced("watts", REST_OF_COMPUTER_WATTS),
        usd_per_kwh=sourced("usd_per_kwh", USD_PER_KWH),
        notice=values.get("interruption_notice", DEFAULT_NOTICE),
        start_timeout=values.get("machine_start_timeout", DEFAULT_START_TIMEOUT),
    )


def _number(account: str, key: str, value: object) -> Decimal:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_NUMBER:  # no for NaN
        return Decimal(str(value))
    problem = f"must be a number from 0 to {_MAX_NUMBER}, not {value!r}."
    example = {"watts": 100, "usd_per_kwh": 0.12}[key]
    raise setting_error(account, key, value, problem, f"Write it without quotes, like {key} = {example}.")


def _duration(account: str, key: str, value: object) -> timedelta:
    try:
        return parse_duration(value)  # type: ignore[arg-type]
    except (ValueError, AttributeError):
        problem = f"must be a duration such as '20s' or '2m', not {value!r}."
        raise setting_error(account, key, value, problem, f'Write it like {key} = "2m".') from None


_READERS: Mapping[str, Reader] = {
    "watts": _number,
    "usd_per_kwh": _number,
    "interruption_notice": _duration,
    "machine_start_timeout": _duration,
}
