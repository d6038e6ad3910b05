"""Rehearses a spot interruption where the provider can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.inventory.sync_some import explain_terminated, refresh_or_raise
from cloudgpu.control.team.authorization import check_right_and_claim_owner
from cloudgpu.core.events.machine_events import interruption_simulated
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import CanRehearseInterruption
from cloudgpu.underway import on_abort

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.machines import InterruptionDocument


def rehearse(session: Session, machine: Machine) -> datetime:
    """Simulate a spot interruption: give the machine its notice, and return when it will be taken, as aware UTC.

    Raises InvalidRequest for an on-demand machine, or a provider that cannot rehearse; InstanceNotFound for a machine
    that has ended; RoleNeeded where it is not theirs to interrupt.
    """
    check_right_and_claim_owner(session, machine, "interrupt")
    provider = session.provider_of(machine)
    if machine.market != "spot" or not isinstance(provider, CanRehearseInterruption):
        raise InvalidRequest(
            f"{machine.name} cannot be interrupted: it is {machine.market.replace('_', '-')} on {machine.provider}.",
            field="name",
            value=machine.name,
            next=_rehearsal_remedy(machine),
        )
    machine = refresh_or_raise(session, machine)
    abort_text = f"{machine.name} may have got its notice: cloudgpu show {machine.name} --refresh says."
    with on_abort(abort_text), explain_terminated(session, machine):
        taken_at = provider.interrupt(not_none(machine.provider_id))
    session.ledger.append([interruption_simulated(machine.id, taken_at, session.clock())])
    return taken_at


def _rehearsal_remedy(machine: Machine) -> str:
    """Return how to rehearse an interruption: in AWS's console, or on a local spot machine."""
    if machine.market == "spot" and machine.provider == "aws":
        return (
            "In the EC2 console: Spot Requests, Actions, Initiate interruption. It gets its notice two minutes before."
        )
    return "Rehearse with a spot machine: cloudgpu up --provider local --spot"


def rehearsal_document(machine: Machine, taken_at: datetime) -> InterruptionDocument:
    """Return the answer of `spot rehearse`."""
    return {"name": machine.name, "taken_at": iso(taken_at)}
