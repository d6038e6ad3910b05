"""Intervals in which a machine's egress was not counted, though its cloud charges for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from cloudgpu.core.billing.rules import RULES
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Resource
from cloudgpu.core.values.times import iso

_FREE_PREFIX = "never"  # how the rule of a cloud without traffic charges begins
CHARGING_PROVIDERS = frozenset(  # by the rules alone, without the catalogue
    rule.provider for rule in RULES if rule.resource == Resource.TRAFFIC and not rule.states.startswith(_FREE_PREFIX)
)


class GapRecord(TypedDict):
    """A `TrafficGap` as a part of a JSON document."""

    machine: str
    name: str
    since: str
    until: str | None


@dataclass(frozen=True, slots=True)
class TrafficGap:
    """An interval in which a machine's egress was not counted: ledger times, `until` None if it has not ended."""

    machine: str
    name: str
    since: str
    until: str | None

    def document(self) -> GapRecord:
        """Return it as a part of a JSON document."""
        return {"machine": self.machine, "name": self.name, "since": self.since, "until": self.until}

    def __str__(self) -> str:
        end_text = f" until {self.until[:16].replace('T', ' ')}" if self.until else ""
        return f"bytes out of {self.name} not counted since {self.since[:16].replace('T', ' ')}{end_text} UTC"


def traffic_gaps(machines: Iterable[Machine]) -> list[TrafficGap]:
    """Return the gaps of machines' counters: from the last count, or the launch, until their end.

    Only of machines that have run where bytes out are charged. The counter goes on over stops and boots: what a stopped
    machine has sent since the last count is read when it runs again, and is a gap only if it never does.
    """
    charged = (
        machine
        for machine in machines
        if not machine.is_named_resource
        and machine.provider_id
        and (machine.provider in CHARGING_PROVIDERS or machine.traffic_prices is not None)
    )
    uncounted = (machine for machine in charged if machine.billed or machine.terminated_at or not machine.traffic)
    gaps = [
        TrafficGap(
            machine.id,
            machine.name,
            machine.traffic.until if machine.traffic else machine.launched_at or machine.intended_at,
            machine.terminated_at,
        )
        for machine in uncounted
    ]
    return [gap for gap in gaps if gap.until is None or gap.until > gap.since]


def gaps_within(machines: Iterable[Machine], since: datetime | None, until: datetime | None) -> list[TrafficGap]:
    """Return the gaps that reach into a period; None: without that end."""
    begin, end = (None if moment is None else iso(moment) for moment in (since, until))
    gaps = (gap for gap in traffic_gaps(machines) if end is None or gap.since < end)
    return [gap for gap in gaps if begin is None or gap.until is None or gap.until > begin]
