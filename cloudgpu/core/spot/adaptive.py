"""The adaptive policy: the action whose expected cost is least, over models weighed by what this job has seen.

Each model of losses is solved as a Markov decision process (horizon.py) when the job starts. At every tick the costs
of the models are averaged with their chances (hazards.py). A change has to save `MIN_SAVING_H` spot hours, as no
model is exact. Several zones count as one that has spot while any of them does; a start takes the zone that has had it
longest. The safety net holds here, too.

A live job that tried spot and was refused asks again for the same moment: what the policy was told first is taken back.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from cloudgpu.core.spot.hazards import Belief, Mixture, shipped_models
from cloudgpu.core.spot.horizon import Plan, grid_of
from cloudgpu.core.spot.safety_net import SafetyNet
from cloudgpu.core.spot.situation import Answer, JobFacts, Mode, Situation, State, Task, answer, situation_of, task_of

MIN_SAVING_H = 0.1  # spot hours that a change has to save
STEPS = 384  # steps of time that a plan has at most: it bounds the time that `reset` takes
SHORTEST_STEP_H = 1 / 6
PRIOR_HOURS = 7 * 24.0  # hours of prior history that count
MIN_CHANCE = 1e-3  # a model that is less likely than this is ignored
MAX_RATIO = 1000.0  # spot hours for the price of an on-demand hour, at most; spot that costs nothing has no such ratio


class Adaptive:
    """Weigh models of losses by the job's own past, and take the action that costs least under them."""

    def __init__(self, mixture: Mixture | None = None) -> None:
        """Use the shipped models, or those that are given."""
        self._mixture = mixture or shipped_models()
        self._solved: Task | None = None
        self._plans: list[Plan] = []

    def reset(self, job: JobFacts) -> None:
        """Begin a new job: solve every model. Raises InvalidRequest where a number of the job is impossible."""
        task = task_of(job)
        self._net = SafetyNet(task.changeover, task.tick)
        task_without_history = replace(task, history=())
        if task_without_history != self._solved:  # a simulation begins one job again and again
            self._plans, self._solved = plans_of(task_without_history, self._mixture), task_without_history
        self._belief = Belief(self._mixture, task.tick)
        self._ages: list[int] = []  # ticks for which each zone has had spot
        self._decided_at: float | None = None  # elapsed hours of the last decision
        self._ages_before = self._ages  # before that decision
        ticks = max(1, int(PRIOR_HOURS / task.tick))
        newest_first = zip_longest(*(zone[: -ticks - 1 : -1] for zone in task.history), fillvalue=False)
        for availability in reversed(list(newest_first)):
            self._observe(availability)

    def decide(self, state: State) -> Answer:
        """Return what runs in this tick."""
        now = situation_of(state)
        if self._decided_at == now.elapsed:
            self._belief.take_back()
            self._ages = self._ages_before
        self._decided_at, self._ages_before = now.elapsed, self._ages
        self._observe(now.available)
        if now.work <= 0:
            return answer("wait", now)
        costs = self._costs(now, self._zone(now))
        return self._net.check(answer(min(costs, key=costs.__getitem__), now, self._zone(now)), now)

    def _observe(self, available: tuple[bool, ...]) -> None:
        """Learn from one tick, and count how long each zone has had spot."""
        self._belief.observe(any(available))
        ages = self._ages + [0] * (len(available) - len(self._ages))
        self._ages = [age + 1 if has else 0 for age, has in zip(ages, available, strict=False)]

    def _zone(self, now: Situation) -> int | None:
        """Return where spot runs, or the zone that has had it longest; None where no zone has it."""
        if now.running_spot:
            return now.zone
        best = max(range(len(now.available)), key=lambda zone: self._ages[zone])
        return best if now.available[best] else None

    def _costs(self, now: Situation, zone: int | None) -> dict[Mode, float]:
        """Return the expected costs, in spot hours, of the actions that keep the deadline."""
        changeover = self._net.changeover
        costs: dict[Mode, float] = {}
        if self._net.is_safe("wait", now):
            costs["wait"] = self._expected_cost("wait", now, 0.0)
        if zone is not None and self._net.is_safe("spot", now, zone):
            costs["spot"] = self._expected_cost("spot", now, now.pending if now.running_spot else changeover)
        costs["on_demand"] = self._expected_cost(
            "on_demand", now, now.pending if now.mode == "on_demand" else changeover
        )
        if now.mode in costs and (now.mode == "on_demand" or now.running_spot):
            costs[now.mode] -= MIN_SAVING_H
        return costs

    def _expected_cost(self, action: Mode, now: Situation, pending: float) -> float:
        node = self._belief.node
        pairs = zip(self._belief.chances(), self._plans, strict=True)
        return sum(chance * plan.cost(action, node, now, pending) for chance, plan in pairs if chance > MIN_CHANCE)


def plans_of(task: Task, mixture: Mixture) -> list[Plan]:
    """Solve every model of the mixture for this job."""
    step = max(task.tick, SHORTEST_STEP_H, task.deadline / STEPS)
    ratio = min(MAX_RATIO, task.price_ratio)
    grid = grid_of(task.deadline, task.deadline - task.work, step, task.changeover, ratio)
    return [Plan(model, grid) for model in mixture.models]
