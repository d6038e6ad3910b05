"""Parks a machine that cannot be stopped: it ends, its disk is kept as an image, and `start` restores it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cloudgpu.control.inventory import retention as retention_records
from cloudgpu.control.inventory.stop_proof import request_until_confirmed, stop_instead
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.lifecycle import timers
from cloudgpu.control.pricing.price_history import record_spot_cost
from cloudgpu.control.pricing.traffic import read_counter_before_end
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.errors import EndRefused, InvalidRequest
from cloudgpu.providers.abilities import Imageable
from cloudgpu.underway import on_abort, unproved_sentence


def park(session: Session, machine: Machine, *, why: str, finish: bool = True) -> Machine:
    """End the machine but keep its disk, and prove that; make an image of the disk, and delete the disk.

    Without `finish` the image is left to the next syncs. Continues where an earlier process stopped, also for a machine
    that has ended. The caller holds the lock. Returns the parked machine. Raises StopUnproved when the end could not be
    proved, ProviderUnavailable when the image took too long, InstanceNotFound when there is no disk to keep.
    """
    if not retention_records.supports_images(session, machine):
        raise _cannot_park_error(machine)
    if machine.terminated_at is None:
        machine = refresh(session, machine)
    if not machine.parked or machine.terminated_at is None:
        machine = retention_records.record_parking(session, machine, why)
    if machine.terminated_at is None:
        with on_abort(unproved_sentence(machine.name, "end")):
            machine = _end_keeping_disk(session, machine)
        session.report(f"{machine.name}: it has ended and is not billed for compute any more")
    if not finish:
        return machine
    with on_abort(f"The disk of {machine.name} is kept, and is still being made an image. The next sync continues."):
        return retention_records.finish_parking(session, machine)


def return_to_parked(session: Session, machine: Machine, *, why: str) -> Machine:
    """End a machine that was started from its image and did not come up; the image stays. The caller holds the lock."""
    machine = retention_records.record_parking(session, machine, why)
    terminate = partial(session.provider_of(machine).terminate, not_none(machine.provider_id))
    return timers.delete_timer(session, _wait_until_gone(session, machine, terminate))


def _end_keeping_disk(session: Session, machine: Machine) -> Machine:
    provider = session.provider_of(machine)
    if not isinstance(provider, Imageable):
        raise _cannot_park_error(machine)
    session.report(f"{machine.name}: ending it, its disk is kept")
    read_counter_before_end(session, machine)
    end = partial(provider.terminate_keeping_disk, not_none(machine.provider_id))
    machine = _wait_until_gone(session, machine, end, keeping_disk=True)
    record_spot_cost(session, machine)
    return timers.delete_timer(session, machine)


def _wait_until_gone(
    session: Session, machine: Machine, request: Callable[[], None], *, keeping_disk: bool = False
) -> Machine:
    """Send the request until the machine is confirmed to be gone; if its end is refused, stop it and raise that."""
    try:
        return request_until_confirmed(
            session,
            machine,
            lambda refreshed: bool(refreshed.terminated_at),
            request,
            seen_running=keeping_disk,
            require_repeated_404=keeping_disk,
        )
    except EndRefused as refusal:
        raise stop_instead(session, machine, refusal) from refusal.__cause__


def _cannot_park_error(machine: Machine) -> InvalidRequest:
    return InvalidRequest(
        f"{machine.name} cannot be parked: {machine.provider} keeps no images.",
        field="name",
        value=machine.name,
        next=f"Run: cloudgpu down {command_name(machine)} (it ends the machine and deletes its disk)",
    )
