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
from json import loads
from math import exp, expm1
from typing import NamedTuple

from cloudgpu.core.spot.fitted import MODELS
from cloudgpu.core.spot.hazards import mixture_of
from cloudgpu.core.spot.places import DEFAULT_LIFE_H, HALF_LIFE, Sighting, SpotLocation, life_h

MARGIN = 1.5  # times its cost that a move has to save: no estimate is exact
MIN_H = 0.1  # hours of the present price that it has to save beyond that, as adaptive's changes have to
LOOK_BACK = timedelta(hours=24)  # at the prices of both places
FOR_EVER = 1e6  # hours; the last age of a model has no end


@dataclass(frozen=True, slots=True)
class Running:
    """A spot machine that runs, and its job; times in hours.

    `age` is since its launch, `work` what is left to do, `unsaved` what would have to be done again. `start` is from a
    launch to the begin of the command, `end` the end of the machine before, `redone` the work that a loss undoes.
    `moves` counts the moves to a cheaper place within `LOOK_BACK`; `left` is when the job last left the place in
    question for a cheaper one, None where it never did.
    """

    age: float
    work: float
    unsaved: float
    start: float
    end: float
    redone: float
    moves: int = 0
    left: datetime | None = None


@dataclass(frozen=True, slots=True)
class Priced:
    """A place, and the prices an hour that held there with the time since when, oldest first; at least one.

    `travel` is what the data costs that has to travel there.
    """

    place: SpotLocation
    prices: tuple[tuple[datetime, int], ...]
    travel: int = 0

    @property
    def price(self) -> int:
        """What an hour costs now."""
        return self.prices[-1][1]

    def at(self, moment: datetime) -> int:
        """Return what an hour cost then; the oldest price counts for what was before it."""
        return next((price for since, price in reversed(self.prices) if since <= moment), self.prices[0][1])


class Saving(NamedTuple):
    """What a move is expected to save and to cost; `lead`: what staying has cost more already, a move's cost at most.

    `margin` is how many times its cost a move has to save. `earned` is what it has saved to leave that place before.
    """

    saves: float
    costs: float
    lead: float
    margin: float
    least: float
    earned: float | None = None

    @property
    def pays(self) -> bool:
        """Whether to move."""
        limit = self.costs * self.margin
        returns = self.earned is None or self.earned >= self.costs
        return returns and self.saves > limit + self.least and self.lead >= limit


def saving(running: Running, here: Priced, there: Priced, sightings: Sequence[Sighting], now: datetime) -> Saving:
    """Return what a move of this machine to that place is expected to save, and what it costs.

    It saves what lasts of the difference of the prices, for as long as the machine would still run here, where a launch
    there is not refused. It costs a start at the new price, the end of this machine, work that is done again, data that
    travels, and the losses that a younger machine is expected to have more.
    """
    there_seen = [one for one in sightings if one.place == there.place and one.at <= now]
    here_seen = [one for one in sightings if one.place == here.place and one.at <= now]
    losses, lasts = _fate(running.age, running.work, life_h(here_seen, now))
    more = max(0.0, _fate(0.0, lasts, life_h(there_seen, now))[0] - losses)
    one_loss = (running.start + running.redone) * there.price + there.travel
    costs = (running.start + running.unsaved) * there.price + running.end * here.price + there.travel + more * one_loss
    margin = MARGIN * 2**running.moves
    saves = _chance(there_seen, now) * _lasting(here, there, now) * lasts
    earned = None if running.left is None else -sum(_hourly_differences(here, there, running.left, now))
    return Saving(saves, costs, extra_cost_here(here, there, now, costs * margin), margin, MIN_H * here.price, earned)


def extra_cost_here(here: Priced, there: Priced, now: datetime, most: float) -> float:
    """Return what it has cost more to be here than there, since `LOOK_BACK`; never below `-most`, where it begins."""
    total = -most
    for more in _hourly_differences(here, there, now - LOOK_BACK, now):
        total = max(-most, total + more)
    return total


def _lasting(here: Priced, there: Priced, now: datetime) -> float:
    """Return what an hour will cost more here: the difference of now, but no more than its mean since `LOOK_BACK`.

    What was cheaper for a short while may be more expensive again as soon.
    """
    total = sum(_hourly_differences(here, there, now - LOOK_BACK, now))
    return min(here.price - there.price, total / (LOOK_BACK / timedelta(hours=1)))


def _hourly_differences(here: Priced, there: Priced, since: datetime, now: datetime) -> Iterator[float]:
    """Yield what it has cost more here than there, from each change of a price to the next, oldest first."""
    changes = {at for one in (here, there) for at, _ in one.prices if since < at < now}
    for begun, ended in pairwise(sorted({since, *changes, now})):
        yield (here.at(begun) - there.at(begun)) * ((ended - begun) / timedelta(hours=1))


def _chance(there: Sequence[Sighting], now: datetime) -> float:
    """Return how likely a launch there makes a machine, by what was seen; 1 before anything was refused."""
    made, refused = 1.0, 0.0
    for one in there:
        weight = 0.5 ** ((now - one.at) / HALF_LIFE)
        made += weight * (one.kind == "made")
        refused += weight * (one.kind == "refused")
    return made / (made + refused)


def _fate(age: float, hours: float, life: float) -> tuple[float, float]:
    """Return how many losses a machine of this age is expected to have in these hours, and how long it lasts in them.

    `life` is how many hours machines were seen to last at its place: the shipped rates are of a usual one.
    """
    losses = lasts = 0.0
    rates = _rates()
    for (begun, rate), (ended, _) in pairwise((*rates, (FOR_EVER, 0.0))):
        span = min(ended, age + hours) - max(begun, age)
        if span > 0:
            scaled = rate * DEFAULT_LIFE_H / life
            lasts += exp(-losses) * (-expm1(-scaled * span) / scaled if scaled else span)
            losses += scaled * span
    return losses, lasts


@lru_cache(maxsize=1)
def _rates() -> tuple[tuple[float, float], ...]:
    """Return losses an hour by age, from which hour on: those of the shipped models, by their chances."""
    mixture = mixture_of(loads(MODELS))
    pairs = zip(mixture.models, mixture.chances, strict=True)
    weighed = [[chance * rate for rate in model.loss] for model, chance in pairs]
    return tuple(zip(mixture.models[0].up_from, map(sum, zip(*weighed, strict=True)), strict=True))
