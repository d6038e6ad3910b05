"""Ends a machine while the ledger cannot be written, by its provider alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

from cloudgpu.control.inventory.retention import resources_in_region, resources_of
from cloudgpu.control.inventory.stop_proof import STOP_TIMEOUT, stop_unrecorded
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.observations import is_too_recent, not_before
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, State
from cloudgpu.core.model.machine import Machine, command_name, may_run_text
from cloudgpu.core.resources.retention import is_of_earlier_life
from cloudgpu.errors import (
    CloudgpuError,
    EndRefused,
    InstanceNotFound,
    InvalidRequest,
    LedgerUnavailable,
    NotReachableHere,
    ProviderUnavailable,
    StopUnproved,
)
from cloudgpu.ledger.log.head import FOLLOW_COMMAND
from cloudgpu.ledger.log.storage_errors import LedgerAway, LedgerMovedAway
from cloudgpu.providers.abilities import HasResources
from cloudgpu.providers.base import Provider
from cloudgpu.providers.shared.calls import poll_until


class EndedUnrecorded(LedgerUnavailable):
    """The machine has ended, and that could not be recorded."""


def end_unrecorded_launch(session: Session, machine: Machine, error: LedgerUnavailable) -> EndedUnrecorded:
    """End a machine that was just launched, as `terminate_without_ledger`, and return the error to raise.

    Raises StopUnproved or EndRefused for whatever prevents the end: an AuthFailed would read as a refused launch, after
    which the next offer is tried.
    """
    try:
        return terminate_without_ledger(session, machine, error)
    except EndRefused as refusal:
        refusal.message = f"{machine.name} {may_run_text(machine)}: it was not ended: {refusal.message}"
        remedy = (refusal.next or "Lift that at its provider").rstrip(".")
        refusal.next = f"{remedy}; then: cloudgpu down {command_name(machine)}"
        raise
    except StopUnproved:
        raise
    except CloudgpuError as end_error:
        hint = f"Run: cloudgpu down {command_name(machine)}"
        raise StopUnproved(
            f"{machine.name} {may_run_text(machine)}: it could not be ended ({end_error.message.rstrip('.')}), and the "
            "ledger cannot be written.",
            field="name",
            value=machine.name,
            next=f"{end_error.next} {hint}" if end_error.next else hint,
        ) from error


def terminate_without_ledger(
    session: Session, machine: Machine, error: CloudgpuError, *, with_retained: bool = False
) -> EndedUnrecorded:
    """End the machine at its provider, and return the error to raise instead of `error`.

    `with_retained`: also delete its retained disk and image. Raises `error` itself if it is not known what the provider
    has, StopUnproved if the end is not confirmed, EndRefused if the machine is protected.
    """
    provider = session.provider_of(machine)
    why = "the ledger cannot be written" if isinstance(error, LedgerUnavailable) else error.message.rstrip(".")
    session.report(f"{machine.name}: {why}; ending the machine all the same")
    ids, began = _provider_ids(session, provider, machine, error), session.clock()
    refused = {id_: refusal for id_ in ids if (refusal := _request_end(provider, id_)) is not None}
    errors = list(refused.values())
    for id_ in (id_ for id_ in ids if id_ not in refused):
        try:
            _wait_until(session, machine, partial(_is_gone, session, provider, machine, id_, began), why)
        except CloudgpuError as unproved:
            errors.append(unproved)
    for later_error in errors[1:]:
        session.report(f"{machine.name}: {later_error.message}")
    if errors:
        raise errors[0] from error
    if with_retained:
        _wait_until(session, machine, partial(_remove_all, session, provider, machine), why)
    return EndedUnrecorded(
        f"{machine.name} was ended and nothing of it is left, but the ledger does not know it yet: {error.message}",
        field=error.field,
        value=error.value,
        next=f"{_remedy_of(error)} cloudgpu ls --refresh",
    )


def _remedy_of(error: CloudgpuError) -> str:
    """Return how to make the ledger writable, up to the command to run then."""
    if isinstance(error, LedgerMovedAway):
        return f"Run: {FOLLOW_COMMAND}, then run:"
    if isinstance(error, LedgerAway) and not error.is_lasting:
        return "Free some space there, then run:" if error.is_disk_full else "When the ledger is back, run:"
    return f"{(error.next or 'Put that right').rstrip('.')}. Then run:"


def _request_end(provider: Provider, instance_id: str) -> CloudgpuError | None:
    """Request the end of an instance; return the error if it was refused. Without an answer, it is requested again."""
    try:
        provider.terminate(instance_id)
    except EndRefused as refusal:
        return stop_unrecorded(provider, instance_id, refusal)
    except ProviderUnavailable as error:
        return error if isinstance(error, NotReachableHere) else None
    except CloudgpuError as refusal:
        return refusal
    return None


def _provider_ids(session: Session, provider: Provider, machine: Machine, error: CloudgpuError) -> list[str]:
    """Return the provider's ids of this machine. Raises `error` if none is found and that proves nothing."""
    if machine.provider_id:
        return [machine.provider_id]
    listing = provider.list()
    ids = [
        instance.id
        for instance in listing.instances
        if (instance.tags.get(TAG_ID), instance.tags.get(TAG_LEDGER)) == (machine.id, session.ledger.id)
        and not is_of_earlier_life(machine, instance.tags)
    ]
    if not ids and (listing.unanswered or provider.token_rule.listing_proves_after):
        raise error
    return ids


def _wait_until(session: Session, machine: Machine, is_done: Callable[[], bool], why: str) -> None:
    """Poll until `is_done`. Raises StopUnproved after STOP_TIMEOUT, or once the provider gives no answer any more.

    `why` is the reason why the machine is ended without the ledger.
    """
    poll_until(
        lambda: is_done() or None,
        lambda last_message: StopUnproved(
            f"{machine.name} {may_run_text(machine)}: its end could not be proved ({last_message}), and {why}.",
            field="name",
            value=machine.name,
            next=f"Run the same again: cloudgpu down {command_name(machine)}",
        ),
        STOP_TIMEOUT,
        clock=session.clock,
        pause=session.pause,
        last_message="something of it is still there",
        raised_at_once=(NotReachableHere,),
    )


def _is_gone(session: Session, provider: Provider, machine: Machine, instance_id: str, began: datetime) -> bool:
    """Return whether an instance has ended. Request that again until it ends: a request may have been lost.

    A cloud that does not show a new instance yet ends nothing, and calls that no error. `began` is when its end was
    first requested: where this clock is behind the launch's record, its age is measured from then.
    """
    try:
        state = provider.get(instance_id).state
        if state in (State.STOPPING, State.TERMINATED):
            return state is State.TERMINATED
    except InstanceNotFound:
        proves_after, now = provider.token_rule.not_found_proves_end_after, session.clock()
        if now - began >= proves_after or not is_too_recent(machine, proves_after, not_before(machine, now)):
            return True
    try:
        provider.terminate(instance_id)
    except EndRefused as refusal:
        stop_unrecorded(provider, instance_id, refusal)
        raise
    return False


def _remove_all(session: Session, provider: Provider, machine: Machine) -> bool:
    """Request the removal of the machine's disks and images that are not in use; return whether all are gone."""
    if not isinstance(provider, HasResources):
        return True
    resources = resources_of(session, machine, resources_in_region(session, machine))
    for resource in resources:
        with suppress(InvalidRequest):  # still in use
            provider.remove(resource)
    return not resources
