"""Reads numbers for `compare`: amounts, watts, years, and how much of the time a machine is used."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from math import ceil, isfinite

from cloudgpu.core.advice.rent_or_buy import Bound, Utilization
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.core.values.units import QuotedAmount
from cloudgpu.errors import InvalidRequest

RateLookup = Callable[[str], Currency]  # the rate of a currency by its code, or InvalidRequest
Number = str | int | float | Decimal
MAX_USD = 10_000_000
MAX_PRICE = 100_000  # dollars an hour; more expensive than any machine on offer
MAX_HOURS = 24_000  # of a day: of a thousand machines
_DIGITS = re.compile(r"[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_SUFFIXES = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_QUOTED = re.compile(r"([0-9.]+)\s*([A-Za-z]{3})")


# "Which GPU(s) to Get for Deep Learning" (T. Dettmers) has these as bounds of what is common.
PRESETS = {
    "personal": (Bound.BETWEEN, (5, 10)),
    "phd-desktop": (Bound.UNDER, (15,)),
    "phd-cluster": (Bound.OVER, (35,)),
    "company-cluster": (Bound.OVER, (60,)),
}


def parse_number(value: object, option: str, *, least: str | int = 0, most: str | int, unit: str = "") -> Decimal:
    """Return a number from `least` to `most`; raise InvalidRequest for anything else, also NaN and infinity."""
    text = _text(value)
    number = Decimal(text) if _DIGITS.fullmatch(text) else None
    if number is None or not Decimal(least) <= number <= Decimal(most):
        raise InvalidRequest(
            f"{text!r} is not a number from {least} to {most:,}" + (f" {unit}." if unit else "."),
            field=option,
            value=text,
            next=f"Write it in digits, like {option} {_EXAMPLES.get(option, '1')}",
        )
    return number


_EXAMPLES = {
    "--price": "2.14",
    "--utilization": "15%",
    "--purchase": "2200",
    "--tariff": "0.12",
    "--maintenance": "50",
    "--resale": "500",
    "--watts": "350",
    "--system-watts": "100",
    "--idle-watts": "60",
    "--pue": "1.2",
    "--life": "4",
    "--years": "5",
    "--hours-per-day": "3.6",
    "--yearly-loss": "20%",
    "--memory": "24",
    "--budget": "1500",
    "--gpus": "2",
    "--hours-per-week": "20",
    "--interest": "5%",
    "--price-drift": "-10%",
    "--vat": "19%",
    "--card-price": "3090=650",
    "--disk": "100 (GB); its kind is --disk-type gp3",
    "--nodes": "4",
}


def parse_decimal(value: object) -> Decimal | None:
    """Return a finite number written in digits; None for anything else. A float counts as it is printed."""
    text = str(value).strip()
    return Decimal(text) if _DECIMAL.fullmatch(text) else None


def parse_whole_number(value: object, option: str, least: int, most: int) -> int:
    """Return a whole number from `least` to `most`. Raises InvalidRequest."""
    number = parse_decimal(value)
    if number is not None and number == number.to_integral_value() and least <= number <= most:
        return int(number)
    raise InvalidRequest(
        f"{str(value)!r} is not a whole number from {least:,} to {most:,}.",
        field=option,
        value=str(value),
        next=f"For example {option} {_EXAMPLES.get(option, least)}",
    )


def parse_count(value: object, option: str, least: int, most: int, example: str) -> int:
    """Return a number that may be written as 7B, 350M or 7e9. Raises InvalidRequest."""
    text = str(value).strip().replace(",", "").replace("_", "")
    factor = _SUFFIXES.get(text[-1:].lower(), 1)
    number = parse_decimal(text if factor == 1 else text[:-1].strip())
    if number is not None and least <= number * factor <= most:
        return int(number * factor)
    raise InvalidRequest(
        f"{str(value)!r} is not a number from {least:,} to {most:,}.",
        field=option,
        value=str(value),
        next=f"For example {option} {example}",
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}" if isfinite(value) else str(value)
    return f"{value:f}" if isinstance(value, Decimal) and value.is_finite() else str(value).strip()


def parse_money(
    value: object, option: str, *, most: int = MAX_USD, above_zero: bool = False, rates: RateLookup | None = None
) -> Money:
    """Return an amount in dollars: a number, `$2200`, or `7500000 KRW` where a rate of that is known."""
    return parse_amount(value, option, most=most, above_zero=above_zero, rates=rates)[0]


def parse_amount(
    value: object, option: str, *, most: int = MAX_USD, above_zero: bool = False, rates: RateLookup | None = None
) -> tuple[Money, QuotedAmount | None]:
    """Return an amount in dollars, and as it was quoted where that was in another currency.

    Raises InvalidRequest for what is no amount, one above `most` dollars, and a currency without a rate.
    """
    text = _text(value)
    quoted = _QUOTED.fullmatch(text)
    if quoted is None or rates is None or quoted[2].upper() == "USD":
        digits = text.removeprefix("$") if quoted is None or rates is None else quoted[1]
        dollars, amount = Money.usd(parse_number(digits, option, most=most, unit="in US dollars")), None
    else:
        currency = rates(quoted[2])
        max_amount = ceil(most * currency.per_usd)  # above zero where a unit is worth more than `most` dollars
        amount = QuotedAmount(parse_number(quoted[1], option, most=max_amount, unit=f"in {currency.code}"), currency)
        dollars = amount.in_usd
    if above_zero and not dollars:
        raise InvalidRequest(
            f"{text!r} is nothing: what costs nothing never costs more than a desktop.",
            field=option,
            value=text,
            next=f"Write it like {option} {_EXAMPLES[option]}",
        )
    return dollars, amount


def parse_share(value: object, option: str, *, most: int = 1) -> Fraction:
    """Return a share: text like `15%`, up to `most` times 100%, or a program's number from 0 to 1.

    Raises InvalidRequest for anything else: above 1 a number may be meant as per cent, and is not guessed at.
    """
    if isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool):
        share = value if isinstance(value, Fraction) else Fraction(parse_number(value, option, most=100 * most))
        if 0 <= share <= 1:
            return share
        if 1 < share <= 100 * most:
            readings = [f'"{float(one):g}%"' for one in (share, share * 100) if one <= 100 * most]
            raise InvalidRequest(  # 20 may mean 20% or 2000%
                f"{float(share):g} is above 1: write a share as a number from 0 to 1, or as text with a % sign.",
                field=option,
                value=f"{float(share):g}",
                next=f"Write {' or '.join(readings)}.",
            )
    text = _text(value)
    if text.endswith("%"):
        return Fraction(parse_number(text[:-1].strip(), option, most=100 * most, unit="per cent")) / 100
    of_time, example = (" of the time", "15%") if option == "--utilization" else ("", _EXAMPLES.get(option, "20%"))
    raise InvalidRequest(
        f"{text!r} is not a share{of_time}: it is written with its %.",
        field=option,
        value=text,
        next=f"For example {option} {example}",
    )


def parse_yearly_change(value: object, option: str, *, least: int = -90, most: int = 100) -> Fraction:
    """Return a yearly change: text like `-10%`, or a program's number like -0.1.

    Raises InvalidRequest for anything else.
    """
    if isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool):
        text = f"{_text(value * 100 if not isinstance(value, Fraction) else float(value * 100))}%"
    else:
        text = _text(value)
    minus = text.startswith("-")
    share = Fraction(-1 if minus else 1) * parse_share(text.lstrip("+-") if text[1:2] not in "+-" else text, option)
    if not Fraction(least, 100) <= share <= Fraction(most, 100):
        raise InvalidRequest(
            f"{text!r} is not a change from {least}% to {most}% a year.",
            field=option,
            value=text,
            next=f"For example {option} {_EXAMPLES[option]}",
        )
    return share


def parse_utilization(utilization: object | None, hours_per_day: object | None) -> Utilization:
    """Return how much of the time a machine is used; raise InvalidRequest for neither, both or no valid one."""
    if utilization is None and hours_per_day is None:
        raise InvalidRequest(
            "It is not known how much of the time the machine is used.",
            field="--utilization",
            value=None,
            next=f"Add --utilization 15%, --hours-per-day 3.6, or one of: {', '.join(PRESETS)}.",
        )
    if utilization is not None and hours_per_day is not None:
        raise InvalidRequest(
            "--utilization and --hours-per-day say the same.",
            field="--hours-per-day",
            value=_text(hours_per_day),
            next="Keep one of the two.",
        )
    if hours_per_day is not None:
        number = parse_number(hours_per_day, "--hours-per-day", most=MAX_HOURS, unit="hours")
        return Utilization(f"{number:f} hours a day", Bound.AT, (Fraction(number) / 24,))
    text = _text(utilization)
    if text in PRESETS:
        bound, shares = PRESETS[text]
        return Utilization(text, bound, tuple(Fraction(share, 100) for share in shares))
    if isinstance(utilization, str) and not text.endswith("%"):
        near_preset = closest_match(text, PRESETS) if text[:1].isalpha() else None
        raise InvalidRequest(
            f"{text!r} is not a share of the time" + did_you_mean(near_preset, ": it is written with its %."),
            field="--utilization",
            value=text,
            next=f"Write it like 15%, or use one of: {', '.join(PRESETS)}.",
        )
    return Utilization(text, Bound.AT, (parse_share(utilization, "--utilization", most=MAX_HOURS // 24),))
