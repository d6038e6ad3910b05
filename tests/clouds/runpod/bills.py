"""What RunPod bills a pod, by its own pages and with nothing of cloudgpu's billing: a book of intervals per pod.

"Pods are billed by the second for compute and storage" (docs, Pods, Pricing, 2026-08-20): compute from the creation
until a stop or the end; the container disk 0.10 USD a GB-month while the pod runs, nothing while it is stopped; the
volume disk 0.10 while it runs and 0.20 while it is stopped. That a month is the calendar's is our belief; here it has
30 days.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction

HOUR, MONTH = 3600, 30 * 24 * 3600  # seconds
CONTAINER, VOLUME_RUNNING, VOLUME_STOPPED = (Fraction(text) for text in ("0.10", "0.10", "0.20"))


@dataclass
class Book:
    """One pod's bill: USD per hour of compute, GB of container disk and of volume, and since when it is so."""

    per_hour: Fraction
    disk: int
    volume: int
    since: datetime
    runs: bool = True
    ended: bool = False
    compute: Fraction = field(default_factory=Fraction)
    storage: Fraction = field(default_factory=Fraction)

    def until(self, now: datetime) -> None:
        """Bill what has passed since the last change."""
        delta = now - self.since
        seconds = Fraction(delta.days * 86400 * 10**6 + delta.seconds * 10**6 + delta.microseconds, 10**6)
        self.since = now
        if self.ended:
            return
        if self.runs:
            self.compute += self.per_hour * seconds / HOUR
            self.storage += (CONTAINER * self.disk + VOLUME_RUNNING * self.volume) * seconds / MONTH
        else:
            self.storage += VOLUME_STOPPED * self.volume * seconds / MONTH

    def turn(self, now: datetime, *, runs: bool) -> None:
        """Let it run, or be stopped, from now on."""
        self.until(now)
        self.runs = runs

    def end(self, now: datetime) -> None:
        """Let it end."""
        self.until(now)
        self.ended = True

    @property
    def total(self) -> Fraction:
        """USD so far, as of the last change or look."""
        return self.compute + self.storage
