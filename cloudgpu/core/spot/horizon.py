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

Vector = list[float]
Shift = list[tuple[int, float, float]]  # node below, its weight, the weight of the node above

GROWTH = 0.12  # distance of two nodes of slack, as a share of the slack
NEVER = 1e6  # spot hours: what cannot be done
ROUND = 1e-9


@dataclass(frozen=True, slots=True)
class Grid:
    """Steps of time and nodes of slack, in hours; with the changeover and the price of an on-demand hour in spot hours."""

    step: float
    steps: int
    slack: tuple[float, ...]
    changeover: float
    ratio: float

    @property
    def carried(self) -> int:
        """Return the whole steps of a changeover that do not fit into the step of the start."""
        return max(0, int((self.changeover - ROUND) / self.step))

    @property
    def remainder(self) -> float:
        """Return what is left of the changeover, besides the carried steps."""
        return self.changeover - self.carried * self.step

    def place(self, slack: float) -> tuple[int, float]:
        """Return the node below this slack, and how far it is to the next one, from 0 to 1."""
        last = len(self.slack) - 2
        below = min(last, max(0, bisect_right(self.slack, slack + ROUND) - 1))
        width = self.slack[below + 1] - self.slack[below]
        return below, min(1.0, max(0.0, (slack - self.slack[below]) / width))

    def less(self, hours: float) -> Shift:
        """Return for every node where the slack is after `hours` of it have gone."""
        places = [self.place(slack - hours) for slack in self.slack]
        return [(below, 1 - share, share) for below, share in places]


def grid_of(deadline: float, slack: float, step: float, changeover: float, ratio: float) -> Grid:
    """Lay the grid of a job: time to its deadline, and slack from none to that of its start."""
    nodes = [0.0, step]
    while nodes[-1] < slack - ROUND:
        nodes.append(nodes[-1] + max(step, nodes[-1] * GROWTH))
    return Grid(step, max(1, -int(-deadline / step // 1)), tuple(nodes), changeover, ratio)


class Plan:
    """The costs to come of every state and action, in spot hours."""

    def __init__(self, hazards: Hazards, grid: Grid) -> None:
        """Solve backwards from the deadline; time and memory grow with steps, nodes and buckets."""
        self._hazards, self._grid = hazards, grid
        self._rows = _Solver(hazards, grid).rows()

    def wait(self, node: int, time: float, slack: float) -> float:
        """Return the cost to come if nothing runs in the next step."""
        return self._value(2, node, time, slack)

    def on_demand(self, node: int, time: float, slack: float) -> float:
        """Return the cost to come on demand; `slack` is that after the changeover of a start."""
        return self._value(1, node, time, slack)

    def spot(self, node: int, time: float, slack: float, pending: float) -> float:
        """Return the cost to come on spot with `pending` hours of its changeover left."""
        step, carried = self._grid.step, self._grid.carried
        whole = min(carried, max(0, int((pending - ROUND) / step)))
        rest = pending - whole * step
        if not whole:
            return self._value(0, node, time, slack - rest)
        return self._value(2 + whole, node, time, slack - (rest - self._grid.remainder))

    def _value(self, kind: int, node: int, time: float, slack: float) -> float:
        if time - slack <= ROUND:
            return 0.0
        below, share = self._grid.place(slack)
        exact = min(float(self._grid.steps), time / self._grid.step)
        number = int(exact + ROUND)
        late = exact - number
        value = _between(self._rows[number][kind][node], below, share)
        if late <= ROUND:
            return value
        return value * (1 - late) + _between(self._rows[number + 1][kind][node], below, share) * late


def _between(row: Sequence[float], below: int, share: float) -> float:
    return row[below] * (1 - share) + row[below + 1] * share


Row = list[list["array[float]"]]  # kind (spot, on demand, wait, carried spot ...) -> bucket -> node of slack


class _Solver:
    """One backward pass. Vectors hold a value for each node of slack."""

    def __init__(self, hazards: Hazards, grid: Grid) -> None:
        self._grid, self._up, self._nodes = grid, len(hazards.loss), hazards.nodes
        self._idle, self._start = grid.less(grid.step), grid.less(grid.changeover)
        self._rest = grid.less(grid.remainder)
        self._chances = [self._moves(hazards, node) for node in range(self._nodes)]
        self._no_wait = _unless(grid, grid.changeover + grid.step)
        self._no_start = _unless(grid, 2 * grid.changeover)
        self._no_switch = [grid.ratio * max(0.0, grid.changeover - slack) for slack in grid.slack]
        nothing = [0.0] * len(grid.slack)
        self._spot = [nothing] * self._up  # value when spot runs, on demand runs, nothing runs
        self._dear = [nothing] * self._nodes
        self._none = [nothing] * self._nodes
        self._before = [nothing] * self._up  # spot without changeover, one step nearer to the deadline
        self._late = [[nothing] * self._up for _ in range(grid.carried)]  # spot with carried steps of changeover

    def _moves(self, hazards: Hazards, node: int) -> tuple[int, int, float, float, float]:
        older, share = hazards.older(node, self._grid.step)
        change = hazards.change(node, self._grid.step)
        other = self._up if node < self._up else 0
        return older, other, (1 - change) * (1 - share), (1 - change) * share, change

    def rows(self) -> list[Row]:
        """Return the costs of all actions for every number of steps left."""
        kinds = 3 + self._grid.carried
        empty = array("f", [0.0] * len(self._grid.slack))
        found: list[Row] = [[[empty] * self._nodes for _ in range(kinds)]]
        for number in range(1, self._grid.steps + 1):
            found.append(self._step(number * self._grid.step))
        return found

    def _step(self, time: float) -> Row:
        left = [max(0.0, time - slack) for slack in self._grid.slack]
        run = [min(self._grid.step, work) for work in left]
        dear = [self._grid.ratio * hours for hours in run]
        on_demand = [_plus(self._mean(self._dear, node, self._dear), dear) for node in range(self._nodes)]
        idle = [self._waited(node) for node in range(self._nodes)]
        spot = [_plus(self._mean(self._spot, node, self._none), run) for node in range(self._up)]
        late = [self._carry(step, spot) for step in range(self._grid.carried)]
        begun = late[-1] if late else [_shift(vector, self._rest) for vector in spot]
        self._late = late
        self._choose(spot, on_demand, idle, begun)
        done = sum(1 for work in left if work > ROUND)
        self._finish(done)
        return [[_row(vector, done) for vector in kind] for kind in (spot, on_demand, idle, *late)]

    def _mean(self, kept: list[Vector], node: int, changed: list[Vector]) -> Vector:
        older, other, stay, grow, change = self._chances[node]
        if grow <= 0:
            return [stay * x + change * z for x, z in zip(kept[node], changed[other], strict=True)]
        rows = zip(kept[node], kept[older], changed[other], strict=True)
        return [stay * x + grow * y + change * z for x, y, z in rows]

    def _waited(self, node: int) -> Vector:
        return _plus(_shift(self._mean(self._none, node, self._none), self._idle), self._no_wait)

    def _carry(self, step: int, spot: list[Vector]) -> list[Vector]:
        """Return spot with `step` + 1 carried steps left: one passes now, and is billed without progress."""
        begun = self._previous(step, spot)
        cost = self._grid.step
        return [
            [value + cost for value in _shift(self._mean(begun, node, self._none), self._idle)]
            for node in range(self._up)
        ]

    def _previous(self, step: int, spot: list[Vector]) -> list[Vector]:
        return self._late[step - 1] if step else [_shift(vector, self._rest) for vector in self._before]

    def _choose(self, spot: list[Vector], dear: list[Vector], idle: list[Vector], begun: list[Vector]) -> None:
        self._before = spot
        switch = [_plus(_shift(vector, self._start), self._no_switch) for vector in dear]
        start = [_plus(vector, self._no_start) for vector in begun]
        up = range(self._up)
        self._spot = [_least(spot[node], switch[node], idle[node]) for node in up]
        self._dear = [_least(dear[node], idle[node]) for node in range(self._nodes)]
        self._none = [_least(switch[node], idle[node]) for node in range(self._nodes)]
        for node in up:
            self._dear[node] = _least(self._dear[node], start[node])
            self._none[node] = _least(self._none[node], start[node])

    def _finish(self, done: int) -> None:
        for vectors in (self._spot, self._dear, self._none, *self._late):
            for vector in vectors:
                vector[done:] = [0.0] * (len(vector) - done)


def _unless(grid: Grid, needed: float) -> Vector:
    return [0.0 if slack >= needed - ROUND else NEVER for slack in grid.slack]


def _shift(values: Vector, shift: Shift) -> Vector:
    return [values[below] * one + values[below + 1] * other for below, one, other in shift]


def _plus(values: Vector, others: Vector) -> Vector:
    return [one + other for one, other in zip(values, others, strict=True)]


def _least(*vectors: Vector) -> Vector:
    return list(map(min, *vectors))


def _row(values: Vector, done: int) -> array[float]:
    return array("f", values[:done] + [0.0] * (len(values) - done))
