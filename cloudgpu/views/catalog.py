"""Offers, prices and price changes of the catalogue, as the plain values that `-o json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.catalog.catalog import is_old_price, speed_per_dollar
from cloudgpu.core.catalog.pricelist import PER_HOUR
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.times import iso
from cloudgpu.views.plans import price_document

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.core.catalog.catalog import CatalogOffer, DatedPrice, DiskPrice, ListedPrice, Speed
    from cloudgpu.core.catalog.pricelist import ListPriceChange, PriceRow
    from cloudgpu.views.documents.market.catalog import CatalogPrice, ChangedPrice, GpuOffer, PriceChange

# A price in use, one that a refresh has replaced, and one that was quoted in the past.
CURRENT, SUPERSEDED, HISTORIC = "current", "superseded", "historic"


def machine_price(listed: ListedPrice, state: str, now: datetime) -> CatalogPrice:
    """Return what an hour of a machine costs; `state` is one of `CURRENT`, `SUPERSEDED` and `HISTORIC`."""
    price = listed.price
    return {
        "region": listed.region,
        "market": str(listed.market),
        "unit": PER_HOUR,
        "dated": listed.as_of_text,
        "basis": str(price.basis),
        "source": price.source,
        "check": listed.corroboration,
        "usd": usd(price.per_hour),
        "low_usd": None,
        "as_of": iso(price.as_of),
        "old": is_old_price(price.as_of, now),
        "state": state,
    }


def storage_price(price: DiskPrice, state: str, now: datetime) -> CatalogPrice:
    """Return what a kind of storage, an address or traffic costs; a price without a date counts as old."""
    return {
        "region": price.region,
        "market": None,
        "unit": price.unit,
        "dated": None if price.as_of is None else f"{price.as_of:%Y-%m-%d}",
        "basis": str(price.basis),
        "source": price.source,
        "check": price.note,
        "usd": usd(price.price),
        "low_usd": None if price.low is None else usd(price.low),
        "as_of": None if price.as_of is None else iso(price.as_of),
        "old": price.as_of is None or is_old_price(price.as_of, now),
        "state": state,
    }


def dated_price(price: DatedPrice, state: str, now: datetime) -> CatalogPrice:
    """Return what something cost when it was quoted."""
    return {
        "region": price.region,
        "market": str(price.market),
        "unit": price.unit,
        "dated": price.as_of_text,
        "basis": str(price.basis),
        "source": price.source,
        "check": price.corroboration,
        "usd": usd(price.price),
        "low_usd": None,
        "as_of": iso(price.as_of),
        "old": is_old_price(price.as_of, now),
        "state": state,
    }


def price_change_document(provider: str, change: ListPriceChange) -> PriceChange:
    """Return how a price has changed; `accepted` says whether the new price is in use."""
    return {
        "provider": provider,
        "item": change.key.item,
        "region": change.key.region,
        "market": change.key.market and str(change.key.market),
        "unit": change.unit,
        "was": _price(change.old),
        "now": _price(change.new),
        "factor": round(change.factor, 4),
        "accepted": change.is_accepted,
    }


def _price(row: PriceRow) -> ChangedPrice:
    return {"usd": usd(row.price), "source": row.source, "as_of": iso(row.as_of), "basis": str(row.basis)}


def offer_document(offer: CatalogOffer, speed: Speed | None, now: datetime) -> GpuOffer:
    """Return one offer: `h100_hours_per_dollar` is its work per dollar, `speed` is that of a whole GPU."""
    machine_type, listed = offer.type, offer.listed
    return {
        "provider": machine_type.provider,
        "region": listed.region,
        "regions": offer.region_count,
        "instance_type": machine_type.name,
        "market": str(listed.market),
        "trust": str(offer.trust),
        "gpu": machine_type.gpu.name,
        "count": machine_type.gpu.count,
        "share": machine_type.gpu.share,
        "gpu_memory_gib": machine_type.gpu.memory_gib,
        "vcpus": machine_type.vcpus or None,
        "memory_gib": machine_type.memory_gib or None,
        "local_ssd_gb": machine_type.local_ssd_gb,
        "arch": machine_type.arch,
        "price": price_document(listed.price),
        "price_dated": listed.as_of_text,
        "price_check": listed.corroboration,
        "old": is_old_price(listed.price.as_of, now),
        "legacy": machine_type.legacy_reason or None,
        "spot_only": machine_type.spot_only,
        "unverified": list(machine_type.unverified),
        "speed": None if speed is None else {"vs_h100": round(speed.vs_h100, 4), "basis": str(speed.basis)},
        "h100_hours_per_dollar": _rounded(speed_per_dollar(offer, speed)),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
