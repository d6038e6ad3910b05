"""Reads [currencies] of config.toml: dated exchange rates, at which amounts are shown in another currency."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from types import MappingProxyType

from cloudgpu.config.files.user_files import parse_finite_number, setting_error, settings_table, shown
from cloudgpu.core.values.currency import Currency, check_code
from cloudgpu.errors import InvalidRequest

KEYS = ("per_usd", "as_of", "source")
MAX_PER_USD = Decimal(10) ** 12  # no currency has ever had so many units to a dollar
_EXAMPLE = 'Write it like KRW = { per_usd = "1385.2", as_of = 2026-11-20, source = "Bank of Korea" }.'
_setting_error = partial(setting_error, next=_EXAMPLE)


def currencies_from(table: object) -> Mapping[str, Currency]:
    """Return the rates of a [currencies] table by code; raise InvalidRequest with the key of the first error."""
    entries = settings_table("currencies", table, next=_EXAMPLE)
    return MappingProxyType({code: _currency(code, entry) for code, entry in entries.items()})


def exchange_rate(currencies: Mapping[str, Currency], code: str, *, field: str = "--currency") -> Currency:
    """Return the configured rate of a currency; raise InvalidRequest for a wrong code, or one without a rate."""
    valid_code = check_code(code, field)
    if valid_code == "USD":
        return Currency("USD", Decimal(1), date(1970, 1, 1), "by definition")
    currency = currencies.get(valid_code)
    if currency is None:
        raise InvalidRequest(
            f"There is no exchange rate for {valid_code}; cloudgpu never fetches or guesses one.",
            field=field,
            value=valid_code,
            next=_remedy(valid_code, with_options=field.startswith("--")),  # a bill's own currency has no options
        )
    return currency


def _remedy(code: str, *, with_options: bool) -> str:
    """Say how to give a rate; `with_options` where the command has --currency, --rate and --rate-date."""
    options = (
        f"Add --currency {code}, --rate with how many {code} one US dollar is, and --rate-date with its day; or add"
    )
    entry = f'{code} = {{ per_usd = "...", as_of = ..., source = "..." }} under [currencies] of config.toml.'
    return f"{options if with_options else 'Add'} {entry}"


def typed_rate(code: str, rate: str | float | Decimal, rate_date: str | date) -> Currency:
    """Return the rate that a user typed: --rate and --rate-date, or the lines `rate` and `rate_as_of` of a budget.

    Raises InvalidRequest for a wrong currency, rate or day.
    """
    valid_code = check_code(code, "--currency")
    return Currency(
        valid_code, _exchange_rate(rate, "--rate", "Write a number above zero, like 1385.2."), _rate_date(rate_date)
    )


def _rate_date(text: str | date) -> date:
    try:
        return date.fromisoformat(str(text))
    except ValueError:
        raise InvalidRequest(
            f"{str(text)!r} is not a day.", field="--rate-date", value=str(text), next="Write it like 2026-11-20."
        ) from None


def _currency(code: str, entry: object) -> Currency:
    key = f"currencies.{shown(code)}"
    check_code(code, f"config.toml: {key}")
    if code != code.upper() or code == "USD":
        raise _setting_error(key, code, "has to be the three capital letters of a currency that is not USD")
    values = settings_table(key, entry, KEYS, next=_EXAMPLE)
    for name in KEYS:
        if name not in values:
            raise _setting_error(f"{key}.{name}", None, "is missing")
    rate = _exchange_rate(values["per_usd"], f"config.toml: {key}.per_usd", _EXAMPLE)
    return Currency(code, rate, _as_of(key, values["as_of"]), _source(key, values["source"]))


def _exchange_rate(value: object, field: str, remedy: str) -> Decimal:
    """Return how many units of a currency one US dollar is: a finite number above zero."""
    rate = parse_finite_number(value)
    if rate is None or not 1 / MAX_PER_USD <= rate <= MAX_PER_USD:
        raise InvalidRequest(
            f"{field} is {shown(value)!r}, which is not a rate of exchange.",
            field=field,
            value=shown(value),
            next=remedy,
        )
    return rate


def _as_of(key: str, value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise _setting_error(f"{key}.as_of", value, "has to be a day") from None


def _source(key: str, value: object) -> str:
    if isinstance(value, str) and value.strip() and value.isprintable():
        return value.strip()
    raise _setting_error(f"{key}.source", value, "has to say in one line where the rate comes from")
