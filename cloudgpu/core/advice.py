"""What would fit where a budget refuses: how long the same machine may live, or what an hour may cost. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from cloudgpu.core.admission import Asking
from cloudgpu.core.money import Money
from cloudgpu.core.promises import compute_nanos
from cloudgpu.core.times import from_iso, iso

MINUTE = timedelta(minutes=1)


def longest(ask: Asking, least: datetime | None = None) -> datetime | None:
    """Return the latest renew-until, in whole minutes from now, that every refusing budget carries; None: none.

    It lies after `least` (now, where None) and not after what is wanted. What is carried up to a time is carried up
    to every earlier one, so it is found by halving.
    """
    wished = from_iso(ask.wanted["renew_until"])
    low = 0 if least is None or least <= ask.now else -((ask.now - least) // MINUTE)
    high = -((ask.now - wished) // MINUTE)

    def fits(minutes: int) -> bool:
        until = min(wished, ask.now + minutes * MINUTE)
        return not ask.admission({**ask.wanted, "renew_until": iso(until)}).refusals

    if high <= low or not fits(low + 1):
        return None
    low += 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return ask.now + low * MINUTE


def affordable(ask: Asking) -> Money | None:
    """Return the highest price an hour at which every refusing budget carries it for as long as is wanted; None: none.

    To a ten-thousandth of a dollar, as prices are shown.
    """
    step = 100_000
    low, high = 1, 1 + (compute_nanos(ask.wanted, ask.prices) or 0) // step

    def fits(steps: int) -> bool:
        price = {"nanos_per_hour": steps * step}
        cheaper = {**ask.wanted, "market": "on_demand", "price": price}
        return not ask.admission(cheaper).refusals

    if not fits(1):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Money(low * step)
