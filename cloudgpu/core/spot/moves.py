"""Whether a job leaves the spot machine that runs for a cheaper place, and what that saves. Pure.

A move pays twice: it has to save more than it costs over what is left of the work, and staying has to have cost that
much already. The second rule is the work function algorithm (Borodin, Linial, Saks 1992). So prices that go up and down
make no job run back and forth; nor does it return to a place before it has earned what the return costs. All money is
in nano-dollars.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from math import exp, expm1
from typing import NamedTuple

from cloudgpu.core.spot.hazards import shipped_models
from cloudgpu.core.spot.places import DEFAULT_LIFE_H, HALF_LIFE, Sighting, SpotLocation, life_h

MARGIN = 1.5  # times its cost that a move has to save: no estimate is exact
MIN_SAVING_H = 0.1  # hours of the present price that it has to save beyond that, as adaptive's changes have to
LOOK_BACK = timedelta(hours=24)  # at the prices of both places
FOR_EVER_H = 1e6  # the last age of a model has no end


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job on a spot machine.

    `age_h` is since the machine's launch, `unsaved_h` what would have to be done again. `start_h` is from a launch to
    the begin of the command, `end_h` the end of the machine before, `redone_h` the work that a loss undoes. `moves`
    counts the moves to a cheaper place within `LOOK_BACK`; `left_at` is when the job last left the place in question
    for a cheaper one, None where it never did.
    """

    age_h: float
    work_left_h: float
    unsaved_h: float
    start_h: float
    end_h: float
    redone_h: float
    moves: int = 0
    left_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PricedPlace:
    """A place, and the prices an hour that held there with the time since when, oldest first; at least one.

    `transfer_cost` is what the data costs that has to travel there.
    """

    place: SpotLocation
    prices: tuple[tuple[datetime, int], ...]
    transfer_cost: int = 0

    @property
    def price(self) -> int:
        """What an hour costs now."""
        return self.prices[-1][1]

    def price_at(self, moment: datetime) -> int:
        """Return what an hour cost then; the oldest price counts for what was before it."""
        return next((price for since, price in reversed(self.prices) if since <= moment), self.prices[0][1])


class Saving(NamedTuple):
    """What a move is expected to save and to cost, in nano-dollars; `extra_cost`: what staying has cost more already.

    `margin` is how many times its cost a move has to save, beyond `least_saving`. `saved_before` is what it has saved
    to leave that place earlier; None where the job was never there.
    """

    saves: float
    costs: float
    extra_cost: float
    margin: float
    least_saving: float
    saved_before: float | None = None

    @property
    def pays(self) -> bool:
        """Whether to move."""
        limit = self.costs * self.margin
        may_return = self.saved_before is None or self.saved_before >= self.costs
        return may_return and self.saves > limit + self.least_saving and self.extra_cost >= limit


def saving(
    running: RunningJob, here: PricedPlace, there: PricedPlace, sightings: Sequence[Sighting], now: datetime
) -> Saving:
    """Return what a move of this machine to that place is expected to save, and what it costs.

    It saves what lasts of the difference of the prices, for as long as the machine would still run here, where a launch
    there is not refused. It costs a start at the new price, the end of this machine, work that is done again, data that
    travels, and the losses that a younger machine is expected to have more.
    """
    sightings_there = [sighting for sighting in sightings if sighting.place == there.place and sighting.at <= now]
    sightings_here = [sighting for sighting in sightings if sighting.place == here.place and sighting.at <= now]
    losses, lasts_h = _losses_and_hours(running.age_h, running.work_left_h, life_h(sightings_here, now))
    more_losses = max(0.0, _losses_and_hours(0.0, lasts_h, life_h(sightings_there, now))[0] - losses)
    one_loss = (running.start_h + running.redone_h) * there.price + there.transfer_cost
    costs = (
        (running.start_h + running.unsaved_h) * there.price
        + running.end_h * here.price
        + there.transfer_cost
        + more_losses * one_loss
    )
    margin = MARGIN * 2**running.moves
    saves = _launch_chance(sightings_there, now) * _lasting_difference(here, there, now) * lasts_h
    saved_before = None if running.left_at is None else -sum(_hourly_differences(here, there, running.left_at, now))
    extra_cost = extra_cost_here(here, there, now, costs * margin)
    return Saving(saves, costs, extra_cost, margin, MIN_SAVING_H * here.price, saved_before)


def extra_cost_here(here: PricedPlace, there: PricedPlace, now: datetime, bound: float) -> float:
    """Return what it has cost more to be here than there, since `LOOK_BACK`; never below `-bound`, where it begins."""
    total = -bound
    for difference in _hourly_differences(here, there, now - LOOK_BACK, now):
        total = max(-bound, total + difference)
    return total


def _lasting_difference(here: PricedPlace, there: PricedPlace, now: datetime) -> float:
    """Return what an hour will cost more here: the difference of now, but no more than its mean since `LOOK_BACK`.

    What was cheaper for a short while may be more expensive again as soon.
    """
    total = sum(_hourly_differences(here, there, now - LOOK_BACK, now))
    return min(here.price - there.price, total / (LOOK_BACK / timedelta(hours=1)))


def _hourly_differences(here: PricedPlace, there: PricedPlace, since: datetime, now: datetime) -> Iterator[float]:
    """Yield what it has cost more here than there, from each change of a price to the next, oldest first."""
    changes = {at for priced in (here, there) for at, _ in priced.prices if since < at < now}
    for begin, end in pairwise(sorted({since, *changes, now})):
        yield (here.price_at(begin) - there.price_at(begin)) * ((end - begin) / timedelta(hours=1))


def _launch_chance(there: Sequence[Sighting], now: datetime) -> float:
    """Return how likely a launch there makes a machine, by what was seen; 1 before anything was refused."""
    made, refused = 1.0, 0.0
    for sighting in there:
        weight = 0.5 ** ((now - sighting.at) / HALF_LIFE)
        made += weight * (sighting.kind == "made")
        refused += weight * (sighting.kind == "refused")
    return made / (made + refused)


def _losses_and_hours(age: float, hours: float, life: float) -> tuple[float, float]:
    """Return how many losses a machine of this age is expected to have in these hours, and how long it lasts in them.

    `life` is how many hours machines were seen to last at its place: the shipped rates are of a usual one.
    """
    losses = lasts_h = 0.0
    for (from_age, rate), (to_age, _) in pairwise((*_losses_per_hour(), (FOR_EVER_H, 0.0))):
        hours_in_bucket = min(to_age, age + hours) - max(from_age, age)
        if hours_in_bucket > 0:
            loss_rate = rate * DEFAULT_LIFE_H / life
            lasts_h += exp(-losses) * (
                -expm1(-loss_rate * hours_in_bucket) / loss_rate if loss_rate else hours_in_bucket
            )
            losses += loss_rate * hours_in_bucket
    return losses, lasts_h


@lru_cache(maxsize=1)
def _losses_per_hour() -> tuple[tuple[float, float], ...]:
    """Return losses an hour by age, from which hour on: those of the shipped models, by their chances."""
    mixture = shipped_models()
    pairs = zip(mixture.models, mixture.chances, strict=True)
    weighed = [[chance * rate for rate in model.loss] for model, chance in pairs]
    return tuple(zip(mixture.models[0].up_from, map(sum, zip(*weighed, strict=True)), strict=True))
