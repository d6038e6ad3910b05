"""Power, energy, the price of energy, and amounts in a stated currency: each a type of its own, so that none mix."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.values.money import Money

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency

_MICRO = timedelta(microseconds=1)
_HOUR = timedelta(hours=1) // _MICRO


def hours(span: timedelta) -> Fraction:
    """Return a span in hours, exact."""
    return Fraction(span // _MICRO, _HOUR)


@dataclass(frozen=True, slots=True, order=True)
class Power:
    """Power in watts, exact. Powers add; power over a time is `Energy`."""

    watts: Fraction

    @classmethod
    def of(cls, watts: Decimal | int | str) -> Power:
        """Return so many watts; raise ValueError for what is no finite number, or below zero."""
        value = Decimal(watts)
        if not value.is_finite() or value < 0:
            message = f"{watts!r} is not a power in watts"
            raise ValueError(message)
        return cls(Fraction(value))

    def __add__(self, other: Power) -> Power:
        try:
            return Power(self.watts + other.watts)
        except AttributeError:
            return NotImplemented  # another unit, where no checker has looked: a TypeError

    def times(self, number: Fraction | int) -> Power:
        """Return so many times as much: of several cards, or with what cooling adds."""
        return Power(self.watts * number)

    def over(self, span: timedelta) -> Energy:
        """Return the energy of this power over a span."""
        return Energy(self.watts * hours(span) / 1000)


@dataclass(frozen=True, slots=True, order=True)
class Energy:
    """Energy in kilowatt-hours, exact. Energies add."""

    kwh: Fraction

    def __add__(self, other: Energy) -> Energy:
        try:
            return Energy(self.kwh + other.kwh)
        except AttributeError:
            return NotImplemented  # another unit, where no checker has looked: a TypeError

    def times(self, number: Fraction | int) -> Energy:
        """Return so many times as much."""
        return Energy(self.kwh * number)

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
class Amount:
    """An amount as it was quoted, in its own currency. It adds to nothing: convert it, at its dated rate, first."""

    value: Decimal
    currency: Currency

    @property
    def dollars(self) -> Money:
        """The amount in US dollars at the currency's rate, rounded half-even once to a nano-dollar."""
        exact = Fraction(self.value) / Fraction(self.currency.per_usd)
        return Money(round(exact * 1_000_000_000))

    def __str__(self) -> str:
        """Return `10,000,000 KRW`: all its digits, as it was quoted."""
        return f"{self.value:,f} {self.currency.code}"
