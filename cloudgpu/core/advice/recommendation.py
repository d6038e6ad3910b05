"""A recommendation as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from cloudgpu.core.advice.desktop import Desktop
from cloudgpu.core.advice.desktop_build import BreakEven, Build, PowerSupply, Verdict
from cloudgpu.core.advice.model_memory import Memory, Method, WeightPrecision
from cloudgpu.core.advice.recommend import FittingOffer, WorkNeeds
from cloudgpu.core.advice.workloads import WorkKind, WorkloadData
from cloudgpu.core.values.money import Money


@dataclass(frozen=True, slots=True)
class Model:
    """A model by its number of parameters, and what is done with it."""

    parameters: int
    method: Method
    precision: WeightPrecision


@dataclass(frozen=True, slots=True)
class Limits:
    """What it may cost and where it may be: None for no limit. `hours` are those of a week, on the machine."""

    max_price: Money | None = None
    budget: Money | None = None
    hours: Fraction | None = None
    provider: str | None = None
    region: str | None = None
    spot: bool = False


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What is recommended for a kind of work, and why.

    `machines` and `builds` are in order of work per dollar. `break_evens` compare the builds with the first machine,
    None if nothing says how fast one is compared with the other. `cheapest` is the machine with as many GPUs as the
    first and the least price an hour. `over_budget` are the builds beyond the budget, `unpriced` cards that hold the
    work and have no known price, `left_out` GPUs with the reason. `other_methods` are other ways to train the same
    model. `hidden_types` is how many types hold the work if none does within the bounds. `base` is the desktop of the
    settings: the builds have its power without the cards, its tariff and its life. `kaggle_gpus` is on how many of
    Kaggle's free GPUs the work fits within its hours; None if it does not.
    """

    kind: WorkKind
    model: Model | None
    need: WorkNeeds
    workload_data: WorkloadData
    limits: Limits
    machines: tuple[FittingOffer, ...]
    cheapest: FittingOffer | None
    builds: tuple[Build, ...]
    break_evens: tuple[BreakEven | None, ...]
    over_budget: tuple[Build, ...]
    unpriced: tuple[str, ...]
    left_out: Mapping[str, str]
    other_methods: tuple[tuple[Method, WeightPrecision, Memory], ...]
    power_supply: PowerSupply | None
    hidden_types: int
    base: Desktop
    kaggle_gpus: int | None = None

    @property
    def machine(self) -> FittingOffer | None:
        """The machine that does the most work per dollar."""
        return next(iter(self.machines), None)

    @property
    def build(self) -> Build | None:
        """The desktop that does the most work per dollar."""
        return next(iter(self.builds), None)

    @property
    def break_even(self) -> BreakEven | None:
        """When those two have cost the same."""
        return next(iter(self.break_evens), None)

    @property
    def verdict(self) -> Verdict:
        """What is cheaper for the expected hours, over the desktop's life."""
        if self.build is None or self.break_even is None or self.break_even.over_life is None:
            return Verdict.EITHER
        return Verdict.BUY if self.break_even.over_life.desktop_is_cheaper else Verdict.RENT
