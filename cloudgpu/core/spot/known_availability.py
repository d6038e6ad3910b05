"""What a live job knows of spot: only a launch shows whether there is any; while it runs on demand it sees nothing.

So a policy is told what may be: while nothing runs, that spot may be there, until a launch is refused. While an
on-demand machine runs, that it may be there once `retry_after_h` has passed since a launch was refused or a machine was
lost. If it then wants spot, the on-demand machine is given up for a launch that may be refused.
"""

from __future__ import annotations

from cloudgpu.core.spot.safety_net import SafetyNet
from cloudgpu.core.spot.situation import Answer, State, situation_of

FIRST_RETRY_H = 5.0  # hours before the first retry where a changeover takes one hour; docs/spot.md lists others
CHANGEOVER_EXPONENT = 2 / 3  # a retry costs one changeover; a later retry misses the spot that was available
BACKOFF, MAX_BACKOFF = 1.5, 4.0  # each refusal in a row multiplies the time to the next retry, up to so many times
MAX_REFUSALS = 4  # more refusals in a row than this count as this many
SAME_TRY_H = 1 / 3  # hours; refusals closer together count as one try, as each tick without a machine may launch


def retry_after_h(changeover_h: float, refusals: int) -> float:
    """Return how many hours after a refusal or a loss an on-demand machine is given up for spot.

    `refusals` counts those in a row, each at least `SAME_TRY_H` after the refusal or loss before it.
    """
    backoff = MAX_BACKOFF if refusals > MAX_REFUSALS else min(BACKOFF ** float(refusals), MAX_BACKOFF)
    return FIRST_RETRY_H * float(changeover_h**CHANGEOVER_EXPONENT) * backoff


def resolve_wait(policy_answer: Answer, state: State, net: SafetyNet) -> Answer:
    """Return what a live job does: what its policy wants, but where that is to wait, it may keep or try a machine.

    A machine that runs is kept: to end it saves less than its next start costs. Where nothing runs, spot is tried, if
    the net allows it: a refusal costs nothing.
    """
    if policy_answer["action"] != "wait":
        return policy_answer
    if state["mode"] != "wait":  # also where the work seems done: its command says when it is
        return {"action": state["mode"], "zone": None}
    now = situation_of(state)
    if now.work > 0 and state["spot_available"] and net.is_safe("spot", now):
        return {"action": "spot", "zone": None}
    return policy_answer


class ObservedSpot:
    """What one simulated job has seen of spot. Times are hours since its start."""

    def __init__(self, changeover_h: float) -> None:
        self._changeover = changeover_h
        self._last_missing_h: float | None = None  # when a launch was refused, or a machine lost, for the last time
        self._refusals = 0

    def may_be_available(self, mode: str, elapsed_h: float) -> bool:
        """Return whether the policy is to take spot as available."""
        if mode != "on_demand" or self._last_missing_h is None:
            return True
        return elapsed_h - self._last_missing_h >= retry_after_h(self._changeover, self._refusals) - 1e-9

    def record_start(self) -> None:
        """Note that a spot machine began."""
        self._refusals = 0

    def record_loss(self, elapsed_h: float) -> None:
        """Note that a spot machine was lost."""
        self._last_missing_h = elapsed_h

    def record_refusal(self, elapsed_h: float) -> None:
        """Note that a launch was refused."""
        if self._last_missing_h is not None and elapsed_h - self._last_missing_h >= SAME_TRY_H - 1e-9:
            self._refusals += 1
        self._last_missing_h = elapsed_h
