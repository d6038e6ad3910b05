"""Compares renting with owning by a price, a utilization and a desktop alone, without a ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.advice.break_even import (
    CostlierInterval,
    SpendRate,
    break_even_after,
    break_even_by_flat_year,
    break_even_price,
    break_even_utilization,
    costlier_again,
)
from cloudgpu.core.advice.desktop import (
    NO_TERMS,
    YEAR,
    Desktop,
    FinanceTerms,
    OwnershipCost,
    annuity_factor,
    ownership_cost,
    with_market_depreciation,
)
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec
from cloudgpu.core.catalog.gpus import SpeedRatio, Workload
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import DAY, MICRO
from cloudgpu.core.values.units import hours

MONTH = YEAR / 12
MONTHS = (1, 6, 12, 24, 36)  # costs are shown after so many months


class Bound(StrEnum):
    """How a use is given: as one share, or by its bounds."""

    AT = "at"
    UNDER = "under"
    OVER = "over"
    BETWEEN = "between"


@dataclass(frozen=True, slots=True)
class Utilization:
    """How much of the time a machine is used: one share, or both bounds; above 1: several machines."""

    text: str
    bound: Bound
    shares: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Rent:
    """A cloud machine of `gpus` GPUs, its price and use, compared up to `horizon`.

    `spec` is its GPU (None: not given), `matching_gpus` all GPUs that the typed name may mean; `offer` is where the
    price is from (None: it was typed). `substitute_for` is the typed GPU if no cloud sells it: then `spec` replaces it.
    """

    per_hour: Money
    gpus: int
    use: Utilization
    horizon: timedelta
    spec: GpuSpec | None = None
    matching_gpus: tuple[str, ...] = ()
    offer: CatalogOffer | None = None
    substitute_for: GpuSpec | None = None

    @property
    def memory_gib(self) -> float | None:
        """What one GPU of the work may need: that of the GPU that was named, and not of one that stands in for it."""
        spec = self.substitute_for or self.spec
        return None if spec is None else spec.memory_gib


@dataclass(frozen=True, slots=True)
class Calculation:
    """A rented machine compared with a desktop. `desktop_gpu` is the desktop's GPU if the catalogue has it.

    `speed_ratio` is how many hours of one rented GPU an hour of the desktop's GPU replaces. If it only counts them as
    equal, `known_ratio` is the ratio by what is known of both. `work` is None if it was not given. VAT of `terms` is
    already in both prices. `matched_memory_gib` is the memory of the rented GPU if the desktop was chosen to match it.
    `deducts_market_resale`: the desktop is sold at the price of its age.
    """

    desktop: Desktop
    rent: Rent
    desktop_gpu: GpuSpec | None
    speed_ratio: SpeedRatio
    known_ratio: SpeedRatio | None = None
    work: Workload | None = None
    terms: FinanceTerms = NO_TERMS
    matched_memory_gib: float | None = None
    deducts_market_resale: bool = True

    def case_at(self, use: Fraction, ratio: Fraction) -> RentOrBuyCase:
        """Return the case at this use and this speed ratio of the desktop's GPU to a rented one."""
        speed = ratio * Fraction(self.desktop.gpus, self.rent.gpus)
        return RentOrBuyCase(self.desktop, self.rent.per_hour, use, speed, self.terms.growth)

    def with_resale(self, case: RentOrBuyCase) -> RentOrBuyCase:
        """Return the case with the desktop's resale price by age deducted, if that is counted."""
        return replace(case, desktop=with_market_depreciation(self.desktop)) if self.deducts_market_resale else case


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
    def spend_rate(self) -> SpendRate:
        """What each day adds to both."""
        return SpendRate(
            self.per_hour.scaled(24 * self.use), MICRO * round(self.use / self.speed * (DAY // MICRO)), self.growth
        )


@dataclass(frozen=True, slots=True)
class CostsAtTime:
    """What cloud and desktop have cost after a time; `flat`: the desktop with all running costs of each begun year."""

    elapsed: timedelta
    cloud: Money
    owned: OwnershipCost
    flat: Money


@dataclass(frozen=True, slots=True)
class RentOrBuyResult:
    """The result of a case: `year` is what the desktops cost in a year. A time is None for never, a bound for none.

    `break_even` counts by the day, `flat` as published examples do: a whole year's electricity on its first day.
    `costlier` is when the desktop, bought anew, is the more expensive one once more.
    """

    case: RentOrBuyCase
    year: OwnershipCost
    break_even: timedelta | None
    flat: timedelta | None
    break_even_use: Fraction | None
    break_even_price: Money | None
    costlier: CostlierInterval | None

    @property
    def comparison_time(self) -> timedelta | None:
        """A round number of days after both break-evens, at which to compare; not beyond the life of both."""
        times = [one for one in (self.break_even, self.flat) if one is not None]
        if not times:
            return None
        last, life = max(times), self.case.desktop.life
        rounded = (round_days(last, parts) for parts in (2, 10, 100, 1000))
        return next((one for one in rounded if one <= life), life) if last <= life else round_days(last)


def evaluate_case(case: RentOrBuyCase) -> RentOrBuyResult:
    """Return when the two have cost the same, and at which use and price they would over the desktop's life."""
    desktop, spend_rate = case.desktop, case.spend_rate
    break_even = break_even_after(desktop, spend_rate) if spend_rate.cloud else None
    return RentOrBuyResult(
        case=case,
        year=ownership_cost(desktop, YEAR, spend_rate.worked * (YEAR // DAY)),
        break_even=break_even,
        flat=break_even_by_flat_year(desktop, spend_rate),
        break_even_use=break_even_utilization(desktop, case.per_hour, case.speed, case.growth),
        break_even_price=break_even_price(desktop, case.use, case.speed, case.growth),
        costlier=None if break_even is None else costlier_again(desktop, spend_rate, break_even),
    )


def costs_after(case: RentOrBuyCase, elapsed: timedelta, year: OwnershipCost) -> CostsAtTime:
    """Return what either has cost after a time; `year` is what the desktops take in a year."""
    worked = min(MICRO * round(case.use / case.speed * (elapsed // MICRO)), elapsed * year.number)
    cost = ownership_cost(case.desktop, elapsed, worked, year.number)
    years_begun = Fraction(-(-elapsed // YEAR))
    return CostsAtTime(
        elapsed=elapsed,
        cloud=case.per_hour.scaled(case.use * hours(elapsed) * annuity_factor(case.growth, elapsed)),
        owned=cost,
        flat=cost.purchase + (year.electricity + year.maintenance).scaled(years_begun),
    )


@dataclass(frozen=True, slots=True)
class LifetimeCosts:
    """What cloud and desktop cost over a time at whose end the desktop is sold.

    `cheaper_from` is when the desktop becomes and stays cheaper; None if it is not the cheaper one at the end.
    """

    elapsed: timedelta
    costs: CostsAtTime
    cheaper_from: timedelta | None

    @property
    def desktop_is_cheaper(self) -> bool:
        """Whether the desktop has cost less, or as much."""
        return self.costs.owned.total <= self.costs.cloud

    @property
    def difference(self) -> Money:
        """By how much the cheaper one is cheaper."""
        return max(self.costs.owned.total, self.costs.cloud) - min(self.costs.owned.total, self.costs.cloud)


def lifetime_costs(case: RentOrBuyCase, elapsed: timedelta) -> LifetimeCosts:
    """Return what either costs over this time, and from when on the desktop is the cheaper one up to its end."""
    desktop, spend_rate = case.desktop, case.spend_rate
    year = ownership_cost(desktop, YEAR, spend_rate.worked * (YEAR // DAY))
    end_costs = costs_after(case, elapsed, year)
    if end_costs.owned.total > end_costs.cloud:
        return LifetimeCosts(elapsed, end_costs, None)
    cheaper_from = break_even_after(desktop, spend_rate) if spend_rate.cloud else None
    while cheaper_from is not None:
        costlier_interval = costlier_again(desktop, spend_rate, cheaper_from)
        if costlier_interval is None or costlier_interval.until is None or costlier_interval.until > elapsed:
            break
        cheaper_from = costlier_interval.until
    return LifetimeCosts(elapsed, end_costs, cheaper_from if cheaper_from is None else min(cheaper_from, elapsed))


def milestones(life: timedelta, horizon: timedelta, more: Iterable[timedelta] = ()) -> list[timedelta]:
    """Return the times, up to `horizon`, at which the costs of both are shown."""
    times = {MONTH * number for number in MONTHS} | {life, *more}
    return sorted({time for time in times if time < horizon} | {horizon})


def round_days(duration: timedelta, parts: int = 2) -> timedelta:
    """Return the next round number of days, as people would say it: 300 after 292.96, 750 after 722.

    `parts` is how many such numbers there are from 100 to 200 days, and from 1,000 to 2,000.
    """
    days = max(1, -(-duration // DAY))
    step = max(1, int(f"1{'0' * (len(str(days)) - 1)}") // parts)
    return DAY * (-(-days // step) * step)
