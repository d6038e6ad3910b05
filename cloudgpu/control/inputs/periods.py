"""Parses the options of `cost`, and periods, times, months and currencies for other verbs."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import TypedDict, Unpack

from cloudgpu.config.files.user_files import zone_of
from cloudgpu.config.settings import Settings
from cloudgpu.core.alerts.findings import month_before
from cloudgpu.core.billing.cost_groups import CostQuery, Grouping
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.times import PERIOD_KINDS, Period, from_iso, iso, midnight, parse_duration, period
from cloudgpu.core.values.typed import check_keywords, parse_member
from cloudgpu.errors import InvalidRequest

Moment = str | datetime | date | timedelta  # a time as users give it; a duration counts from now
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")
_MOMENT_REMEDY = "Write a day (2026-11-20), a time (2026-11-20T18:00), a duration from now backwards (7d), or month."


class CurrencyOptions(TypedDict, total=False):
    """The currency of amounts. Text is parsed as on the command line."""

    currency: str | None  # "KRW"; None: US dollars
    rate: str | float | Decimal | None  # how much of the currency one dollar is; None: the setting
    rate_date: str | date | None


class PeriodOptions(CurrencyOptions, total=False):
    """A period of the ledger, and the currency of its amounts. Text is parsed as on the command line."""

    since: Moment | None  # a duration counts back from now
    until: Moment | None
    tz: str | None  # "Asia/Seoul"; None: the setting


class CostOptions(PeriodOptions, total=False):
    """The options of `cost`, parsed as on the command line."""

    by: str  # "instance", "project", "day", ...
    owner: str | None  # only the machines of this owner


@dataclass(frozen=True, slots=True)
class PeriodRequest:
    """A period, its time zone by name and as a value, and the currency of amounts (None: US dollars)."""

    tz: str
    zone: tzinfo
    since: datetime | None
    until: datetime | None
    currency: Currency | None


@dataclass(frozen=True, slots=True)
class CostRequest:
    """The parsed request of `cost`: groups and period, the name of the time zone, the currency (None: US dollars)."""

    query: CostQuery
    tz: str
    currency: Currency | None = None


def parse_cost(settings: Settings, now: datetime, **options: Unpack[CostOptions]) -> CostRequest:
    """Return the request of these options. Raises InvalidRequest that names the invalid option."""
    check_keywords("cost", options, CostOptions.__annotations__)
    request = parse_period_request(settings, now, options)
    by = parse_member(Grouping, options.get("by", Grouping.INSTANCE), "group of costs", "--by")
    query = CostQuery(by, request.zone, request.since, request.until, options.get("owner"))
    return CostRequest(query, request.tz, request.currency)


def parse_period_request(settings: Settings, now: datetime, options: PeriodOptions) -> PeriodRequest:
    """Return the requested period and currency. Raises InvalidRequest that names the invalid option."""
    zone_name = options.get("tz") or settings.tz
    zone = zone_of(zone_name)
    since, until = options.get("since"), options.get("until")
    begin = None if since is None else parse_past_moment(since, "--since", now, zone)
    end = None if until is None else parse_past_moment(until, "--until", now, zone)
    _check_order(begin, end, now)
    return PeriodRequest(zone_name, zone, begin, end, parse_currency(settings, now, options))


def parse_past_moment(value: Moment, field: str, now: datetime, zone: tzinfo) -> datetime:
    """Return the time in UTC: a month or day means its beginning in `zone`, a duration counts back from now.

    `day`, `week` and `month` mean the beginning of the present one. A day or time may be in the future, as of
    `--until`. Raises InvalidRequest for anything else.
    """
    try:
        return from_iso(iso(_parse_moment(value, now, zone)))  # raises for a time before the year 1 of UTC
    except (ValueError, OverflowError):
        text = value.isoformat() if isinstance(value, date) else str(value)
        raise InvalidRequest(
            f"{text!r} is not a day, time or duration.", field=field, value=text, next=_MOMENT_REMEDY
        ) from None


def _parse_moment(moment: Moment, now: datetime, zone: tzinfo) -> datetime:
    if isinstance(moment, datetime):
        return moment if moment.tzinfo else moment.replace(tzinfo=zone)
    if isinstance(moment, date):
        return midnight(moment, zone)
    return now - moment if isinstance(moment, timedelta) else _parse_text(moment.strip(), now, zone)


def _parse_text(text: str, now: datetime, zone: tzinfo) -> datetime:
    """Return the time of a text: a period's name, a month, a day, a time, or a duration that counts back from now."""
    if text in PERIOD_KINDS:
        return period(text, now, zone).begin
    if _MONTH.fullmatch(text):
        return midnight(date.fromisoformat(f"{text}-01"), zone)
    with suppress(ValueError):
        return midnight(date.fromisoformat(text), zone)
    try:
        return _parse_moment(datetime.fromisoformat(text), now, zone)
    except ValueError:
        return now - parse_duration(text)


def _check_order(begin: datetime | None, end: datetime | None, now: datetime) -> None:
    """Raise InvalidRequest for a period that begins in the future, or ends before it has begun."""
    if begin is not None and begin > now:
        raise InvalidRequest(
            f"--since is {iso(begin)[:19]}Z, which is in the future.",
            field="--since",
            value=iso(begin),
            next="Name a time in the past. To see what is still to come, leave --since out.",
        )
    if begin is not None and end is not None and end <= begin:
        raise InvalidRequest(
            f"--until ({iso(end)[:19]}Z) is not after --since ({iso(begin)[:19]}Z).",
            field="--until",
            value=iso(end),
            next="Name a later --until, or an earlier --since; a day ends where the next one begins.",
        )


def parse_currency(settings: Settings, now: datetime, options: CurrencyOptions) -> Currency | None:
    """Return the currency that --currency, --rate and --rate-date ask for; None for US dollars.

    Raises InvalidRequest for an invalid code or rate, and for a rate of a future day, typed or of config.toml.
    """
    currency = _currency(settings, options.get("currency"), options.get("rate"), options.get("rate_date"))
    check_rate_is_past(currency, now, is_typed=options.get("rate") is not None)
    return currency


def _currency(
    settings: Settings, code: str | None, rate: str | float | Decimal | None, rate_date: str | date | None
) -> Currency | None:
    from cloudgpu.config.money.currencies import exchange_rate, typed_rate

    if code is None:
        _check_unused("--rate", rate)
        _check_unused("--rate-date", rate_date)
        return None
    if rate is None and rate_date is None:
        configured = exchange_rate(settings.currencies, code)
        return None if configured.code == "USD" else configured
    if rate is None or rate_date is None:
        missing = "--rate" if rate is None else "--rate-date"
        raise InvalidRequest(
            "--rate and --rate-date go together: a rate is shown with its date.",
            field=missing,
            value=None,
            next="Add the other: --rate 1385.2 --rate-date 2026-11-20",
        )
    return typed_rate(code, rate, rate_date)


def check_rate_is_past(currency: Currency | None, now: datetime, *, is_typed: bool = True) -> None:
    """Raise InvalidRequest for a rate of a day that is in the future everywhere on Earth.

    `is_typed`: whether the rate is from --rate; if not, it is from config.toml.
    """
    if currency is not None and currency.as_of > (now + timedelta(hours=14)).date():  # UTC+14: where days begin first
        raise InvalidRequest(
            f"{currency.as_of} is in the future, so there is no exchange rate for it yet.",
            field="--rate-date" if is_typed else f"config.toml: currencies.{currency.code}.as_of",
            value=f"{currency.as_of}",
            next="Name the day of the rate."
            if is_typed
            else "Correct it in config.toml, or add --rate and --rate-date.",
        )


def _check_unused(option: str, value: object) -> None:
    if value is not None:
        raise InvalidRequest(
            f"{option} is given without a currency.",
            field=option,
            value=str(value),
            next="Add --currency with three letters, like KRW.",
        )


LAST_MONTH = "last"


def parse_month(text: str, now: datetime, tz: str) -> Period:
    """Return the calendar month of `--month`: 2026-10, or `last` for the last one that has ended.

    Raises InvalidRequest for an invalid month, and for a future one.
    """
    zone, stripped = zone_of(tz), text.strip()
    if stripped == LAST_MONTH:
        return month_before(now, zone)
    try:
        day = datetime.fromisoformat(f"{stripped}-15" if _MONTH.fullmatch(stripped) else "not a month")
        month = period("month", day.replace(tzinfo=zone), zone)
    except (ValueError, OverflowError):
        raise _month_error(f"{text!r} is not a month.", text) from None
    if month.begin > now:
        raise _month_error(f"{text} is still to come.", text)
    return month


def _month_error(message: str, text: str) -> InvalidRequest:
    remedy = f"Write it like 2026-10, or {LAST_MONTH} for the last month that is over."
    return InvalidRequest(message, field="--month", value=text, next=remedy)
