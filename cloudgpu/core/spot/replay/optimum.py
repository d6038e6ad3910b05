"""The exact omniscient optimum: the least that a job can cost when all of the future availability is known.

A dynamic programme over ticks, the state of the machine, and the time lost so far (waiting and changeovers), which is
what is left of the slack. For each state it keeps the pairs (time lost, cost) that no other pair beats in both. Time
lost says how much work is done: at time t, `t - lost`.

The changeover is charged to the time lost at once when a machine starts. That is exact for the optimum: a plan that
leaves a machine before its changeover is over is never better than one that waits in the same ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, inf
from typing import NamedTuple

from cloudgpu.core.spot.simulate import SpotJob

_MS_PER_H = 3_600_000
_EPSILON = 1e-9  # two costs that differ by less are the same
_BOUNDS = 2  # so many lower bounds are kept
_SHARES = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)  # multipliers, from the price of spot to that of on demand
_ABOVE_ON_DEMAND = (1.02, 1.1, 1.3, 2.0)  # the same, above the price of on demand


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least cost and what it consists of; hours on a machine include its changeovers."""

    cost: float
    spot_h: float
    on_demand_h: float
    on_demand_work_h: float  # without changeovers
    starts: int
    finish_h: float


# A way to have reached a state, a plain tuple for speed: milliseconds without progress, cost, milliseconds on demand,
# starts, of these on demand. Of two, the one with less time lost and a lower cost is better.
_Label = tuple[int, float, int, int, int]


def optimum(job: SpotJob, zones: Sequence[bytes]) -> Optimum:
    """Return the least cost of the job where availability `zones[z][i]` in zone z at tick i is known beforehand.

    Decisions are made at ticks, as in `simulate`.
    """
    search = _Search(job, zones)
    step = search.on_demand * search.tick / 2
    limit = search.least + step
    while (found := search.cheapest_within(limit)) is None:
        limit, step = limit + step, 2 * step
    return _as_optimum(job, found)


def _as_optimum(job: SpotJob, label: _Label) -> Optimum:
    lost, cost, on_demand, starts, on_demand_starts = label
    on_demand_h = on_demand / _MS_PER_H
    return Optimum(
        cost=cost,
        spot_h=max(0.0, (cost - on_demand_h * job.price_on_demand) / job.price_spot),
        on_demand_h=on_demand_h,
        on_demand_work_h=on_demand_h - on_demand_starts * job.changeover_h,
        starts=starts,
        finish_h=lost / _MS_PER_H + job.work_h,
    )


class _Bound(NamedTuple):
    """A lower bound of the cost from a tick on: `after[state][tick] + price * work left`.

    It is the cost of the best plan that is paid `price` for each unit of work and need not finish: a relaxation by a
    Lagrange multiplier. States are the zones, on demand and idle, in this order.
    """

    price: float
    after: list[list[float]]


class _Search:
    """Moves the labels of each state from tick to tick, without those that cannot end below a limit."""

    def __init__(self, job: SpotJob, zones: Sequence[bytes]) -> None:
        self.tick, self.changeover, self.work, deadline = (
            round(hours * _MS_PER_H) for hours in (job.tick_h, job.changeover_h, job.work_h, job.deadline_h)
        )
        # A job that just fits may not fit any more with each of its times rounded.
        deadline = max(deadline, self.work + self.changeover)
        self.slack = deadline - self.work
        self.ticks = ceil(deadline / self.tick)
        self.zones = [bytes(zone[: self.ticks]).ljust(self.ticks, b"\0") for zone in zones]
        self.spot, self.on_demand = job.price_spot / _MS_PER_H, job.price_on_demand / _MS_PER_H
        bounds = [self._bound(price) for price in self._multipliers()]
        bounds.sort(key=self._from_begin, reverse=True)
        self.bounds = bounds[:_BOUNDS]
        self.least = max(0.0, self._from_begin(self.bounds[0]))

    def _multipliers(self) -> list[float]:
        """Return prices of a unit of work: between those of spot and on demand, and above where time is short."""
        low, high = sorted((self.spot, self.on_demand))
        return [*(low + (high - low) * part for part in _SHARES), *(high * times for times in _ABOVE_ON_DEMAND)]

    def _from_begin(self, bound: _Bound) -> float:
        return bound.after[-1][0] + bound.price * self.work

    def _bound(self, price: float) -> _Bound:
        """Return the lower bound for this price of a unit of work, computed backwards from the deadline."""
        start_cost = price * self.changeover
        tick_costs = [(self.spot - price) * self.tick] * len(self.zones) + [(self.on_demand - price) * self.tick]
        availability = [*self.zones, b"\1" * self.ticks]
        after = [[0.0] * (self.ticks + 1) for _ in range(len(tick_costs) + 1)]
        idle = after[-1]
        machines = list(zip(tick_costs, availability, after, strict=False))
        for index in reversed(range(self.ticks)):
            least, next_tick = idle[index + 1], index + 1
            for tick_cost, up, values in machines:
                if up[index]:
                    values[index] = cost_if_kept = values[next_tick] + tick_cost
                    least = min(least, cost_if_kept + start_cost)
                else:
                    values[index] = inf
            idle[index] = least
            for _, _, values in machines:
                values[index] = min(values[index], least)
        return _Bound(price, after)

    def cheapest_within(self, limit: float) -> _Label | None:
        """Return the best way to finish that costs at most `limit`; None where there is none."""
        best: _Label | None = None
        states: list[list[_Label]] = [[] for _ in self.zones] + [[], [(0, 0.0, 0, 0, 0)]]
        availability = [*self.zones, b"\1" * self.ticks]
        for index in range(self.ticks):
            reached = _undominated(chain.from_iterable(states))
            if not reached:
                break
            spot_starts, on_demand_starts = self._start(reached, 0), self._start(reached, 1)
            for state, up in enumerate(availability):
                if not up[index]:
                    states[state] = []
                    continue
                starts = on_demand_starts if state == len(self.zones) else spot_starts
                labels, ended = self._run(index, state, _undominated(chain(states[state], starts)), limit)
                states[state] = labels
                if ended is not None and ended[1] <= limit and (best is None or ended[1] < best[1]):
                    best, limit = ended, ended[1] - _EPSILON
            states[-1] = self._within_limit(index + 1, -1, self._wait(reached), limit)
        return best

    def _start(self, reached: list[_Label], on_demand: int) -> list[_Label]:
        """Return the labels of a machine that is started now, in whatever state the job was; `on_demand` is 1 or 0."""
        max_lost, lost = self.slack - self.changeover, self.changeover
        return [
            (label[0] + lost, label[1], label[2], label[3] + 1, label[4] + on_demand)
            for label in reached
            if label[0] <= max_lost
        ]

    def _wait(self, reached: list[_Label]) -> list[_Label]:
        """Return the labels after a tick without a machine."""
        max_lost, lost = self.slack - self.tick, self.tick
        return [(label[0] + lost, *label[1:]) for label in reached if label[0] <= max_lost]

    def _run(self, index: int, state: int, labels: list[_Label], limit: float) -> tuple[list[_Label], _Label | None]:
        """Return the labels after a tick on a machine, and the best of those that finish in it."""
        on_demand = state == len(self.zones)
        price = self.on_demand if on_demand else self.spot
        end = (index + 1) * self.tick
        cost, on_demand_ms = price * self.tick, self.tick * on_demand
        finishing_lost = end - self.work  # with less time lost, the work is done within the tick
        running = [
            (label[0], label[1] + cost, label[2] + on_demand_ms, label[3], label[4])
            for label in labels
            if label[0] > finishing_lost
        ]
        ended: _Label | None = None
        for lost, cost_before, on_demand_ms_before, *starts in labels[: len(labels) - len(running)]:
            used_ms = self.work + lost - end + self.tick
            finished = (
                lost,
                cost_before + price * used_ms,
                on_demand_ms_before + used_ms * on_demand,
                starts[0],
                starts[1],
            )
            ended = finished if ended is None or finished[1] < ended[1] else ended
        return self._within_limit(index + 1, state, running, limit), ended

    def _within_limit(self, index: int, state: int, labels: list[_Label], limit: float) -> list[_Label]:
        """Return the labels whose lower bound is within the limit."""
        work_left = self.work - index * self.tick  # with no time lost so far
        for price, after in self.bounds:
            max_cost = limit - after[state][index] - price * work_left
            labels = [label for label in labels if label[1] + price * label[0] <= max_cost]
        return labels


def _undominated(labels: Iterable[_Label]) -> list[_Label]:
    """Return the labels that no other one beats in both time lost and cost, by time lost."""
    kept, minimum = [], inf
    for label in sorted(labels):
        if label[1] < minimum:
            minimum = label[1] - _EPSILON
            kept.append(label)
    return kept
