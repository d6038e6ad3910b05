"""What charges, and the totals that a row keeps of its ended uses, add up to for one group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloudgpu.core import aside
from cloudgpu.core.billing import Charge
from cloudgpu.core.uses import Resource

Row = Mapping[str, Any]
_NO_NOTE = aside.empty()


@dataclass(slots=True)
class Tally:
    """Sums in exact parts of a nano-dollar (`core.billing.EXACT`) and microseconds.

    `micros` is how long machines were billed, `all_micros` how long anything was. `on_demand` is what the runs with a
    known on-demand price would have cost at it, `compared` what they did cost; `uncompared` counts the runs without.
    `unpriced` names what has no price, `without_price` counts it. `reasons` say why low and high differ.
    `interrupted` and `failed` are (low, amount, high, micros, number) of runs that the provider took away and of
    launches that gave no usable machine. `marks` are those of docs/catalog.md.
    """

    low: int = 0
    amount: int = 0
    high: int = 0
    micros: int = 0
    all_micros: int = 0
    on_demand: int = 0
    compared: int = 0
    uncompared: int = 0
    without_price: int = 0
    unpriced: dict[str, None] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)
    interrupted: list[int] = field(default_factory=lambda: [0] * 5)
    failed: list[int] = field(default_factory=lambda: [0] * 5)
    marks: str = ""
    _failed: set[str] = field(default_factory=set, repr=False)

    def add(self, row: Row, charge: Charge, note: aside.Aside, *, again: bool = False) -> None:
        """Add a charge with the note on it; `again`: a piece of its use is in it already, and is not counted anew."""
        sums = (charge.low, charge.amount, charge.high, charge.on_demand or 0, charge.micros)
        counts = (bool(charge.unpriced_micros) and not again, charge.on_demand is None and not again)
        self._add(row, charge.use.resource, (*sums, *map(int, counts)), note)
        self.interrupted[4] -= again and note["interrupted"][4]
        if charge.unpriced_micros:
            self.unpriced[f"{row['name']} ({charge.use.resource})"] = None

    def add_ended(self, row: Row, resource: str) -> None:
        """Add the totals of a row's uses of one resource that have ended."""
        self._add(row, resource, row["totals"][resource], row["aside"].get(resource, _NO_NOTE))

    def _add(self, row: Row, resource: str, sums: Sequence[int], note: aside.Aside) -> None:
        low, amount, high, on_demand, micros, unpriced, uncompared = sums
        self.low, self.amount, self.high = self.low + low, self.amount + amount, self.high + high
        self.all_micros += micros
        self.without_price += unpriced
        if note["marks"]:
            self.marks = aside.joined(self.marks, note["marks"])
        if unpriced:
            self.unpriced[f"{row['name']} ({resource})"] = None
        for reason in note["reasons"]:
            self.reasons[f"{row['name']} ({resource}): {reason}"] = None
        if resource == Resource.INSTANCE:
            self.micros += micros
            self.on_demand, self.compared = self.on_demand + on_demand, self.compared + note["compared"]
            self.uncompared += uncompared
        if note["interrupted"][4]:
            self.interrupted = [old + part for old, part in zip(self.interrupted, note["interrupted"], strict=True)]
        if is_failed(row):
            parts = (low, amount, high, micros * (resource == Resource.INSTANCE), row["id"] not in self._failed)
            self.failed = [old + int(part) for old, part in zip(self.failed, parts, strict=True)]
            self._failed.add(row["id"])


def is_failed(row: Row) -> bool:
    """Say whether a launch gave no usable machine: it was refused, came to nothing, or was removed as unfit."""
    return bool(row.get("failed")) or row["attempt"] in ("refused", "void")
