"""Says what of a provider's word about a machine is news, and when its silence proves something."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from cloudgpu.core.events.observed_lines import address_now, tag_time
from cloudgpu.core.model.instances import (
    TAG_EXPIRES,
    TAG_HOLD_UNTIL,
    TAG_RENEW_UNTIL,
    Instance,
    State,
)
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import from_iso

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
