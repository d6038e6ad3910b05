"""Ledger lines of what is asked and what is taken up: a launch, a stop, an adopted machine, what is kept.

Budgets count a recorded start until a line says that it has not begun.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.events import machine_lines
from cloudgpu.core.events.bodies import Action, RequestedBy
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.facts import Retained
from cloudgpu.core.model.instances import (
    Instance,
    State,
)
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.values.naming import lock_name
from cloudgpu.core.values.times import duration_text, from_iso, iso

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
import platform

from cloudgpu.core.events.machine_lines import start_refused


def retained_entry(resource: ProviderResource) -> Retained:
    """Return a leftover as the ledger keeps it: `nanos_per_month` is at most what it costs, None where nobody knows."""
    from cloudgpu.control.pricing.attached_costs import rate_of_resource

    rate = rate_of_resource(resource)
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


RESTS = (State.STOPPED, State.DEALLOCATED)
BEGUN_WITHIN = timedelta(hours=1)  # no cloud shows a start that it took this late; the largest machines need minutes


def given_up(session: Session, row: Machine, instance: Instance, now: datetime) -> list[Draft]:
    """Return the line that frees what a start holds back in budgets whose process has died before it was answered.

    Sure only where the provider shows the machine at rest an hour after it was asked, and no process is at it: a start
    that the provider took would have shown by then, whatever became of it since.
    """
    if row.pending_action != "start" or instance.billed or instance.state not in RESTS:
        return []
    asked = [line.occurred_at for line in session.ledger.events(row.id) if line.kind == "start_requested"]
    since = now - from_iso(max(asked)) if asked else BEGUN_WITHIN
    if since < BEGUN_WITHIN or session.held(lock_name(row.key or row.id)):
        return []
    return [start_refused(row.id, f"the provider shows it {instance.state} {duration_text(since)} later", now)]


def action_requested(
    what: Action, machine: str, why: str, now: datetime, *, who: RequestedBy, failed: bool = False
) -> Draft:
    """Return the line written before a stop, start, park or end is asked (`what`) on this computer.

    `who` is `law.by`: who asked, by which right. `failed`: it is ended because it never came up.
    """
    return machine_lines.requested(what, machine, why, now, host=platform.node(), who=who, failed=failed)
