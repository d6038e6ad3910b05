"""Money as whole nano-dollars: exact inside, `Decimal` USD at the edges, rounded once at display."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

NANOS_PER_USD = 1_000_000_000
HOUR_MICROS = 3_600_000_000  # microseconds in an hour
_MAX_DIGITS = 18  # before the decimal point: no bill has more, and a number without limit could fill the memory


@dataclass(frozen=True, slots=True, order=True)
class Money:
    """An amount in nano-dollars (1e-9 USD). Amounts add and compare; they never mix with numbers."""

    nanos: int

    @classmethod
    def usd(cls, amount: Decimal | int | str) -> Money:
        """Return `amount` US dollars, rounded half-even to a nano-dollar.

        Raises `decimal.InvalidOperation` for text that is no number and `ValueError` for NaN, infinity or an
        amount of 10^18 dollars and more.
        """
        value = Decimal(amount)
        if not value.is_finite() or value.adjusted() >= _MAX_DIGITS:
            raise ValueError(f"{amount!r} is not an amount below 10^{_MAX_DIGITS} dollars")
        if value.adjusted() < -_MAX_DIGITS:
            return cls(0)  # without the fraction, whose denominator could fill the memory
        numerator, denominator = value.as_integer_ratio()
        return cls(half_even(numerator * NANOS_PER_USD, denominator))

    def __add__(self, other: Money) -> Money:
        try:
            return Money(self.nanos + other.nanos)
        except AttributeError:
            return NotImplemented  # not Money: Python raises TypeError

    def __sub__(self, other: Money) -> Money:
        try:
            return Money(self.nanos - other.nanos)
        except AttributeError:
            return NotImplemented  # not Money: Python raises TypeError

    def __neg__(self) -> Money:
        return Money(-self.nanos)

    def __bool__(self) -> bool:
        return self.nanos != 0

    @property
    def dollars(self) -> Decimal:
        """The exact amount in US dollars."""
        return Decimal(self.nanos) / NANOS_PER_USD

    def scaled(self, factor: Fraction) -> Money:
        """Return the amount times an exact factor, rounded half-even once."""
        return Money(half_even(self.nanos * factor.numerator, factor.denominator))

    def text(self, places: int = 2) -> str:
        """Return `$1.23`, rounded half-even to `places`; a non-zero amount is never shown as zero."""
        rounded = round(self.dollars, places)
        if self.nanos and not rounded:
            return f"{'-' if self.nanos < 0 else ''}<${Decimal(1).scaleb(-places):f}"
        return f"{'-' if rounded < 0 else ''}${abs(rounded):,.{places}f}"


ZERO = Money(0)


def usd(amount: Money) -> str:
    """Return an exact amount as plain decimal text in USD, without exponent."""
    dollars, nanos = divmod(abs(amount.nanos), NANOS_PER_USD)
    text = f"{'-' if amount.nanos < 0 else ''}{dollars}"
    return f"{text}.{nanos:09d}".rstrip("0") if nanos else text


def charge(per_hour: Money, micros: int) -> Money:
    """Return what `micros` microseconds cost at `per_hour`, exact and rounded half-even once to a nano-dollar."""
    return charges([(per_hour, micros)])


def charges(intervals: Iterable[tuple[Money, int]]) -> Money:
    """Return what intervals, each (price per hour, microseconds), cost together, exact and rounded half-even once."""
    return Money(half_even(sum(per_hour.nanos * micros for per_hour, micros in intervals), HOUR_MICROS))


def half_even(numerator: int, denominator: int) -> int:
    """Return a quotient rounded half-even, like `round` of a Fraction but faster; the denominator is positive."""
    quotient, remainder = divmod(numerator, denominator)
    return quotient + (2 * remainder > denominator or (2 * remainder == denominator and quotient & 1))


def hours_text(micros: int) -> str:
    """Return microseconds as decimal hours, rounded half-even to a hundred-millionth (36 microseconds)."""
    return usd(Money(10 * half_even(micros * 10**8, HOUR_MICROS)))
