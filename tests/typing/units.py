"""Units and currencies never mix: type-checked by a test as strictly as mypy can, and never run."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import assert_type

from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.units import Energy, Power, QuotedAmount, Tariff


def right(money: Money, power: Power, energy: Energy, tariff: Tariff, amount: QuotedAmount) -> None:
    """Make what follows from what."""
    assert_type(power + power.times(Fraction(3, 2)), Power)
    assert_type(power.over(timedelta(hours=1)) + energy, Energy)
    assert_type(money + tariff.cost(energy) - amount.in_usd, Money)
    assert_type(amount.currency.text(money), str)


# Each of these has to need its comment, or mypy complains of the comment.
def wrong(money: Money, power: Power, energy: Energy, tariff: Tariff, amount: QuotedAmount, currency: Currency) -> None:
    """Mix what does not go together."""
    money + energy  # type: ignore[operator]
    money + power  # type: ignore[operator]
    money + amount  # type: ignore[operator]
    money + tariff  # type: ignore[operator]
    money + 1  # type: ignore[operator]
    money - energy  # type: ignore[operator]
    power + energy  # type: ignore[operator]
    power + money  # type: ignore[operator]
    power + 350  # type: ignore[operator]
    energy + power  # type: ignore[operator]
    energy + tariff  # type: ignore[operator]
    amount + amount  # type: ignore[operator]
    amount + money  # type: ignore[operator]
    tariff + tariff  # type: ignore[operator]
    bool(power < energy)  # type: ignore[operator]
    bool(money > energy)  # type: ignore[operator]
    tariff.cost(power)  # type: ignore[arg-type]
    tariff.cost(money)  # type: ignore[arg-type]
    power.over(energy)  # type: ignore[arg-type]
    Tariff(amount)  # type: ignore[arg-type]
    currency.text(amount)  # type: ignore[arg-type]
    amount.currency.convert(energy)  # type: ignore[arg-type]
    energy * tariff  # type: ignore[operator]
