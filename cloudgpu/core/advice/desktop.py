"""The cost of owning a desktop in today's money, and discounts of one- and three-year commitments.

Owning costs what is paid for the desktop, less what it is still worth. Little is known of committed prices, and none is
guessed. A rate is a share a year: 0.05 is 5%. At a rate of zero every factor is exactly one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Context, Decimal
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.catalog.catalog import CatalogOffer
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import MICRO
from cloudgpu.core.values.units import Energy, Power, QuotedAmount, Tariff, hours

YEAR = timedelta(days=365)
_CONTEXT = Context(prec=40)
NO_RATE = Fraction(0)


@dataclass(frozen=True, slots=True)
class FinanceTerms:
    """Rates a year: `interest` (the discount rate), `drift` (the change of cloud prices); `vat` on purchases."""

    interest: Fraction = NO_RATE
    drift: Fraction = NO_RATE
    vat: Fraction = NO_RATE

    @property
    def growth(self) -> Fraction:
        """By what share a cloud's price grows a year in today's money: (1 + drift) / (1 + interest) - 1."""
        return (1 + self.drift) / (1 + self.interest) - 1


NO_TERMS = FinanceTerms()


def years_of(elapsed: timedelta) -> Decimal:
    """Return a duration in years of 365 days."""
    return _CONTEXT.divide(Decimal(elapsed // MICRO), Decimal(YEAR // MICRO))


def discount(interest: Fraction, elapsed: timedelta) -> Fraction:
    """Return what a dollar that is paid after this time is worth today: 1 / (1 + interest) ** years.

    The textbook formula of present value (Brealey, Myers and Allen, Principles of Corporate Finance, chapter 2).
    """
    if not interest or not elapsed:
        return Fraction(1)
    return Fraction(_CONTEXT.power(_decimal(1 + interest), -years_of(elapsed)))


def annuity_factor(growth: Fraction, elapsed: timedelta) -> Fraction:
    """Return the average of a steady payment over this time, as a multiple of its present rate.

    A payment that grows by g a year adds up to ((1 + g) ** t - 1) / ln(1 + g) years at its first rate after t years:
    the integral of (1 + g) ** s from 0 to t, the growing annuity that is paid without pause (the same book). This is
    that sum divided by t. For running costs g is 1 / (1 + interest) - 1.
    """
    if not growth or not elapsed:
        return Fraction(1)
    rate, years = _decimal(1 + growth), years_of(elapsed)
    log = _CONTEXT.ln(rate)
    growth_factor = _CONTEXT.subtract(_CONTEXT.power(rate, years), Decimal(1))
    return Fraction(_CONTEXT.divide(growth_factor, _CONTEXT.multiply(log, years)))


def discount_growth(interest: Fraction) -> Fraction:
    """Return the yearly growth that running costs have in today's money, their price staying as it is."""
    return 1 / (1 + interest) - 1


def _decimal(share: Fraction) -> Decimal:
    return _CONTEXT.divide(Decimal(share.numerator), Decimal(share.denominator))


# Where the discounts of `_PUBLISHED` are from.
COMMITMENT_DISCOUNT_SOURCE = "Cyclenerd google-cloud-pricing-cost-calculator pricing.yml, as of 2025-03-06"


class Term(StrEnum):
    """The term of a commitment."""

    ONE_YEAR = "1y"
    THREE_YEARS = "3y"


@dataclass(frozen=True, slots=True)
class Committed:
    """A commitment: a term whose price has to be known, or the percentage that somebody was quoted."""

    term: Term | None
    percent: Fraction | None

    @property
    def text(self) -> str:
        """The term or percentage as it was typed."""
        return str(self.term) if self.percent is None else f"{float(self.percent):g}%"


# Percent off the price on demand, by (provider, type, region): 2681.57 USD a month are 1689.37 and 938.57.
_PUBLISHED = {
    ("gcp", "a2-highgpu-1g", "us-central1"): {Term.ONE_YEAR: Fraction(37), Term.THREE_YEARS: Fraction(65)},
}


def percent_off(committed: Committed, offer: CatalogOffer) -> Fraction | None:
    """Return how many percent of an offer's price come off; None where nobody has published it here."""
    if committed.term is None:
        return committed.percent
    machine_type = offer.type
    return _PUBLISHED.get((machine_type.provider, machine_type.name, offer.listed.region), {}).get(committed.term)


class Depreciation(StrEnum):
    """How a desktop's remaining value is calculated."""

    NONE = "none"  # as it is paid: all of it on the first day, its resale at the end of its life
    STRAIGHT = "straight-line"  # it loses the same each day, down to its resale
    DECLINING = "declining"  # it loses the same part of what it is worth each year, not below its resale
    MARKET = "market"  # it sells as a used one: USED_SHARE of its price at once, and USED_LOSS less each year


# By the ten cards of gpus.csv that have a launch price and street prices (undated table of 2025), the middle of each:
# a used one costs 73% of a new one, and the price of a new one fell by 9% a year since its launch.
USED_SHARE = Fraction(73, 100)
USED_LOSS = Fraction(9, 100)
USED_SOURCE = (
    "derived from ten cards with a launch price and street prices in an undated table of 2025: a used one costs 73% of "
    "a new one, and prices fall by 9% a year"
)


@dataclass(frozen=True, slots=True)
class Desktop:
    """A desktop that could be bought. Powers are taken from the wall.

    `gpu` is a name of the catalogue, `gpus` how many cards (GPUs); `gpu_power` is that of one card at work,
    `rest_power` of everything else while they work, `idle_power` of all of it while it waits (0: it is switched off
    then). `pue` is what a kilowatt-hour of the machine takes with cooling (power usage effectiveness, 1: none).
    `maintenance` is paid a year. After `life` it is sold for `resale` and bought anew. `yearly_loss` is what part of
    its worth it loses a year where depreciation is declining. `purchase_in_currency` is the purchase as the source has
    it, None where that is in dollars. `resale_known`: a resale was given, perhaps zero; `interest` is the cost of
    capital a year. `computers` is how many computers the cards are in.
    """

    name: str
    gpu: str
    gpus: int
    purchase: Money
    life: timedelta
    gpu_power: Power
    rest_power: Power
    idle_power: Power
    tariff: Tariff
    source: str
    as_of: date
    resale: Money = ZERO
    depreciation: Depreciation = Depreciation.NONE
    yearly_loss: Fraction = Fraction(0)
    pue: Fraction = Fraction(1)
    maintenance: Money = ZERO
    purchase_in_currency: QuotedAmount | None = None
    resale_known: bool = False
    interest: Fraction = Fraction(0)
    computers: int = 1

    @property
    def busy_power(self) -> Power:
        """What it takes while all its cards work, with its cooling."""
        return (self.gpu_power.times(self.gpus) + self.rest_power).times(self.pue)

    @property
    def waiting_power(self) -> Power:
        """What it takes while it waits, with its cooling."""
        return self.idle_power.times(self.pue)

    @property
    def sold_for(self) -> Money:
        """What it is sold for at the end of its life: what it is still worth then, and its resale at least."""
        return self.worth(self.life)

    def worth(self, age: timedelta) -> Money:
        """Return what it could be sold for at this age, by its depreciation.

        Where that is not counted, its resale at the end of its life and nothing before.
        """
        if self.depreciation is Depreciation.NONE:
            return self.resale if age >= self.life else ZERO
        if self.depreciation is Depreciation.STRAIGHT:
            remaining_life_share = 1 - min(Fraction(1), Fraction(age // MICRO, self.life // MICRO))
            return self.resale + (self.purchase - self.resale).scaled(remaining_life_share)
        if self.depreciation is Depreciation.MARKET:
            return self._used_price(age)
        return max(self.resale, self.purchase.scaled(_remaining_share(self.yearly_loss, age)))

    def _used_price(self, age: timedelta) -> Money:
        """Return a used one's price: by the market's rule, or linearly down to a known resale price at its end."""
        used = self.purchase.scaled(USED_SHARE)
        if not (self.resale_known or self.resale):
            return used.scaled(_remaining_share(USED_LOSS, age))
        remaining_life_share = 1 - min(Fraction(1), Fraction(age // MICRO, self.life // MICRO))
        return self.resale + (max(used, self.resale) - self.resale).scaled(remaining_life_share)


def _remaining_share(yearly_loss: Fraction, age: timedelta) -> Fraction:
    """Return the share of the value that is left at this age, at a constant yearly loss."""
    years, remaining = years_of(age), _decimal(1 - yearly_loss)
    return Fraction(_CONTEXT.power(remaining, years)) if remaining or years else Fraction(1)


@dataclass(frozen=True, slots=True)
class OwnershipCost:
    """What desktops cost up to a time: `number` of them kept busy for `worked` in all.

    `purchase` is all that was paid for machines, less what ended ones were sold for; `worth` what the present ones
    could still be sold for, by the depreciation.
    """

    number: int
    worked: timedelta
    energy: Energy
    purchase: Money
    electricity: Money
    maintenance: Money
    worth: Money

    @property
    def total(self) -> Money:
        """What has been paid, less what they are worth."""
        return self.purchase + self.electricity + self.maintenance - self.worth


def ownership_cost(
    desktop: Desktop, elapsed: timedelta, busy_time: timedelta, number: int | None = None
) -> OwnershipCost:
    """Return the cost of desktops that were owned for `elapsed` and worked for `busy_time` (the sum of all of them).

    Without `number`, as many as `desktops_needed`. At the very end of a life the old one is not yet replaced. Raises
    ValueError for a negative duration, or if so many could not have done the work.
    """
    if busy_time < timedelta(0) or elapsed < timedelta(0):
        raise ValueError(f"a span cannot be negative: {busy_time}, {elapsed}")
    number = desktops_needed(elapsed, busy_time) if number is None else number
    if busy_time > elapsed * number:
        raise ValueError(f"{number} desktops do not work for {busy_time} within {elapsed}")
    ended_lives = max(0, -(-elapsed // desktop.life) - 1) if elapsed else 0
    age = elapsed - ended_lives * desktop.life
    energy = desktop.busy_power.over(busy_time) + desktop.waiting_power.over(elapsed * number - busy_time)
    annuity = annuity_factor(discount_growth(desktop.interest), elapsed)
    return OwnershipCost(
        number=number,
        worked=busy_time,
        energy=energy,
        purchase=_purchase_cost(desktop, ended_lives).scaled(Fraction(number)),
        electricity=desktop.tariff.cost(energy).scaled(annuity),
        maintenance=desktop.maintenance.scaled(number * hours(elapsed) / hours(YEAR) * annuity),
        worth=desktop.worth(age).scaled(number * discount(desktop.interest, elapsed)),
    )


def _purchase_cost(desktop: Desktop, ended_lives: int) -> Money:
    """Return what one desktop and those that replaced it cost, less what ended ones were sold for; in today's money."""
    if not desktop.interest:
        return desktop.purchase.scaled(Fraction(ended_lives + 1)) - desktop.sold_for.scaled(Fraction(ended_lives))
    replacements = sum(
        (discount(desktop.interest, desktop.life * each) for each in range(1, ended_lives + 1)), Fraction(0)
    )
    return desktop.purchase + (desktop.purchase - desktop.sold_for).scaled(replacements)


def desktops_needed(elapsed: timedelta, busy_time: timedelta) -> int:
    """Return how many desktops do so much work within a time: one at least."""
    return max(1, -(-busy_time // elapsed)) if elapsed else 1


def years(number: Decimal) -> timedelta:
    """Return so many years of 365 days, exact to a microsecond."""
    return MICRO * round(Fraction(number) * (YEAR // MICRO))


def with_market_depreciation(desktop: Desktop) -> Desktop:
    """Return the desktop with its resale price by age deducted; unchanged if it has a depreciation already."""
    if desktop.depreciation is not Depreciation.NONE:
        return desktop
    return replace(desktop, depreciation=Depreciation.MARKET)


def multiply_desktop(desktop: Desktop, number: int) -> Desktop:
    """Return so many of the same desktops as a single one."""
    factor = Fraction(number)
    return replace(
        desktop,
        gpus=desktop.gpus * number,
        computers=desktop.computers * number,
        purchase=desktop.purchase.scaled(factor),
        resale=desktop.resale.scaled(factor),
        maintenance=desktop.maintenance.scaled(factor),
        rest_power=desktop.rest_power.times(number),
        idle_power=desktop.idle_power.times(number),
        purchase_in_currency=None,
    )


def with_terms(desktop: Desktop, interest: Fraction, vat: Fraction) -> Desktop:
    """Return the desktop with VAT on its purchase, electricity and maintenance, and with a cost of capital.

    What it is sold for has no VAT of its own: a private seller adds none, and a typed resale is what is received.
    """
    gross = 1 + vat
    return replace(
        desktop,
        purchase=desktop.purchase.scaled(gross),
        maintenance=desktop.maintenance.scaled(gross),
        tariff=Tariff(desktop.tariff.per_kwh.scaled(gross)),
        interest=interest,
    )
