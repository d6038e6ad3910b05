"""How likely spot is lost, and comes back, by how long it has been there or away; and which model explains a zone.

Rates are per hour, ages in hours. A bucket reaches from its age to the next one's; the last one has no end.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, expm1, log
from typing import TypedDict

UNKNOWN_AGE = 2.0  # hours; nobody saw when the first state began
EPSILON_H = 1e-9  # hours; ages are sums of ticks


@dataclass(frozen=True, slots=True)
class Hazards:
    """The rates of one model: `loss[i]` is that of losing spot from age `up_from[i]` on, `back[i]` that of its return.

    A node is the index of a bucket of age: first those of available spot, then those of spot that is away.
    """

    up_from: tuple[float, ...]
    loss: tuple[float, ...]
    down_from: tuple[float, ...]
    back: tuple[float, ...]

    @property
    def nodes(self) -> int:
        """Return the number of buckets, those of available spot first."""
        return len(self.loss) + len(self.back)

    def node(self, up: bool, age: float) -> int:  # noqa: FBT001  a fact of the tick, not a switch
        """Return the bucket of a zone that has been up, or down, for `age` hours."""
        if up:
            return bisect_right(self.up_from, age + EPSILON_H) - 1
        return len(self.loss) + bisect_right(self.down_from, age + EPSILON_H) - 1

    def rate(self, node: int) -> float:
        """Return the rate of a change in this bucket, per hour."""
        up = len(self.loss)
        return self.loss[node] if node < up else self.back[node - up]

    def next_bucket(self, node: int, step: float) -> tuple[int, float]:
        """Return the next bucket of the same kind, and the chance to be in it `step` hours later, without a change."""
        ages, index = (self.up_from, node) if node < len(self.loss) else (self.down_from, node - len(self.loss))
        if index + 1 == len(ages):
            return node, 0.0
        return node + 1, min(1.0, step / (ages[index + 1] - ages[index]))

    def chance_of_change(self, node: int, step: float) -> float:
        """Return the chance of a change within `step` hours."""
        return -expm1(-self.rate(node) * step)

    def log_chances(self, step: float) -> list[tuple[float, float]]:
        """Return for each bucket the logarithm of the chance of no change and of a change within `step` hours."""
        rates = [self.rate(node) for node in range(self.nodes)]
        return [(-rate * step, log(max(1e-300, 1 - exp(-rate * step)))) for rate in rates]


class ModelData(TypedDict):
    """One model in JSON: its chance before anything was seen, and rates per hour."""

    chance: float
    loss: list[float]
    back: list[float]


class MixtureData(TypedDict):
    """A mixture in JSON: where the buckets of age begin, in hours, and the models."""

    up_from: list[float]
    down_from: list[float]
    models: list[ModelData]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Models with the chance of each before anything was seen."""

    models: tuple[Hazards, ...]
    chances: tuple[float, ...]


class Belief:
    """The chance of each model for one zone, by the observations so far: one a tick. `node` is a bucket of age."""

    def __init__(self, mixture: Mixture, tick: float) -> None:
        """Begin with the chances of the mixture; `tick` is in hours."""
        self._models = mixture.models
        self._tick = tick
        self._log_chances = [model.log_chances(tick) for model in mixture.models]
        self._logs = [log(chance) for chance in mixture.chances]
        self._age = UNKNOWN_AGE
        self._up: bool | None = None
        self._state_before: tuple[list[float], float, bool | None] = (self._logs, self._age, self._up)

    def observe(self, up: bool) -> None:  # noqa: FBT001  the observation
        """Learn whether the zone has spot in this tick."""
        self._state_before = (self._logs, self._age, self._up)
        was_up, self._up = self._up, up
        if was_up is None:
            return
        node, change = self.node_of(was_up), int(was_up != up)
        self._logs = [value + table[node][change] for value, table in zip(self._logs, self._log_chances, strict=True)]
        self._age = 0.0 if change else self._age + self._tick

    def take_back(self) -> None:
        """Undo the last `observe`; only one can be undone."""
        self._logs, self._age, self._up = self._state_before

    def node_of(self, up: bool) -> int:  # noqa: FBT001  the observation
        """Return the bucket of the present age; all models have the same buckets."""
        return self._models[0].node(up, self._age)

    @property
    def node(self) -> int:
        """Return the bucket of what was seen last."""
        return self.node_of(bool(self._up))

    def chances(self) -> list[float]:
        """Return the chance of each model; they add up to 1."""
        best = max(self._logs)
        shares = [exp(value - best) for value in self._logs]
        total = sum(shares)
        return [share / total for share in shares]


def mixture_of(data: MixtureData) -> Mixture:
    """Return the mixture that JSON describes."""
    up, down = _floats(data["up_from"]), _floats(data["down_from"])
    models = [Hazards(up, _floats(model["loss"]), down, _floats(model["back"])) for model in data["models"]]
    return Mixture(tuple(models), _floats([model["chance"] for model in data["models"]]))


def shipped_models() -> Mixture:
    """Return the models that were fitted to public traces; benchmarks/spot/fit.py writes them."""
    from cloudgpu.core.spot.fitted import MODELS

    return mixture_of(json.loads(MODELS))


def _floats(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(map(float, values))
