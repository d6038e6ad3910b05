"""What offers cost: by the dated list, embedded or refreshed from Google's Cloud Billing Catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudgpu.catalog import listed_price
from cloudgpu.providers.gcp.client import KIND
from cloudgpu.providers.gcp.unlisted import recalled_price

if TYPE_CHECKING:
    from cloudgpu.core.model.offers import Available, Price


def prices(offers: Sequence[Available]) -> list[Price | None]:
    """Return one price per offer, in order, on demand or spot, with its basis; None where the list has none. No call.

    Google tells prices part by part and not for one machine, and changes those of spot machines at most once a month
    ("Spot VMs pricing"): `cloudgpu catalog refresh` adds them up anew.
    """
    listed = (listed_price(KIND, item.instance_type, item.region, item.market) for item in offers)
    return [price or recalled_price(item) for price, item in zip(listed, offers, strict=True)]
