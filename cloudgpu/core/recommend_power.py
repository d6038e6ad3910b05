"""What several cards in one desktop ask of its power supply and of the wall."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.recommend_rules import Figures
from cloudgpu.core.units import Power


class Circuit(StrEnum):
    """Whether a home's circuit of the USA carries it."""

    CARRIES = "carries it"
    NOT_FOR_LONG = "does not carry it for hours"
    NOT = "does not carry it"


@dataclass(frozen=True, slots=True)
class Supply:
    """`draw` is the sum of what the parts take, before a supply's losses; a supply of `low` to `high` has room for it.

    `continuous` is what the circuit carries for three hours and more, `breaker` what it carries at all. `limited` is
    the draw with every card's limit lowered by the figures' watts.
    """

    cards: int
    draw: Power
    low: Power
    high: Power
    limited: Power
    continuous: Power
    breaker: Power
    circuit: Circuit


def supply(cards: int, card: Power, rest: Power, figures: Figures) -> Supply:
    """Return what so many cards and the rest of the desktop ask for. Raises ValueError for fewer than one card.

    The supply is the sum of watts and 10 to 15% (Dettmers, Which GPU(s) to Get for Deep Learning).
    """
    if cards < 1:
        message = f"{cards} cards take no power supply"
        raise ValueError(message)
    draw = card.times(cards) + rest
    breaker = Power(figures.circuit_volts.value * figures.circuit_amperes.value)
    continuous = breaker.times(figures.continuous_percent.value / 100)
    low, high = (draw.times(1 + one.value / 100) for one in (figures.supply_low_percent, figures.supply_high_percent))
    less = max(Fraction(0), card.watts - figures.limit_watts.value)
    return Supply(
        cards=cards,
        draw=draw,
        low=low,
        high=high,
        limited=Power(less).times(cards) + rest,
        continuous=continuous,
        breaker=breaker,
        circuit=_circuit(draw, continuous, breaker),
    )


def _circuit(draw: Power, continuous: Power, breaker: Power) -> Circuit:
    if draw > breaker:
        return Circuit.NOT
    return Circuit.NOT_FOR_LONG if draw > continuous else Circuit.CARRIES
