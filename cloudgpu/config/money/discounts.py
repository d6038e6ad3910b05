"""Reads `[[discounts]]` and `[[credits]]` of config.toml into core's values, all of it checked."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from cloudgpu.config.files.user_files import parse_finite_number, setting_error, settings_table, shown
from cloudgpu.core.billing.discounts import ANY, Credit, Discount
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import closest_match, did_you_mean

MAX_USD = Decimal(1_000_000_000)  # of a credit, or of a fixed price per hour
MAX_NAME_LENGTH = 100
_PATTERN = re.compile(r"[\w*?\[\]!.+:-]{1,100}")  # a name, which may have the wildcards of fnmatch
_LAST_YEAR = 9999  # datetime has no day after its last
_MARKETS = {"on_demand": {Market.ON_DEMAND}, "spot": {Market.SPOT}, "any": set(Market)}
DISCOUNT_KEYS = ("provider", "account", "type", "region", "market", "percent", "rate", "from", "until")
CREDIT_KEYS = ("name", "amount", "currency", "provider", "account", "from", "until")
Table = Mapping[str, Any]


def read_discounts(key: str, value: object, kinds: Collection[str]) -> tuple[Discount, ...]:
    """Return the discounts of a list of tables, in order: the first that matches counts. Raises InvalidRequest.

    `kinds` are the names of all providers.
    """
    return tuple(_discount(f"{key}[{number}]", table, kinds) for number, table in enumerate(_tables(key, value), 1))


def read_credits(key: str, value: object, kinds: Collection[str]) -> tuple[Credit, ...]:
    """Return the credits of a list of tables; `kinds` are the names of all providers.

    Raises InvalidRequest for the first invalid one.
    """
    return tuple(_credit(f"{key}[{number}]", table, kinds) for number, table in enumerate(_tables(key, value), 1))


def _tables(key: str, value: object) -> list[Table]:
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise setting_error(
            key, value, "has to be a list of tables.", f"Write [[{key}]] and its keys below, for each one."
        )
    return value


def _discount(key: str, table: Table, kinds: Collection[str]) -> Discount:
    settings_table(key, table, DISCOUNT_KEYS)
    if ("percent" in table) == ("rate" in table):
        problem = "needs one of percent and rate, and has " + ("both." if "rate" in table else "none.")
        raise setting_error(key, None, problem, 'Write percent = 12.5, or rate = "1.20" for a fixed price per hour.')
    since, until = _period(key, table)
    market = _choice(f"{key}.market", table.get("market", "on_demand"), tuple(_MARKETS))
    return Discount(
        provider=_choice(f"{key}.provider", table.get("provider"), sorted(kinds)),
        account=_pattern(f"{key}.account", table.get("account", ANY)),
        instance_type=_pattern(f"{key}.type", table.get("type", ANY)),
        region=_pattern(f"{key}.region", table.get("region", ANY)),
        markets=frozenset(_MARKETS[market]),
        percent=_percent(f"{key}.percent", table["percent"]) if "percent" in table else None,
        rate=_amount(f"{key}.rate", table["rate"]) if "rate" in table else None,
        since=since,
        until=until,
        source=f"config.toml {key}",
    )


def _credit(key: str, table: Table, kinds: Collection[str]) -> Credit:
    settings_table(key, table, CREDIT_KEYS)
    if table.get("currency", "USD") != "USD":
        raise setting_error(
            f"{key}.currency",
            table["currency"],
            f"is {shown(table['currency'])!r}; credits are counted in US dollars.",
            "Write the amount in USD, and leave currency out.",
        )
    since, until = _period(key, table)
    provider = table.get("provider", ANY)
    return Credit(
        name=_name(f"{key}.name", table["name"]) if "name" in table else key,
        amount=_amount(f"{key}.amount", table.get("amount")),
        provider=provider if provider == ANY else _choice(f"{key}.provider", provider, sorted(kinds)),
        account=_pattern(f"{key}.account", table.get("account", ANY)),
        since=since,
        until=until,
        source=f"config.toml {key}",
    )


def _choice(key: str, value: object, known: Sequence[str]) -> str:
    if isinstance(value, str) and value in known:
        return value
    suggestion = closest_match(value, known) if isinstance(value, str) else None
    problem = "is missing." if value is None else f"is {shown(value)!r}" + did_you_mean(suggestion, ".")
    raise setting_error(key, value, problem, f"Use one of: {', '.join(known)}.")


def _pattern(key: str, value: object) -> str:
    if isinstance(value, str) and _PATTERN.fullmatch(value):
        return value
    remedy = f'Write a name, or a pattern like {key.rpartition(".")[2]} = "p4*".'
    raise setting_error(key, value, f"is {shown(value)!r}, which is neither a name nor a pattern of names.", remedy)


def _name(key: str, value: object) -> str:
    if isinstance(value, str) and value == value.strip() and value.isprintable() and 1 <= len(value) <= MAX_NAME_LENGTH:
        return value
    remedy = f'Write a line of 1 to {MAX_NAME_LENGTH} characters, for example: name = "Startup credit"'
    raise setting_error(key, value, f"is {shown(value)!r}, which cannot be a name.", remedy)


def _number(key: str, value: object, remedy: str) -> Decimal:
    number = parse_finite_number(value)
    if number is None:
        problem = "is missing." if value is None else f"is {shown(value)!r}, which is not a number."
        raise setting_error(key, value, problem, remedy)
    return number


def _percent(key: str, value: object) -> Fraction:
    remedy = "Write how many percent less is paid, above 0 and below 100, for example: percent = 12.5"
    percent = _number(key, value, remedy)
    if not 0 < percent < 100:  # noqa: PLR2004  (percent)
        raise setting_error(key, value, f"is {shown(value)}, and has to be above 0 and below 100.", remedy)
    return Fraction(percent)


def _amount(key: str, value: object) -> Money:
    remedy = f'Write US dollars above 0, for example: {key.rpartition(".")[2]} = "1.20"'
    amount = _number(key, value, remedy)
    if not 0 < amount < MAX_USD or not Money.usd(amount):
        raise setting_error(key, value, f"is {shown(value)}, and has to be above 0 and below {MAX_USD:,}.", remedy)
    return Money.usd(amount)


def _period(key: str, table: Table) -> tuple[datetime | None, datetime | None]:
    """Return when a discount or credit begins and ends, in UTC; the file has the first day and the last."""
    since = _day(f"{key}.from", table["from"]) if "from" in table else None
    last_day = _day(f"{key}.until", table["until"]) if "until" in table else None
    if since and last_day and last_day < since:
        problem = f"is {last_day:%Y-%m-%d}, which is before from, {since:%Y-%m-%d}."
        raise setting_error(f"{key}.until", table["until"], problem, "Correct one of the two.")
    return since, last_day and last_day + timedelta(days=1)


def _day(key: str, value: object) -> datetime:
    """Return the beginning of a day, written as a date of TOML or as text."""
    text = value.isoformat() if isinstance(value, date) and not isinstance(value, datetime) else value
    if isinstance(text, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        try:
            day = datetime.fromisoformat(text).replace(tzinfo=UTC)
        except ValueError:
            day = None
        if day is not None and day.year < _LAST_YEAR:
            return day
    problem = f"is {shown(value)!r}, which is not a day of the calendar."
    raise setting_error(key, value, problem, f'Write it like {key.rpartition(".")[2]} = "2026-12-31".')
