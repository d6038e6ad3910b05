"""What a live job knows of spot: it learns whether there is some by launching, and on demand it sees nothing.

So a policy is told what may be: while nothing runs, that spot may be there, until a launch is refused. While an
on-demand machine runs, that it may be there once `next_try_h` has passed since a launch was refused or a machine was
lost. If it then wants spot, the on-demand machine is given up for a launch that may be refused.
"""

from __future__ import annotations

from cloudgpu.core.spot.safety_net import Net
from cloudgpu.core.spot.situation import Answer, State, situation_of

FIRST = 5.0  # hours before the first try, where a changeover takes one; docs/spot.md lists others
POWER = 2 / 3  # of the changeover: a try costs one, and to try later costs the spot that was there
LATER, MAX_LATER = 1.5, 4.0  # each refusal in a row makes the next try so much later, up to so much in all
ENOUGH = 4  # refusals in a row, from which on it comes no later
APART_H = 1 / 3  # refusals closer together are of one try: while nothing runs, each look may launch


def next_try_h(changeover_h: float, refusals: int) -> float:
    """Return how many hours after a refusal or a loss on demand is given up for spot.

    `refusals` counts those in a row that lie at least `APART_H` after what was seen before them.
    """
    later = MAX_LATER if refusals > ENOUGH else min(LATER ** float(refusals), MAX_LATER)
    return FIRST * float(changeover_h**POWER) * later


def live_action(wanted: Answer, state: State, net: Net) -> Answer:
    """Return what a live job does where its policy waits, else what it wants.

    What runs is kept: to end it saves less than its next start costs. Where nothing runs, spot is tried, if the net
    allows it: a refusal costs nothing, and spot that nobody sees does not get older for us.
    """
    if wanted["action"] != "wait":
        return wanted
    if state["mode"] != "wait":  # also where the work seems done: its command says when it is
        return {"action": state["mode"], "zone": None}
    now = situation_of(state)
    if now.work > 0 and state["spot_available"] and net.keeps("spot", now):
        return {"action": "spot", "zone": None}
    return wanted


class ObservedSpot:
    """What one simulated job has seen of spot. Times are hours since its start."""

    def __init__(self, changeover_h: float) -> None:
        self._changeover = changeover_h
        self._missing: float | None = None  # when a launch was refused, or a machine lost, for the last time
        self._refusals = 0

    def may_be_up(self, mode: str, elapsed_h: float) -> bool:
        """Return what the policy is told of spot."""
        if mode != "on_demand" or self._missing is None:
            return True
        return elapsed_h - self._missing >= next_try_h(self._changeover, self._refusals) - 1e-9

    def had(self) -> None:
        """Note that a spot machine began."""
        self._refusals = 0

    def lost(self, elapsed_h: float) -> None:
        """Note that a spot machine was lost."""
        self._missing = elapsed_h

    def refused(self, elapsed_h: float) -> None:
        """Note that a launch was refused."""
        if self._missing is not None and elapsed_h - self._missing >= APART_H - 1e-9:
            self._refusals += 1
        self._missing = elapsed_h
