"""The lab's judge: what the ledger says beside what the models of the clouds know. Each fault is one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

from cloudgpu.core.billing.charges import period_charges
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.model.machine import Machine

LIVING = ("pending", "running", "stopping", "stopped")
NANO = Fraction(1)
WORDS = {"pending": {"pending", "running"}, "stopping": {"stopping", "stopped"}}  # what is on its way, may be there


def word_of(row: Machine) -> tuple[Any, ...]:
    """Return what a look that cannot see this machine must leave as it is."""
    said = row.launch_status, row.state, row.terminated_at, row.renew_until, row.provider_id
    return *said, row.decision, row.retained, row.parked


def strangers_harm(before: Sequence[Machine], after: Sequence[Machine], mine: Collection[str]) -> Iterator[str]:
    """Yield what a command has changed of machines that it cannot see; `mine` are the ids of those that it can."""
    now = {row.id: row for row in after}
    for row in before:
        if row.id not in mine and word_of(row) != word_of(now[row.id]):
            yield f"a stranger changed {row.name} from {word_of(row)} to {word_of(now[row.id])}"


def words_harm(rows: Sequence[Machine], machines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield where the ledger's word of a machine is not the cloud's, one lives twice, or lives unknown."""
    known = {row.id: row for row in rows}
    living = [one for one in machines if one["state"] in LIVING]
    for tag in ("cloudgpu-id", "cloudgpu-key"):
        for value, count in Counter(one["tags"][tag] for one in living).items():
            if count > 1:
                yield f"{count} machines live with the {tag} {value}"
    for one in living:
        row = known.get(one["tags"]["cloudgpu-id"])
        if row is None:
            yield f"{one['id']} ({one['tags']['cloudgpu-name']}) is {one['state']} and unknown to the ledger"
        elif row.terminated_at is not None:
            yield f"{row.name} has ended at {row.terminated_at} in the ledger, and is {one['state']}"
        elif row.state not in {one["state"], *WORDS.get(row.state, ())}:
            yield f"{row.name} is {row.state} in the ledger, and {one['state']}"
    there = {one["tags"]["cloudgpu-id"] for one in living}
    for row in rows:
        if row.launch_status != "open" and row.terminated_at is None and row.id not in there:
            yield f"{row.name} is {row.state} ({row.launch_status}) in the ledger, and there is none"


def sums(ledger: Any, now: datetime) -> dict[str, list[Fraction]]:
    """Return by machine what the ledger bills it: the amount, at least and at most, in nano-dollars."""
    found: dict[str, list[Fraction]] = {}
    for item in period_charges(ledger.billable_machines(), ledger.ended_usages(""), now):
        sides = found.setdefault(item.machine.id, [Fraction(0)] * 3)
        for place, exact in enumerate((item.charge.amount, item.charge.low, item.charge.high)):
            sides[place] += Fraction(exact, PARTS_PER_NANO)
    return found


def bill_harm(
    ledger: Any,
    costs: Sequence[tuple[str, Mapping[str, Any], Fraction]],
    now: datetime,
    seen: Counter[str],
) -> Iterator[str]:
    """Yield where the ledger's sum of a machine is not what it cost, within the range that the ledger states."""
    found = sums(ledger, now)
    for _, one, truth in costs:
        amount, low, high = found.get(one["tags"]["cloudgpu-id"], [Fraction(0)] * 3)
        seen["bills that are exact"] += low == high
        seen["bills that are a range"] += low != high
        if not low - NANO <= truth <= high + NANO:
            said = ", ".join(f"{float(value / 10**9):.9f}" for value in (truth, amount, low, high))
            yield f"{one['tags']['cloudgpu-name']} cost and is billed (amount, low, high) {said}: {one['log']}"
