"""Where to launch on spot: the places that could have a machine, ordered by what was seen there. Pure.

A place is worth its price for the time that a machine lasts there, and each loss costs a changeover and what has to
travel once more. What was not seen counts as average, so a place is tried before it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

SightingKind = Literal["made", "refused", "taken", "ended"]
HALF_LIFE = timedelta(days=3)  # in which what was seen comes to count half
SKIP_REFUSED_FOR = timedelta(minutes=30)  # a place without capacity is passed over, where another one may have some
SKIP_INTERRUPTED_FOR = timedelta(minutes=20)  # the same for one that took a machine
DEFAULT_LIFE_H = 6.0  # hours between two interruptions, where nothing was seen
PER_SCORE = 18.0  # a place costs 1/18 more for each point below the best score: half as much again for the worst
PRIOR_RUN_H = 12.0  # hours of running that the usual life is worth as evidence


class SpotLocation(NamedTuple):
    """Where a machine can be launched; the zone is None where a provider has none."""

    account: str
    region: str
    zone: str | None
    instance_type: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen of spot at a place: a launch that made a machine, or was refused; one that was taken, or ended.

    Taken: interrupted by its provider.

    `price` is an hour's in nano-dollars; `hours` is how long the machine had run, of one that was taken or has ended.
    """

    at: datetime
    place: SpotLocation
    kind: SightingKind
    price: int | None = None
    hours: float = 0.0


@dataclass(frozen=True, slots=True)
class PlaceOffer:
    """A place with its price now, in nano-dollars an hour, and what a move to it costs, in nano-dollars.

    `score` is the provider's placement score from 1 (unlikely) to 10 (likely to be had); None where it gives none.
    """

    place: SpotLocation
    price: int
    move_cost: int = 0
    score: int | None = None


def order_places(
    offers: Iterable[PlaceOffer], sightings: Sequence[Sighting], now: datetime, changeover_h: float
) -> list[PlaceOffer]:
    """Return the places in the order in which to try them; those of equal worth keep theirs."""
    distinct = list(dict.fromkeys(offers))
    best_score = max((offer.score for offer in distinct if offer.score is not None), default=None)
    return sorted(distinct, key=lambda offer: _cost(offer, sightings, now, changeover_h, best_score))


def _cost(
    offered: PlaceOffer, sightings: Sequence[Sighting], now: datetime, changeover_h: float, best_score: int | None
) -> tuple[bool, float]:
    """Return whether a place is passed over for now, and what an hour of work costs there.

    Scores are compared with the best one: what all of them have in common says nothing about a place.
    """
    sightings_here = [sighting for sighting in sightings if sighting.place == offered.place and sighting.at <= now]
    loss_cost = (changeover_h * offered.price + offered.move_cost) / life_h(sightings_here, now)
    score_factor = (
        1.0 if offered.score is None or best_score is None else 1.0 + (best_score - offered.score) / PER_SCORE
    )
    return is_passed_over(sightings_here, now), (offered.price + loss_cost) * score_factor


def life_h(sightings: Iterable[Sighting], now: datetime) -> float:
    """Return how many hours a machine lasts at a place: hours seen by losses seen, old ones counting less."""
    weighted_hours, loss_weight = PRIOR_RUN_H, PRIOR_RUN_H / DEFAULT_LIFE_H
    for sighting in sightings:
        weight = 0.5 ** ((now - sighting.at) / HALF_LIFE)
        weighted_hours += weight * sighting.hours
        loss_weight += weight * (sighting.kind == "taken")
    return weighted_hours / loss_weight


def is_passed_over(sightings: Sequence[Sighting], now: datetime) -> bool:
    """Say whether a place had no capacity, or took a machine, a short while ago, and none was had there since."""
    last = max(sightings, key=lambda sighting: sighting.at, default=None)
    if last is None:
        return False
    limits: Mapping[str, timedelta] = {"refused": SKIP_REFUSED_FOR, "taken": SKIP_INTERRUPTED_FOR}
    return now - last.at < limits.get(last.kind, timedelta(0))
