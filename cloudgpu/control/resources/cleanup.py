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
from cloudgpu.control.inventory.settle import CLEANING
from cloudgpu.control.lifecycle.lifecycle import terminate_with_resources
from cloudgpu.control.records import retention as retention_records
from cloudgpu.control.resources.named import SAVED_WITHIN, record_image, until_gone, until_saved
from cloudgpu.control.resources.orphans import Survey, price_of, refresh_orphan, resources_of_kind
from cloudgpu.control.team.authorization import authorization_of
from cloudgpu.core.events.bodies import OrphanRemoved
from cloudgpu.core.events.machine_lines import orphan_removed
from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_OWNER, TAG_PROJECT
from cloudgpu.core.model.machine import Machine, Ownership
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.resources.orphan import Cleanup, Orphan, has_hold, image_name, is_paused
from cloudgpu.core.values.naming import lock_name, tag_value
from cloudgpu.errors import (
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    ProviderUnavailable,
    StopUnproved,
)
from cloudgpu.providers.abilities import HasOrphans, HasResources, Imageable, SetsTimer
from cloudgpu.underway import changing
from cloudgpu.views.machines import queried_accounts_value
from cloudgpu.views.orphans import orphan_value, orphans_value

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import Orphan as OrphanValue, OrphansDocument


def save_disk_image(session: Session, one: Orphan) -> ProviderResource:
    """Go on making the image of a disk until it is ready; write it down and return it.

    Raises InvalidRequest where the provider makes none, ProviderUnavailable when it took longer than an hour.
    """
    provider, name = session.provider(one.account), image_name(one)
    if not isinstance(provider, Imageable):
        raise InvalidRequest(f"{one.provider} makes no image of a disk", field="--snapshot", value=one.id)
    tags = {
        TAG_IMAGE: name,
        TAG_LEDGER: session.ledger.id,
        TAG_OWNER: tag_value(one.origin.owner),
        TAG_PROJECT: tag_value(one.origin.project),
    } | ({TAG_ID: one.origin.id} if one.origin.id else {})
    session.report(f"making the image {name} of {one.id} ({one.size_gb} GB)")

    def ready() -> ProviderResource | None:
        made = provider.save_image(one.id, f"cloudgpu-{session.ledger.id}-{name}", tags, restart=False)
        return record_image(session, made) if made.ready and made.kind is Kind.IMAGE else None

    return until_saved(session, ready, partial(_not_ready, name))


def _not_ready(name: str, last: str) -> ProviderUnavailable:
    minutes = SAVED_WITHIN // timedelta(minutes=1)
    return ProviderUnavailable(
        f"The image {name} is not ready after {minutes} minutes ({last}); its disk stays.",
        field="--snapshot",
        value=name,
        next="Run the same again: it continues with that image.",
    )


ONE_AT_A_TIME = "orphans"  # two cleanings would be in each other's way
REFUSED_TIMES = 4  # what was just let go of is in use for a moment yet
_DISKS = (Kind.DISK, Kind.SNAPSHOT, Kind.IMAGE)
_ORDER = (Kind.SPOT_REQUEST, Kind.TIMER, Kind.DISK, Kind.IMAGE, Kind.SNAPSHOT, Kind.ADDRESS, Kind.INTERFACE)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What became of one thing: it is gone, `image` was saved of it before; or it stays; or nobody knows (`fault`)."""

    orphan: Orphan
    gone: bool
    image: ProviderResource | None = None
    fault: CloudgpuError | None = None


def clean(session: Session, found: Iterable[Orphan], *, snapshot: bool = False) -> list[Cleaned]:
    """Remove what may go of this, and return what became of each; one that cannot be removed keeps none of the others.

    `snapshot`: an image of each disk is made first, and kept by name. Raises ProviderUnavailable where another cleaning
    is under way, LedgerUnavailable.
    """
    going, others = _split_by_owner(session, [one for one in found if one.do is not Cleanup.STAY])
    ended: dict[str, Cleaned] = {}
    left = "Some orphaned resources are removed, some are not. Run the same command again to continue."
    with session.lock(ONE_AT_A_TIME, wait=False), changing(left):
        outcomes = [Cleaned(one, gone=False) for one in others]
        for one in sorted(going, key=_removal_order):
            if one.do is Cleanup.END and one.machine is not None:
                before = ended.get(one.machine.id)
                outcome = replace(before, orphan=one) if before else _tried(one, partial(_ended, session, one))
                ended[one.machine.id] = outcome
            else:
                outcome = _tried(one, partial(_removed, session, one, snapshot=snapshot))
            outcomes.append(outcome)
    return outcomes


def clean_document(found: Survey, outcomes: Sequence[Cleaned]) -> tuple[OrphansDocument, CloudgpuError | None]:
    """Return what has gone, what stays and why, and what nobody knows; and the gravest fault."""
    gone = {one.orphan.id: one for one in outcomes if one.gone}
    after = {one.orphan.id: one.orphan for one in outcomes if not one.gone}
    left = [after.get(one.id, one) for one in found.orphans if one.id not in gone]
    document = orphans_value(left, found.unanswered, {}, queried_accounts_value(found.asked, found.closed))
    document["removed"] = [_removed_value(one) for one in gone.values()]
    faults = [one.fault for one in outcomes if one.fault is not None]
    document["failed"] = [fault.as_dict() for fault in faults]
    return document, worst_of(faults)


def _removed_value(one: Cleaned) -> OrphanValue:
    image = one.image
    return orphan_value(one.orphan, None if image is None else (image.name, price_of(one.orphan)))


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


def _removal_order(one: Orphan) -> int:
    """Return when it is its turn: what can launch machines first, then what costs, then what that hung on."""
    kinds = [str(kind) for kind in _ORDER]
    return kinds.index(one.what) if one.what in kinds else len(kinds)


def _tried(one: Orphan, do: partial[Cleaned]) -> Cleaned:
    try:
        return do()
    except LedgerUnavailable:
        raise
    except InvalidRequest as error:  # in use, held, or somebody has come back
        return Cleaned(replace(one, do=Cleanup.STAY, stays=error.message), gone=False)
    except CloudgpuError as error:
        return Cleaned(one, gone=False, fault=error)


def _ended(session: Session, one: Orphan) -> Cleaned:
    """End a stopped machine with all that is kept of it; what is kept by name stays."""
    assert one.machine is not None  # noqa: S101  (for the type checker: only a machine is ended)

    def check(machine: Machine) -> None:
        if not is_paused(machine) or machine.pending_action == "start" or has_hold(machine, session.clock()):
            raise InvalidRequest(f"{machine.name} was started or is held since", field="name", value=machine.name)

    why = "it was left stopped (cloudgpu orphans --clean --stopped-older-than)"
    machine = terminate_with_resources(session, one.machine, why=why, check=check).machine
    _record(session, one, machine.id, "the machine was ended with all its retained resources")
    return Cleaned(one, gone=True)


def _removed(session: Session, one: Orphan, *, snapshot: bool) -> Cleaned:
    """Remove one thing. Raises InvalidRequest where it stays, StopUnproved or ProviderUnavailable."""
    machine, image = one.machine, None
    _check_free(session, machine)
    with session.lock(lock_name(machine.key or machine.id), wait=0) if machine else nullcontext():
        with nullcontext() if machine else session.lock(CLEANING, wait=5):
            if not _may_go(session, one):
                return Cleaned(one, gone=True)  # others have removed it
            if snapshot and one.what == Kind.DISK:
                image = save_disk_image(session, one)
                _may_go(session, one)  # that took its time
            session.report(f"removing the {one.what.replace('_', ' ')} {one.id}")
            _ask(session, one)
        left = _prove(session, one)
        _record(session, one, machine.id if machine else "orphans", one.why, image)
        if machine is not None:
            _note_what_stays(session, one, left)
    return Cleaned(one, gone=True, image=image)


def _check_free(session: Session, machine: Machine | None) -> None:
    if machine is not None and session.is_locked(lock_name(machine.key or machine.id)):
        raise InvalidRequest(f"something is under way at {machine.name}", field="name", value=machine.name)


def _may_go(session: Session, one: Orphan) -> bool:
    """Look again, right before; False where it is gone. Raises InvalidRequest with why it stays."""
    now = refresh_orphan(session, one)
    if now is not None and now.do is Cleanup.REMOVE:
        return True
    if now is None and not [resource for resource in resources_of_kind(session, one) if resource.id == one.id]:
        return False
    raise InvalidRequest(now.stays if now else "it is in use again", field="id", value=one.id)


def _ask(session: Session, one: Orphan) -> None:
    """Ask for its removal; a reply that was lost, or a region that is busy, is left to the proof."""
    with suppress(ProviderUnavailable):
        _remove(session, one)


def _remove(session: Session, one: Orphan, resource: ProviderResource | None = None) -> None:
    """Ask for the removal of a thing, or of a part of it that was left behind; again, where it is still in use."""
    for number in range(REFUSED_TIMES - 1):
        try:
            return _delete(session, one, resource or one.resource)
        except InvalidRequest:
            session.pause(2.0**number)
    return _delete(session, one, resource or one.resource)


def _delete(session: Session, one: Orphan, resource: ProviderResource | None) -> None:
    provider = session.provider(one.account)
    if resource is None:
        return
    if resource.kind is Kind.TIMER and isinstance(provider, SetsTimer):
        provider.drop_timer(resource.id)
    elif resource.kind in _DISKS and isinstance(provider, HasResources):
        provider.remove(resource)
    elif isinstance(provider, HasOrphans):
        provider.remove_orphan(resource)


def _prove(session: Session, one: Orphan) -> list[ProviderResource]:
    """Look until it is gone, asking again on the way; return what else there is of its kind in its region.

    Raises StopUnproved for what costs money, ProviderUnavailable for what does not.
    """

    def gone() -> list[ProviderResource] | None:
        found = resources_of_kind(session, one)
        rest = [resource for resource in found if _is_rest(one, resource)]
        for resource in rest:
            _remove(session, one, resource)
        return None if rest else found

    return until_gone(session, gone, partial(_unproved, one))


def _is_rest(one: Orphan, resource: ProviderResource) -> bool:
    """Say whether this is the thing itself, or a snapshot that its image left behind."""
    if resource.id == one.id:
        return True
    was_image = one.resource is not None and one.what == Kind.IMAGE and resource.kind is Kind.SNAPSHOT
    return was_image and one.resource is not None and dict(resource.tags) == dict(one.resource.tags)


def _unproved(one: Orphan, last: str) -> CloudgpuError:
    kind = ProviderUnavailable if one.cost.per_month is not None and not one.cost.per_month else StopUnproved
    return kind(
        f"That the {one.what.replace('_', ' ')} {one.id} is gone could not be proved ({last}).",
        field="id",
        value=one.id,
        next="Run the same again: cloudgpu orphans --clean",
    )


def _record(session: Session, one: Orphan, subject: str, why: str, image: ProviderResource | None = None) -> None:
    """Write that something left over was removed, and what was saved of it before."""
    now = session.clock()
    removed: OrphanRemoved = {
        "what": one.what,
        "id": one.id,
        "name": one.name,
        "account": one.account,
        "region": one.region,
        "nanos_per_month": None if one.cost.per_month is None else one.cost.per_month.nanos,
        "image": None if image is None else image.name,
        "why": why,
        "host": platform.node(),
    }
    session.ledger.append([orphan_removed(subject, removed, now)])


def _note_what_stays(session: Session, one: Orphan, left: list[ProviderResource]) -> None:
    """Write what is kept of the machine without it: its bill ends now."""
    machine = session.ledger.machine(one.machine.id) if one.machine else None
    if machine is not None and one.what in _DISKS:
        retention_records.record(
            session, machine, retention_records.resources_of(session, machine, ResourceListing(tuple(left)))
        )
