"""What machines really cost this user: the provider's price, less what config.toml says was agreed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudgpu.core.model.offers import Available, Price
from cloudgpu.providers.abilities import HasPrices
from cloudgpu.providers.base import Provider

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def paid_prices(session: Session, provider: Provider, items: Sequence[Available]) -> list[Price | None]:
    """Return one price per item, in order; None where none is known, and no agreed rate stands in for it."""
    listed = provider.prices(items) if isinstance(provider, HasPrices) else [None] * len(items)
    if not session.settings.discounts:
        return list(listed)
    from cloudgpu.core.billing.discounts import agreed

    now = session.clock()
    pairs = zip(items, listed, strict=True)
    return [agreed(session.settings.discounts, item, price, now) for item, price in pairs]
