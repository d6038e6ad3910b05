from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.values.money import ZERO, Money, charge, charges

HOUR = 3_600_000_000
nanos = st.integers(-(10**18), 10**18)
prices = st.integers(0, 10**14).map(Money)
spans = st.integers(0, 10 * 366 * 24 * HOUR)


def half_even(exact: Fraction) -> int:
    """Round as money must be, told in other words than the code's."""
    low = exact.numerator // exact.denominator
    rest = exact - low
    if rest == Fraction(1, 2):
        return low + low % 2
    return low + (rest > Fraction(1, 2))


@given(prices, spans)
def test_a_charge_is_exact_and_rounded_once(price: Money, span: int) -> None:
    assert charge(price, span).nanos == half_even(Fraction(price.nanos * span, HOUR))


@given(prices, st.lists(spans, max_size=8))
def test_cutting_an_interval_changes_nothing(price: Money, cuts: list[int]) -> None:
    assert charges((price, span) for span in cuts) == charge(price, sum(cuts))


@given(prices, spans)
def test_a_charge_is_never_negative_and_never_falls_with_time(price: Money, span: int) -> None:
    assert ZERO <= charge(price, span) <= charge(price, span + 1)


@given(prices)
def test_an_hour_costs_the_hourly_price(price: Money) -> None:
    assert charge(price, HOUR) == price


@given(nanos, st.fractions(-(10**6), 10**6, max_denominator=10**6))
def test_a_part_is_exact_and_rounded_once(amount: int, factor: Fraction) -> None:
    assert Money(amount).scaled(factor).nanos == half_even(amount * factor)
    assert [Money(one).scaled(Fraction(1, 2)).nanos for one in (-3, -1, 1, 3)] == [-2, 0, 0, 2]


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12))
def test_dollars_are_rounded_once_to_a_nano(amount: Decimal) -> None:
    assert Money.usd(amount).nanos == half_even(Fraction(amount) * 10**9)


def test_an_amount_with_more_digits_than_the_decimal_context_is_rounded_once() -> None:
    just_over_half = "0.0000000005" + "0" * 30 + "1"
    assert Money.usd(just_over_half) == Money(1)
    assert Money.usd("0.0000000005") == Money(0)
    assert Money.usd("0.0000000015") == Money(2)


@given(nanos)
def test_dollars_come_back_as_they_went_in(amount: int) -> None:
    assert Money.usd(Money(amount).dollars) == Money(amount)
    assert Money.usd(str(Money(amount).dollars)) == Money(amount)


@given(nanos, nanos)
def test_amounts_add_exactly(one: int, other: int) -> None:
    assert Money(one) + Money(other) - Money(other) == Money(one)
    assert -Money(one) + Money(one) == ZERO
    assert (Money(one) < Money(other)) == (one < other)


@given(nanos, st.integers(0, 6))
def test_shown_money_is_near_and_never_zero_for_something(amount: int, places: int) -> None:
    text = Money(amount).text(places)
    if "<" in text:
        assert 0 < abs(amount) <= 10**9 * Fraction(1, 2 * 10**places)
        return
    shown = Decimal(text.replace("$", "").replace(",", ""))
    assert abs(Fraction(shown) - Fraction(amount, 10**9)) <= Fraction(1, 2 * 10**places)
    assert (shown == 0) == (amount == 0)


@pytest.mark.parametrize(
    ("amount", "text"),
    [("1234.5", "$1,234.50"), ("-0.5", "-$0.50"), ("0", "$0.00"), ("0.001", "<$0.01"), ("-0.001", "-<$0.01")],
)
def test_money_reads_as_people_write_it(amount: str, text: str) -> None:
    assert Money.usd(amount).text() == text


@pytest.mark.parametrize("amount", ["NaN", "sNaN", "Infinity", "-Infinity", "1e18", "1e999999999"])
def test_what_is_no_amount_is_refused(amount: str) -> None:
    with pytest.raises(ValueError, match="is not an amount"):
        Money.usd(amount)


@pytest.mark.parametrize("amount", ["", "abc", "1,5", "$1", "1.2.3"])
def test_what_is_no_number_is_refused(amount: str) -> None:
    with pytest.raises(InvalidOperation):
        Money.usd(amount)


def test_an_endlessly_small_amount_is_nothing_and_is_answered_at_once() -> None:
    assert Money.usd("1e-999999999") == ZERO


def test_money_does_not_mix_with_numbers() -> None:
    with pytest.raises(TypeError):
        _ = Money(1) + 1
    with pytest.raises(TypeError):
        _ = Money(1) < 1
