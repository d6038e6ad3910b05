"""The answers of `orphans`: what is left over, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.inputs.launch_request import duration
from cloudgpu.control.resources.cleanup import name_of, price_of, saves
from cloudgpu.core.resources.orphan import CleanupOptions
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.views.accounts import queried_accounts_value
from cloudgpu.views.orphans import orphan_value, orphans_value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from cloudgpu.control.resources.cleanup import Cleaned
    from cloudgpu.control.resources.orphans import Survey
    from cloudgpu.core.resources.orphan import Cost, Orphan
    from cloudgpu.views.documents.machines.storage import Orphan as OrphanValue
    from cloudgpu.views.documents.machines.storage import OrphansDocument

_GRAVE = {9: 0, 8: 1}


def surveyed(found: Survey, *, snapshot: bool = False) -> OrphansDocument:
    """Return what is left over; with `snapshot` also the images that are made before disks go, and what they cost."""
    images = _images(found.orphans) if snapshot else {}
    return orphans_value(found.orphans, found.unanswered, images, queried_accounts_value(found.asked, found.closed))


def cleaned(found: Survey, outcomes: Sequence[Cleaned]) -> tuple[OrphansDocument, CloudgpuError | None]:
    """Return what has gone, what stays and why, and what nobody knows; and the gravest fault."""
    gone = {one.orphan.id: one for one in outcomes if one.gone}
    after = {one.orphan.id: one.orphan for one in outcomes if not one.gone}
    left = [after.get(one.id, one) for one in found.orphans if one.id not in gone]
    document = orphans_value(left, found.unanswered, {}, queried_accounts_value(found.asked, found.closed))
    document["removed"] = [_removed(one) for one in gone.values()]
    faults = [one.fault for one in outcomes if one.fault is not None]
    document["failed"] = [fault.as_dict() for fault in faults]
    return document, min(faults, key=lambda fault: _GRAVE.get(fault.exit_code, 2), default=None)


def wished(
    *, clean: bool, snapshot: bool, older_than: timedelta | str | None, stopped_older_than: timedelta | str | None
) -> CleanupOptions:
    """Return what is asked for. Raises InvalidRequest for what is no duration, or says how to clean without --clean."""
    for option, given in (("--snapshot", snapshot), ("--stopped-older-than", stopped_older_than is not None)):
        if given and not clean:
            raise InvalidRequest(
                f"{option} says how to clean, and nothing is cleaned without --clean.",
                field=option,
                value=None,
                next="Add --clean: it shows what would go, and asks.",
            )
    older = duration(older_than, "--older-than")
    spare = older is None and not snapshot  # whoever says neither may not mean what `start` brings back
    return CleanupOptions(older, duration(stopped_older_than, "--stopped-older-than"), spare=spare)


def _removed(one: Cleaned) -> OrphanValue:
    image = one.image
    return orphan_value(one.orphan, None if image is None else (image.name, price_of(one.orphan)))


def _images(found: Sequence[Orphan]) -> dict[str, tuple[str, Cost]]:
    return {one.id: (name_of(one), price_of(one)) for one in found if saves(one)}
