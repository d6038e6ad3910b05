"""Keeps what stays of a machine as it should be: seen, recorded, imaged, removed. Follows from what the cloud has."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import by, ownership_of_named
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_lines import requested
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
LISTING_DELAY = timedelta(minutes=2)  # so long a disk may be missing from the answers after its machine has ended
LONGEST_PAUSE_S = 15.0


def supports_images(session: Session, machine: Machine) -> bool:
    """Say whether this machine's provider can keep a disk as an image, and say what there is."""
    return can_keep_images(session.provider_of(machine))


def resources_in_region(session: Session, machine: Machine) -> ResourceListing:
    """Return what there is in the machine's region. Raises ProviderUnavailable for a part that did not answer."""
    provider = session.provider_of(machine)
    if not isinstance(provider, HasResources):
        return ResourceListing(())
    found = provider.resources(machine.region)
    if found.unanswered:
        gap = found.unanswered[0]
        raise ProviderUnavailable(
            f"{gap.scope} did not say what stays of {machine.name}: {gap.why}",
            field="name",
            value=machine.name,
            next="Run: cloudgpu ls --refresh",
        )
    return found


def resources_of(session: Session, machine: Machine, listing: ResourceListing) -> list[ProviderResource]:
    """Return what of this belongs to the machine."""
    return retention_rules.resources_of_machine(listing.items, machine.id, session.ledger.id)


def record_retained(session: Session, machine: Machine) -> Machine:
    """Record what is retained of a machine that has just ended; return the machine. Raises ProviderUnavailable."""
    return record(session, machine, resources_of(session, machine, resources_in_region(session, machine)))


def record(
    session: Session, machine: Machine, resources: Sequence[ProviderResource], *, requested_at: datetime | None = None
) -> Machine:
    """Write what stays of the machine, where that is news; return the machine.

    With `requested_at`, nobody here has removed anything: what is gone, others have removed since the sync before then.
    That nothing stays is no news of a machine that was parked so lately that its disk may not be visible yet.
    """
    entries = tuple([retained_entry(resource) for resource in retention_rules.retained_of(machine, resources)])
    now = not_before(machine, session.clock())
    is_gone = machine.parked and machine.terminated_at is not None and not entries
    if is_gone and not machine.retained and now - from_iso(not_none(machine.terminated_at)) < LISTING_DELAY:
        return machine
    if entries == machine.retained and not is_gone:
        return machine
    removed = {one.id for one in machine.retained} - {one.id for one in entries}
    by_others = requested_at if removed else None
    seen = None if by_others is None else retained_last_seen_at(session.ledger, machine, by_others)
    return session.ledger.append_to(machine, [resources_retained(machine, entries, now, seen)])


def execute_step(session: Session, step: RetentionStep) -> ProviderResource | None:
    """Do one step; return the image as it is now, None where something was removed. Raises what the provider raises."""
    provider, resource = session.provider(step.resource.account), step.resource
    if step.do is StepKind.SAVE and isinstance(provider, Imageable):
        return provider.save_image(resource.id, retention_rules.image_name(resource), resource.tags)
    if isinstance(provider, HasResources):
        provider.remove(resource)
    return None


def finish_parking(session: Session, machine: Machine) -> Machine:
    """Bring a parked machine to the end: one image that is ready, and nothing beside it. The caller holds the lock.

    Raises ProviderUnavailable when that took longer than half an hour (the next sync or start goes on with it),
    InstanceNotFound when no disk and no image of the machine is there.
    """
    deadline, pause, last_state = session.clock() + IMAGE_TIMEOUT, 0.5, "the image is not ready"
    silence = UnansweredRounds(session.clock)
    report, done = _report_once(session, machine), None
    while True:
        previous = done
        try:
            resources = resources_of(session, machine, resources_in_region(session, machine))
            machine = record(session, machine, resources)
            if retention_rules.is_parked(machine):
                return machine
            if not has_retained_resources(machine):
                raise _nothing_left_error(session, machine)
            done = _do_steps(session, machine, resources, report)
        except LedgerUnavailable:
            raise
        except ProviderUnavailable as error:
            last_state = silence.record(error)
        if session.clock() >= deadline or silence.end_round():
            raise _image_not_ready_error(machine, last_state)
        if done == previous:  # nothing has changed: wait for the provider
            session.pause(pause)
            pause = min(LONGEST_PAUSE_S, pause * 1.5)


def _report_once(session: Session, machine: Machine) -> Callable[[str], None]:
    """Return what tells a sentence about the machine, and each of them once."""
    reported: set[str] = set()

    def report(sentence: str) -> None:
        if sentence not in reported:
            reported.add(sentence)
            session.report(f"{machine.name}: {sentence}")

    return report


def _do_steps(
    session: Session, machine: Machine, resources: Sequence[ProviderResource], report: Callable[[str], None]
) -> list[tuple[str, bool]]:
    """Do all that can be done now and return what came of it. What is still in use is removed in a later round."""
    done = []
    for step in retention_rules.steps(machine, resources, session.clock()):
        if step.do is StepKind.SAVE:
            report(f"making an image of its disk ({step.resource.size_gb} GB)")
        elif step.resource.kind is Kind.DISK:
            report("removing its disk")
        with contextlib.suppress(*([] if step.do is StepKind.SAVE else [InvalidRequest])):
            image = execute_step(session, step)
            done.append((image.id, image.ready) if image else (step.resource.id, False))
    return done


def delete_all(session: Session, machine: Machine) -> tuple[Machine, list[ProviderResource]]:
    """Remove what stays of a machine whose end was asked, and prove it; return the machine and what is kept on purpose.

    The caller holds the lock. Raises StopUnproved when the proof did not come in time.
    """

    def check_deleted() -> tuple[Machine, list[ProviderResource]] | None:
        nonlocal machine
        listing = resources_in_region(session, machine)
        resources = resources_of(session, machine, listing)
        machine = record(session, machine, resources)
        if not retention_rules.retained_of(machine, resources):
            return machine, named_resources_of(session, machine, listing)
        _do_steps(session, machine, resources, lambda _sentence: None)
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
    """Remove the image from which a machine was started, now that it is known to have come up; return the machine.

    What fails here is told and done by a later look. The caller holds the lock.
    """
    try:
        resources = resources_of(session, machine, resources_in_region(session, machine))
        late = session.clock() + retention_rules.DELETE_IMAGE_AFTER
        for step in retention_rules.steps(machine, resources, late):
            execute_step(session, step)
            resources.remove(step.resource)
        return record(session, machine, resources)
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        session.report(f"{machine.name}: its image could not be removed yet, ls --refresh does it ({error.message})")
        return machine


def named_resources_of(session: Session, machine: Machine, listing: ResourceListing) -> list[ProviderResource]:
    """Return what the user keeps by name and this machine had to do with: its volume, images saved of it."""
    setup_volume = machine.setup.volume if machine.setup else None
    volume = setup_volume.name if setup_volume else None
    ours = (resource for resource in listing.items if resource.tags.get(TAG_LEDGER) == session.ledger.id)
    return [
        resource
        for resource in ours
        if retention_rules.is_on_purpose(resource)
        and (
            resource.tags.get(TAG_ID) == machine.id or (volume is not None and resource.tags.get(TAG_VOLUME) == volume)
        )
    ]


def record_discard(session: Session, machine: Machine, why: str) -> None:
    """Write that nothing of a machine that is gone already is to stay."""
    if machine.terminated_at is not None and not machine.discard:
        who, now = by(session, machine, "end"), not_before(machine, session.clock())
        session.ledger.append([requested("terminate", machine.id, why, now, host=platform.node(), who=who)])


def record_parking(session: Session, machine: Machine, why: str, now: datetime) -> Machine:
    """Write that a machine is to be kept as an image; return the machine."""
    line = requested(
        "park", machine.id, why, not_before(machine, now), host=platform.node(), who=by(session, machine, "stop")
    )
    return session.ledger.append_to(machine, [line])


def _nothing_left_error(session: Session, machine: Machine) -> InstanceNotFound:
    fault = ended_error(machine, session.clock())
    fault.message += " No disk or image of it is left to start it from."
    return fault


def _image_not_ready_error(machine: Machine, last: str) -> ProviderUnavailable:
    minutes = int(IMAGE_TIMEOUT.total_seconds() // 60)
    return ProviderUnavailable(
        f"{machine.name} has ended and costs no compute, but its image was not ready after {minutes} minutes ({last}).",
        field="name",
        value=machine.name,
        next="Its disk is retained. To continue, run: cloudgpu ls --refresh, or: "
        f"cloudgpu start {command_name(machine)}",
    )


def _not_removed_error(machine: Machine, last: str) -> StopUnproved:
    return StopUnproved(
        f"{machine.name} is ended, but that its disk and image are gone could not be proved ({last}).",
        field="name",
        value=machine.name,
        next=f"Run the same again: cloudgpu down {command_name(machine)}",
    )


_COMPARED_FIELDS = "size_gb stored_as ready attached_to nanos per why_maybe_less".split()


def is_ours(resource: ProviderResource, ledger: str) -> bool:
    """Say whether this ledger bills it: it is named, and a snapshot only where it is no part of an image."""
    return resource.tags.get(TAG_LEDGER) == ledger and is_on_purpose(resource)


def named_resources(ledger: Ledger) -> list[Machine]:
    """Return the rows of what is kept by name, as far as it is known."""
    return [
        machine for machine in ledger.billable_machines() if machine.is_named_resource and machine.terminated_at is None
    ]


def observation_event(
    resource: ProviderResource, identity: AccountIdentity, machine: Machine | None, now: datetime
) -> list[Draft]:
    """Return the line that says how a thing is now, none where that is no news. `machine` is its row, None for none."""
    line = resource_observed(resource, retained_entry(resource), identity, machine, now)
    last = machine.retained[0] if machine is not None and machine.retained else None
    if last is not None and all(getattr(last, name) == line.body.get(name) for name in _COMPARED_FIELDS):
        return []
    return [line]


def resource_events(
    ledger: Ledger, scope: AccountScope, listing: ResourceListing, now: datetime
) -> tuple[list[Draft], list[str]]:
    """Return the lines of what is kept by name on an account, and the subjects of which this answer says nothing.

    What a region that answered does not have is gone, unless it was seen or made after the question was sent, or is of
    another account.
    """
    rows = {machine.id: machine for machine in named_resources(ledger) if scope.covers(machine)}
    drafts: list[Draft] = []
    for resource in (one for one in listing.items if is_ours(one, ledger.id)):
        identity = scope.identity(resource.region)
        if identity is not None:
            drafts += observation_event(resource, identity, rows.pop(subject_of(resource, identity), None), now)
    unseen = []
    for machine in rows.values():
        if is_silent(listing, machine.region, scope.account) or not_none(machine.seen_at) >= iso(now):
            unseen.append(machine.id)
        else:
            seen = last_seen_at(ledger, machine)
            drafts.append(resource_vanished(machine, "missing from a complete answer", now, last_seen=seen, who={}))
    return drafts, unseen


def is_silent(listing: ResourceListing, region: str, account: str) -> bool:
    """Say whether an answer of an account says nothing about a region: that did not answer, or was not asked."""
    if listing.regions is not None and region not in listing.regions:
        return True
    return is_in_unanswered((gap.scope for gap in listing.unanswered), account, region)


def record_resources(session: Session, resources: Sequence[ProviderResource]) -> None:
    """Write how these things are now, as far as it is news."""
    now, drafts = session.clock(), list[Draft]()
    machines = {machine.id: machine for machine in named_resources(session.ledger)} if resources else {}
    for resource in (one for one in resources if is_ours(one, session.ledger.id)):
        identity = session.provider(resource.account).identity(resource.region)
        drafts += observation_event(resource, identity, machines.get(subject_of(resource, identity)), now)
    if drafts:
        session.ledger.append(drafts)


def write_removed(session: Session, resource: ProviderResource) -> None:
    """Write that we have removed a thing, just now."""
    subject = subject_of(resource, session.provider(resource.account).identity(resource.region))
    machines = [machine for machine in named_resources(session.ledger) if machine.id == subject]
    now, who = session.clock(), by(session, ownership_of_named(resource), "remove")
    session.ledger.append(
        [
            resource_vanished(machine, "removed and no longer there", now, ended=iso(now), who=who)
            for machine in machines
        ]
    )


def retained_entry(resource: ProviderResource) -> Retained:
    """Return what is kept as the ledger has it: `nanos_per_month` is at most what it costs, None where nobody knows."""
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
    return entry._replace(**rate.terms())
