"""Plans desktops that could be built around a card, and says from when on one is cheaper than renting.

It also says what several cards in one desktop ask of its power supply and of the wall.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.advice.break_even import (
    CostlierInterval,
    SpendRate,
    break_even_after,
    break_even_utilization,
    costlier_again,
)
from cloudgpu.core.advice.desktop import Depreciation, Desktop, desktops_needed, with_market_depreciation
from cloudgpu.core.advice.recommend import FittingOffer, WorkNeeds, exclusion_reason
from cloudgpu.core.advice.rent_or_buy import LifetimeCosts, RentOrBuyCase, lifetime_costs
from cloudgpu.core.advice.workloads import Figures
from cloudgpu.core.catalog.catalog import CardPrices, GpuSpec, Speed, decoding_speed
from cloudgpu.core.catalog.gpus import SpeedRatio, Workload, speed_ratio
from cloudgpu.core.values.money import NANOS_PER_USD, ZERO, Money
from cloudgpu.core.values.times import DAY, MICRO
from cloudgpu.core.values.units import Power

WEEK_HOURS = 168


class PriceKind(StrEnum):
    """Which price of a card is meant."""

    USED = "used"
    NEW = "new"
    LAUNCH = "at its launch"
    YOURS = "yours"  # the user gave it


class Verdict(StrEnum):
    """What is cheaper for the expected hours."""

    RENT = "rent"
    BUY = "buy"
    EITHER = "either"  # the hours are not known, or only one of both is there to choose


@dataclass(frozen=True, slots=True)
class Build:
    """A desktop with so many cards, each bought for `price`, which is as of `dated` (text).

    `per_dollar` is its speed (in H100s) per dollar.
    """

    spec: GpuSpec
    cards: int
    price_kind: PriceKind
    price: Money
    dated: str
    desktop: Desktop
    per_dollar: float | None = None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """When a desktop and a machine have cost the same, where the machine is used for so many hours a week.

    `speed` is how many of the machine's hours an hour of the desktop does, `speed_ratio` the same for one GPU, with its
    range. For a use of `hours` a week both have cost the same `after` this time, at the `soonest` or `latest` by the
    range of the speed ratio (None: never, or the hours are not known); here the desktop is never sold, and `desktops`
    is how many the hours need. `costlier` is when a replaced desktop costs more once again. From `weekly_hours` on, the
    desktop is cheaper over its life, sold at its end as `compare` counts it; None where it never is. `over_life` is
    what either costs over that life.
    """

    speed_ratio: SpeedRatio
    speed: Fraction
    weekly_hours: Fraction | None
    hours: Fraction | None = None
    after: timedelta | None = None
    soonest: timedelta | None = None
    latest: timedelta | None = None
    desktops: int = 1
    costlier: CostlierInterval | None = None
    over_life: LifetimeCosts | None = None


def possible_builds(specs: Iterable[GpuSpec], need: WorkNeeds, base: Desktop, figures: Figures) -> list[Build]:
    """Return the desktops that hold the work, one for each price of a card, the most work per dollar first.

    `base` is the desktop whose other figures they have: power of the rest, tariff, life. One card that holds it is
    taken in place of several, and fewer come before more. Where the speed of one of them was not measured, all are
    compared by decoding speed.
    """
    builds = [one for spec in specs for one in _builds_of_card(spec, need, base, figures)]
    single = [one for one in builds if one.cards == 1]
    chosen = single if single and need.cards is None else builds
    measured = need.work is Workload.TRAINING and all(one.spec.trains_vs_h100 is not None for one in chosen)
    scored = [_with_speed(one, need.speed(one.spec) if measured else decoding_speed(one.spec)) for one in chosen]
    return sorted(scored, key=lambda one: (one.cards, -(one.per_dollar or 0.0), one.desktop.purchase, one.spec.name))


def _with_speed(build: Build, speed: Speed | None) -> Build:
    price = float(build.desktop.purchase.dollars)
    return replace(build, per_dollar=None if speed is None else speed.vs_h100 * build.cards / price)


def _builds_of_card(spec: GpuSpec, need: WorkNeeds, base: Desktop, figures: Figures) -> Iterator[Build]:
    number = need.min_gpus(spec.memory_gib, int(figures.most_cards.value))
    if spec.card_prices is None or number is None or spec.watts is None or exclusion_reason(spec, need, figures):
        return
    other_parts = Money(round(figures.base_machine_usd.value * NANOS_PER_USD))
    for price_kind, price in _prices(spec.card_prices):
        desktop = replace(
            base,
            name=f"{number}x {spec.name}",
            gpu=spec.name,
            gpus=number,
            purchase=price.scaled(Fraction(number)) + other_parts,
            purchase_in_currency=None,
            gpu_power=Power.of(str(spec.watts)),
            resale=ZERO,
            resale_known=False,
            depreciation=Depreciation.NONE,
            source=f"{spec.name} {price_kind}: {spec.card_prices.dated}; "
            f"the rest: {figures.base_machine_usd.source.text}",
            as_of=spec.card_prices.as_of.date(),
        )
        yield Build(spec, number, price_kind, price, spec.card_prices.dated, desktop)


def _prices(card: CardPrices) -> list[tuple[PriceKind, Money]]:
    """Return the user's price; else the street prices that are known, and that of the launch where none is."""
    if card.users_own is not None:
        return [(PriceKind.YOURS, card.users_own)]
    street = ((PriceKind.USED, card.used), (PriceKind.NEW, card.new), (PriceKind.LAUNCH, card.at_launch))
    listed = [(kind, price) for kind, price in street if price is not None]
    return [one for one in listed if one[0] is not PriceKind.LAUNCH] or listed


def desktop_break_even(
    build: Build, machine: FittingOffer, need: WorkNeeds, hours: Fraction | None
) -> BreakEven | None:
    """Return when desktop and machine have cost the same; None if their relative speed is not known."""
    ratio = speed_ratio(build.spec, machine.spec, need.work)
    if ratio is None:
        return None
    scale = build.cards / machine.whole_gpus
    speed = ratio.ratio * scale
    sold_desktop = with_market_depreciation(build.desktop)
    share = break_even_utilization(sold_desktop, machine.price, speed)
    break_even = BreakEven(ratio, speed, None if share is None else share * WEEK_HOURS, hours)
    if hours is None:
        return break_even
    after, soonest, latest = (
        break_even_after(build.desktop, spend_rate(machine, one * scale, hours))
        for one in (ratio.ratio, ratio.high, ratio.low)
    )
    pace = spend_rate(machine, speed, hours)
    costlier_interval = None if after is None else costlier_again(build.desktop, pace, after)
    number = desktops_needed(DAY, pace.worked)
    costs = lifetime_costs(RentOrBuyCase(sold_desktop, machine.price, hours / WEEK_HOURS, speed), sold_desktop.life)
    return replace(
        break_even,
        after=after,
        soonest=soonest,
        latest=latest,
        desktops=number,
        costlier=costlier_interval,
        over_life=costs,
    )


def spend_rate(machine: FittingOffer, speed: Fraction, hours: Fraction) -> SpendRate:
    """Return what a day adds where the machine is used for so many hours a week."""
    worked = MICRO * round(hours / 7 / speed * (timedelta(hours=1) // MICRO))
    return SpendRate(machine.price.scaled(hours / 7), worked)


class Circuit(StrEnum):
    """Whether a household circuit in the USA can supply the desktop."""

    CARRIES = "carries it"
    NOT_FOR_LONG = "is not rated for it for hours"
    NOT = "is not rated for it"


@dataclass(frozen=True, slots=True)
class PowerSupply:
    """The power supply that a desktop needs. `draw` is the sum of what its parts take at full load.

    `low` to `high` is the rated output of a supply that suits it. `wall` is the draw with the supply's losses, which is
    what a circuit has to supply. `continuous` is what the circuit carries for three hours and more, `breaker` what it
    carries at most. `limited` is the draw if every card's power limit is lowered by `Figures.limit_watts`.
    """

    cards: int
    draw: Power
    low: Power
    high: Power
    wall: Power
    limited: Power
    continuous: Power
    breaker: Power
    circuit: Circuit


def power_supply(cards: int, card: Power, rest: Power, figures: Figures) -> PowerSupply:
    """Return what so many cards and the rest of the desktop ask for. Raises ValueError for fewer than one card.

    The supply is the sum of watts and 10 to 15% (Dettmers, Which GPU(s) to Get for Deep Learning).
    """
    if cards < 1:
        raise ValueError(f"{cards} cards take no power supply")
    draw = card.times(cards) + rest
    breaker = Power(figures.circuit_volts.value * figures.circuit_amperes.value)
    continuous = breaker.times(figures.continuous_percent.value / 100)
    low, high = (draw.times(1 + one.value / 100) for one in (figures.supply_low_percent, figures.supply_high_percent))
    wall = Power(draw.watts * 100 / figures.supply_efficiency_percent.value)
    excess = max(Fraction(0), card.watts - figures.limit_watts.value)
    return PowerSupply(
        cards=cards,
        draw=draw,
        low=low,
        high=high,
        wall=wall,
        limited=Power(excess).times(cards) + rest,
        continuous=continuous,
        breaker=breaker,
        circuit=_circuit(wall, continuous, breaker),
    )


def _circuit(wall: Power, continuous: Power, breaker: Power) -> Circuit:
    if wall > breaker:
        return Circuit.NOT
    return Circuit.NOT_FOR_LONG if wall > continuous else Circuit.CARRIES
