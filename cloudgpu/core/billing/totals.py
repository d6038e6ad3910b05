"""The bill: every charge of a period, each with whose it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from cloudgpu.core.billing.charges import Charge, charge, money, total
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Usage
from cloudgpu.core.values.money import Money


@dataclass(frozen=True, slots=True)
class Billed:
    """A charge and the row of the machine, or of the thing kept by name, that it is for."""

    machine: Machine
    charge: Charge


def period_charges(
    machines: Iterable[Machine],
    ended: Iterable[tuple[str, Usage]],
    now: datetime,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[Billed]:
    """Yield what machines (`View.billable_machines`) and ended usages (`View.uses`) cost within [`since`, `until`).

    Charges of nothing, outside of the period, are left out.
    """
    known = {machine.id: machine for machine in machines}
    running = ((machine, use) for machine in known.values() for use in machine.open_usage)
    for machine, use in (*((known[subject], use) for subject, use in ended), *running):
        found = charge(use, now, since=since, until=until)
        if found.billed_us or found.high or found.unpriced_us:
            yield Billed(machine, found)


def spent_until_now(machine: Machine, now: datetime) -> Money:
    """Return what it has cost up to `now` with all that is paid beside it, if what ran at the last sync still runs.

    What has no price is not in it: `unpriced` says so.
    """
    ended = sum(sums[1] for sums in machine.usage_totals.values())
    return money(ended + total(charge(use, now) for use in machine.open_usage).amount)


def unpriced_of(machine: Machine) -> list[str]:
    """Return of which resources something ran, or runs, without a known price."""
    ended = {resource for resource, sums in machine.usage_totals.items() if sums[5]}
    return sorted(ended | {use.resource for use in machine.open_usage if not use.segments})
