"""How each provider bills each resource: granularity, minimum, month's length, and what is free, with its source."""

from __future__ import annotations

from dataclasses import dataclass

from cloudgpu.core.uses import Resource, Use

MINUTE = 60_000_000  # microseconds
SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Rule:
    """How a resource is billed.

    `granularity_us` is what is started and billed whole, `minimum_us` the least of each start, in microseconds.
    `month_hours` is the length of a GB-month; None: that of the calendar's month, in UTC. `free_when_taken_us`: a run
    that the provider interrupts within so many microseconds of its start is free; 0: there is no such rule.
    """

    provider: str
    market: str
    resource: str
    granularity_us: int
    minimum_us: int
    month_hours: int | None
    source: str
    as_of: str
    status: str
    free_when_taken_us: int = 0
    free_every_run: bool = False

    def is_free(self, use: Use, length_us: int) -> str:
        """Return why this run is free, empty where it is not."""
        if use.reason != "interrupted" or length_us >= self.free_when_taken_us or use.end is None:
            return ""
        return f"free: {use.provider} interrupted it soon after its start" if use.first or self.free_every_run else ""

    def maybe_free(self, use: Use, length_us: int) -> str:
        """Return why this run may be free, empty where that is known."""
        if use.reason != "interrupted" or length_us >= self.free_when_taken_us or use.end is None or use.first:
            return ""
        return "it may be free: it was interrupted soon after a start that was not its first"


_ANY = Rule("*", "*", "*", 1, 0, 730, "none: billed by the microsecond, a month of 730 hours", "", "convention")
_CLOUD = Rule("aws", "*", "*", SECOND, MINUTE, None, "see facts", "2026", "to be completed")
_SPOT = Rule("aws", "spot", "instance", SECOND, MINUTE, None, "see facts", "2026", "", 60 * MINUTE)


def rule_for(use: Use) -> Rule:
    """Return the rule by which a use is billed."""
    if use.provider == "aws":
        return _SPOT if use.market == "spot" and use.resource is Resource.INSTANCE else _CLOUD
    return _ANY
