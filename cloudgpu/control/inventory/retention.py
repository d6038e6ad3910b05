"""Retains a machine's disk, as an image if it is parked, or deletes it, and records what the cloud has of it."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import ownership_of_named, requester_record
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import requested
from cloudgpu.core.events.observations import (
    not_before,
    resource_observed,
    resource_vanished,
    resources_retained,
    subject_of,
)
from cloudgpu.core.model.facts import Retained
from cloudgpu.core.model.identity import AccountIdentity, is_in_unanswered
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.machine import Machine, command_name, has_retained_resources, not_none
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.resources import retention as retention_rules
from cloudgpu.core.resources.retention import RetentionStep, StepKind, is_on_purpose
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import (
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    LedgerUnavailable,
    ProviderUnavailable,
    StopUnproved,
)
from cloudgpu.ledger.last_seen import last_seen_at, retained_last_seen_at
from cloudgpu.ledger.log.base import Ledger
from cloudgpu.providers.abilities import HasResources, Imageable, can_keep_images
from cloudgpu.providers.attached_costs import resource_rate
from cloudgpu.providers.shared.calls import UnansweredRounds, poll_until
from cloudgpu.views.ended import ended_error

IMAGE_TIMEOUT = timedelta(minutes=30)
REMOVAL_TIMEOUT = timedelta(minutes=5)
LISTING_DELAY = timedelta(minutes=2)  # a listing may lack a disk for so long after its machine has ended
MAX_PAUSE_S = 15.0


def supports_images(session: Session, machine: Machine) -> bool:
    """Return whether this machine's provider can keep a disk as an image."""
    return can_keep_images(session.provider_of(machine))


def resources_in_region(session: Session, machine: Machine) -> ResourceListing:
    """Return the disks and images in the machine's region. Raises ProviderUnavailable if a part did not answer."""
    provider = session.provider_of(machine)
    if not isinstance(provider, HasResources):
        return ResourceListing(())
    listing = provider.resources(machine.region)
    if listing.unanswered:
        gap = listing.unanswered[0]
        raise ProviderUnavailable(
            f"{gap.scope} did not say what stays of {machine.name}: {gap.why}",
            field="name",
            value=machine.name,
            next="Run: cloudgpu ls --refresh",
        )
    return listing


def resources_of(session: Session, machine: Machine, listing: ResourceListing) -> list[ProviderResource]:
    """Return the resources of this listing that belong to the machine."""
    return retention_rules.resources_of_machine(listing.items, machine.id, session.ledger.id)


def query_and_record_retained(session: Session, machine: Machine) -> Machine:
    """Record what is retained of a machine that has just ended; return the machine. Raises ProviderUnavailable."""
    return record_retained(session, machine, resources_of(session, machine, resources_in_region(session, machine)))


def record_retained(
    session: Session, machine: Machine, resources: Sequence[ProviderResource], *, requested_at: datetime | None = None
) -> Machine:
    """Record which resources of the machine are retained, if that has changed; return the machine.

    `requested_at` is when `resources` were queried by a sync: missing ones were then removed by others, since the last
    sync before. Nothing is recorded while the disk of a machine that was just parked may not be visible yet.
    """
    entries = tuple([retained_entry(resource) for resource in retention_rules.retained_of(machine, resources)])
    now = not_before(machine, session.clock())
    is_gone = machine.parked and machine.terminated_at is not None and not entries
    if is_gone and not machine.retained and now - from_iso(not_none(machine.terminated_at)) < LISTING_DELAY:
        return machine
    if entries == machine.retained and not is_gone:
        return machine
    removed = {entry.id for entry in machine.retained} - {entry.id for entry in entries}
    removed_before = requested_at if removed else None
    last_seen = None if removed_before is None else retained_last_seen_at(session.ledger, machine, removed_before)
    return session.ledger.append_to(machine, [resources_retained(machine, entries, now, last_seen)])


def execute_step(session: Session, step: RetentionStep) -> ProviderResource | None:
    """Execute one step; return the image, or None if something was removed. Raises the provider's errors."""
    provider, resource = session.provider(step.resource.account), step.resource
    if step.do is StepKind.SAVE and isinstance(provider, Imageable):
        return provider.save_image(resource.id, retention_rules.image_name(resource), resource.tags)
    if isinstance(provider, HasResources):
        provider.remove(resource)
    return None


def finish_parking(session: Session, machine: Machine) -> Machine:
    """Finish parking a machine: wait until its image is ready, and remove its disk. The caller holds the lock.

    Raises ProviderUnavailable if that takes longer than IMAGE_TIMEOUT (the next sync or start continues it),
    InstanceNotFound if there is neither a disk nor an image of the machine.
    """
    deadline, pause_s, last_state = session.clock() + IMAGE_TIMEOUT, 0.5, "the image is not ready"
    unanswered_rounds = UnansweredRounds(session.clock)
    report, outcomes = _report_once(session, machine), None
    while True:
        previous = outcomes
        try:
            resources = resources_of(session, machine, resources_in_region(session, machine))
            machine = record_retained(session, machine, resources)
            if retention_rules.is_parking_complete(machine):
                return machine
            if not has_retained_resources(machine):
                raise _nothing_left_error(session, machine)
            outcomes = _execute_steps(session, machine, resources, report)
        except LedgerUnavailable:
            raise
        except ProviderUnavailable as error:
            last_state = unanswered_rounds.record(error)
        if session.clock() >= deadline or unanswered_rounds.end_round():
            raise _image_not_ready_error(machine, last_state)
        if outcomes == previous:  # nothing has changed: wait for the provider
            session.pause(pause_s)
            pause_s = min(MAX_PAUSE_S, pause_s * 1.5)


def _report_once(session: Session, machine: Machine) -> Callable[[str], None]:
    """Return a function that reports a sentence about the machine, each only once."""
    reported: set[str] = set()

    def report(sentence: str) -> None:
        if sentence not in reported:
            reported.add(sentence)
            session.report(f"{machine.name}: {sentence}")

    return report


def _execute_steps(
    session: Session, machine: Machine, resources: Sequence[ProviderResource], report: Callable[[str], None]
) -> list[tuple[str, bool]]:
    """Execute all steps that are possible now; return each resource's id and whether its image is ready.

    A disk that is still in use is removed in a later round.
    """
    outcomes = []
    for step in retention_rules.retention_steps(machine, resources, session.clock()):
        if step.do is StepKind.SAVE:
            report(f"making an image of its disk ({step.resource.size_gb} GB)")
        elif step.resource.kind is Kind.DISK:
            report("removing its disk")
        with contextlib.suppress(*([] if step.do is StepKind.SAVE else [InvalidRequest])):
            image = execute_step(session, step)
            outcomes.append((image.id, image.ready) if image else (step.resource.id, False))
    return outcomes


def delete_all(session: Session, machine: Machine) -> tuple[Machine, list[ProviderResource]]:
    """Delete a terminated machine's resources and confirm it; return the machine and its named resources, which stay.

    The caller holds the lock. Raises StopUnproved if it is not confirmed within REMOVAL_TIMEOUT.
    """

    def check_deleted() -> tuple[Machine, list[ProviderResource]] | None:
        nonlocal machine
        listing = resources_in_region(session, machine)
        resources = resources_of(session, machine, listing)
        machine = record_retained(session, machine, resources)
        if not retention_rules.retained_of(machine, resources):
            return machine, named_resources_of(session, machine, listing)
        _execute_steps(session, machine, resources, lambda _sentence: None)
        return None

    return poll_until(
        check_deleted,
        lambda last: _not_removed_error(machine, last),
        REMOVAL_TIMEOUT,
        clock=session.clock,
        pause=session.pause,
        last_message="it is still in use",
        raised_at_once=(LedgerUnavailable,),
    )


def delete_superseded_image(session: Session, machine: Machine) -> Machine:
    """Delete the image from which a machine was started, because it runs now; return the machine.

    A failure is reported, and a later sync deletes the image. The caller holds the lock.
    """
    try:
        resources = resources_of(session, machine, resources_in_region(session, machine))
        # The steps that will be due by then are executed now.
        when_deletable = session.clock() + retention_rules.DELETE_IMAGE_AFTER
        for step in retention_rules.retention_steps(machine, resources, when_deletable):
            execute_step(session, step)
            resources.remove(step.resource)
        return record_retained(session, machine, resources)
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        session.report(f"{machine.name}: its image could not be removed yet, ls --refresh does it ({error.message})")
        return machine


def named_resources_of(session: Session, machine: Machine, listing: ResourceListing) -> list[ProviderResource]:
    """Return the named resources of the machine: its volume, and images that were saved of it."""
    volume = machine.setup.volume if machine.setup else None
    return [
        resource
        for resource in listing.items
        if is_named_in_ledger(resource, session.ledger.id)
        and (
            resource.tags.get(TAG_ID) == machine.id
            or (volume is not None and resource.tags.get(TAG_VOLUME) == volume.name)
        )
    ]


def record_discard(session: Session, machine: Machine, reason: str) -> None:
    """Record that nothing of a machine that has ended already is to be retained."""
    if machine.terminated_at is not None and not machine.discard:
        who, now = requester_record(session, machine, "end"), not_before(machine, session.clock())
        session.ledger.append([requested("terminate", machine.id, reason, now, host=platform.node(), who=who)])


def record_parking(session: Session, machine: Machine, why: str) -> Machine:
    """Record that a machine is to be kept as an image; return the machine."""
    who, now = requester_record(session, machine, "stop"), not_before(machine, session.clock())
    return session.ledger.append_to(machine, [requested("park", machine.id, why, now, host=platform.node(), who=who)])


def _nothing_left_error(session: Session, machine: Machine) -> InstanceNotFound:
    error = ended_error(machine, session.clock())
    error.message += " No disk or image of it is left to start it from."
    return error


def _image_not_ready_error(machine: Machine, last_state: str) -> ProviderUnavailable:
    minutes = int(IMAGE_TIMEOUT.total_seconds() // 60)
    return ProviderUnavailable(
        f"{machine.name} has ended and costs no compute, but its image was not ready after {minutes} minutes "
        f"({last_state}).",
        field="name",
        value=machine.name,
        next="Its disk is retained. To continue, run: cloudgpu ls --refresh, or: "
        f"cloudgpu start {command_name(machine)}",
    )


def _not_removed_error(machine: Machine, last_state: str) -> StopUnproved:
    return StopUnproved(
        f"{machine.name} is ended, but that its disk and image are gone could not be proved ({last_state}).",
        field="name",
        value=machine.name,
        next=f"Run the same again: cloudgpu down {command_name(machine)}",
    )


# A named resource is observed anew only if one of these has changed.
_COMPARED_FIELDS = "size_gb stored_as ready attached_to nanos per why_maybe_less".split()


def is_named_in_ledger(resource: ProviderResource, ledger_id: str) -> bool:
    """Return whether it is a named resource of this ledger, which is billed apart from machines."""
    return resource.tags.get(TAG_LEDGER) == ledger_id and is_on_purpose(resource)


def named_resources(ledger: Ledger) -> list[Machine]:
    """Return the ledger's records of the named resources that exist."""
    return [
        machine for machine in ledger.billable_machines() if machine.is_named_resource and machine.terminated_at is None
    ]


def observation_events(
    resource: ProviderResource, identity: AccountIdentity, machine: Machine | None, now: datetime
) -> list[Draft]:
    """Return the event of a named resource as it is now; none if it has not changed.

    `machine` is its present record in the ledger, None if it has none.
    """
    event = resource_observed(resource, retained_entry(resource), identity, machine, now)
    recorded = machine.retained[0] if machine is not None and machine.retained else None
    is_same = recorded is not None and all(getattr(recorded, name) == event.body.get(name) for name in _COMPARED_FIELDS)
    return [] if is_same else [event]


def resource_events(
    ledger: Ledger, scope: AccountScope, listing: ResourceListing, now: datetime
) -> tuple[list[Draft], list[str]]:
    """Return the events of an account's named resources, and the subjects about which this listing says nothing.

    A recorded resource that a region with an answer lacks is recorded as gone, unless it was seen after the query was
    sent (`now`), or belongs to another account.
    """
    not_listed = {machine.id: machine for machine in named_resources(ledger) if scope.covers(machine)}
    drafts: list[Draft] = []
    for resource in (item for item in listing.items if is_named_in_ledger(item, ledger.id)):
        identity = scope.identity(resource.region)
        if identity is not None:
            recorded = not_listed.pop(subject_of(resource, identity), None)
            drafts += observation_events(resource, identity, recorded, now)
    unseen_ids = []
    for machine in not_listed.values():
        if is_silent(listing, machine.region, scope.account) or not_none(machine.seen_at) >= iso(now):
            unseen_ids.append(machine.id)
        else:
            last_seen = last_seen_at(ledger, machine)
            drafts.append(
                resource_vanished(machine, "missing from a complete answer", now, last_seen=last_seen, who={})
            )
    return drafts, unseen_ids


def is_silent(listing: ResourceListing, region: str, account: str) -> bool:
    """Return whether a listing says nothing about a region, because it did not answer or was not queried."""
    is_queried = listing.regions is None or region in listing.regions
    return not is_queried or is_in_unanswered((gap.scope for gap in listing.unanswered), account, region)


def record_resources(session: Session, resources: Sequence[ProviderResource]) -> None:
    """Record these named resources as they are now, if they have changed."""
    now, drafts = session.clock(), list[Draft]()
    machines = {machine.id: machine for machine in named_resources(session.ledger)} if resources else {}
    for resource in (resource for resource in resources if is_named_in_ledger(resource, session.ledger.id)):
        identity = session.provider(resource.account).identity(resource.region)
        drafts += observation_events(resource, identity, machines.get(subject_of(resource, identity)), now)
    if drafts:
        session.ledger.append(drafts)


def record_removed(session: Session, resource: ProviderResource) -> None:
    """Record that a named resource was just removed."""
    subject = subject_of(resource, session.provider(resource.account).identity(resource.region))
    now, who = session.clock(), requester_record(session, ownership_of_named(resource), "remove")
    session.ledger.append(
        [
            resource_vanished(recorded, "removed and no longer there", now, ended=iso(now), who=who)
            for recorded in named_resources(session.ledger)
            if recorded.id == subject
        ]
    )


def retained_entry(resource: ProviderResource) -> Retained:
    """Return a resource as a ledger entry. `nanos_per_month` is the most that it costs; None if not known."""
    rate = resource_rate(resource)
    entry = Retained(
        id=resource.id,
        kind=str(resource.kind),
        region=resource.region,
        zone=resource.zone,
        size_gb=resource.size_gb,
        stored_as=resource.stored_as,
        made_at=None if resource.made_at is None else iso(resource.made_at),
        ready=resource.ready,
        nanos_per_month=None if rate.per_month is None else rate.per_month.nanos,
    )
    return entry._replace(**rate.record())
