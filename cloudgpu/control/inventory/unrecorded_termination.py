"""Ends a machine that the ledger cannot be told of, with as little as that takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from cloudgpu.control.inventory.retention import resources_in_region, resources_of
from cloudgpu.control.inventory.stop_proof import STOP_TIMEOUT, stop_unrecorded
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, State
from cloudgpu.core.model.machine import Machine, command_name, may_run_text
from cloudgpu.core.resources.retention import is_of_earlier_life
from cloudgpu.errors import (
    CloudgpuError,
    EndRefused,
    InstanceNotFound,
    InvalidRequest,
    LedgerUnavailable,
    ProviderUnavailable,
    StopUnproved,
)
from cloudgpu.ledger.log.head import FOLLOW
from cloudgpu.ledger.log.storage_errors import LedgerAway, LedgerMovedAway
from cloudgpu.providers.abilities import HasResources
from cloudgpu.providers.base import Provider

PAUSE_S = 0.2


class Unrecorded(LedgerUnavailable):
    """The machine is gone, and the ledger could not be told."""


def terminate_without_ledger(
    session: Session, machine: Machine, error: CloudgpuError, *, with_retained: bool = False
) -> Unrecorded:
    """End what the provider has of this machine and return the error to raise instead of `error`.

    `with_retained`: delete its retained disk and image, too. Raises `error` itself where it is not known what the
    provider has, StopUnproved when the proof did not come, EndRefused where something protects the machine.
    """
    provider = session.provider_of(machine)
    why = "the ledger cannot be written" if isinstance(error, LedgerUnavailable) else error.message.rstrip(".")
    session.report(f"{machine.name}: {why}; ending the machine all the same")
    ids = _provider_ids(session, provider, machine, error)
    refused = {one: refusal for one in ids if (refusal := _request_end(provider, one)) is not None}
    errors = list(refused.values())
    for one in (one for one in ids if one not in refused):
        try:
            _wait_until(session, machine, partial(_is_gone, provider, one))
        except CloudgpuError as unproved:
            errors.append(unproved)
    for other in errors[1:]:
        session.report(f"{machine.name}: {other.message}")
    if errors:
        raise errors[0] from error
    if with_retained:
        _wait_until(session, machine, partial(_remove_all, session, provider, machine))
    return Unrecorded(
        f"{machine.name} was ended and nothing of it is left, but the ledger does not know it yet: {error.message}",
        field=error.field,
        value=error.value,
        next=f"{_remedy_of(error)} cloudgpu ls --refresh",
    )


def _remedy_of(error: CloudgpuError) -> str:
    """Return what clears the way for the ledger, up to the command that then writes it."""
    if isinstance(error, LedgerMovedAway):
        return f"Run: {FOLLOW}, then run:"
    if isinstance(error, LedgerAway) and not error.lasts:
        return "Free some space there, then run:" if error.full else "When the ledger is back, run:"
    return f"{(error.next or 'Put that right').rstrip('.')}. Then run:"


def _request_end(provider: Provider, instance: str) -> CloudgpuError | None:
    """Ask for the end of one; return why it was refused, which keeps none of the others on."""
    try:
        provider.terminate(instance)
    except EndRefused as refusal:
        return stop_unrecorded(provider, instance, refusal)
    except CloudgpuError as refusal:
        return refusal
    return None


def _provider_ids(session: Session, provider: Provider, machine: Machine, error: CloudgpuError) -> list[str]:
    """Return the provider's ids of this machine; raise `error` when a silence proves nothing."""
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


def _wait_until(session: Session, machine: Machine, is_done: Callable[[], bool]) -> None:
    deadline = session.clock() + STOP_TIMEOUT
    while not is_done():
        if session.clock() >= deadline:
            raise StopUnproved(
                f"{machine.name} {may_run_text(machine)}: its end could not be proved, and the ledger "
                "cannot be written.",
                field="name",
                value=machine.name,
                next=f"Run the same again: cloudgpu down {command_name(machine)}",
            )
        session.pause(PAUSE_S)


def _is_gone(provider: Provider, instance: str) -> bool:
    try:
        return provider.get(instance).state is State.TERMINATED
    except InstanceNotFound:
        return True
    except ProviderUnavailable:
        return False


def _remove_all(session: Session, provider: Provider, machine: Machine) -> bool:
    """Say whether nothing of the machine is kept any more; ask to remove what is there and not in use."""
    if not isinstance(provider, HasResources):
        return True
    resources = resources_of(session, machine, resources_in_region(session, machine))
    for resource in resources:
        with suppress(InvalidRequest):  # in use, for a moment yet
            provider.remove(resource)
    return not resources
