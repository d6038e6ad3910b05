"""Parses the options of a budget, typed or in a file; an error names the value and an example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from cloudgpu.core.budgets.budget import Action, BudgetPeriod, Scope
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import closest_match, did_you_mean, unknown_word
from cloudgpu.core.values.units import QuotedAmount
from cloudgpu.errors import InvalidRequest

MAX_LIMIT = Decimal(10) ** 15  # of any currency; nobody's budget is larger
MAX_DAYS = 366
MAX_PERCENT = 1000
PERIODS = ("day", "week", "month", "total")
SCOPE_KEYS = tuple(Scope().body())
MAX_VALUE_CHARS = 200  # characters of a scope's value, as of an owner's or a project's name
_DECIMAL = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")


def parse_amount(text: str, field: str) -> Decimal:
    """Return an amount above zero, in whole and up to nine digits after the point; InvalidRequest for anything else."""
    try:
        amount = Decimal(text) if _DECIMAL.fullmatch(text) else None
    except InvalidOperation:
        amount = None
    if amount is None or not 0 < amount <= MAX_LIMIT:
        raise InvalidRequest(
            f"{_quoted(text)} is not an amount above zero.",
            field=field,
            value=text,
            next="Write it in digits, with a point: 300 or 99.50. To take a budget away: cloudgpu budget rm NAME",
        )
    return amount


def limit_in_usd(amount: Decimal, quoted_limit: QuotedAmount | None, field: str) -> Money:
    """Return the limit in US dollars; InvalidRequest for less than a nano-dollar."""
    limit = Money.usd(amount) if quoted_limit is None else quoted_limit.in_usd
    if quoted_limit is not None and not limit.nanos:
        raise InvalidRequest(
            f"{amount:f} {quoted_limit.currency.code} are less than a billionth of a US dollar.",
            field=field,
            value=f"{amount:f}",
            next="Write a larger amount, or correct the rate.",
        )
    return limit


def parse_period(text: str, field: str) -> BudgetPeriod:
    """Return what `day`, `week`, `month`, `total` or `rolling:30d` stand for; InvalidRequest for anything else."""
    if text in PERIODS:
        return BudgetPeriod(text)
    rolling = re.fullmatch(r"rolling:([0-9]{1,4})d", text)
    if rolling and 1 <= int(rolling[1]) <= MAX_DAYS:
        return BudgetPeriod("rolling", int(rolling[1]))
    remedy = f"Use one of: {', '.join(PERIODS)}, or rolling:Nd with 1 to {MAX_DAYS} days."
    raise unknown_word(f"{_quoted(text)} is not a period", text, PERIODS, field=field, next=remedy)


def parse_scope(text: str, field: str) -> Scope:
    """Return what `project=x,provider=aws` stands for; empty or `all`: everything."""
    if text.strip() in ("", "all"):
        return Scope()
    scope: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = pair.strip().partition("=")
        if key in scope or not equals:
            message = f"says {key} twice" if equals else f"has {_quoted(pair)}, which is not KEY=VALUE"
            raise _error(f"The scope {message}.", field, text)
        scope[key] = value
    return scope_from_values(scope, field)


def scope_from_values(values: Mapping[str, object], field: str) -> Scope:
    """Return the scope of these keys; InvalidRequest for an unknown key or an empty value."""
    for key, value in values.items():
        if key not in SCOPE_KEYS:
            raise _error(f"A scope has no {key!r}" + did_you_mean(closest_match(key, SCOPE_KEYS), "."), field, key)
        if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > MAX_VALUE_CHARS:
            raise _error(
                f"The {key} of a scope has to be one line of 1 to {MAX_VALUE_CHARS} characters.", field, str(value)
            )
    texts: dict[str, Any] = {key: str(value).strip() for key, value in values.items()}
    return Scope(**texts)


def parse_thresholds(values: Iterable[object], field: str) -> tuple[int, ...]:
    """Return whole percents, each once, the lowest first; `none` alone: none."""
    given = list(values)
    if given in ([], ["none"]):
        return ()
    return tuple(sorted({parse_percent(word, field) for word in given}))


def parse_percent(value: object, field: str) -> int:
    """Return a whole number of percent from 1 to 1000; InvalidRequest for anything else."""
    text = str(value).strip().removesuffix("%")
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= MAX_PERCENT:
        raise InvalidRequest(
            f"{_quoted(str(value))} is not a percentage: it is a whole number from 1 to {MAX_PERCENT}.",
            field=field,
            value=str(value),
            next="Write it like 50,80,100, or none.",
        )
    return int(text)


def parse_actions(values: Iterable[str], field: str) -> frozenset[Action]:
    """Return the actions with these names; InvalidRequest for an unknown one or none at all."""
    given = [word.strip() for word in values]
    for word in given:
        if word not in list(Action):
            raise unknown_word(
                f"{_quoted(word)} is not an action of a budget",
                word,
                map(str, Action),
                field=field,
                next=f"Use some of: {', '.join(Action)}.",
            )
    if not given:
        raise InvalidRequest(
            "--action is empty: a budget needs at least one action.",
            field=field,
            value="",
            next=f"Use: {', '.join(Action)}.",
        )
    return frozenset(map(Action, given))


def _error(message: str, field: str, value: str) -> InvalidRequest:
    remedy = f"Keys: {', '.join(SCOPE_KEYS)}. For example: project=vision,provider=aws"
    return InvalidRequest(message, field=field, value=value, next=remedy)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}...")
