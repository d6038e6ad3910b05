"""Turns a sync of one machine into the line that it is worth: what is news, what is known before an end, a resize."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from cloudgpu.control.pricing.price_history import history_of, item_of, list_price, own_price
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.bodies import Resized
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import instance_observed, is_news, is_resized
from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Market, Price, accelerator_to_json, price_to_json
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.last_seen import last_seen_at, observe_before_end


def change_events(
    session: Session, machine: Machine, instance: Instance, now: datetime, *, watched: bool = False
) -> list[Draft]:
    """Return the line of what a provider says of a known machine, none where it is as it was; and of its own price.

    `watched`: it was seen to be there a moment ago. A machine whose type or market is another than before has its new
    price in the line: one that nobody knows is missing there, and never the price of before.
    """
    priced = own_price(session, machine, instance, now) if machine.state == State.PENDING else []
    if not is_news(machine, instance):
        return priced
    before = observe_before_end(session.ledger, machine, instance, watched=watched)
    resized = _resized(session, machine, instance) if is_resized(machine, instance) else None
    return [*priced, instance_observed(instance, now, machine=machine, before=before, resized=resized)]


def _resized(session: Session, machine: Machine, instance: Instance) -> Resized:
    """Return what the machine is now, at which prices, and when it was last seen to be as before."""
    item, after = item_of(instance), last_seen_at(session.ledger, machine)
    prices = _prices(session, instance, after)
    on_demand = prices[-1] if prices else None
    if instance.market is Market.SPOT:
        on_demand = list_price(session, replace(item, market=Market.ON_DEMAND))
    return {
        "instance_type": instance.instance_type,
        "market": str(instance.market),
        "accelerators": [accelerator_to_json(gpu) for gpu in instance.accelerators],
        "prices": [price_to_json(price) for price in prices],
        "on_demand": None if on_demand is None else price_to_json(on_demand),
        "after": after,
    }


def _prices(session: Session, instance: Instance, after: str | None) -> Sequence[Price]:
    """Return what the machine costs, oldest first: on spot also what it has cost since it runs as it is now."""
    since = instance.since or (from_iso(after) if after else None)
    if instance.market is Market.SPOT and since is not None:
        try:
            found = history_of(session, instance.account, [item_of(instance)], since)[0]
        except CloudgpuError:
            found = ()
        if found:
            return found
    price = list_price(session, item_of(instance))
    return () if price is None else (price,)
