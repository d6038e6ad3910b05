"""Orphaned resources, and which of them were removed, as the plain values that `cloudgpu orphans -o json` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cloudgpu.core.model.resources import Kind
from cloudgpu.core.resources.orphan import Cleanup
from cloudgpu.core.values.money import Money, usd
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from cloudgpu.core.model.identity import Unanswered
    from cloudgpu.core.resources.orphan import Cost, Orphan
    from cloudgpu.views.documents.machines.storage import Orphan as OrphanDocument, OrphansDocument, SavedImage
    from cloudgpu.views.documents.parts import AccountCoverage

_SIZED_KINDS = (Kind.DISK, Kind.VOLUME, Kind.SNAPSHOT, Kind.IMAGE)


def orphans_document(
    orphans: Sequence[Orphan],
    unanswered: Iterable[Unanswered],
    images: Mapping[str, tuple[str, Cost]],
    coverage: AccountCoverage,
) -> OrphansDocument:
    """Return the answer of `orphans`; `images` are the names and prices of images to be made first, by orphan's id.

    Sums are of what has a known price; `unpriced` says how many have none and are in neither sum.
    """
    return {
        "orphans": [orphan_document(orphan, images.get(orphan.id)) for orphan in orphans],
        "usd_per_month": _sum(orphans),
        "removable_usd_per_month": _sum([orphan for orphan in orphans if orphan.do is not Cleanup.STAY]),
        "unpriced": sum(orphan.cost.per_month is None for orphan in orphans),
        "removed": [],
        "failed": [],
        "unanswered": [{"scope": account.scope, "why": account.why} for account in unanswered],
        **coverage,
    }


def orphan_document(orphan: Orphan, image: tuple[str, Cost] | None = None) -> OrphanDocument:
    """Return one orphaned resource or machine; `usd_per_month` is null where no price is known, never zero."""
    saved_image: SavedImage | None = None if image is None else {"name": image[0], "usd_per_month": _usd(image[1])}
    origin = orphan.origin
    return {
        "kind": orphan.what,
        "id": orphan.id,
        "name": orphan.name or None,
        "provider": orphan.provider,
        "account": orphan.account,
        "region": orphan.region,
        "zone": orphan.zone or None,
        "size_gb": orphan.size_gb if orphan.what in _SIZED_KINDS else None,
        "usd_per_month": _usd(orphan.cost),
        "at_most": orphan.cost.is_upper_bound,
        "price_source": orphan.cost.source or None,
        "launch": {"id": origin.id, "name": origin.name, "project": origin.project} if origin.id else None,
        "owner": origin.owner or None,
        "ledger": origin.ledger or None,
        "since": None if orphan.since is None else iso(orphan.since),
        "why": orphan.why,
        "do": str(orphan.do),
        "stay_reason": orphan.stays or None,
        "next": orphan.command or None,
        "image": saved_image,
    }


def _usd(cost: Cost) -> str | None:
    return None if cost.per_month is None else usd(cost.per_month)


def _sum(orphans: Iterable[Orphan]) -> str:
    """Return the monthly cost of those that have a known price."""
    return usd(Money(sum(orphan.cost.per_month.nanos for orphan in orphans if orphan.cost.per_month is not None)))
