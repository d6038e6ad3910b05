"""Allocates a machine's costs to keys (job ids) over time: each usage is split where its key changes, without loss."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from cloudgpu.core.billing.charges import Charge, billed_span, charge
from cloudgpu.core.model.usage import Resource, Usage
from cloudgpu.core.values.times import MICRO, from_iso


class Assignment(NamedTuple):
    """The key that costs are allocated to within [`since`, `until`); None: without that end."""

    since: datetime | None
    until: datetime | None
    key: str


AssignmentsByMachine = Mapping[
    str, Sequence[Assignment]
]  # by a machine's id, in order; those of one machine cover all of time
NO_JOBS: AssignmentsByMachine = MappingProxyType({})
_FOREVER = datetime.max.replace(tzinfo=UTC)
UNASSIGNED = (Assignment(None, None, ""),)  # for a machine that is allocated to no key


def charges_by_key(
    usage: Usage,
    now: datetime,
    assignments: Iterable[Assignment],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[str, Charge]:
    """Return what a usage costs by key as of `now`, within [`since`, `until`): split what `charge` returns for it.

    Empty charges are left out.
    """
    charges: dict[str, Charge] = {}
    billed_begin, billed_end = billed_span(usage, now)
    for assignment in assignments:
        begin = max(filter(None, (assignment.since, since)), default=None)
        end = min(filter(None, (assignment.until, until)), default=None)
        is_empty = begin is not None and end is not None and begin >= end
        if (begin is not None and begin > billed_end) or (end is not None and end < billed_begin) or is_empty:
            continue
        part = charge(usage, now, since=begin, until=end)
        if part.billed_us or part.high or part.unpriced_us:
            charges[assignment.key] = _merge(charges[assignment.key], part) if assignment.key in charges else part
    return charges


def key_at(assignments: Sequence[Assignment], usage: Usage, moment: datetime) -> str:
    """Return the key of a usage at `moment`; bytes belong to the key of the microsecond in which they are billed."""
    if usage.resource is Resource.TRAFFIC:
        begin = from_iso(usage.begin)
        moment = begin if usage.end is None else max(begin, from_iso(usage.end) - MICRO)
    return assignments[bisect_right(assignments, moment, key=lambda one: one.until or _FOREVER)].key


def cut_times(assignments: Iterable[Assignment]) -> list[datetime]:
    """Return the moments at which the key changes."""
    return [assignment.until for assignment in assignments if assignment.until is not None]


def _merge(old: Charge, new: Charge) -> Charge:
    list_cost = None if old.list_cost is None or new.list_cost is None else old.list_cost + new.list_cost
    return replace(
        old,
        billed_us=old.billed_us + new.billed_us,
        low=old.low + new.low,
        amount=old.amount + new.amount,
        high=old.high + new.high,
        list_cost=list_cost,
        unpriced_us=old.unpriced_us + new.unpriced_us,
        reasons=tuple(dict.fromkeys((*old.reasons, *new.reasons))),
    )
