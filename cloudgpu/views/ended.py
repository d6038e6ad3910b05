"""The error about a machine that has ended: when, its cost, and what can be done now."""

from __future__ import annotations

from datetime import datetime

from cloudgpu.core.billing.charges import spent_until_now, unpriced_of
from cloudgpu.core.model.machine import Machine, can_be_restored, command_name, has_retained_resources, not_none
from cloudgpu.core.values.times import minute_text
from cloudgpu.errors import InstanceNotFound


def ended_error(machine: Machine, now: datetime) -> InstanceNotFound:
    """Return the error about a machine that has ended: when, what it cost, and what can be done now."""
    name, reason = machine.name, f" ({machine.state_reason})" if machine.state_reason else ""
    retained_text = " Some of its resources are retained." if has_retained_resources(machine) else ""
    return InstanceNotFound(
        f"{name} ended at {minute_text(not_none(machine.terminated_at))}{reason}. "
        f"{cost_text(machine, now)}.{retained_text}",
        field="name",
        value=name,
        next=_next_text(machine),
    )


def cost_text(machine: Machine, now: datetime) -> str:
    """Return what a machine has cost, as a sentence without its full stop."""
    unpriced = unpriced_of(machine)
    if not unpriced:
        return f"It cost {spent_until_now(machine, now).text(4)}"
    spent = spent_until_now(machine, now)
    return f"It cost {spent.text(4) + ' and ' if spent.nanos else ''}an unknown amount for its {' and '.join(unpriced)}"


def _next_text(machine: Machine) -> str:
    name = machine.name
    if can_be_restored(machine):
        machine_or_cluster = command_name(machine)
        return (
            f"Run: cloudgpu start {machine_or_cluster} (to bring it back), or: "
            f"cloudgpu down {machine_or_cluster} (to delete its disk or image)"
        )
    return f"Run: cloudgpu show {name} (its record), or: cloudgpu up --name {name} (a new machine)"
