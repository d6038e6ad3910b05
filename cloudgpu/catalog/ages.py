"""How old the prices of the catalogue are, provider by provider."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cloudgpu.catalog.read import at, catalogue
from cloudgpu.catalog.refreshed import index, stored
from cloudgpu.core.catalog.catalog import is_old
from cloudgpu.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Ages:
    """The dates of a provider's prices of machines: how many `items`, and how many of them are `old` by now.

    `refreshed_at` is when its price list last answered, in this home; None where it was never asked, or cannot be read.
    """

    provider: str
    newest: datetime
    oldest: datetime
    refreshed_at: datetime | None
    items: int
    old: int


def ages(provider: str, now: datetime) -> Ages | None:
    """Return how old a provider's prices are, a refreshed one in place of the embedded one; None where it has none."""
    fresh = index(provider).machines
    dates = [row.as_of for rows in fresh.values() for row in rows.values()]
    for name, listed in catalogue()["prices"].get(provider, {}).items():
        known = {(place, str(market)) for place, market in fresh.get(name, {})}
        dates += [at(one[3]) for one in listed if (one[0], one[1]) not in known]
    if not dates:
        return None
    return Ages(
        provider=provider,
        newest=max(dates),
        oldest=min(dates),
        refreshed_at=_refreshed_at(provider),
        items=len(dates),
        old=sum(is_old(one, now) for one in dates),
    )


def _refreshed_at(provider: str) -> datetime | None:
    try:
        return max((part.asked_at for part in stored(provider).parts.values()), default=None)
    except InvalidRequest:  # `catalog` says what is wrong with the file
        return None
