"""Prices what a launch costs beside the machine, and machines after this user's discounts.

Disks, addresses and retained resources are priced from the catalogue's dated list. A machine costs the provider's
price, less the discounts in config.toml.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING

from cloudgpu.catalog.storage import FLAT_PRICE_UNIT, disk_price, price_class_of, storage_kinds
from cloudgpu.core.billing.rates import Rate
from cloudgpu.core.catalog.catalog import DiskPrice
from cloudgpu.core.launch.plan_cost import AddedCost
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Offer, Price
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import AttachedResource, HasPrices, Resolved
from cloudgpu.providers.base import Provider

if TYPE_CHECKING:
    from cloudgpu.core.billing.discounts import Discount

KINDS_BILLED_BY_CHANGED_BLOCKS = ("ebs_snapshot",)  # billed for what was ever written, not for the size of the disk
CHANGED_BLOCKS_BILLING = "snapshots are billed for the blocks that were written: from nothing to the whole size"
OTHER_REGION_REMARK = (
    "no price is known in {region}: the most expensive one known of its kind is used, so it may cost less"
)
DERIVED_PRICE_REMARK = "its price is derived, not listed: between {low} and {price} {per}"
EGRESS_REMARK = "bytes that stay inside the region are free, and are counted too"
_ADDRESS_KINDS = {  # the catalogue's kind of a machine's public address
    "aws": "public_ipv4",
    "azure": "public_ip_standard_static_regional",
    "gcp": "external_ip_on_standard_vm",
}
_SPOT_ADDRESS_KINDS = {**_ADDRESS_KINDS, "gcp": "external_ip_on_spot_vm"}
# The catalogue's kind that an image is billed as, where it is not `snapshot`.
_IMAGE_KINDS = {"aws": "ebs_snapshot", "gcp": "custom_image"}
_PER_OF_UNIT = {
    "usd_per_gb_month": Per.MONTH,
    "usd_per_gib_month": Per.MONTH,
    "usd_per_disk_month": Per.MONTH,
    "usd_per_hour": Per.HOUR,
    "usd_per_gb": Per.GB,
}
_UNIT_TEXTS = {
    "usd_per_gb_month": "a GB-month",
    "usd_per_gib_month": "a GiB-month",
    "usd_per_disk_month": "a month",
    "usd_per_hour": "an hour",
    "usd_per_gb": "a GB",
}
_RESOURCE_BY_NAME = {str(one): one for one in Resource}  # what a charge is for: disk, snapshot, address


def rate(provider: str, region: str, stored_as: str, quantity: float) -> Rate:
    """Return what a quantity of a kind of storage (GB), or of addresses, costs in a region.

    Without a price in the catalogue, the rate's `price` is None and its `source` says so: it is never left out.
    """
    resource, amount = _RESOURCE_BY_NAME.get(price_class_of(stored_as), Resource.DISK), ceil(quantity)
    try:
        listed = disk_price(provider, region, stored_as)
    except InvalidRequest:
        return Rate(resource, stored_as, amount, Per.MONTH, None, "no price in the catalogue")
    if listed.unit not in _PER_OF_UNIT:
        return Rate(resource, stored_as, amount, Per.MONTH, None, f"priced by {listed.unit}")
    is_flat = listed.unit == FLAT_PRICE_UNIT
    return Rate(
        resource=resource,
        stored_as=stored_as,
        quantity=1 if is_flat else amount,
        per=_PER_OF_UNIT[listed.unit],
        price=listed.price,
        source=listed.source,
        as_of=listed.as_of,
        basis=listed.basis,
        why_maybe_less=_why_upper_bound(listed, region),
        by_size=not is_flat,
        low=listed.low,
    )


def _why_upper_bound(listed: DiskPrice, region: str) -> str:
    """Return why the listed price is an upper bound; empty where it is exact."""
    reasons = []
    if listed.kind in KINDS_BILLED_BY_CHANGED_BLOCKS:
        reasons.append(CHANGED_BLOCKS_BILLING)
    if listed.upper_bound:
        reasons.append(OTHER_REGION_REMARK.format(region=region))
    elif listed.low is not None:
        per = _UNIT_TEXTS[listed.unit]
        reasons.append(DERIVED_PRICE_REMARK.format(low=listed.low.text(4), price=listed.price.text(4), per=per))
    return "; ".join(reasons)


def egress_rate(provider: str, region: str, byte_count: int) -> Rate | None:
    """Return what so many bytes of traffic to the internet cost at the first tier; None where traffic is free.

    An upper bound: traffic inside the region is free, and so is a first part of each month at some clouds.
    """
    kinds = [kind for kind in storage_kinds(provider) if kind.startswith("egress_internet")]
    if not kinds:
        return None
    listed = max((disk_price(provider, region, kind) for kind in kinds), key=lambda price: price.price)
    free_tier_note = next((sentence for sentence in listed.note.split(";") if "free" in sentence), "")
    reasons = [
        EGRESS_REMARK,
        f"not taken off: {free_tier_note.strip()}" if free_tier_note else "",
        _why_upper_bound(listed, region),
    ]
    why = "; ".join(filter(None, reasons))
    source, as_of, basis = listed.source, listed.as_of, listed.basis
    return Rate(Resource.TRAFFIC, listed.kind, byte_count, Per.GB, listed.price, source, as_of, basis, why)


def offered_traffic_rate(
    provider: str, price_nanos: int, byte_count: int, direction: str, source: str, as_of: datetime
) -> Rate:
    """Return what so many bytes cost in one direction (`out` or `in`) at the offer's price in nano-dollars a GB."""
    kind = f"{provider}_traffic_{direction}"
    return Rate(Resource.TRAFFIC, kind, byte_count, Per.GB, Money(price_nanos), source, as_of, Basis.QUOTED)


def added_cost(provider: str, region: str, attached: AttachedResource) -> AddedCost:
    """Return what an attached resource costs per month in a region; an unknown price is None, never left out."""
    cost_rate = attached.rate or rate(provider, region, attached.stored_as, attached.quantity)
    date_note = f", as of {cost_rate.as_of:%Y-%m-%d}" if cost_rate.as_of else ""
    return AddedCost(
        what=attached.what,
        per_month=cost_rate.per_month,
        kept=attached.while_stopped,
        source=f"{cost_rate.source}{date_note}",
        upper_bound=bool(cost_rate.why_maybe_less),
        running=attached.while_running,
        rate=cost_rate,
        named=attached.named,
    )


def added_costs(offer: Offer, resolved: Resolved) -> tuple[AddedCost, ...]:
    """Return what a resolved offer costs per month beside the machine.

    Where a machine can be neither stopped nor parked, nothing of it stays but volumes that the user retains by name.
    """
    configuration = offer.configuration
    can_stay = configuration.stoppable or configuration.parkable
    resources = (replace(one, while_stopped=one.while_stopped and (can_stay or one.named)) for one in resolved.attached)
    return tuple(
        added_cost(configuration.provider, configuration.region, one)
        for one in resources
        if one.while_running or one.while_stopped
    )


def address_kind(provider: str, market: Market) -> str | None:
    """Return the catalogue's kind of a machine's public address; None where addresses cost nothing."""
    return (_SPOT_ADDRESS_KINDS if market is Market.SPOT else _ADDRESS_KINDS).get(provider)


def image_cost(provider: str, region: str, size_gb: int) -> AddedCost:
    """Return what the image of a disk costs per month at most, billed as an image or as its snapshots."""
    stored_as = _IMAGE_KINDS.get(provider, "snapshot")
    return added_cost(
        provider, region, AttachedResource(f"image of {size_gb} GB", stored_as, size_gb, while_stopped=True)
    )


def resource_rate(resource: ProviderResource) -> Rate:
    """Return what a resource costs: an upper bound, if it is billed by changed blocks."""
    return rate(resource.provider, resource.region, resource.stored_as, resource.size_gb)


def discounted_prices(
    provider: Provider, configurations: Sequence[MachineConfiguration], discounts: Sequence[Discount], now: datetime
) -> list[Price | None]:
    """Return one price for each item, in order, after discounts.

    None where no price is known, and no negotiated rate replaces it.
    """
    listed = provider.prices(configurations) if isinstance(provider, HasPrices) else [None] * len(configurations)
    if not discounts:
        return list(listed)
    from cloudgpu.core.billing.discounts import effective_price

    return [
        effective_price(discounts, configuration, price, now)
        for configuration, price in zip(configurations, listed, strict=True)
    ]
