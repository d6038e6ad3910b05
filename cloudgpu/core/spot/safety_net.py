"""The safety net: overrides a policy where its answer could miss the deadline. The simulator and live jobs use it.

It promises that the deadline holds as long as somebody decides once a tick, an on-demand machine can be had within
`changeover` hours, and the work left is right. `lost` is what goes with a spot machine at most besides its pending
time. In the simulated world that is nothing (0). In a live job it is the work since the last checkpoint and the time
until the loss is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloudgpu.core.spot.situation import ROUNDING, Answer, Mode, Policy, Situation, State, situation_of


@dataclass(frozen=True, slots=True)
class Net:
    """Hours: the changeover of an on-demand start, the time between two decisions, what a loss of spot undoes."""

    changeover: float
    tick: float
    lost: float = 0.0

    def keeps(self, action: Mode, now: Situation, zone: int | None = None) -> bool:
        """Return whether the deadline still holds after a tick of this action, whatever spot does in it.

        After every tick the slack has to cover one on-demand start, or an on-demand machine has to be running.
        """
        if action == "wait":
            return now.slack >= self.changeover + self.tick + ROUNDING
        if action == "on_demand":
            return now.mode == "on_demand" or now.slack >= self.changeover
        return now.slack >= self.changeover + self.lost + self._start(now, zone) + ROUNDING

    def _start(self, now: Situation, zone: int | None) -> float:
        stays = now.mode == "spot" and (zone is None or zone == now.zone)
        return now.pending if stays else self.changeover

    def check(self, wanted: Answer, now: Situation) -> Answer:
        """Return the policy's answer, or on demand where that answer could miss the deadline."""
        if wanted["action"] == "on_demand" or now.work <= 0:
            return wanted
        if wanted["action"] == "spot" and not _can_be_had(wanted["zone"], now):
            wanted = {"action": "wait", "zone": None}
        return wanted if self.keeps(wanted["action"], now, wanted["zone"]) else {"action": "on_demand", "zone": None}


def decide(policy: Policy, net: Net, state: State) -> tuple[Answer, bool]:
    """Ask a policy inside the net. Return the answer that counts, and whether the net has overridden the policy."""
    wanted = policy.decide(state)
    held = net.check(wanted, situation_of(state))
    return held, held["action"] == "on_demand" and wanted["action"] != "on_demand"


def latest_start(deadline: float, work: float, net: Net) -> float:
    """Return the hour at which on demand starts at the latest, were there no progress until then; 0 for at once."""
    return max(0.0, deadline - work - net.changeover - net.tick)


def _can_be_had(zone: int | None, now: Situation) -> bool:
    return any(now.up) if zone is None else zone < len(now.up) and now.up[zone]
