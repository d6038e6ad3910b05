"""Asks for one machine, and believes that it is gone only when more than one look says so."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.errors import InstanceNotFound

if TYPE_CHECKING:
    from cloudgpu.control.session import Session
    from cloudgpu.core.model.instances import Instance
    from cloudgpu.providers.base import Provider

PAUSES = (2.0, 5.0)  # seconds between the looks


def pauses_of(provider: Provider) -> tuple[float, ...]:
    """Return how many seconds to wait before each further look at a machine that was not found.

    A cloud's reads may be behind its writes: one "not found" about a machine that was there is no proof. Where nothing
    else says from when on such an answer holds (`gone_proves_after` is 0 and listings are late), it has to be repeated.
    """
    rule = provider.token_rule
    return PAUSES if rule.gone_after == timedelta(0) < rule.listing_proves_after else ()


def got(session: Session, row: dict[str, Any]) -> Instance:
    """Return the machine as its provider tells of it now; raise InstanceNotFound where it is gone."""
    provider = session.provider_of(row)
    for pause in pauses_of(provider):
        try:
            return provider.get(row["provider_id"])
        except InstanceNotFound:
            session.pause(pause)
    return provider.get(row["provider_id"])
