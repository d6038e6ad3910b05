"""A seeded generator of random numbers as a pure value: the same seed gives the same draws on every computer.

It is splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). Core may not
import `random`, which can read the system's entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FRACTION = 1 << 53

T = TypeVar("T")


class Draws:
    """Draws numbers one after another; two with the same seed draw the same."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def bits(self) -> int:
        """Return 64 random bits."""
        self._state = (self._state + _GOLDEN) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def uniform(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        return (self.bits() >> 11) / _FRACTION

    def below(self, bound: int) -> int:
        """Return a whole number from 0 to `bound` - 1; raise ValueError for a bound below 1."""
        if bound < 1:
            raise ValueError(f"there is no number from 0 below {bound}")
        return (self.bits() * bound) >> 64  # the bias is below bound / 2**64

    def weighted(self, weights: Sequence[int]) -> int:
        """Return an index, each as often as its weight says; raise ValueError where all weights are zero."""
        remaining = self.below(sum(weights))
        for index, weight in enumerate(weights):
            remaining -= weight
            if remaining < 0:
                return index
        raise ValueError(f"a weight is below zero: {weights!r}")

    def fork(self, name: str) -> Draws:
        """Return a generator for a part of the work, which does not move this one; the name picks its seed."""
        seed = self._state
        for byte in name.encode():
            seed = Draws(seed ^ byte).bits()
        return Draws(seed)

    def resample(self, items: Sequence[T]) -> list[T]:
        """Return as many items, each drawn from all of them: a bootstrap sample."""
        return [items[self.below(len(items))] for _ in items]
