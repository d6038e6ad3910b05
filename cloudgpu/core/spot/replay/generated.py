"""Generated availability: the chance that spot comes or goes depends on how long it has been there or away.

`SHIPPED` was fitted by `benchmarks/spot/hazards.py` on the AWS traces of V100 and K80 in us-west-2 that were published
with "Can't Be Late" (NSDI 2024), three groups of zones by the share of time with spot. It is small, old and of one
region: good for a first estimate, until the ledger has seen more.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import exp

from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.traces import Trace

EDGES_H = (0.0, 0.25, 1.0, 4.0)  # an age belongs to the last edge that it has reached


@dataclass(frozen=True, slots=True)
class Hazards:
    """Rates per hour, one for each age of `EDGES_H`: at which spot goes, and at which it comes back."""

    name: str
    weight: int  # so many zones it was fitted on
    share: float  # of the time with spot there
    loss_rates: tuple[float, ...]
    return_rates: tuple[float, ...]


SHIPPED = (
    Hazards("scarce", 2, 0.22, (1.1227, 0.8196, 0.5389, 0.2394), (1.5248, 0.6686, 0.3465, 0.0296)),
    Hazards("mixed", 3, 0.45, (2.1544, 1.1561, 0.5458, 0.1786), (2.3687, 0.9295, 0.3963, 0.1914)),
    Hazards("plenty", 6, 0.88, (1.0786, 0.5399, 0.2205, 0.0671), (1.7991, 1.5674, 0.4777, 0.4237)),
)


def make_trace(hazards: Hazards, tick_h: float, ticks: int, draws: Draws, *, before_h: float = 48.0) -> bytes:
    """Return availability at so many ticks; it has been going on for `before_h` hours, so that ages are realistic."""
    warm_up_ticks = round(before_h / tick_h)
    probabilities = {1: _probabilities(hazards.loss_rates, tick_h), 0: _probabilities(hazards.return_rates, tick_h)}
    age_edges = [round(edge / tick_h) for edge in EDGES_H[1:]]
    up, age, availability = int(draws.uniform() < hazards.share), 0, bytearray()
    for _ in range(warm_up_ticks + ticks):
        availability.append(up)
        if draws.uniform() < probabilities[up][sum(age >= edge for edge in age_edges)]:
            up, age = 1 - up, 0
        else:
            age += 1
    return bytes(availability[warm_up_ticks:])


def pick_model(draws: Draws, models: tuple[Hazards, ...] = SHIPPED) -> Hazards:
    """Return one of the models, as often as its weight says."""
    return models[draws.weighted([hazards.weight for hazards in models])]


def fit_rates(name: str, traces: list[Trace]) -> Hazards:
    """Return the rates of these traces: changes per hour at each age. The first stretch of a trace has no known age."""
    changes = {1: [0] * len(EDGES_H), 0: [0] * len(EDGES_H)}
    hours = {1: [0.0] * len(EDGES_H), 0: [0.0] * len(EDGES_H)}
    for trace in traces:
        age: float | None = None
        for before, now in pairwise(trace.data):
            if age is not None:
                bucket = sum(age + 1e-9 >= edge for edge in EDGES_H) - 1
                hours[before][bucket] += trace.gap_s / 3600
                changes[before][bucket] += now != before
                age += trace.gap_s / 3600
            age = 0.0 if now != before else age
    rates = {
        state: tuple(
            round(count / time, 4) if time else 0.0 for count, time in zip(changes[state], hours[state], strict=True)
        )
        for state in (0, 1)
    }
    samples = sum(len(trace.data) for trace in traces)
    share = round(sum(sum(trace.data) for trace in traces) / samples, 2)
    return Hazards(name, len(traces), share, rates[1], rates[0])


def _probabilities(rates: tuple[float, ...], tick_h: float) -> list[float]:
    return [1 - exp(-rate * tick_h) for rate in rates]
