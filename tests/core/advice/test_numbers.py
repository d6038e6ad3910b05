"""Amounts as they are typed, in dollars and in other currencies."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from cloudgpu.core.advice.numbers import parse_money
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest


@pytest.mark.parametrize(
    ("per_usd", "most", "more"), [("0.3", "3000000", "3000001"), ("1300", "13000000000", "13000000001")]
)
def test_the_most_is_the_same_in_every_currency(per_usd: str, most: str, more: str) -> None:
    currency = Currency("KWD", Decimal(per_usd), date(2026, 1, 1))
    assert parse_money(f"{most} KWD", "--purchase", rates=lambda _code: currency).dollars == 10_000_000
    with pytest.raises(InvalidRequest, match="is not a number from 0 to"):
        parse_money(f"{more} KWD", "--purchase", rates=lambda _code: currency)


def test_a_currency_of_which_one_unit_is_worth_more_than_the_most_can_be_typed() -> None:
    gold = Currency("XAU", Decimal("0.00025"), date(2026, 1, 1))
    assert parse_money("0.0001 XAU", "--tariff", most=100, rates=lambda _code: gold) == Money.usd("0.4")
