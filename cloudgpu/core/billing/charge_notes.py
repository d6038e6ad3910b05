"""Notes stored with the totals of ended usages: uncertainties, price marks, comparisons, interruptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import TypedDict

from cloudgpu.core.billing.charges import Charge
from cloudgpu.core.billing.rules import RULES
from cloudgpu.core.model.facts import ChargeNote
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import PriceInterval, Resource
from cloudgpu.core.values.times import first_moment, from_iso, iso

_FREE = "never"  # how the rule of a cloud begins that charges for no traffic
CHARGING = frozenset(  # reads no catalogue
    rule.provider for rule in RULES if rule.resource == Resource.TRAFFIC and not rule.states.startswith(_FREE)
)
DERIVED, RECALLED, ASSUMED, OLD = "~", "?", "^", "!"
_MARK_OF = {"derived": DERIVED, "recalled": RECALLED, "assumed": ASSUMED}
_ORDER = DERIVED + RECALLED + ASSUMED + OLD
_MAX_REASONS = 8  # of one resource of one machine; what is beyond says nothing new


# Of no charge at all. `marks` are those of docs/catalog.md; `reasons` why low and high differ; `compared` is what the
# runs cost whose on-demand price is known; `interrupted` is [low, amount, high, micros, runs] of those that the
# provider took away. Amounts are exact parts, as in `core.billing`.
NO_NOTE = ChargeNote("", (), 0, (0, 0, 0, 0, 0))


def note_with_charge(note: ChargeNote, charge: Charge) -> ChargeNote:
    """Return the note with a charge in it."""
    compared, interrupted, reasons = note.compared, note.interrupted, note.reasons
    if charge.usage.resource is Resource.INSTANCE:
        compared += charge.amount if charge.list_cost is not None else 0
        if charge.usage.reason == "interrupted":
            parts = (charge.low, charge.amount, charge.high, charge.billed_us, 1)
            interrupted = tuple([old + part for old, part in zip(interrupted, parts, strict=True)])
    if charge.low != charge.high:
        reasons = (*reasons, *[reason for reason in charge.reasons if reason not in reasons])[:_MAX_REASONS]
    return ChargeNote(
        join_marks(note.marks, marks(charge.usage.segments, charge.usage.begin)), reasons, compared, interrupted
    )


@lru_cache(maxsize=1024)  # the same few marks come again with every charge
def join_marks(*marks: str) -> str:
    """Return every mark of these once, in one order."""
    if not any(marks):
        return ""
    return "".join(mark for mark in _ORDER if any(mark in one for one in marks))


def marks(segments: Iterable[PriceInterval], begin: str) -> str:
    """Return how far these prices can be trusted that are paid from `begin` on: some of `~?^!`, or nothing."""
    return join_marks(*_marks(segments, begin))


def _marks(segments: Iterable[PriceInterval], begin: str) -> Iterator[str]:
    for basis, as_of, day in {(one.basis, (one.as_of or "")[:10], max(begin, one.at)[:10]) for one in segments}:
        yield _MARK_OF.get(basis or "", "")
        yield _age_mark(as_of, day)


@cache
def _age_mark(as_of: str, day: str) -> str:
    """Return the mark of a price with this date on this day, or nothing."""
    from cloudgpu.core.catalog.catalog import is_old  # `ls` does without

    dated = first_moment(as_of)
    return OLD if dated is not None and is_old(dated, from_iso(f"{day}T00:00:00Z")) else ""


class GapRecord(TypedDict):
    """What a `TrafficGap` says, as documents have it."""

    machine: str
    name: str
    since: str
    until: str | None


@dataclass(frozen=True, slots=True)
class TrafficGap:
    """From when to when nobody has counted a machine's bytes out: ledger times, `until` None where it still runs."""

    machine: str
    name: str
    since: str
    until: str | None

    def value(self) -> GapRecord:
        """Return it as a part of a JSON document."""
        return {"machine": self.machine, "name": self.name, "since": self.since, "until": self.until}

    def __str__(self) -> str:
        ends = f" until {self.until[:16].replace('T', ' ')}" if self.until else ""
        return f"bytes out of {self.name} not counted since {self.since[:16].replace('T', ' ')}{ends} UTC"


def traffic_gaps(machines: Iterable[Machine]) -> list[TrafficGap]:
    """Return what was never read of the machines' counters: from the last count, or the launch, until their end.

    Only of machines that have run where bytes out are charged. The counter goes on over stops and boots: what a stopped
    machine has sent since the last count is read when it runs again, and is a gap only if it never does.
    """
    ran = (
        machine
        for machine in machines
        if not machine.is_named_resource and machine.provider_id and _is_charged(machine)
    )
    waiting = (machine for machine in ran if machine.billed or machine.terminated_at or not machine.traffic)
    gaps = [
        TrafficGap(machine.id, machine.name, _traffic_counted_until(machine), machine.terminated_at)
        for machine in waiting
    ]
    return [gap for gap in gaps if gap.until is None or gap.until > gap.since]


def _is_charged(machine: Machine) -> bool:
    return machine.provider in CHARGING or machine.traffic_prices is not None


def gaps_within(machines: Iterable[Machine], since: datetime | None, until: datetime | None) -> list[TrafficGap]:
    """Return the gaps that reach into a period; None: without that end."""
    begin, end = (None if moment is None else iso(moment) for moment in (since, until))
    gaps = (gap for gap in traffic_gaps(machines) if end is None or gap.since < end)
    return [gap for gap in gaps if begin is None or gap.until is None or gap.until > begin]


def _traffic_counted_until(machine: Machine) -> str:
    last = machine.traffic
    return str(last.until if last else machine.launched_at or machine.intended_at)
