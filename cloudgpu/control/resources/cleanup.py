"""Removes orphaned resources one after the other, if wanted after saving a named image of a disk.

Each is queried again under its lock, and its removal is proved and recorded.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cloudgpu.control.clusters.together import worst_of
from cloudgpu.control.inventory import retention as retention_records
from cloudgpu.control.inventory.settle import CLEANUP_LOCK
from cloudgpu.control.lifecycle.lifecycle import terminate_with_resources
from cloudgpu.control.resources.named import record_image, wait_until_gone, wait_until_saved
from cloudgpu.control.resources.orphans import Survey, image_cost_of, refresh_orphan, resources_of_kind
from cloudgpu.control.team.authorization import authorization_of
from cloudgpu.core.events.bodies import OrphanRemoved
from cloudgpu.core.events.machine_events import orphan_removed
from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_OWNER, TAG_PROJECT
from cloudgpu.core.model.machine import Machine, Ownership
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.resources.orphan import Cleanup, Orphan, has_hold, image_name, is_paused
from cloudgpu.core.values.naming import lock_name, tag_value
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, ProviderUnavailable, StopUnproved
from cloudgpu.providers.abilities import HasOrphans, HasResources, Imageable, SetsTimer
from cloudgpu.underway import on_abort
from cloudgpu.views.machines import queried_accounts_document
from cloudgpu.views.orphans import orphan_document, orphans_document

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import Orphan as OrphanValue, OrphansDocument


def save_disk_image(session: Session, orphan: Orphan) -> ProviderResource:
    """Make an image of a disk, or continue with one, until it is ready; record and return it.

    Raises InvalidRequest where the provider has no images, ProviderUnavailable when it took longer than an hour.
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

    def image_if_ready() -> ProviderResource | None:
        image = provider.save_image(orphan.id, f"cloudgpu-{session.ledger.id}-{name}", tags, restart=False)
        return record_image(session, image) if image.ready and image.kind is Kind.IMAGE else None

    remedy = "Its disk stays. Run the same again: it continues with that image."
    return wait_until_saved(session, image_if_ready, name, "--snapshot", remedy)


ORPHANS_LOCK = "orphans"  # one cleanup at a time
REMOVAL_ATTEMPTS = 4  # a resource that was just detached may count as in use for a moment
_DISK_KINDS = (Kind.DISK, Kind.SNAPSHOT, Kind.IMAGE)
_REMOVAL_ORDER = (Kind.SPOT_REQUEST, Kind.TIMER, Kind.DISK, Kind.IMAGE, Kind.SNAPSHOT, Kind.ADDRESS, Kind.INTERFACE)


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """What became of an orphan: removed (with the `image` saved of it before), kept, or unknown because of `error`."""

    orphan: Orphan
    gone: bool  # it was removed, by us or by others
    image: ProviderResource | None = None
    error: CloudgpuError | None = None


def clean(session: Session, orphans: Iterable[Orphan], *, snapshot: bool = False) -> list[CleanupResult]:
    """Remove the removable ones of these orphans, and return what became of each; an error does not stop the others.

    With `snapshot`, a named image of each disk is saved first. Raises ProviderUnavailable while another cleanup runs,
    LedgerUnavailable.
    """
    removable, refused = _split_by_owner(session, [orphan for orphan in orphans if orphan.do is not Cleanup.STAY])
    results, by_machine = [CleanupResult(orphan, gone=False) for orphan in refused], dict[str, CleanupResult]()
    abort_text = "Some orphaned resources are removed, some are not. Run the same command again to continue."
    with session.lock(ORPHANS_LOCK, wait=False), on_abort(abort_text):
        for orphan in sorted(removable, key=_removal_order):
            if orphan.do is Cleanup.END and orphan.machine is not None:
                earlier = by_machine.get(orphan.machine.id)
                action = partial(_end_machine, session, orphan, orphan.machine)
                result = replace(earlier, orphan=orphan) if earlier else _result_of(orphan, action)
                by_machine[orphan.machine.id] = result
            else:
                result = _result_of(orphan, partial(_remove_resource, session, orphan, snapshot=snapshot))
            results.append(result)
    return results


def clean_document(survey: Survey, outcomes: Sequence[CleanupResult]) -> tuple[OrphansDocument, CloudgpuError | None]:
    """Return the document of a cleanup (what was removed, what stays and why, what failed), and the worst error."""
    removed = {_key(outcome.orphan): outcome for outcome in outcomes if outcome.gone}
    kept = {_key(outcome.orphan): outcome.orphan for outcome in outcomes if not outcome.gone}
    remaining = [kept.get(_key(orphan), orphan) for orphan in survey.orphans if _key(orphan) not in removed]
    document = orphans_document(
        remaining, survey.unanswered, {}, queried_accounts_document(survey.queried, survey.not_queried)
    )
    document["removed"] = [_removed_document(result) for result in removed.values()]
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    document["failed"] = [error.as_dict() for error in errors]
    return document, worst_of(errors)


def _key(orphan: Orphan) -> tuple[str, str, str]:
    """Return what tells an orphan from all others: two projects of Google may each have a rule of the same id."""
    return orphan.account, orphan.what, orphan.id


def _removed_document(cleaned: CleanupResult) -> OrphanValue:
    image = cleaned.image
    return orphan_document(cleaned.orphan, None if image is None else (image.name, image_cost_of(cleaned.orphan)))


def _split_by_owner(session: Session, orphans: Sequence[Orphan]) -> tuple[list[Orphan], list[Orphan]]:
    """Return the orphans that the user may remove, and those that stay since they are a colleague's."""
    authorization = authorization_of(session)
    with_ownership = [
        (orphan, orphan.machine or Ownership(name=orphan.name, owner=orphan.origin.owner)) for orphan in orphans
    ]
    of_others = [
        (one, machine) for one, machine in with_ownership if authorization.is_member and not authorization.owns(machine)
    ]
    kept_orphans = [
        replace(
            one, do=Cleanup.STAY, stays=f"it is {authorization.owner_text(machine)}: its owner or a payer removes it"
        )
        for one, machine in of_others
    ]
    return [
        one for one, machine in with_ownership if not authorization.is_member or authorization.owns(machine)
    ], kept_orphans


def _removal_order(orphan: Orphan) -> int:
    """Return the position of a removal: first what can launch machines, then what costs, then what that depends on."""
    kinds = [str(kind) for kind in _REMOVAL_ORDER]
    return kinds.index(orphan.what) if orphan.what in kinds else len(kinds)


def _result_of(orphan: Orphan, action: partial[CleanupResult]) -> CleanupResult:
    """Return what became of an orphan by this action: an error is in the result, except of the ledger."""
    try:
        return action()
    except LedgerUnavailable:
        raise
    except InvalidRequest as error:  # in use, held, or started again
        return CleanupResult(replace(orphan, do=Cleanup.STAY, stays=error.message), gone=False)
    except CloudgpuError as error:
        return CleanupResult(orphan, gone=False, error=error)


def _end_machine(session: Session, orphan: Orphan, machine: Machine) -> CleanupResult:
    """End a stopped machine with its retained resources; named ones stay."""

    def check(latest: Machine) -> None:
        if not is_paused(latest) or latest.pending_action == "start" or has_hold(latest, session.clock()):
            raise InvalidRequest(f"{latest.name} was started or is held since", field="name", value=latest.name)

    why = "it was left stopped (cloudgpu orphans --clean --stopped-older-than)"
    terminate_with_resources(session, machine, why=why, check=check)
    _record(session, orphan, machine.id, "the machine was ended with all its retained resources")
    return CleanupResult(orphan, gone=True)


def _remove_resource(session: Session, orphan: Orphan, *, snapshot: bool) -> CleanupResult:
    """Remove one resource. Raises InvalidRequest where it stays, StopUnproved or ProviderUnavailable."""
    machine, image = orphan.machine, None
    if machine is not None and session.is_locked(lock_name(machine.key or machine.id)):
        raise InvalidRequest(f"something is under way at {machine.name}", field="name", value=machine.name)
    with session.lock(lock_name(machine.key or machine.id), wait=0) if machine else nullcontext():
        with nullcontext() if machine else session.lock(CLEANUP_LOCK, wait=5):
            if not _is_removable(session, orphan):
                return CleanupResult(orphan, gone=True)  # somebody else has removed it
            if snapshot and orphan.what == Kind.DISK:
                image = save_disk_image(session, orphan)
                _is_removable(session, orphan)  # since saving takes minutes
            session.report(f"removing the {orphan.what.replace('_', ' ')} {orphan.id}")
            with suppress(ProviderUnavailable):  # waiting for the removal requests it again
                _remove_with_retries(session, orphan)
        remaining = _wait_until_removed(session, orphan)
        _record(session, orphan, machine.id if machine else "orphans", orphan.why, image)
        if machine is not None:
            _record_remaining(session, orphan, remaining)
    return CleanupResult(orphan, gone=True, image=image)


def _is_removable(session: Session, orphan: Orphan) -> bool:
    """Query it again just before its removal; False where it is gone. Raises InvalidRequest with why it stays."""
    current = refresh_orphan(session, orphan)
    if current is not None and current.do is Cleanup.REMOVE:
        return True
    if current is None and all(resource.id != orphan.id for resource in resources_of_kind(session, orphan)):
        return False
    raise InvalidRequest(current.stays if current else "it is in use again", field="id", value=orphan.id)


def _remove_with_retries(session: Session, orphan: Orphan, resource: ProviderResource | None = None) -> None:
    """Delete a resource, or a remainder of it; retry while it is still in use."""
    for number in range(REMOVAL_ATTEMPTS - 1):
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
    elif resource.kind in _DISK_KINDS and isinstance(provider, HasResources):
        provider.remove(resource)
    elif isinstance(provider, HasOrphans):
        provider.remove_orphan(resource)


def _wait_until_removed(session: Session, orphan: Orphan) -> list[ProviderResource]:
    """Query until it is gone, and request the removal again meanwhile; return the others of its kind in its region.

    Raises StopUnproved for what costs money, ProviderUnavailable for what does not.
    """

    def siblings_if_gone() -> list[ProviderResource] | None:
        listed = resources_of_kind(session, orphan)
        remainder = [resource for resource in listed if _is_remainder(orphan, resource)]
        for resource in remainder:
            _remove_with_retries(session, orphan, resource)
        return None if remainder else listed

    return wait_until_gone(session, siblings_if_gone, partial(_unproved_error, orphan))


def _is_remainder(orphan: Orphan, resource: ProviderResource) -> bool:
    """Say whether this is the resource itself, or a snapshot that its image left."""
    return resource.id == orphan.id or (
        orphan.resource is not None
        and orphan.what == Kind.IMAGE
        and resource.kind is Kind.SNAPSHOT
        and dict(resource.tags) == dict(orphan.resource.tags)
    )


def _unproved_error(orphan: Orphan, last_state: str) -> CloudgpuError:
    error_class = (
        ProviderUnavailable if orphan.cost.per_month is not None and not orphan.cost.per_month else StopUnproved
    )
    return error_class(
        f"That the {orphan.what.replace('_', ' ')} {orphan.id} is gone could not be proved ({last_state}).",
        field="id",
        value=orphan.id,
        next="Run the same again: cloudgpu orphans --clean",
    )


def _record(session: Session, orphan: Orphan, subject: str, why: str, image: ProviderResource | None = None) -> None:
    """Record that an orphan was removed, and the image that was saved of it."""
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
    session.ledger.append([orphan_removed(subject, removed, session.clock())])


def _record_remaining(session: Session, orphan: Orphan, remaining: list[ProviderResource]) -> None:
    """Record what the machine retains without it, so that the cost of the removed disk ends now."""
    machine = session.ledger.machine(orphan.machine.id) if orphan.machine else None
    if machine is not None and orphan.what in _DISK_KINDS:
        retention_records.record_retained(
            session, machine, retention_records.resources_of(session, machine, ResourceListing(tuple(remaining)))
        )
