"""The lines of the ledger: drafts before they are appended, and events after.

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
PROVIDER = "provider"  # the provider's clock
MACHINE = "machine"  # the machine's own clock
_PROVIDER_RESOLUTION = timedelta(seconds=1)  # clouds report times in whole seconds


@dataclass(frozen=True, slots=True)
class Draft:
    """A line before it is appended to the ledger. A second line with the same `dedupe` is not written.

    `subject` is what it is about: the id of a machine, or a word such as `budgets`.
    """

    kind: str
    subject: str
    body: Mapping[str, Any]
    occurred_at: datetime
    dedupe: str
    clock: str = OWN_CLOCK


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the ledger. `seq` counts from 1 without gaps; `prev_hash` is the hash of the line before."""

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
    """A line without actor, clock and hash: all that a projection reads, and quick to make."""

    seq: int
    occurred_at: str
    kind: str
    subject: str
    dedupe: str
    body: Mapping[str, Any]


Line = Event | EventSummary


def clock_ahead(intended_at: str | None, launched_at: str | None) -> timedelta:
    """Return by how much the clock of the launching client is ahead of its provider's, as far as can be seen.

    A machine cannot be created before its request. So a machine that this client saw start may have run for as long
    already.
    """
    if not intended_at or not launched_at or launched_at >= intended_at:
        return timedelta(0)
    ahead = from_iso(intended_at) - from_iso(launched_at)
    return ahead if ahead > _PROVIDER_RESOLUTION else timedelta(0)
