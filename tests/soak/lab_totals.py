"""The lab's judge of sums: what is billed to each owner, by each account and in all, beside the models' own books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from cloudgpu.core.billing.charges import period_charges
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.model.machine import Machine

Sums = dict[str, list[Fraction]]  # by group: at least and at most, in nano-dollars
Costs = Sequence[tuple[str, Mapping[str, Any], Fraction]]  # the account's number, a machine, and what it has cost
BLUR = 2  # nano-dollars: what `cost` says of a group is the difference of two rounded sums
GROUPS: Mapping[str, tuple[Callable[[Machine], str], Callable[[str, Any], str]]] = {
    "account": (lambda row: row.identity.id, lambda number, _: number),
    "owner": (lambda row: row.owner, lambda _, one: one["tags"]["cloudgpu-owner"]),
    "all": (lambda _: "", lambda *_: ""),
}


def totals_harm(costs: Costs, now: datetime, seen: Counter[str], ledger: Any) -> Iterator[str]:
    """Yield which sums of AWS are not what its machines cost, within the range that is stated."""
    for by, (of_row, of_machine) in GROUPS.items():
        said = _of_ledger(ledger, now, lambda row, group=of_row: group(row) if row.provider == "aws" else None)
        truth = dict.fromkeys(said, Fraction(0))
        for number, machine, cost in costs:
            key = of_machine(number, machine)
            truth[key] = truth.get(key, Fraction(0)) + cost
        for key, cost in truth.items():
            low, high = said.get(key, (Fraction(0), Fraction(0)))
            seen["sums compared"] += 1
            seen["sums that are exact"] += low == high
            if not low - BLUR <= cost <= high + BLUR:
                shown = ", ".join(f"{float(one / 10**9):.9f}" for one in (cost, low, high))
                yield f"the sum by {by} {key} is and is said to be (low, high) {shown}"


def shown_harm(by: str, document: Mapping[str, Any], now: datetime, ledger: Any) -> Iterator[str]:
    """Yield which sums of the JSON of `cost --by` are not those of the ledger."""
    sides = ("low_usd", "high_usd")
    said = {one["group"]: [Fraction(Decimal(one[side])) * 10**9 for side in sides] for one in document["groups"]}
    billed_here = _of_ledger(ledger, now, lambda row: str(getattr(row, by)))
    for key in sorted({*said, *billed_here}):
        pairs = zip(said.get(key, (0, 0)), billed_here.get(key, (0, 0)), strict=True)
        if any(abs(one - other) > BLUR for one, other in pairs):
            yield f"`cost --by {by}` says another sum of {key} than the ledger has"


def _of_ledger(ledger: Any, now: datetime, key: Callable[[Machine], str | None]) -> Sums:
    """Return what the ledger bills by what `key` says of a machine's row; without those of which it says nothing."""
    found: Sums = {}
    for item in period_charges(ledger.billable_machines(), ledger.ended_usages(""), now):
        group = key(item.machine)
        if group is not None:
            sums = found.setdefault(group, [Fraction(0), Fraction(0)])
            for side, exact in enumerate((item.charge.low, item.charge.high)):
                sums[side] += Fraction(exact, PARTS_PER_NANO)
    return found
