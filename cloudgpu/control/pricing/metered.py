"""What a machine of one's own costs by what its GPUs really drew, as the samples of its agent tell that.

From now on alone: what it has cost stays as it was counted. What nobody measured is not zero, and changes no price.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.activity.utilization import mean_draw
from cloudgpu.core.billing.discounts import agreed_price
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Available, Basis, Price
from cloudgpu.core.values.times import from_iso
from cloudgpu.ledger.samples.store import SampleStore

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.providers.abilities import HasMeteredPrice

ENOUGH = timedelta(hours=1)  # measured in this run, and between two prices of one machine by its meter
BACK = timedelta(days=7)  # of a run: what it did before says less of what it will draw
NEWS = Fraction(1, 10)  # of the price in force: what moved by no more is no line in the ledger


def metered_price(
    session: Session, provider: HasMeteredPrice, machine: Machine, item: Available, metered: Mapping[str, Price]
) -> Price | None:
    """Return the price that replaces the machine's own from now on; None where that one stays.

    `metered` are prices by the settings, by the machine's id: an assumed one may be measured, a set one never is.
    """
    last, other, now = machine.price, metered.get(machine.id), session.clock()
    if last is None or other is None:
        return None
    was_metered = last.basis == Basis.MEASURED
    if other.basis is not Basis.ASSUMED:
        return other if was_metered and other.basis is Basis.SETTING else None
    if was_metered and now - from_iso(last.as_of) < ENOUGH:
        return None
    drew = _drew(session, machine, now)
    price = drew and agreed_price(session.settings.discounts, item, provider.metered_price(item, *drew), now)
    return price if price and _has_moved(last.nanos_per_hour, price.per_hour.nanos) else None


def _drew(session: Session, machine: Machine, now: datetime) -> tuple[Decimal, timedelta] | None:
    """Return the mean of watts in the machine's run, and for how long it was measured; None for too short a time."""
    if machine.state != State.RUNNING or machine.since is None:
        return None
    begin, end = max(from_iso(machine.since), now - BACK).timestamp(), now.timestamp()
    found = mean_draw(SampleStore(session.home.samples, machine.id).utilization(begin, end), begin, end)
    if found is None or found[1] < ENOUGH.total_seconds():
        return None
    return Decimal(round(found[0])), timedelta(minutes=found[1] // 60)


def _has_moved(before: int, after: int) -> bool:
    return abs(after - before) > before * NEWS
