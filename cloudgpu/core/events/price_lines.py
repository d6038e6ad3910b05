"""Ledger lines of what a machine's price is since when, as a provider says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cloudgpu.core.events.log import PROVIDER, Draft
from cloudgpu.core.events.observed_lines import price_changed, price_observed
from cloudgpu.core.model.machine import Machine, PriceSubject
from cloudgpu.core.model.offers import Basis, Market, Price
from cloudgpu.core.values.times import from_iso, iso


@dataclass(frozen=True, slots=True)
class Priced:
    """What an account answered about prices: of each machine by its id, oldest first.

    `since` is when it was last asked, None for never; `gap` is why it did not answer now, empty where it did. `metered`
    are prices that replace those in force from now on: by a machine's own meter, or by settings in place of one.
    """

    since: str | None = None
    history: Mapping[str, Sequence[Price]] = field(default_factory=dict)
    now: Mapping[str, Price] = field(default_factory=dict)
    gap: str = ""
    metered: Mapping[str, Price] = field(default_factory=dict)


def lines_of(priced: Priced, machines: Sequence[Machine], now: datetime) -> list[Draft]:
    """Return the lines of the prices that are news of these machines."""
    drafts: list[Draft] = []
    for machine in machines:
        drafts += pins(machine, priced.history.get(machine.id, ()))
        price, metered = priced.now.get(machine.id), priced.metered.get(machine.id)
        if metered is not None:
            drafts.append(_changed(machine, metered, None, now))
        elif price is not None and _is_another(machine, price):
            drafts.append(_changed(machine, price, max(filter(None, (priced.since, machine.intended_at))), now))
    return drafts


def pins(row: Machine | PriceSubject, history: Sequence[Price]) -> list[Draft]:
    """Return a line for each price that a spot machine has had since the last one that is known, until its end."""
    last, drafts = row.price, []
    nanos, known = (last.nanos_per_hour, last.as_of) if last else (None, "")
    for price in history:
        at = max(iso(price.as_of), row.intended_at)
        if iso(price.as_of) <= known or price.per_hour.nanos == nanos or (row.terminated_at and at > row.terminated_at):
            continue
        nanos = price.per_hour.nanos
        drafts.append(price_observed(row.id, price, from_iso(at), clock=PROVIDER))
    return drafts


def _is_another(machine: Machine, price: Price) -> bool:
    """Say whether a price that was asked again is another one; what a meter measures moves all the time."""
    last = machine.price
    if last is None:
        return True
    if Basis.MEASURED in (last.basis, price.basis) or iso(price.as_of) < last.as_of:
        return False  # a list that is older than the price of the launch says nothing of today
    return bool(price.per_hour.nanos != last.nanos_per_hour)


def _changed(machine: Machine, price: Price, since: str | None, now: datetime) -> Draft:
    on_demand = price if machine.market == Market.ON_DEMAND else None
    return price_changed(machine.id, price, since, now, on_demand=on_demand)


def is_to_price(machine: Machine, earliest: str) -> bool:
    """Say whether prices of a machine may be asked: it is billed, or on spot and has not ended before `earliest`."""
    if machine.terminated_at is None:
        return bool(machine.billed)
    return bool(machine.market == Market.SPOT and machine.terminated_at >= earliest)
