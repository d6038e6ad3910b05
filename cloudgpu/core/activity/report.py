"""The report of a machine's agent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.core.activity.agent_status import Sample
from cloudgpu.core.activity.idle import UNKNOWN, ActivityVerdict, Thresholds, judge


@dataclass(frozen=True, slots=True)
class Report:
    """What one machine's agent reported, or why it did not (`fault`, a clause; empty if it did).

    `samples` are at most those of the last day by the machine's own clock, oldest first. `machine_now` and `up_since`
    are epoch seconds of that clock; None if it did not report. `answer` is the rest of its JSON. `scratch` are
    (path, bytes) of the disks that a stop erases and that are not empty. `engine` is the text that the engine of its
    cluster (Slurm or Ray) reported, for `core.clusters.engine`.
    """

    machine_id: str
    asked_at: datetime
    answer: dict[str, Any] | None
    fault: str = ""
    samples: tuple[Sample, ...] = ()
    machine_now: float | None = None
    up_since: float | None = None
    scratch: tuple[tuple[str, int], ...] = ()
    engine: str = ""

    def judged(self, thresholds: Thresholds) -> ActivityVerdict:
        """Return whether the machine was in use at `asked_at`; UNKNOWN, with the fault, if its agent did not report."""
        if self.machine_now is None or self.up_since is None:
            return ActivityVerdict(UNKNOWN, -1, self.fault, ())
        return judge(self.samples, thresholds, self.machine_now, self.up_since)
