"""The cheapest plan to a deadline, where one model of losses is true: a Markov decision process over what is left.

States are the time left, the slack (time left less work left), the bucket of the zone's age, and the mode. Time goes in
equal steps, slack has nodes that lie wider apart the more of it there is, and values between nodes are interpolated.
Costs are in spot hours. A changeover longer than a step is carried in whole steps; its remainder is taken at the start.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from cloudgpu.core.spot.hazards import Hazards
from cloudgpu.core.spot.situation import Mode, Situation

Vector = list[float]
Shift = list[tuple[int, float, float]]  # node below, its weight, the weight of the node above

SLACK_GROWTH = 0.25  # distance of two nodes of slack, as a share of the slack
LATE_PRICE = 10.0  # price of an hour that the deadline lacks, in on-demand hours; finite, as values are interpolated
ROUNDING_H = 1e-9


@dataclass(frozen=True, slots=True)
class Grid:
    """The grid of a plan: `steps` of `step` hours each, and the nodes of slack, in hours."""

    step: float
    steps: int
    slack: tuple[float, ...]
    changeover: float  # hours
    ratio: float  # the price of an on-demand hour in spot hours

    @property
    def carried(self) -> int:
        """Return the whole steps of a changeover that do not fit into the step of the start."""
        return max(0, int((self.changeover - ROUNDING_H) / self.step))

    @property
    def remainder(self) -> float:
        """Return what is left of the changeover, besides the carried steps."""
        return self.changeover - self.carried * self.step

    def position(self, slack: float) -> tuple[int, float]:
        """Return the node below this slack, and how far it is to the next one, from 0 to 1."""
        last = len(self.slack) - 2
        below = min(last, max(0, bisect_right(self.slack, slack + ROUNDING_H) - 1))
        width = self.slack[below + 1] - self.slack[below]
        return below, min(1.0, max(0.0, (slack - self.slack[below]) / width))

    def shift(self, hours: float) -> Shift:
        """Return for every node where the slack is after `hours` of it have gone."""
        return [(below, 1 - share, share) for below, share in (self.position(slack - hours) for slack in self.slack)]


def grid_of(deadline: float, slack: float, step: float, changeover: float, ratio: float) -> Grid:
    """Lay the grid of a job: time to its deadline, and slack from none to that of its start."""
    nodes = [0.0, step]
    while nodes[-1] < slack - ROUNDING_H:
        nodes.append(nodes[-1] + max(step, nodes[-1] * SLACK_GROWTH))
    return Grid(step, max(1, -int(-deadline / step // 1)), tuple(nodes), changeover, ratio)


class Plan:
    """The costs to come of every state and action, in spot hours."""

    def __init__(self, hazards: Hazards, grid: Grid) -> None:
        """Solve backwards from the deadline; time and memory grow with steps, nodes and buckets."""
        self._hazards, self._grid = hazards, grid
        self._rows = _Solver(hazards, grid).rows()

    def cost(self, action: Mode, node: int, now: Situation, pending: float) -> float:
        """Return the cost to come of an action whose machine has so much of its changeover left."""
        if action == "spot":
            return self.spot(node, now.time, now.slack, pending)
        return self._value(1 if action == "on_demand" else 2, node, now.time, now.slack - pending)

    def spot(self, node: int, time: float, slack: float, pending: float) -> float:
        """Return the cost to come on spot with `pending` hours of its changeover left."""
        step, carried = self._grid.step, self._grid.carried
        whole_steps = min(carried, max(0, int((pending - ROUNDING_H) / step)))
        remainder = pending - whole_steps * step
        if not whole_steps:
            return self._value(0, node, time, slack - remainder)
        return self._value(2 + whole_steps, node, time, slack - (remainder - self._grid.remainder))

    def _value(self, kind: int, node: int, time: float, slack: float) -> float:
        """Return the cost to come of an action; `kind` is its index in a `Row`."""
        if time - slack <= ROUNDING_H:
            return 0.0
        below, share = self._grid.position(slack)
        steps_left = min(float(self._grid.steps), max(0.0, time / self._grid.step))  # a job may be past its deadline
        step_number = int(steps_left + ROUNDING_H)
        fraction = steps_left - step_number
        value = _between(self._rows[step_number][kind][node], below, share)
        if fraction <= ROUNDING_H:
            return value
        return value * (1 - fraction) + _between(self._rows[step_number + 1][kind][node], below, share) * fraction


def _between(row: Sequence[float], below: int, share: float) -> float:
    return row[below] * (1 - share) + row[below + 1] * share


Row = list[list["array[float]"]]  # kind (spot, on demand, wait, carried spot ...) -> bucket -> node of slack


class _Solver:
    """One backward pass. A vector holds a value for each node of slack; loops are written out, as they are the time."""

    def __init__(self, hazards: Hazards, grid: Grid) -> None:
        self._grid, self._up, self._nodes = grid, len(hazards.loss), hazards.nodes
        self._idle_shift, self._start_shift = grid.shift(grid.step), grid.shift(grid.changeover)
        self._rest_shift = grid.shift(grid.remainder)
        self._chances = [self._moves(hazards, node) for node in range(self._nodes)]
        late_price = LATE_PRICE * grid.ratio
        self._late_wait_cost = [late_price * max(0.0, grid.changeover + grid.step - slack) for slack in grid.slack]
        self._late_start_cost = [late_price * max(0.0, 2 * grid.changeover - slack) for slack in grid.slack]
        self._late_switch_cost = [grid.ratio * max(0.0, grid.changeover - slack) for slack in grid.slack]
        nothing = [0.0] * len(grid.slack)
        self._spot_costs = [nothing] * self._up  # least cost when spot runs, on demand runs, nothing runs
        self._on_demand_costs = [nothing] * self._nodes
        self._idle_costs = [nothing] * self._nodes
        self._changeover_costs = [
            [nothing] * self._up for _ in range(grid.carried + 1)
        ]  # spot with carried steps of changeover

    def _moves(self, hazards: Hazards, node: int) -> tuple[int, int, float, float, float]:
        """Return the next older bucket, the one after a change, and the chances to stay, to grow older, to change."""
        older, share = hazards.next_bucket(node, self._grid.step)
        change = hazards.chance_of_change(node, self._grid.step)
        after_change = self._up if node < self._up else 0
        return older, after_change, (1 - change) * (1 - share), (1 - change) * share, change

    def rows(self) -> list[Row]:
        """Return the costs of all actions for every number of steps left."""
        empty = array("f", [0.0] * len(self._grid.slack))
        rows_by_step: list[Row] = [[[empty] * self._nodes for _ in range(3 + self._grid.carried)]]
        rows_by_step.extend(self._step(number * self._grid.step) for number in range(1, self._grid.steps + 1))
        return rows_by_step

    def _step(self, time: float) -> Row:
        """Return the costs with `time` hours left, and keep the least of them for the step before."""
        step, ratio = self._grid.step, self._grid.ratio
        billed_hours = [min(step, max(0.0, time - slack)) for slack in self._grid.slack]
        on_demand_price = [ratio * hours for hours in billed_hours]
        spot = [self._mean(self._spot_costs, node, self._idle_costs, billed_hours) for node in range(self._up)]
        on_demand = [
            self._mean(self._on_demand_costs, node, self._on_demand_costs, on_demand_price)
            for node in range(self._nodes)
        ]
        idle = [self._waited(self._idle_costs, node, self._late_wait_cost) for node in range(self._nodes)]
        changeover_costs = [[_shift(vector, self._rest_shift) for vector in spot]]
        changeover_costs.extend(self._carried(begun) for begun in self._changeover_costs[:-1])
        self._changeover_costs = changeover_costs
        self._choose(spot, on_demand, idle)
        finished_from = sum(
            1 for hours in billed_hours if hours > ROUNDING_H
        )  # a finished job costs nothing, whatever rounding says
        for vectors in (self._spot_costs, self._on_demand_costs, self._idle_costs, *self._changeover_costs):
            for vector in vectors:
                vector[finished_from:] = [0.0] * (len(vector) - finished_from)
        return [[array("f", vector) for vector in kind] for kind in (spot, on_demand, idle, *changeover_costs[1:])]

    def _mean(self, vectors: list[Vector], node: int, changed: list[Vector], cost: Vector) -> Vector:
        """Return the expected cost after a step: of `vectors`, or after a change of `changed`, plus its `cost`."""
        older, other, stay, grow, change = self._chances[node]
        rows = zip(vectors[node], vectors[older], changed[other], cost, strict=True)
        return [stay * x + grow * y + change * z + c for x, y, z, c in rows]

    def _waited(self, vectors: list[Vector], node: int, cost: Vector) -> Vector:
        """Return the cost after a step without progress, which takes its time from the slack."""
        older, other, stay, grow, change = self._chances[node]
        rows = zip(vectors[node], vectors[older], self._idle_costs[other], strict=True)
        return _shift_and_add([stay * x + grow * y + change * z for x, y, z in rows], self._idle_shift, cost)

    def _carried(self, spot_costs: list[Vector]) -> list[Vector]:
        """Return spot with one more carried step of changeover than `spot_costs`: it is billed without progress."""
        cost = [self._grid.step] * len(self._grid.slack)
        return [self._waited([*spot_costs, *self._idle_costs[self._up :]], node, cost) for node in range(self._up)]

    def _choose(self, spot: list[Vector], on_demand: list[Vector], idle: list[Vector]) -> None:
        """Set the least cost of each mode: go on, stop, or change over."""
        switch = [_shift_and_add(vector, self._start_shift, self._late_switch_cost) for vector in on_demand]
        start_costs = self._changeover_costs[-1]
        self._idle_costs, self._on_demand_costs = [], []
        for node in range(self._nodes):
            idle_or_spot = idle[node]
            if node < self._up:
                rows = zip(idle_or_spot, start_costs[node], self._late_start_cost, strict=True)
                idle_or_spot = [x if x < y + z else y + z for x, y, z in rows]  # noqa: FURB136  min() takes twice the time
            self._idle_costs.append(_minimum(idle_or_spot, switch[node]))
            self._on_demand_costs.append(_minimum(idle_or_spot, on_demand[node]))
        self._spot_costs = [_minimum(_minimum(spot[node], switch[node]), idle[node]) for node in range(self._up)]


def _shift(values: Vector, shift: Shift) -> Vector:
    return [values[below] * weight + values[below + 1] * next_weight for below, weight, next_weight in shift]


def _shift_and_add(values: Vector, shift: Shift, cost: Vector) -> Vector:
    rows = zip(shift, cost, strict=True)
    return [
        values[below] * weight + values[below + 1] * next_weight + extra for (below, weight, next_weight), extra in rows
    ]


def _minimum(values: Vector, others: Vector) -> Vector:
    return [x if x < y else y for x, y in zip(values, others, strict=True)]  # noqa: FURB136  the same
