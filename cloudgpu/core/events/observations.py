"""Says what of a provider's word about a machine is news, and when its silence proves something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cloudgpu.core.events.log import PROVIDER, Draft
from cloudgpu.core.events.observed_lines import address_now, price_changed, price_observed, tag_time
from cloudgpu.core.model.instances import (
    TAG_EXPIRES,
    TAG_HOLD_UNTIL,
    TAG_RENEW_UNTIL,
    Instance,
    State,
)
from cloudgpu.core.model.machine import Machine, PriceSubject
from cloudgpu.core.model.offers import Basis, Market, Price
from cloudgpu.core.values.times import from_iso, iso

NEWS_OF_ACTIVITY = timedelta(minutes=15)
_ENDS = {"expires": TAG_EXPIRES, "renew_until": TAG_RENEW_UNTIL, "hold_until": TAG_HOLD_UNTIL}


def not_before(machine: Machine, now: datetime) -> datetime:
    """Return `now`, or the machine's last known time where this clock is behind it.

    Lines are folded by their time: what a clock that went back writes would otherwise count as older than the launch.
    """
    known = [from_iso(at) for at in (machine.intended_at, machine.seen_at) if at]
    return max([now, *known])


def too_fresh(machine: Machine, proves_after: timedelta, now: datetime) -> bool:
    """Say whether a machine is so young that its absence from an answer proves nothing."""
    return bool(now - from_iso(machine.intended_at) < proves_after)


def is_news(machine: Machine, instance: Instance) -> bool:
    """Say whether the provider's word differs from the row; an unchanged look writes no line per machine.

    Times are compared as times: to write thousands of them as text takes longer than all the rest.
    """
    known = (machine.provider_id, machine.state, machine.billed, machine.state_reason)
    if known != (instance.id, str(instance.state), instance.billed, instance.reason) or is_resized(machine, instance):
        return True
    if machine.address != address_now(machine, instance):
        return True
    if _time(machine.since) != instance.since or has_moved_on(_time(machine.last_active), instance.last_active):
        return True
    if machine.guards is not None and not machine.guards.tagged:
        return False  # its tags are of its launch: no lease or hold since then is in them
    return any(_is_another(getattr(machine, name), instance.tags, key) for name, key in _ENDS.items())


def is_resized(machine: Machine, instance: Instance) -> bool:
    """Say whether a machine is of another type, or on another market, than is known; one that ends is as it was."""
    ends = instance.state in (State.STOPPING, State.TERMINATED, State.UNKNOWN)
    if ends or not machine.instance_type or not instance.instance_type:
        return False
    same = machine.instance_type.lower() == instance.instance_type.lower() and machine.market == instance.market
    return machine.provider_id == instance.id and not same


def _time(text: str | None) -> datetime | None:
    return from_iso(text) if text is not None else None


def has_moved_on(known: datetime | None, said: datetime | None) -> bool:
    """Say whether a machine was active again since it was last written down: every quarter of an hour is news."""
    if said is None or known is None:
        return said is not None
    return said - known >= NEWS_OF_ACTIVITY


def _is_another(known: str | None, tags: Mapping[str, str], key: str) -> bool:
    """Say whether a tag names another time than is known; one that says nothing does not."""
    text = tags.get(key, "")
    if not text or (known is not None and text.isdecimal() and from_iso(known).timestamp() == int(text)):
        return False
    said = tag_time(tags, key)
    return said is not None and said != known


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
        drafts += spot_price_events(machine, priced.history.get(machine.id, ()))
        price, metered = priced.now.get(machine.id), priced.metered.get(machine.id)
        if metered is not None:
            drafts.append(_changed(machine, metered, None, now))
        elif price is not None and _is_another_price(machine, price):
            drafts.append(_changed(machine, price, max(filter(None, (priced.since, machine.intended_at))), now))
    return drafts


def spot_price_events(row: Machine | PriceSubject, history: Sequence[Price]) -> list[Draft]:
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


def _is_another_price(machine: Machine, price: Price) -> bool:
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
