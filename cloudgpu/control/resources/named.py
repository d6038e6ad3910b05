"""Named images and data volumes, which stay when machines end: saved, listed, removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cloudgpu.control.inventory.retention import named_resources, record_removed, record_resources
from cloudgpu.control.inventory.retention_sync import list_resources
from cloudgpu.control.inventory.sync_some import explain_terminated, refresh_or_raise
from cloudgpu.control.session.accounts import split_gaps, used_accounts
from cloudgpu.control.session.identity import open_providers
from cloudgpu.control.team.authorization import check_right_and_claim_owner, ownership_of_named
from cloudgpu.core.model.identity import Unanswered, is_in_unanswered, unanswered_text
from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_OWNER, TAG_PROJECT, State
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.resources.orphan import STARTABLE_STATES
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.naming import NAME, NAME_RULE, closest_match, did_you_mean, tag_value
from cloudgpu.core.values.times import iso
from cloudgpu.errors import (
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    LedgerUnavailable,
    ProviderUnavailable,
    StopUnproved,
)
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import HasResources, Imageable
from cloudgpu.providers.attached_costs import resource_rate
from cloudgpu.providers.shared.calls import poll_until
from cloudgpu.underway import on_abort

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import ImagesDocument, NamedResource, VolumesDocument
    from cloudgpu.views.documents.parts import UnansweredScope

Result = TypeVar("Result")
SAVE_TIMEOUT = timedelta(minutes=60)
REMOVAL_TIMEOUT = timedelta(minutes=5)
MAX_PAUSE_S = 15.0


def list_named(session: Session, kind: Kind) -> ResourceListing:
    """Return this ledger's named images or volumes of every account, and the accounts that did not answer."""
    accounts = used_accounts(session)
    resources: list[ProviderResource] = []
    gaps: list[Unanswered] = []
    open_providers(session, accounts)
    with Pool(len(accounts), "accounts") as pool:
        for answer in pool.map(lambda account: list_resources(session, account), accounts):
            resources += [
                resource
                for resource in answer.items
                if _is_of_kind(kind, resource, answer) and _is_named(session, resource)
            ]
            incomplete, _ = split_gaps(session, answer.unanswered)  # without refused accounts that were never used
            gaps += incomplete
    return ResourceListing(
        tuple(sorted(resources, key=lambda resource: (resource.name, resource.region, resource.id))), tuple(gaps)
    )


def images_document(listing: ResourceListing) -> ImagesDocument:
    """Return the answer of `image ls`."""
    return {
        "images": [named_resource_document(resource) for resource in listing.items],
        "unanswered": _gap_documents(listing),
    }


def volumes_document(listing: ResourceListing) -> VolumesDocument:
    """Return the answer of `volume ls`."""
    return {
        "volumes": [named_resource_document(resource) for resource in listing.items],
        "unanswered": _gap_documents(listing),
    }


def _gap_documents(listing: ResourceListing) -> list[UnansweredScope]:
    return [{"scope": gap.scope, "why": gap.why} for gap in listing.unanswered]


def named_resource_document(resource: ProviderResource) -> NamedResource:
    """Return a named image or volume as a document, with its price a month."""
    per_month = resource_rate(resource).per_month
    return {
        "id": resource.id,
        "kind": str(resource.kind),
        "region": resource.region,
        "zone": resource.zone,
        "size_gb": resource.size_gb,
        "created_at": None if resource.made_at is None else iso(resource.made_at),
        "ready": resource.ready,
        "usd_per_month": None if per_month is None else usd(per_month),
        "name": resource.name,
        "provider": resource.provider,
        "account": resource.account,
        "attached_to": resource.attached_to,
    }


def find_named(session: Session, kind: Kind, name: str, region: str | None) -> ProviderResource:
    """Return the image or volume of this name or id.

    Raises InstanceNotFound where there is none, ProviderUnavailable where an account or region did not answer and may
    have it, or another one of this name; InvalidRequest where there are several.
    """
    listing = list_named(session, kind)
    gap = next((gap for gap in listing.unanswered if _may_concern(session, gap, region)), None)
    matches = [
        resource
        for resource in listing.items
        if name in (resource.name, resource.id) and region in (None, resource.region)
    ]
    if len(matches) == 1 and (gap is None or matches[0].id == name):
        return matches[0]
    if len(matches) > 1:
        regions = " | ".join(sorted({match.region for match in matches}))
        raise InvalidRequest(
            f"There are {len(matches)} {kind}s called {name}.",
            field="--region",
            value=None,
            next=f"Say which: --region {regions}, or name it by its id (cloudgpu {kind} ls).",
        )
    if gap is not None:
        message, remedy = unanswered_text(gap.scope, gap.why), "Run it again."
        if matches:
            message = f"There may be another {kind} called {name}. {message}"
            remedy = f"Run it again, say which: --region {matches[0].region}, or name it by its id: {matches[0].id}"
        raise ProviderUnavailable(message, field="provider", next=remedy)
    # One in a colleague's account exists, too: this raises that it is not reachable here.
    for recorded in named_resources(session.ledger):
        # the `state` of the record of an image or volume is its kind
        if name in (recorded.name, recorded.provider_id) and recorded.state == kind:
            session.account_name_here(recorded)
    raise InstanceNotFound(
        f"No {kind} is called {name!r}"
        + did_you_mean(closest_match(name, [resource.name for resource in listing.items]), "."),
        field="name",
        value=name,
        next=f"Run: cloudgpu {kind} ls",
    )


def _may_concern(session: Session, gap: Unanswered, region: str | None) -> bool:
    """Return whether what did not answer may have a resource of this region; None: of any."""
    return region is None or gap.scope in session.settings.accounts or is_in_unanswered((gap.scope,), "", region)


def remove(session: Session, resource: ProviderResource) -> None:
    """Remove a named resource and prove that it is gone.

    Raises InvalidRequest while a machine uses it, StopUnproved where it may still be there, RoleNeeded where the user
    may not remove it.
    """
    check_right_and_claim_owner(session, ownership_of_named(resource), "remove")
    if resource.attached_to is not None:
        raise _in_use_error(session, resource)
    with on_abort(
        f"The {resource.kind} {resource.name} may still be there and cost. Run the same command again to remove it."
    ):
        _remove(session, resource)


def _remove(session: Session, resource: ProviderResource) -> None:
    provider = session.provider(resource.account)
    if not isinstance(provider, HasResources):
        return

    def true_if_gone() -> bool | None:
        provider.remove(resource)
        remainder = _remainder(provider.resources(resource.region), resource)
        for remaining in remainder:
            provider.remove(remaining)
        if remainder:
            return None
        record_removed(session, resource)
        return True

    wait_until_gone(session, true_if_gone, partial(_unproved_error, resource))


def _unproved_error(resource: ProviderResource, last_state: str) -> StopUnproved:
    return StopUnproved(
        f"That the {resource.kind} {resource.name} is gone could not be proved ({last_state}).",
        field="name",
        value=resource.name,
        next=f"Run the same again: cloudgpu {resource.kind} rm {resource.name}",
    )


def wait_until_gone(
    session: Session, result_if_gone: Callable[[], Result | None], timeout_error: Callable[[str], CloudgpuError]
) -> Result:
    """Return what `result_if_gone` returns once it is not None; raise `timeout_error` of the last message.

    LedgerUnavailable is raised at once: waiting longer for the provider does not help.
    """
    return poll_until(
        result_if_gone,
        timeout_error,
        REMOVAL_TIMEOUT,
        clock=session.clock,
        pause=session.pause,
        last_message="it is still there",
        raised_at_once=(LedgerUnavailable,),
    )


def wait_until_saved(
    session: Session, image_if_ready: Callable[[], ProviderResource | None], name: str, option: str, remedy: str
) -> ProviderResource:
    """Return what `image_if_ready` returns once it is not None; raise LedgerUnavailable at once.

    Raises ProviderUnavailable after SAVE_TIMEOUT, about the image's `name` by this option, with this remedy.
    """
    minutes = SAVE_TIMEOUT // timedelta(minutes=1)
    return poll_until(
        image_if_ready,
        lambda last_state: ProviderUnavailable(
            f"The image {name} is not ready after {minutes} minutes ({last_state}).",
            field=option,
            value=name,
            next=remedy,
        ),
        SAVE_TIMEOUT,
        clock=session.clock,
        pause=session.pause,
        last_message="it is still being made",
        first_s=0.5,
        longest_s=MAX_PAUSE_S,
        raised_at_once=(LedgerUnavailable,),
    )


def record_image(session: Session, resource: ProviderResource) -> ProviderResource:
    """Record an image in the ledger, and return it."""
    record_resources(session, [resource])
    return resource


def remove_named(session: Session, record: Machine) -> Machine:
    """Remove the named resource of this record, by its provider's id, and return the record as it is then.

    The ledger has images and volumes as machines, too; the `state` of such a record is the kind of the resource.
    Raises as `find_named` and `remove`, and NotReachableHere for one in another account.
    """
    session.account_name_here(record)
    remove(session, find_named(session, Kind(record.state), not_none(record.provider_id), record.region))
    return next(
        (
            billable_machine
            for billable_machine in session.ledger.billable_machines()
            if billable_machine.id == record.id
        ),
        record,
    )


def save_image(session: Session, machine: Machine, name: str | None, *, restart: bool = True) -> ProviderResource:
    """Make a named image of a running or stopped machine; return it once it is ready.

    The machine stays. Continues with an image that an earlier call began. Raises InstanceNotFound for a machine that
    has ended, InvalidRequest for a machine that supports no images or a name that is taken, ProviderUnavailable when it
    is not known which names are taken or it took longer than an hour, RoleNeeded where the user may not save it.
    """
    check_right_and_claim_owner(session, machine, "save an image of")
    provider = session.provider_of(machine)
    if not (isinstance(provider, Imageable) and isinstance(provider, HasResources)):
        raise InvalidRequest(
            f"No image can be made of {machine.name}: {machine.provider} keeps none.", field="name", value=machine.name
        )
    machine = refresh_or_raise(session, machine)
    if machine.state not in (State.RUNNING, *STARTABLE_STATES):
        raise InvalidRequest(
            f"{machine.name} is {machine.state}: an image is made of a machine that runs or is stopped.",
            field="name",
            value=machine.name,
            next=f"Run: cloudgpu start {command_name(machine)}",
        )
    keeps_running = not restart or getattr(provider, "saves_running", False)
    if machine.cluster_node and machine.state == State.RUNNING and not keeps_running:
        raise InvalidRequest(
            f"To save an image restarts {machine.name}, and what its cluster does would end.",
            field="name",
            value=machine.name,
            next=f"Stop all of it first: cloudgpu stop {command_name(machine)}; or add --no-restart",
        )
    name = name or f"{machine.name[:31]}-{session.clock():%Y%m%d}"
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be an image's name: {NAME_RULE}.",
            field="--name",
            value=name,
            next="Choose a name like keras-ready, or leave --name out.",
        )
    _check_name_free(session, complete_resources(provider.resources(machine.region)), machine, name)
    with on_abort(f"The image {name} may be in the making, and costs once it is there: cloudgpu image ls shows it."):
        return _save_and_wait(session, provider, machine, name, restart=restart)


def _save_and_wait(
    session: Session, provider: Imageable, machine: Machine, name: str, *, restart: bool
) -> ProviderResource:
    tags = {
        TAG_IMAGE: name,
        TAG_ID: machine.id,
        TAG_LEDGER: session.ledger.id,
        TAG_OWNER: tag_value(machine.owner or ""),
        TAG_PROJECT: tag_value(machine.project or ""),
    }
    full_name = f"cloudgpu-{session.ledger.id}-{name}"
    session.report(f"{machine.name}: making the image {name}")

    def image_if_ready() -> ProviderResource | None:
        with explain_terminated(session, machine):
            image = provider.save_image(not_none(machine.provider_id), full_name, tags, restart=restart)
        if image.tags.get(TAG_ID, machine.id) != machine.id:  # somebody else has just begun one of this name
            raise _name_taken_error(image, name)
        return record_image(session, image) if image.ready else None

    remedy = "It is still being created: cloudgpu image ls shows when it is ready."
    return wait_until_saved(session, image_if_ready, name, "--name", remedy)


def _check_name_free(session: Session, resources: Sequence[ProviderResource], machine: Machine, name: str) -> None:
    """Raise InvalidRequest for a name that another image has, unless it is an unfinished image of this machine."""
    for image in resources:
        if image.kind is Kind.IMAGE and image.name == name and _is_named(session, image):
            if image.tags.get(TAG_ID) == machine.id and not image.ready:
                return
            raise _name_taken_error(image, name)


def _name_taken_error(image: ProviderResource, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"There is an image called {name} already, in {image.region}.",
        field="--name",
        value=name,
        next=f"Choose another --name, or remove that one: cloudgpu image rm {name}",
    )


def _is_named(session: Session, resource: ProviderResource) -> bool:
    return bool(resource.name) and resource.tags.get(TAG_LEDGER) == session.ledger.id


def _is_of_kind(kind: Kind, resource: ProviderResource, listing: ResourceListing) -> bool:
    """Say whether a resource is of this kind; a snapshot without its image counts as an image: it costs as much."""
    if kind is not Kind.IMAGE or resource.kind is not Kind.SNAPSHOT:
        return resource.kind is kind
    return not any(image.kind is Kind.IMAGE and _has_same_name(image, resource) for image in listing.items)


def _has_same_name(resource: ProviderResource, other: ProviderResource) -> bool:
    return (resource.region, resource.name, resource.tags.get(TAG_LEDGER)) == (
        other.region,
        other.name,
        other.tags.get(TAG_LEDGER),
    )


def complete_resources(listing: ResourceListing) -> list[ProviderResource]:
    """Return all items of a listing; raise ProviderUnavailable where a part did not answer."""
    if listing.unanswered:
        gap = listing.unanswered[0]
        raise ProviderUnavailable(unanswered_text(gap.scope, gap.why), field="provider")
    return list(listing.items)


def _remainder(listing: ResourceListing, resource: ProviderResource) -> list[ProviderResource]:
    """Return what is still there: the resource itself, or a snapshot that its image left."""
    resources = complete_resources(listing)
    itself = [listed for listed in resources if listed.id == resource.id]
    if itself or resource.kind is not Kind.IMAGE:
        return itself
    return [listed for listed in resources if listed.kind is Kind.SNAPSHOT and _has_same_name(listed, resource)]


def _in_use_error(session: Session, resource: ProviderResource) -> InvalidRequest:
    machine_name = next(
        (machine.name for machine in session.ledger.machines() if machine.provider_id == resource.attached_to), None
    )
    return InvalidRequest(
        f"The {resource.kind} {resource.name} is used by the machine {machine_name or resource.attached_to}.",
        field="name",
        value=resource.name,
        next=f"End that machine first: cloudgpu down {machine_name}" if machine_name else "End that machine first.",
    )
