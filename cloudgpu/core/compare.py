"""What the same hours would cost on an owned desktop: a first, simple figure. Prices the work, not the waiting."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

from cloudgpu.core.money import Money

YEAR = timedelta(days=365)
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Desktop:
    """A desktop that could be bought.

    Watts are taken from the wall: `gpu_watts` plus `rest_watts` while it works, `idle_watts` while it waits
    (0: it is switched off then). `tariff` is the price of a kilowatt-hour. `source` says where the figures come
    from, `as_of` when they were true.
    """

    name: str
    gpu: str
    purchase: Money
    life_years: Decimal
    gpu_watts: Decimal
    rest_watts: Decimal
    idle_watts: Decimal
    tariff: Money
    source: str
    as_of: date


@dataclass(frozen=True, slots=True)
class DesktopCost:
    """What a desktop costs for some work: `kwh` at its tariff, and a share of its price.

    `purchase_share` is straight-line over its life for as long as it is kept; `purchase` is paid on the first day.
    """

    kwh: Decimal
    electricity: Money
    purchase_share: Money
    total: Money
    purchase: Money


def desktop_cost(desktop: Desktop, active: timedelta, elapsed: timedelta) -> DesktopCost:
    """Return what the desktop costs for `active` hours of work within `elapsed`, one GPU counted as fast as another.

    Work of more hours than have elapsed (several machines at once) keeps the desktop busy for all of them.
    Raises ValueError for a negative span.
    """
    if active < timedelta(0) or elapsed < timedelta(0):
        message = f"a span of work cannot be negative: {active}, {elapsed}"
        raise ValueError(message)
    kept = max(active, elapsed)
    kwh = _kwh(desktop.gpu_watts + desktop.rest_watts, active) + _kwh(desktop.idle_watts, kept - active)
    electricity = desktop.tariff.scaled(kwh)
    share = desktop.purchase.scaled(_ratio(kept, YEAR) / Fraction(desktop.life_years))
    return DesktopCost(
        kwh=Decimal(kwh.numerator) / Decimal(kwh.denominator),
        electricity=electricity,
        purchase_share=share,
        total=electricity + share,
        purchase=desktop.purchase,
    )


def _kwh(watts: Decimal, span: timedelta) -> Fraction:
    return Fraction(watts) / 1000 * _ratio(span, HOUR)


def _ratio(span: timedelta, unit: timedelta) -> Fraction:
    tick = timedelta(microseconds=1)
    return Fraction(span // tick, unit // tick)


def said(desktop: Desktop, cost: DesktopCost) -> str:
    """Return the comparison as one sentence for people."""
    years = f"{desktop.life_years.normalize():f}"
    return (
        f"The same hours on an owned desktop ({desktop.gpu}): {_dollars(cost.electricity)} of electricity and "
        f"{_dollars(cost.purchase_share)} of its price over {years} years, "
        f"after {cost.purchase.text(0)} on the first day."
    )


def _dollars(amount: Money) -> str:
    return amount.text(2 if amount >= Money.usd(1) else 4)
