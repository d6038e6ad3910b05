"""Which models explain what a zone was seen to do: their chances after every tick, and the age of what it does now."""

from __future__ import annotations

from math import exp, log

from cloudgpu.core.spot.hazards import Mixture

UNKNOWN_AGE = 2.0  # hours; nobody saw when the first state began


class Belief:
    """What is known of one zone. It learns from one observation a tick."""

    def __init__(self, mixture: Mixture, tick: float) -> None:
        """Begin with the chances of the mixture; `tick` is in hours."""
        self._models = mixture.models
        self._tick = tick
        self._surprise = [model.surprise(tick) for model in mixture.models]
        self._logs = [log(chance) for chance in mixture.chances]
        self._age = UNKNOWN_AGE
        self._up: bool | None = None

    def see(self, up: bool) -> None:  # noqa: FBT001  the observation
        """Learn whether the zone has spot in this tick."""
        was, self._up = self._up, up
        if was is None:
            return
        node, change = self.node_of(was), int(was != up)
        self._logs = [value + table[node][change] for value, table in zip(self._logs, self._surprise, strict=True)]
        self._age = 0.0 if change else self._age + self._tick

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
