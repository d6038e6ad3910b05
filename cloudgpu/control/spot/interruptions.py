"""Writes down that a provider took spot machines: how that was known, how long each had run, and what it cost."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.control.spot.history import over_at, was_taken
from cloudgpu.core.billing.rules import rule_of
from cloudgpu.core.billing.totals import spent
from cloudgpu.core.events.bodies import How
from cloudgpu.core.events.machine_lines import spot_interrupted
from cloudgpu.core.model.usage import Resource
from cloudgpu.core.values.times import duration_text, from_iso

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.model.machine import Machine

FREE = "its provider does not charge what it takes within {} of the start"


def note_interruption(session: Session, machine: Machine, noticed: datetime | None = None) -> bool:
    """Write that a spot machine was taken, where its provider took it and that is not written yet; say whether.

    `noticed` is when its notice was seen, None where nobody saw one.
    """
    if machine.interrupted_at is not None or not was_taken(machine):
        return False
    session.ledger.append([_line(machine, noticed, session.clock())])
    return True


def note_interruptions(session: Session) -> int:
    """Write down every interruption of a spot machine that is not written yet; return how many. Asks no cloud."""
    return sum(note_interruption(session, machine) for machine in session.ledger.machines())


def _line(machine: Machine, noticed: datetime | None, now: datetime) -> Draft:
    at = from_iso(over_at(machine))
    ran = max(0.0, (at - from_iso(machine.launched_at or machine.intended_at)).total_seconds())
    how: How = "provider" if machine.state_reason == "interrupted" else "vanished"
    cost = spent(machine, now).nanos
    return spot_interrupted(
        machine.id,
        at,
        "notice" if noticed is not None else how,
        noticed=noticed,
        ran_s=ran,
        nanos=cost,
        free=_free(machine, ran),
    )


def _free(machine: Machine, ran_s: float) -> str:
    """Return why the run itself is not charged: EC2's first hour, Google's first minute; empty where it is."""
    limit = rule_of(machine.provider, "spot", Resource.INSTANCE).free_when_taken_us / 1e6
    if machine.state_reason != "interrupted" or ran_s >= limit:
        return ""
    return FREE.format(duration_text(timedelta(seconds=limit)))
