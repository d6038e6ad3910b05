"""Rehearses a spot interruption where the provider can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.inventory.sync_some import gone_if_terminated, looked_at
from cloudgpu.control.team.law import check_may
from cloudgpu.core.events.machine_lines import interruption_simulated
from cloudgpu.core.model.machine import Machine, fact
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import CanRehearseInterruption
from cloudgpu.underway import changing

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.machines import InterruptionDocument


def interrupt(session: Session, row: Machine) -> datetime:
    """Give a spot machine its notice and return when it will be taken, aware UTC.

    Raises InvalidRequest for an on-demand machine, or a provider that cannot rehearse; InstanceNotFound for a machine
    that has ended; RoleNeeded where it is not theirs to interrupt.
    """
    check_may(session, row, "interrupt")
    provider = session.provider_of(row)
    if row.market != "spot" or not isinstance(provider, CanRehearseInterruption):
        raise InvalidRequest(
            f"{row.name} cannot be interrupted: it is {row.market.replace('_', '-')} on {row.provider}.",
            field="name",
            value=row.name,
            next="Rehearse with a spot machine: cloudgpu up --provider local --spot",
        )
    row = looked_at(session, row)
    left = f"{row.name} may have got its notice: cloudgpu show {row.name} --refresh says."
    with changing(left), gone_if_terminated(session, row):
        at = provider.interrupt(fact(row.provider_id))
    now = session.clock()
    session.ledger.append([interruption_simulated(row.id, at, now)])
    return at


def interrupted(row: Machine, at: datetime) -> InterruptionDocument:
    """Return the answer of `spot interrupt`."""
    return {"name": row.name, "taken_at": iso(at)}
