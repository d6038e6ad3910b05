"""Rent or own, without a ledger: a price, a use and a desktop, and what follows from them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.advice.break_even import (
    DAY,
    MICRO,
    CostlierInterval,
    SpendRate,
    break_even_after,
    break_even_by_flat_year,
    break_even_price,
    break_even_utilization,
    costlier_again,
)
from cloudgpu.core.advice.desktop import YEAR, Desktop, OwnershipCost, ownership_cost, sold_by_age
from cloudgpu.core.advice.present_value import NO_TERMS, Terms, annuity_factor
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec
from cloudgpu.core.catalog.gpus import Faster, Work
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.units import hours

MONTH = YEAR / 12
MONTHS = (1, 6, 12, 24, 36)  # after so many it is said what either has cost


class Bound(StrEnum):
    """How a use is known."""

    AT = "at"
    UNDER = "under"
    OVER = "over"
    BETWEEN = "between"


@dataclass(frozen=True, slots=True)
class Use:
    """How much of the time a machine is used: one share, or both bounds; above 1: several machines."""

    asked: str
    bound: Bound
    shares: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Rent:
    """A cloud machine of `gpus` GPUs, used so, looked at up to `horizon`.

    `spec` is its GPU (None: not said), `means` all that the spelling means; `offer` is where the price is from (None:
    it was typed). `instead_of` is the GPU that was named, where no cloud sells it and this one stands in.
    """

    per_hour: Money
    gpus: int
    use: Use
    horizon: timedelta
    spec: GpuSpec | None = None
    means: tuple[str, ...] = ()
    offer: CatalogOffer | None = None
    instead_of: GpuSpec | None = None

    @property
    def memory_gib(self) -> float | None:
        """What one GPU of the work may need: that of the GPU that was named, and not of one that stands in for it."""
        named = self.instead_of or self.spec
        return None if named is None else named.memory_gib


@dataclass(frozen=True, slots=True)
class Calculation:
    """A rent beside a desktop. `own` is the desktop's GPU where the catalogue knows it.

    `main` is how many hours of one rented GPU one of the desktop's does, `beside` the same by what is known of both,
    where `main` only counts them as equal. `work` is None where it was not said. `terms` are already in the prices of
    both where they are VAT. `chosen_for` is the memory of the rented GPU, where the desktop was chosen to match it.
    `sells` is whether what a used desktop brings is counted by its age.
    """

    desktop: Desktop
    rent: Rent
    own: GpuSpec | None
    main: Faster
    beside: Faster | None = None
    work: Work | None = None
    terms: Terms = NO_TERMS
    chosen_for: float | None = None
    sells: bool = True

    def question(self, use: Fraction, ratio: Fraction) -> RentOrBuyCase:
        """Return one case: at this use, a GPU of the desktop doing so many hours of a rented one."""
        speed = ratio * Fraction(self.desktop.gpus, self.rent.gpus)
        return RentOrBuyCase(self.desktop, self.rent.per_hour, use, speed, self.terms.growth)

    def sold(self, question: RentOrBuyCase) -> RentOrBuyCase:
        """Return the case with what the desktop brings at its age taken off, where that is counted."""
        return replace(question, desktop=sold_by_age(self.desktop)) if self.sells else question


@dataclass(frozen=True, slots=True)
class RentOrBuyCase:
    """A cloud machine at a price `per_hour` that runs for `use` of the time (above 1: several), and a desktop.

    `speed` is how many of the machine's hours an hour of the desktop does, `growth` by what share the price grows in a
    year, in today's money.
    """

    desktop: Desktop
    per_hour: Money
    use: Fraction
    speed: Fraction
    growth: Fraction = Fraction(0)

    @property
    def pace(self) -> SpendRate:
        """What each day adds to both."""
        return SpendRate(
            self.per_hour.scaled(24 * self.use), MICRO * round(self.use / self.speed * (DAY // MICRO)), self.growth
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """What either has cost after a time; `flat` is the desktop with all begun years' electricity and maintenance."""

    elapsed: timedelta
    cloud: Money
    owned: OwnershipCost
    flat: Money


@dataclass(frozen=True, slots=True)
class Answer:
    """What follows: `year` is what the desktops take in a year; times are None for never, bounds for none.

    `break_even` counts by the day, `flat` as published examples do: a whole year's electricity on its first day.
    `again` is when the desktop, bought anew, is the more expensive one once more.
    """

    question: RentOrBuyCase
    year: OwnershipCost
    break_even: timedelta | None
    flat: timedelta | None
    even_use: Fraction | None
    even_price: Money | None
    again: CostlierInterval | None

    @property
    def after(self) -> timedelta | None:
        """A round number of days after both break-evens, at which to compare; not beyond the life of both."""
        times = [one for one in (self.break_even, self.flat) if one is not None]
        if not times:
            return None
        last, life = max(times), self.question.desktop.life
        rounded = (round_days(last, parts) for parts in (2, 10, 100, 1000))
        return next((one for one in rounded if one <= life), life) if last <= life else round_days(last)


def answer_question(question: RentOrBuyCase) -> Answer:
    """Return when the two have cost the same, and at which use and price they would over the desktop's life."""
    desktop, pace = question.desktop, question.pace
    found = break_even_after(desktop, pace) if pace.cloud else None
    return Answer(
        question=question,
        year=ownership_cost(desktop, YEAR, pace.worked * (YEAR // DAY)),
        break_even=found,
        flat=break_even_by_flat_year(desktop, pace),
        even_use=break_even_utilization(desktop, question.per_hour, question.speed, question.growth),
        even_price=break_even_price(desktop, question.use, question.speed, question.growth),
        again=None if found is None else costlier_again(desktop, pace, found),
    )


def costs_after(question: RentOrBuyCase, elapsed: timedelta, year: OwnershipCost) -> Mark:
    """Return what either has cost after a time; `year` is what the desktops take in a year."""
    worked = min(MICRO * round(question.use / question.speed * (elapsed // MICRO)), elapsed * year.number)
    cost = ownership_cost(question.desktop, elapsed, worked, year.number)
    begun = Fraction(-(-elapsed // YEAR))
    return Mark(
        elapsed=elapsed,
        cloud=question.per_hour.scaled(question.use * hours(elapsed) * annuity_factor(question.growth, elapsed)),
        owned=cost,
        flat=cost.purchase + (year.electricity + year.maintenance).scaled(begun),
    )


@dataclass(frozen=True, slots=True)
class LifetimeCosts:
    """What either costs over a time at whose end the desktop is sold.

    `since` is from when on the desktop stays cheaper; None where the desktop is not the cheaper one at the end.
    """

    elapsed: timedelta
    mark: Mark
    since: timedelta | None

    @property
    def desktop_is_cheaper(self) -> bool:
        """Whether the desktop has cost less, or as much."""
        return self.mark.owned.total <= self.mark.cloud

    @property
    def difference(self) -> Money:
        """By how much the cheaper one is cheaper."""
        return max(self.mark.owned.total, self.mark.cloud) - min(self.mark.owned.total, self.mark.cloud)


def lifetime_costs(question: RentOrBuyCase, elapsed: timedelta) -> LifetimeCosts:
    """Return what either costs over this time, and from when on the desktop is the cheaper one up to its end."""
    desktop, pace = question.desktop, question.pace
    year = ownership_cost(desktop, YEAR, pace.worked * (YEAR // DAY))
    found = costs_after(question, elapsed, year)
    if found.owned.total > found.cloud:
        return LifetimeCosts(elapsed, found, None)
    since = break_even_after(desktop, pace) if pace.cloud else None
    while since is not None:
        again = costlier_again(desktop, pace, since)
        if again is None or again.until is None or again.until > elapsed:
            break
        since = again.until
    return LifetimeCosts(elapsed, found, since if since is None else min(since, elapsed))


def milestones(life: timedelta, horizon: timedelta, more: Iterable[timedelta] = ()) -> list[timedelta]:
    """Return the times, up to `horizon`, after which it is said what either has cost."""
    times = {MONTH * number for number in MONTHS} | {life, *more}
    return sorted({one for one in times if one < horizon} | {horizon})


def round_days(span: timedelta, parts: int = 2) -> timedelta:
    """Return the next round number of days, as people would say it: 300 after 292.96, 750 after 722.

    `parts` is how many such numbers there are from 100 to 200 days, and from 1,000 to 2,000.
    """
    days = max(1, -(-span // DAY))
    step = max(1, int(f"1{'0' * (len(str(days)) - 1)}") // parts)
    return DAY * (-(-days // step) * step)
