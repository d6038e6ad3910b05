"""What can be written into the ledger: drafts, and the lines they become.

Every time inside a body is `times.iso` text; every amount is whole nano-dollars; nothing in a body is a secret.
`core.events.kinds` lists the kinds, with the type of each body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cloudgpu.core.values.times import from_iso

FORMAT = 2  # of the kinds and the bodies of lines: a ledger's first line says by which number it is written
BUDGET_SET, BUDGET_REMOVED, BUDGET_OVERRIDDEN = "budget_set", "budget_removed", "budget_overridden"
LEDGER_MOVED, LEDGER_MOVING, LEDGER_ARRIVED = "ledger_moved", "ledger_moving", "ledger_arrived"
OWN_CLOCK = "own"  # this client's clock
PROVIDER = "provider"  # the provider's word
MACHINE = "machine"  # the machine's own clock
_WHOLE_SECONDS = timedelta(seconds=1)  # clouds cut their times to them


@dataclass(frozen=True, slots=True)
class Draft:
    """A line before it is in the ledger. The same `dedupe` is written once, whoever tries again."""

    kind: str
    subject: str
    body: Mapping[str, Any]
    occurred_at: datetime
    dedupe: str
    clock: str = OWN_CLOCK


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the ledger. `seq` starts at 1 and has no holes; `prev_hash` is the hash of the line before."""

    seq: int
    occurred_at: str
    clock: str
    recorded_at: str
    actor: str
    kind: str
    subject: str
    dedupe: str
    prev_hash: str
    body: Mapping[str, Any]


class EventSummary(NamedTuple):
    """What a line says, without what proves it: all that a fold of a whole ledger reads, and quickly made."""

    seq: int
    occurred_at: str
    kind: str
    subject: str
    dedupe: str
    body: Mapping[str, Any]


Line = Event | EventSummary


def clock_ahead(intended_at: str | None, launched_at: str | None) -> timedelta:
    """Return by how much the clock of a launch is ahead of its provider's, as far as that shows.

    No machine was made before it was asked for. What that clock saw start may have run already, by so much.
    """
    if not intended_at or not launched_at or launched_at >= intended_at:
        return timedelta(0)
    found = from_iso(intended_at) - from_iso(launched_at)
    return found if found > _WHOLE_SECONDS else timedelta(0)
