"""The report of a machine's agent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.core.activity.agent_status import Sample
from cloudgpu.core.activity.idle import UNKNOWN, Judged, Thresholds, judge


@dataclass(frozen=True, slots=True)
class Report:
    """What one machine's agent said, or why nothing is known of it (`fault`, a clause; empty where it spoke).

    `samples` are at most those of the last day by the machine's own clock, oldest first. `machine_now` and `up_since`
    are epoch seconds of that clock; None where nothing is known. `scratch` are (path, bytes) of the disks that a stop
    erases and that are not empty. `engine` is what its cluster's engine said with it, for `core.clusters.engine`.
    """

    row_id: str
    asked_at: datetime
    answer: dict[str, Any] | None
    fault: str = ""
    samples: tuple[Sample, ...] = ()
    machine_now: float | None = None
    up_since: float | None = None
    scratch: tuple[tuple[str, int], ...] = ()
    engine: str = ""

    def judged(self, thresholds: Thresholds) -> Judged:
        """Return whether the machine was in use when it was asked; UNKNOWN, with the fault, where it said nothing."""
        if self.machine_now is None or self.up_since is None:
            return Judged(UNKNOWN, -1, self.fault, ())
        return judge(self.samples, thresholds, self.machine_now, self.up_since)
