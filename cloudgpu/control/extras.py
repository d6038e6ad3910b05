"""Prices what a launch costs beside the machine: disks, addresses, what is kept. From the catalogue's dated list."""

from __future__ import annotations

from fractions import Fraction

from cloudgpu.catalog.storage import disk_price
from cloudgpu.core.facts import Leftover, Offer
from cloudgpu.core.plan import MONTH_H, Extra
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.base import Beside, Resolved

BY_CHANGED_BLOCKS = ("ebs_snapshot",)  # billed for what was ever written, not for the size of the disk
_IMAGES = {"aws": "ebs_snapshot"}  # the price list's word for what images are billed as, where it is not `snapshot`
_MONTHS = {"usd_per_gb_month": 1, "usd_per_gib_month": 1, "usd_per_hour": MONTH_H}


def extra(provider: str, region: str, item: Beside) -> Extra:
    """Return what this costs per month there; a price that is not known is None, and never left out."""
    try:
        listed = disk_price(provider, region, item.stored_as)
    except InvalidRequest:
        return Extra(item.what, None, item.kept, "no price in the catalogue", running=item.running)
    if listed.unit not in _MONTHS:
        return Extra(item.what, None, item.kept, f"priced by {listed.unit}", running=item.running)
    factor = Fraction(item.quantity).limit_denominator(1000) * _MONTHS[listed.unit]
    dated = f", as of {listed.as_of:%Y-%m-%d}" if listed.as_of else ""
    return Extra(
        what=item.what,
        per_month=listed.price.scaled(factor),
        kept=item.kept,
        source=f"{listed.source}{dated}",
        upper_bound=listed.upper_bound or item.stored_as in BY_CHANGED_BLOCKS,
        running=item.running,
    )


def extras_of(offer: Offer, resolved: Resolved) -> tuple[Extra, ...]:
    """Return what an offer, as it was resolved, costs per month beside the machine."""
    item = offer.available
    return tuple(extra(item.provider, item.region, each) for each in resolved.beside)


def image_price(provider: str, region: str, size_gb: int) -> Extra:
    """Return what the image of a disk costs per month at most: as the snapshots of which it is made."""
    stored_as = _IMAGES.get(provider, "snapshot")
    return extra(provider, region, Beside(f"image of {size_gb} GB", stored_as, size_gb, kept=True))


def monthly(leftover: Leftover) -> Extra:
    """Return what a leftover costs per month: at most, for what is stored by changed blocks."""
    item = Beside(f"{leftover.kind} {leftover.id}", leftover.stored_as, leftover.size_gb, kept=True)
    return extra(leftover.provider, leftover.region, item)
