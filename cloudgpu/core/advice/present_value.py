"""Money over time: what later amounts are worth today, and what a price that drifts adds up to. Pure, by Decimal.

A rate is a share a year: 0.05 is 5%. At a rate of zero every factor is exactly one, so that nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Context, Decimal
from fractions import Fraction

A_YEAR = timedelta(days=365)
_MICRO = timedelta(microseconds=1)
_EXACT = Context(prec=40)
NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class Terms:
    """What money does over time: the `interest` and the `drift` of cloud prices a year, and `vat` on what is bought."""

    interest: Fraction = NOTHING
    drift: Fraction = NOTHING
    vat: Fraction = NOTHING

    @property
    def growth(self) -> Fraction:
        """By what share a cloud's price grows a year in today's money: (1 + drift) / (1 + interest) - 1."""
        return (1 + self.drift) / (1 + self.interest) - 1


NO_TERMS = Terms()


def years_of(elapsed: timedelta) -> Decimal:
    """Return a span in years of 365 days."""
    return _EXACT.divide(Decimal(elapsed // _MICRO), Decimal(A_YEAR // _MICRO))


def discount(interest: Fraction, elapsed: timedelta) -> Fraction:
    """Return what a dollar that is paid after this time is worth today: 1 / (1 + interest) ** years.

    The textbook formula of present value (Brealey, Myers and Allen, Principles of Corporate Finance, chapter 2).
    """
    if not interest or not elapsed:
        return Fraction(1)
    return Fraction(_EXACT.power(_decimal(1 + interest), -years_of(elapsed)))


def annuity_factor(growth: Fraction, elapsed: timedelta) -> Fraction:
    """Return how many times its present pace a steady payment comes to, on average over this time.

    A payment that grows by g a year adds up to ((1 + g) ** t - 1) / ln(1 + g) years of its first pace after t years:
    the integral of (1 + g) ** s from 0 to t, the growing annuity that is paid without pause (the same book). This is
    that sum divided by t. For running costs g is 1 / (1 + interest) - 1.
    """
    if not growth or not elapsed:
        return Fraction(1)
    rate, span = _decimal(1 + growth), years_of(elapsed)
    log = _EXACT.ln(rate)
    grown = _EXACT.subtract(_EXACT.power(rate, span), Decimal(1))
    return Fraction(_EXACT.divide(grown, _EXACT.multiply(log, span)))


def discount_growth(interest: Fraction) -> Fraction:
    """Return the yearly growth that running costs have in today's money, their price staying as it is."""
    return 1 / (1 + interest) - 1


def _decimal(share: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(share.numerator), Decimal(share.denominator))
