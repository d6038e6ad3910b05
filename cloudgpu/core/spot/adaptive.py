"""The adaptive policy: the action whose expected cost is least, over models weighed by what this job has seen.

Each model of losses is solved as a Markov decision process (horizon.py) when the job starts. At every tick the costs of
the models are averaged with their chances (belief.py). A change of machine has to be worth `WORTH` spot hours more than
what runs, as the models are not exact. The safety net and exploitation of the other policies hold here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from json import loads
from typing import Any

from cloudgpu.core.spot.belief import Belief
from cloudgpu.core.spot.hazards import Mixture, mixture_of
from cloudgpu.core.spot.horizon import Plan, grid_of
from cloudgpu.core.spot.net import Net
from cloudgpu.core.spot.situation import Answer, Mode, Situation, Task, answer, situation_of, task_of

WORTH = 0.1  # spot hours that a change has to save
STEPS = 288  # of time that a plan has at most: it bounds the time that `reset` takes
SHORTEST = 1 / 6  # hours of a step
REMEMBERED = 7 * 24.0  # hours of prior history that count
UNLIKELY = 1e-3  # chance of a model under which it is not looked at
DEAREST = 1000.0  # on-demand hours in spot hours at most; spot that costs nothing has no such ratio


Cost = tuple[float, Mode, int | None]


class Adaptive:
    """Weigh models of losses by the job's own past, and take the action that costs least under them."""

    def __init__(self, mixture: Mixture | None = None) -> None:
        """Use the shipped models, or those that are given."""
        self._mixture = mixture or shipped()

    def reset(self, job: Mapping[str, Any]) -> None:
        """Begin a new job: solve every model. Raises InvalidRequest where a number of the job is impossible."""
        self._task = task_of(job)
        self._net = Net(self._task.changeover, self._task.tick)
        self._plans = plans_of(self._task, self._mixture)
        self._beliefs: list[Belief] = []

    def decide(self, state: Mapping[str, Any]) -> Answer:
        """Return what runs in this tick."""
        now = situation_of(state)
        self._learn(now)
        if now.work <= 0:
            return answer("wait", now)
        _, action, zone = min(self._costs(now), key=lambda cost: cost[0])
        return self._net.check(answer(action, now, zone), now)

    def _learn(self, now: Situation) -> None:
        """Begin a belief for each zone at the first tick, and let all of them see this one."""
        for zone in range(len(self._beliefs), len(now.up)):
            self._beliefs.append(self._begin(zone))
        for belief, up in zip(self._beliefs, now.up, strict=False):
            belief.see(up)

    def _begin(self, zone: int) -> Belief:
        belief = Belief(self._mixture, self._task.tick)
        if zone < len(self._task.history):
            belief.see_all(self._task.history[zone][-int(REMEMBERED / self._task.tick) :])
        return belief

    def _costs(self, now: Situation) -> list[Cost]:
        """Return the costs of what keeps the deadline; on demand always does, or nothing does any more."""
        found: list[Cost] = []
        for zone, up in enumerate(now.up):
            view = _View(self._beliefs[zone], self._plans, now)
            found.append((view.on_demand(self._task.changeover), "on_demand", None))
            if self._net.keeps("wait", now):
                found.append((view.wait(), "wait", None))
            if up and self._net.keeps("spot", now, zone):
                stays = now.running_spot and zone == now.zone
                found.append((view.spot(now.pending if stays else self._task.changeover, stays), "spot", zone))
        return found


class _View:
    """The expected costs of the actions as one zone sees them, in spot hours."""

    def __init__(self, belief: Belief, plans: Sequence[Plan], now: Situation) -> None:
        pairs = zip(belief.chances(), plans, strict=True)
        self._weighed = [(chance, plan) for chance, plan in pairs if chance > UNLIKELY]
        self._node, self._now = belief.node, now

    def wait(self) -> float:
        now, node = self._now, self._node
        return sum(chance * plan.wait(node, now.time, now.slack) for chance, plan in self._weighed)

    def on_demand(self, changeover: float) -> float:
        now, node = self._now, self._node
        runs = now.mode == "on_demand"
        slack = now.slack - (now.pending if runs else changeover)
        cost = sum(chance * plan.on_demand(node, now.time, slack) for chance, plan in self._weighed)
        return cost - WORTH if runs else cost

    def spot(self, pending: float, stays: bool) -> float:  # noqa: FBT001  a fact of the tick
        now, node = self._now, self._node
        cost = sum(chance * plan.spot(node, now.time, now.slack, pending) for chance, plan in self._weighed)
        return cost - WORTH if stays else cost


def plans_of(task: Task, mixture: Mixture) -> list[Plan]:
    """Solve every model of the mixture for this job."""
    step = max(task.tick, SHORTEST, task.deadline / STEPS)
    ratio = min(DEAREST, task.price_ratio)
    grid = grid_of(task.deadline, task.deadline - task.work, step, task.changeover, ratio)
    return [Plan(model, grid) for model in mixture.models]


def shipped() -> Mixture:
    """Return the models that were fitted to public traces; benchmarks/spot/fit.py writes them."""
    from cloudgpu.core.spot.fitted import MODELS

    return mixture_of(loads(MODELS))
