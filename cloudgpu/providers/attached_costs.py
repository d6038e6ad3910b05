"""Prices what a launch costs beside the machine, and what machines really cost this user.

Disks, addresses and retained resources are priced from the catalogue's dated list. A machine costs the provider's
price, less what config.toml says was agreed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING

from cloudgpu.catalog.storage import disk_price, price_class_of, storage_kinds
from cloudgpu.core.billing.rates import Rate
from cloudgpu.core.catalog.catalog import DiskPrice
from cloudgpu.core.launch.plan_cost import AddedCost
from cloudgpu.core.model.offers import Available, Basis, Market, Offer, Price
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import AttachedResource, HasPrices, Resolved
from cloudgpu.providers.base import Provider

if TYPE_CHECKING:
    from cloudgpu.core.billing.discounts import Discount

BY_CHANGED_BLOCKS = ("ebs_snapshot",)  # billed for what was ever written, not for the size of the disk
CHANGED_BLOCKS = "snapshots are billed for the blocks that were written: from nothing to the whole size"
ELSEWHERE = "no price is known in {region}: the most expensive one known of its kind is used, so it may cost less"
DERIVED = "its price is derived, not listed: between {low} and {price} {per}"
BYTES_OUT = "bytes that stay inside the region are free, and are counted too"
_ADDRESSES = {  # the price list's word for the public address that a machine has
    "aws": "public_ipv4",
    "azure": "public_ip_standard_static_regional",
    "gcp": "external_ip_on_standard_vm",
}
_SPOT_ADDRESSES = {**_ADDRESSES, "gcp": "external_ip_on_spot_vm"}
# The price list's word for what images are billed as, where it is not `snapshot`.
_IMAGES = {"aws": "ebs_snapshot", "gcp": "custom_image"}
_UNITS = {
    "usd_per_gb_month": Per.MONTH,
    "usd_per_gib_month": Per.MONTH,
    "usd_per_disk_month": Per.MONTH,
    "usd_per_hour": Per.HOUR,
    "usd_per_gb": Per.GB,
}
_PER = {
    "usd_per_gb_month": "a GB-month",
    "usd_per_gib_month": "a GiB-month",
    "usd_per_disk_month": "a month",
    "usd_per_hour": "an hour",
    "usd_per_gb": "a GB",
}
_WHOLE = "usd_per_disk_month"  # one price for a disk of a size class
_RESOURCES = {str(one): one for one in Resource}


def rate(provider: str, region: str, stored_as: str, quantity: float) -> Rate:
    """Return what so much of a kind of storage, or so many addresses, cost there.

    Without a price in the catalogue `price` is None and `source` says so: it is never left out.
    """
    resource, amount = _RESOURCES.get(price_class_of(stored_as), Resource.DISK), ceil(quantity)
    try:
        listed = disk_price(provider, region, stored_as)
    except InvalidRequest:
        return Rate(resource, stored_as, amount, Per.MONTH, None, "no price in the catalogue")
    if listed.unit not in _UNITS:
        return Rate(resource, stored_as, amount, Per.MONTH, None, f"priced by {listed.unit}")
    whole = listed.unit == _WHOLE
    return Rate(
        resource=resource,
        stored_as=stored_as,
        quantity=1 if whole else amount,
        per=_UNITS[listed.unit],
        price=listed.price,
        source=listed.source,
        as_of=listed.as_of,
        basis=listed.basis,
        why_maybe_less=_why_at_most(listed, region),
        by_size=not whole,
        low=listed.low,
    )


def _why_at_most(listed: DiskPrice, region: str) -> str:
    reasons = []
    if listed.kind in BY_CHANGED_BLOCKS:
        reasons.append(CHANGED_BLOCKS)
    if listed.upper_bound:
        reasons.append(ELSEWHERE.format(region=region))
    elif listed.low is not None:
        per = _PER[listed.unit]
        reasons.append(DERIVED.format(low=listed.low.text(4), price=listed.price.text(4), per=per))
    return "; ".join(reasons)


def egress_rate(provider: str, region: str, bytes_out: int) -> Rate | None:
    """Return what so many bytes cost that leave for the internet, at the first tier; None where none are charged.

    At most: what stays inside the region is free, and so is a first part of each month where the list says so.
    """
    kinds = [kind for kind in storage_kinds(provider) if kind.startswith("egress_internet")]
    if not kinds:
        return None
    listed = max((disk_price(provider, region, kind) for kind in kinds), key=lambda price: price.price)
    free = next((part for part in listed.note.split(";") if "free" in part), "")
    reasons = [BYTES_OUT, f"not taken off: {free.strip()}" if free else "", _why_at_most(listed, region)]
    why = "; ".join(filter(None, reasons))
    source, as_of, basis = listed.source, listed.as_of, listed.basis
    return Rate(Resource.TRAFFIC, listed.kind, bytes_out, Per.GB, listed.price, source, as_of, basis, why)


def own_traffic_rate(provider: str, price: int, number: int, direction: str, source: str, as_of: datetime) -> Rate:
    """Return what so many bytes cost in one direction (`out` or `in`) by the offer's own price, nano-dollars a GB."""
    kind = f"{provider}_traffic_{direction}"
    return Rate(Resource.TRAFFIC, kind, number, Per.GB, Money(price), source, as_of, Basis.ASKED)


def extra(provider: str, region: str, item: AttachedResource) -> AddedCost:
    """Return what this costs per month there; a price that is not known is None, and never left out."""
    found = item.rate or rate(provider, region, item.stored_as, item.quantity)
    dated = f", as of {found.as_of:%Y-%m-%d}" if found.as_of else ""
    return AddedCost(
        what=item.what,
        per_month=found.per_month,
        kept=item.while_stopped,
        source=f"{found.source}{dated}",
        upper_bound=bool(found.why_maybe_less),
        running=item.while_running,
        rate=found,
        named=item.named,
    )


def extras_of(offer: Offer, resolved: Resolved) -> tuple[AddedCost, ...]:
    """Return what an offer, as it was resolved, costs per month beside the machine.

    Where a machine can be neither stopped nor parked, nothing of it stays but what the user keeps by name.
    """
    item = offer.available
    stays = item.stoppable or item.parkable
    resources = (replace(one, while_stopped=one.while_stopped and (stays or one.named)) for one in resolved.attached)
    return tuple(extra(item.provider, item.region, one) for one in resources if one.while_running or one.while_stopped)


def address_kind(provider: str, market: Market) -> str | None:
    """Return the price list's word for the public address of a machine; None where addresses cost nothing."""
    return (_SPOT_ADDRESSES if market is Market.SPOT else _ADDRESSES).get(provider)


def image_price(provider: str, region: str, size_gb: int) -> AddedCost:
    """Return what the image of a disk costs per month at most: as the snapshots of which it is made."""
    stored_as = _IMAGES.get(provider, "snapshot")
    return extra(provider, region, AttachedResource(f"image of {size_gb} GB", stored_as, size_gb, while_stopped=True))


def rate_of_resource(leftover: ProviderResource) -> Rate:
    """Return what a resource costs: at most, for what is stored by changed blocks."""
    return rate(leftover.provider, leftover.region, leftover.stored_as, leftover.size_gb)


def paid_prices(
    provider: Provider, items: Sequence[Available], discounts: Sequence[Discount], now: datetime
) -> list[Price | None]:
    """Return one price per item, in order, less what was agreed on.

    None where no price is known, and no agreed rate stands in for it.
    """
    listed = provider.prices(items) if isinstance(provider, HasPrices) else [None] * len(items)
    if not discounts:
        return list(listed)
    from cloudgpu.core.billing.discounts import agreed_price

    return [agreed_price(discounts, item, price, now) for item, price in zip(items, listed, strict=True)]
