"""The safety net: overrides a policy where its answer could miss the deadline. The simulator and live jobs use it.

It promises that the deadline holds as long as somebody decides once a tick, an on-demand machine can be had within
`changeover` hours, and the work left is right. `lost` is how many hours of work the loss of a spot machine undoes at
most, besides its pending time: 0 in the simulated world. In a live job it is the work since the last checkpoint and the
time until the loss is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloudgpu.core.spot.situation import TOLERANCE_H, Answer, Mode, Situation


@dataclass(frozen=True, slots=True)
class SafetyNet:
    """The times that a job with a deadline keeps free, in hours.

    `changeover` is that of an on-demand start. `tick` is between two decisions: of a watcher, or of a simulation.
    `lost` is what a loss of spot undoes.
    """

    changeover: float
    tick: float
    lost: float = 0.0

    def is_safe(self, action: Mode, now: Situation, zone: int | None = None) -> bool:
        """Return whether the deadline can still be met after a tick of this action, whatever spot does in it.

        After every tick the slack has to cover one on-demand start, or an on-demand machine has to be running.
        """
        if action == "wait":
            return now.slack >= self.changeover + self.tick + TOLERANCE_H
        if action == "on_demand":
            return now.mode == "on_demand" or now.slack >= self.changeover
        return now.slack >= self.changeover + self.lost + self._start_delay(now, zone) + TOLERANCE_H

    def _start_delay(self, now: Situation, zone: int | None) -> float:
        keeps_machine = now.mode == "spot" and (zone is None or zone == now.zone)
        return now.pending if keeps_machine else self.changeover

    def check(self, policy_answer: Answer, now: Situation) -> Answer:
        """Return the policy's answer, or on demand where that answer could miss the deadline."""
        if policy_answer["action"] == "on_demand" or now.work <= 0:
            return policy_answer
        zone = policy_answer["zone"]
        has_spot = any(now.available) if zone is None else zone < len(now.available) and now.available[zone]
        if policy_answer["action"] == "spot" and not has_spot:
            policy_answer = {"action": "wait", "zone": None}
        return (
            policy_answer
            if self.is_safe(policy_answer["action"], now, policy_answer["zone"])
            else {"action": "on_demand", "zone": None}
        )


def latest_start(deadline: float, work: float, net: SafetyNet) -> float:
    """Return the hour at which on demand starts at the latest, were there no progress until then; 0 for at once."""
    return max(0.0, deadline - work - net.changeover - net.tick)
