"""The policies by name: on demand, greedy, uniform progress; the adaptive one has modules of its own."""

from __future__ import annotations

from collections.abc import Callable

from cloudgpu.core.spot.safety_net import SafetyNet
from cloudgpu.core.spot.situation import (
    TOLERANCE_H,
    Answer,
    JobFacts,
    Policy,
    Situation,
    State,
    Task,
    answer,
    situation_of,
    task_of,
)


class OnDemand:
    """On demand from the start to the end: the most expensive, and what the others are compared with."""

    def reset(self, job: JobFacts) -> None:
        """Check the job; nothing else is needed. Raises InvalidRequest where a number of it is impossible."""
        task_of(job)

    def decide(self, state: State) -> Answer:
        """Return on demand, or nothing once the work is done."""
        now = situation_of(state)
        return answer("on_demand" if now.work > 0 else "wait", now)


class _ThresholdPolicy:
    """What greedy and uniform progress share, of "Can't Be Late" (NSDI 2024).

    Thrifty: nothing runs once the work is done. Exploitation: stay on spot until it is lost. Safety net: idle with
    little time left means on demand to the end.
    """

    def reset(self, job: JobFacts) -> None:
        """Begin a new job. Raises InvalidRequest where a number of it is impossible."""
        self._task = task_of(job)
        self._net = SafetyNet(self._task.changeover, self._task.tick)
        self._to_the_end = False

    def decide(self, state: State) -> Answer:
        """Return what runs in this tick."""
        now = situation_of(state)
        if now.work <= 0:
            return answer("wait", now)
        if now.running_spot and self._net.is_safe("spot", now):
            return answer("spot", now)
        self._to_the_end = self._to_the_end or (now.mode != "on_demand" and is_late(now, self._task))
        return self._net.check(answer("on_demand", now) if self._to_the_end else self._choose(now), now)

    def _choose(self, now: Situation) -> Answer:
        raise NotImplementedError


class Greedy(_ThresholdPolicy):
    """Take spot whenever it is there, wait else, and go on demand when the time left forces it."""

    def _choose(self, now: Situation) -> Answer:
        return answer("wait" if now.first_available is None else "spot", now)


class UniformProgress(_ThresholdPolicy):
    """Keep to even progress from the start to the deadline: on demand when behind it, spot whenever it is there."""

    def _choose(self, now: Situation) -> Answer:
        if now.mode == "on_demand":
            leaves = now.first_available is not None and self._is_ahead(now, 2 * self._task.changeover)
            return answer("spot" if leaves else "on_demand", now)
        if now.first_available is not None:
            return answer("spot", now)
        return answer("wait" if self._is_ahead(now, 0.0) else "on_demand", now)

    def _is_ahead(self, now: Situation, hours_ahead: float) -> bool:
        task = self._task
        expected = (now.elapsed + hours_ahead) * task.work / task.deadline
        return task.work - now.work >= expected - TOLERANCE_H


def is_late(now: Situation, task: Task) -> bool:
    """Return whether an idle job has to go on demand now: the safety net of the paper, in whole ticks."""
    start = 2 * task.changeover
    needed = start if now.first_available is not None else max(start, task.changeover + task.tick)
    return now.slack < needed + TOLERANCE_H


def _adaptive() -> Policy:
    from cloudgpu.core.spot.adaptive import Adaptive

    return Adaptive()


POLICIES: dict[str, Callable[[], Policy]] = {
    "on-demand": OnDemand,
    "greedy": Greedy,
    "uniform-progress": UniformProgress,
    "adaptive": _adaptive,
}
