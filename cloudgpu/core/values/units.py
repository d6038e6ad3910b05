"""Power, energy, the price of energy, and quoted amounts: one type each, so that no two are mixed up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.values.money import NANOS_PER_USD, Money
from cloudgpu.core.values.times import HOUR, MICRO

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency


def hours(duration: timedelta) -> Fraction:
    """Return a duration in hours, exact."""
    return Fraction(duration // MICRO, HOUR // MICRO)


@dataclass(frozen=True, slots=True, order=True)
class Power:
    """Power in watts, exact. Powers add; power over a duration is `Energy`."""

    watts: Fraction

    @classmethod
    def of(cls, watts: Decimal | int | str) -> Power:
        """Return the power of this many watts; raise ValueError unless it is a finite number of at least zero."""
        value = Decimal(watts)
        if not value.is_finite() or value < 0:
            raise ValueError(f"{watts!r} is not a power in watts")
        return cls(Fraction(value))

    def __add__(self, other: Power) -> Power:
        try:
            return Power(self.watts + other.watts)
        except AttributeError:
            return NotImplemented  # another unit: Python raises TypeError

    def times(self, factor: Fraction | int) -> Power:
        """Return a multiple: for several cards, or with an overhead for cooling."""
        return Power(self.watts * factor)

    def over(self, duration: timedelta) -> Energy:
        """Return the energy of this power over a duration."""
        return Energy(self.watts * hours(duration) / 1000)


@dataclass(frozen=True, slots=True, order=True)
class Energy:
    """Energy in kilowatt-hours, exact. Energies add."""

    kwh: Fraction

    def __add__(self, other: Energy) -> Energy:
        try:
            return Energy(self.kwh + other.kwh)
        except AttributeError:
            return NotImplemented  # another unit: Python raises TypeError

    def times(self, factor: Fraction | int) -> Energy:
        """Return a multiple."""
        return Energy(self.kwh * factor)

    def text(self, places: int = 0) -> str:
        """Return `591 kWh`, rounded half-even."""
        return f"{round(Decimal(self.kwh.numerator) / Decimal(self.kwh.denominator), places):,f} kWh"


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a kilowatt-hour costs."""

    per_kwh: Money

    def cost(self, energy: Energy) -> Money:
        """Return what this energy costs, rounded half-even once to a nano-dollar."""
        return self.per_kwh.scaled(energy.kwh)


@dataclass(frozen=True, slots=True)
class QuotedAmount:
    """An amount in the currency in which it was quoted. To add it, convert it first, at its dated rate."""

    value: Decimal
    currency: Currency

    @property
    def in_usd(self) -> Money:
        """The amount in US dollars at the currency's rate, rounded half-even once to a nano-dollar."""
        return Money(round(Fraction(self.value) / Fraction(self.currency.per_usd) * NANOS_PER_USD))

    def __str__(self) -> str:
        """Return the quoted amount with all its digits: `10,000,000 KRW`."""
        return f"{self.value:,f} {self.currency.code}"
