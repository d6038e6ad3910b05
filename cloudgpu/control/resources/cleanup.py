"""Removes what is left over, one resource after the other, and can keep an image of a disk by name first.

Each is synced again under its lock, recorded, and proved gone.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from cloudgpu.control.clusters.together import worst_of
from cloudgpu.control.inventory import retention as retention_records
from cloudgpu.control.inventory.settle import CLEANUP_LOCK
from cloudgpu.control.lifecycle.lifecycle import terminate_with_resources
from cloudgpu.control.resources.named import SAVE_TIMEOUT, record_image, until_gone, until_saved
from cloudgpu.control.resources.orphans import Survey, price_of, refresh_orphan, resources_of_kind
from cloudgpu.control.team.authorization import authorization_of
from cloudgpu.core.events.bodies import OrphanRemoved
from cloudgpu.core.events.machine_lines import orphan_removed
from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_OWNER, TAG_PROJECT
from cloudgpu.core.model.machine import Machine, Ownership
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.resources.orphan import Cleanup, Orphan, has_hold, image_name, is_paused
from cloudgpu.core.values.naming import lock_name, tag_value
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, ProviderUnavailable, StopUnproved
from cloudgpu.providers.abilities import HasOrphans, HasResources, Imageable, SetsTimer
from cloudgpu.underway import on_abort
from cloudgpu.views.machines import queried_accounts_value
from cloudgpu.views.orphans import orphan_value, orphans_value

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import Orphan as OrphanValue, OrphansDocument


def save_disk_image(session: Session, orphan: Orphan) -> ProviderResource:
    """Go on making the image of a disk until it is ready; write it down and return it.

    Raises InvalidRequest where the provider makes none, ProviderUnavailable when it took longer than an hour.
    """
    provider, name = session.provider(orphan.account), image_name(orphan)
    if not isinstance(provider, Imageable):
        raise InvalidRequest(f"{orphan.provider} makes no image of a disk", field="--snapshot", value=orphan.id)
    tags = {
        TAG_IMAGE: name,
        TAG_LEDGER: session.ledger.id,
        TAG_OWNER: tag_value(orphan.origin.owner),
        TAG_PROJECT: tag_value(orphan.origin.project),
    } | ({TAG_ID: orphan.origin.id} if orphan.origin.id else {})
    session.report(f"making the image {name} of {orphan.id} ({orphan.size_gb} GB)")

    def ready() -> ProviderResource | None:
        made = provider.save_image(orphan.id, f"cloudgpu-{session.ledger.id}-{name}", tags, restart=False)
        return record_image(session, made) if made.ready and made.kind is Kind.IMAGE else None

    return until_saved(session, ready, partial(_not_ready, name))


def _not_ready(name: str, last: str) -> ProviderUnavailable:
    minutes = SAVE_TIMEOUT // timedelta(minutes=1)
    return ProviderUnavailable(
        f"The image {name} is not ready after {minutes} minutes ({last}); its disk stays.",
        field="--snapshot",
        value=name,
        next="Run the same again: it continues with that image.",
    )


ORPHANS_LOCK = "orphans"  # two cleanings would be in each other's way
REFUSED_TIMES = 4  # what was just let go of is in use for a moment yet
_DISKS = (Kind.DISK, Kind.SNAPSHOT, Kind.IMAGE)
_ORDER = (Kind.SPOT_REQUEST, Kind.TIMER, Kind.DISK, Kind.IMAGE, Kind.SNAPSHOT, Kind.ADDRESS, Kind.INTERFACE)


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """What became of one thing: it is gone, `image` was saved of it before; or it stays; or nobody knows (`fault`)."""

    orphan: Orphan
    gone: bool
    image: ProviderResource | None = None
    fault: CloudgpuError | None = None


def clean(session: Session, orphans: Iterable[Orphan], *, snapshot: bool = False) -> list[CleanupResult]:
    """Remove what may go of this, and return what became of each; one that cannot be removed keeps none of the others.

    `snapshot`: an image of each disk is made first, and kept by name. Raises ProviderUnavailable where another cleaning
    is under way, LedgerUnavailable.
    """
    going, others = _split_by_owner(session, [one for one in orphans if one.do is not Cleanup.STAY])
    ended: dict[str, CleanupResult] = {}
    left = "Some orphaned resources are removed, some are not. Run the same command again to continue."
    with session.lock(ORPHANS_LOCK, wait=False), on_abort(left):
        outcomes = [CleanupResult(one, gone=False) for one in others]
        for one in sorted(going, key=_removal_order):
            if one.do is Cleanup.END and one.machine is not None:
                before = ended.get(one.machine.id)
                outcome = replace(before, orphan=one) if before else _tried(one, partial(_ended, session, one))
                ended[one.machine.id] = outcome
            else:
                outcome = _tried(one, partial(_removed, session, one, snapshot=snapshot))
            outcomes.append(outcome)
    return outcomes


def clean_document(survey: Survey, outcomes: Sequence[CleanupResult]) -> tuple[OrphansDocument, CloudgpuError | None]:
    """Return what has gone, what stays and why, and what nobody knows; and the gravest fault."""
    gone = {one.orphan.id: one for one in outcomes if one.gone}
    after = {one.orphan.id: one.orphan for one in outcomes if not one.gone}
    left = [after.get(one.id, one) for one in survey.orphans if one.id not in gone]
    document = orphans_value(left, survey.unanswered, {}, queried_accounts_value(survey.queried, survey.not_queried))
    document["removed"] = [_removed_value(one) for one in gone.values()]
    faults = [one.fault for one in outcomes if one.fault is not None]
    document["failed"] = [fault.as_dict() for fault in faults]
    return document, worst_of(faults)


def _removed_value(cleaned: CleanupResult) -> OrphanValue:
    image = cleaned.image
    return orphan_value(cleaned.orphan, None if image is None else (image.name, price_of(cleaned.orphan)))


def _split_by_owner(session: Session, going: Sequence[Orphan]) -> tuple[list[Orphan], list[Orphan]]:
    """Return what this person may remove, and what stays since it is a colleague's."""
    authorization = authorization_of(session)
    rows = [(one, one.machine or Ownership(name=one.name, owner=one.origin.owner)) for one in going]
    others = [(one, row) for one, row in rows if authorization.is_member and not authorization.owns(row)]
    stays = [
        replace(one, do=Cleanup.STAY, stays=f"it is {authorization.whose(row)}: its owner or a payer removes it")
        for one, row in others
    ]
    return [one for one, row in rows if not authorization.is_member or authorization.owns(row)], stays


def _removal_order(orphan: Orphan) -> int:
    """Return when it is its turn: what can launch machines first, then what costs, then what that hung on."""
    kinds = [str(kind) for kind in _ORDER]
    return kinds.index(orphan.what) if orphan.what in kinds else len(kinds)


def _tried(orphan: Orphan, do: partial[CleanupResult]) -> CleanupResult:
    try:
        return do()
    except LedgerUnavailable:
        raise
    except InvalidRequest as error:  # in use, held, or somebody has come back
        return CleanupResult(replace(orphan, do=Cleanup.STAY, stays=error.message), gone=False)
    except CloudgpuError as error:
        return CleanupResult(orphan, gone=False, fault=error)


def _ended(session: Session, orphan: Orphan) -> CleanupResult:
    """End a stopped machine with all that is kept of it; what is kept by name stays."""
    assert orphan.machine is not None  # noqa: S101  (for the type checker: only a machine is ended)

    def check(machine: Machine) -> None:
        if not is_paused(machine) or machine.pending_action == "start" or has_hold(machine, session.clock()):
            raise InvalidRequest(f"{machine.name} was started or is held since", field="name", value=machine.name)

    why = "it was left stopped (cloudgpu orphans --clean --stopped-older-than)"
    machine = terminate_with_resources(session, orphan.machine, why=why, check=check).machine
    _record(session, orphan, machine.id, "the machine was ended with all its retained resources")
    return CleanupResult(orphan, gone=True)


def _removed(session: Session, orphan: Orphan, *, snapshot: bool) -> CleanupResult:
    """Remove one thing. Raises InvalidRequest where it stays, StopUnproved or ProviderUnavailable."""
    machine, image = orphan.machine, None
    _check_free(session, machine)
    with session.lock(lock_name(machine.key or machine.id), wait=0) if machine else nullcontext():
        with nullcontext() if machine else session.lock(CLEANUP_LOCK, wait=5):
            if not _may_go(session, orphan):
                return CleanupResult(orphan, gone=True)  # others have removed it
            if snapshot and orphan.what == Kind.DISK:
                image = save_disk_image(session, orphan)
                _may_go(session, orphan)  # that took its time
            session.report(f"removing the {orphan.what.replace('_', ' ')} {orphan.id}")
            _ask(session, orphan)
        left = _prove(session, orphan)
        _record(session, orphan, machine.id if machine else "orphans", orphan.why, image)
        if machine is not None:
            _note_what_stays(session, orphan, left)
    return CleanupResult(orphan, gone=True, image=image)


def _check_free(session: Session, machine: Machine | None) -> None:
    if machine is not None and session.is_locked(lock_name(machine.key or machine.id)):
        raise InvalidRequest(f"something is under way at {machine.name}", field="name", value=machine.name)


def _may_go(session: Session, orphan: Orphan) -> bool:
    """Look again, right before; False where it is gone. Raises InvalidRequest with why it stays."""
    now = refresh_orphan(session, orphan)
    if now is not None and now.do is Cleanup.REMOVE:
        return True
    if now is None and not [resource for resource in resources_of_kind(session, orphan) if resource.id == orphan.id]:
        return False
    raise InvalidRequest(now.stays if now else "it is in use again", field="id", value=orphan.id)


def _ask(session: Session, orphan: Orphan) -> None:
    """Ask for its removal; a reply that was lost, or a region that is busy, is left to the proof."""
    with suppress(ProviderUnavailable):
        _remove(session, orphan)


def _remove(session: Session, orphan: Orphan, resource: ProviderResource | None = None) -> None:
    """Ask for the removal of a thing, or of a part of it that was left behind; again, where it is still in use."""
    for number in range(REFUSED_TIMES - 1):
        try:
            return _delete(session, orphan, resource or orphan.resource)
        except InvalidRequest:
            session.pause(2.0**number)
    return _delete(session, orphan, resource or orphan.resource)


def _delete(session: Session, orphan: Orphan, resource: ProviderResource | None) -> None:
    provider = session.provider(orphan.account)
    if resource is None:
        return
    if resource.kind is Kind.TIMER and isinstance(provider, SetsTimer):
        provider.drop_timer(resource.id)
    elif resource.kind in _DISKS and isinstance(provider, HasResources):
        provider.remove(resource)
    elif isinstance(provider, HasOrphans):
        provider.remove_orphan(resource)


def _prove(session: Session, orphan: Orphan) -> list[ProviderResource]:
    """Look until it is gone, asking again on the way; return what else there is of its kind in its region.

    Raises StopUnproved for what costs money, ProviderUnavailable for what does not.
    """

    def gone() -> list[ProviderResource] | None:
        found = resources_of_kind(session, orphan)
        rest = [resource for resource in found if _is_rest(orphan, resource)]
        for resource in rest:
            _remove(session, orphan, resource)
        return None if rest else found

    return until_gone(session, gone, partial(_unproved, orphan))


def _is_rest(orphan: Orphan, resource: ProviderResource) -> bool:
    """Say whether this is the thing itself, or a snapshot that its image left behind."""
    if resource.id == orphan.id:
        return True
    was_image = orphan.resource is not None and orphan.what == Kind.IMAGE and resource.kind is Kind.SNAPSHOT
    return was_image and orphan.resource is not None and dict(resource.tags) == dict(orphan.resource.tags)


def _unproved(orphan: Orphan, last: str) -> CloudgpuError:
    kind = ProviderUnavailable if orphan.cost.per_month is not None and not orphan.cost.per_month else StopUnproved
    return kind(
        f"That the {orphan.what.replace('_', ' ')} {orphan.id} is gone could not be proved ({last}).",
        field="id",
        value=orphan.id,
        next="Run the same again: cloudgpu orphans --clean",
    )


def _record(session: Session, orphan: Orphan, subject: str, why: str, image: ProviderResource | None = None) -> None:
    """Write that something left over was removed, and what was saved of it before."""
    now = session.clock()
    removed: OrphanRemoved = {
        "what": orphan.what,
        "id": orphan.id,
        "name": orphan.name,
        "account": orphan.account,
        "region": orphan.region,
        "nanos_per_month": None if orphan.cost.per_month is None else orphan.cost.per_month.nanos,
        "image": None if image is None else image.name,
        "why": why,
        "host": platform.node(),
    }
    session.ledger.append([orphan_removed(subject, removed, now)])


def _note_what_stays(session: Session, orphan: Orphan, left: list[ProviderResource]) -> None:
    """Write what is kept of the machine without it: its bill ends now."""
    machine = session.ledger.machine(orphan.machine.id) if orphan.machine else None
    if machine is not None and orphan.what in _DISKS:
        retention_records.record(
            session, machine, retention_records.resources_of(session, machine, ResourceListing(tuple(left)))
        )
