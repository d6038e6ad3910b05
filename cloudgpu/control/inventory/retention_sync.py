"""Syncs an account's disks and images: records retained ones, and continues unfinished deletions and parkings."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import datetime

from cloudgpu.control.inventory import retention as retention_records
from cloudgpu.control.inventory.retention import is_silent
from cloudgpu.control.session.accounts import account_gap
from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.launch_events import machine_adopted_by_resource
from cloudgpu.core.events.observations import instance_vanished
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.resources import retention as retention_rules
from cloudgpu.core.resources.retention import StepKind
from cloudgpu.core.values.naming import lock_name
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, InstanceNotFound, LedgerUnavailable
from cloudgpu.providers.abilities import HasResources


def list_resources(session: Session, account: str) -> ResourceListing:
    """Return the account's disks and images. Raises nothing: what did not answer is named in the listing."""
    try:
        provider = session.provider(account)
        return provider.resources() if isinstance(provider, HasResources) else ResourceListing(())
    except Exception as error:  # noqa: BLE001  (as of a listing)
        return ResourceListing((), (account_gap(account, error),))


def settle_retained(
    session: Session,
    scope: AccountScope,
    listing: ResourceListing,
    requested_at: datetime,
    *,
    answered: Collection[str],
) -> list[str]:
    """Record the retained resources of an account's machines, and execute the steps that are possible now.

    Returns a sentence for each step. A machine that another process works on, or that has changed since the query was
    sent, is left to that process or to the next sync. Resources of other ledgers are not touched. `answered` are the
    machines whose state this sync has recorded. Nothing of another one that exists by the ledger is removed: it may
    have been parked since, which a ledger that was restored from a backup does not know.
    """
    sentences = _adopt(session, scope, listing.items, requested_at)
    for machine in session.ledger.machines():
        resources = retention_records.resources_of(session, machine, listing)
        may_retain = resources or machine.retained or (machine.parked and machine.terminated_at)
        if not may_retain or not scope.covers(machine) or is_silent(listing, machine.region, scope.account):
            continue
        lock = lock_name(machine.key or machine.id)
        if session.is_locked(lock):
            continue
        try:
            with session.lock(lock, wait=1):
                sentences += _settle_one(session, machine, resources, requested_at, answered)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            sentences.append(f"{machine.name}: its retained disk or image could not be processed yet ({error.message})")
    return sentences


def _settle_one(
    session: Session,
    machine: Machine,
    resources: list[ProviderResource],
    requested_at: datetime,
    answered: Collection[str],
) -> list[str]:
    machine = session.ledger.machine(machine.id) or machine
    last_event = session.ledger.last(machine.id)
    if machine.launch_status == "open" or (last_event is not None and from_iso(last_event.occurred_at) > requested_at):
        return []
    if machine.retained and not resources and machine.provider_id:
        with suppress(InstanceNotFound):  # raises if the account has no access: then a missing disk proves nothing
            session.provider_of(machine).get(machine.provider_id)
    machine, sentences = retention_records.record_retained(session, machine, resources, requested_at=requested_at), []
    if retention_rules.is_forgotten(machine, session.clock()):
        unattached = f"Its disk has been unattached for {retention_rules.IMAGE_AFTER.days} days"
        sentences.append(f"{machine.name}: {unattached}. It is replaced by an image, which costs less.")
        machine = retention_records.record_parking(session, machine, f"{unattached}.")
    if machine.terminated_at is None and machine.id not in answered:
        return sentences
    for step in retention_rules.retention_steps(machine, resources, session.clock()):
        image = retention_records.execute_step(session, step)
        resources = [resource for resource in resources if resource is not step.resource or step.do is StepKind.SAVE]
        if image is not None and image.kind is Kind.IMAGE:  # the price of an image includes its snapshot
            resources = [resource for resource in resources if resource.kind is not Kind.SNAPSHOT]
        resources += [image] if image else []
        sentences.append(_step_sentence(machine, step))
    resources_by_id = {resource.id: resource for resource in resources}
    retention_records.record_retained(session, machine, list(resources_by_id.values()))
    return sentences


def _step_sentence(machine: Machine, step: retention_rules.RetentionStep) -> str:
    action = "its image is being made from" if step.do is StepKind.SAVE else "removed what it no longer needs:"
    return f"{machine.name}: {action} {step.resource.kind} {step.resource.id}"


def _adopt(
    session: Session, scope: AccountScope, items: tuple[ProviderResource, ...], requested_at: datetime
) -> list[str]:
    """Adopt machines without a record in this ledger of which only a disk or image exists, because that costs money."""
    recorded = {machine.id for machine in session.ledger.machines()}
    sentences = []
    for resource in items:
        machine_id = resource.tags.get(TAG_ID)
        is_of_ledger = resource.tags.get(TAG_LEDGER) == session.ledger.id and not retention_rules.is_on_purpose(
            resource
        )
        identity = scope.identity(resource.region)
        if machine_id is None or machine_id in recorded or identity is None:
            continue
        if not is_of_ledger or resource.attached_to is not None:
            continue
        recorded.add(machine_id)
        vanished = instance_vanished(machine_id, "", "only its disk or image is there", requested_at)
        session.ledger.append([machine_adopted_by_resource(resource, identity, requested_at), vanished])
        sentences.append(
            f"A disk or image of machine {machine_id}, which this ledger did not know, was added to the ledger."
        )
    return sentences
