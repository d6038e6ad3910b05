"""When something was last known to be there, and its prices were asked: by the lines of the looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.machine import Machine, scopes_of
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.core.events.bodies import BeforeTheEnd
    from cloudgpu.core.events.log import Event
    from cloudgpu.ledger.log.base import Ledger

_ENDINGS = ("stop", "park", "terminate")


def last_seen_at(ledger: Ledger, machine: Machine) -> str | None:
    """Return when a machine or a retained resource was last proved to be there; None: no sync saw it.

    A sync proves it for all that it does not name as unseen. The machine's own word counts too.
    """
    proved = _latest_proof(ledger, machine, resources=machine.is_named_resource, before=None)
    return max(filter(None, (proved, machine.last_active, machine.seen_at)), default=None)


def retained_last_seen_at(ledger: Ledger, machine: Machine, before: datetime) -> str | None:
    """Return when all that is kept of a machine was last known to be there; None unknown.

    By a sync before `before`, or by the line that says what is kept, which whoever made the latest of it wrote.
    """
    retained_at = (line.occurred_at for line in ledger.events(machine.id) if line.kind == "resources_retained")
    return max(
        filter(None, (_latest_proof(ledger, machine, resources=True, before=iso(before)), *retained_at)), default=None
    )


def observe_before_end(ledger: Ledger, machine: Machine, instance: Instance, *, watched: bool = False) -> BeforeTheEnd:
    """Return what is known of the time before a machine was seen to have ended, as a line's body has it.

    `alive_at` is when it was last known to be there, where nobody says since when it is billed no more; so too of one
    that runs as before, but only since later: it was stopped in between, unseen. `billed_at` is when it was last known
    to be billed, and `asked_at` when we asked for its end where no other cause is told: an end that its cloud tells is
    measured by them. `watched`: it was seen to be there just before we asked. `pending_at` is when a sync last saw one
    only start that has started, or ended, by now.
    """
    return {**_end_measures(ledger, machine, instance, watched=watched), **_started(ledger, machine, instance)}


def _end_measures(ledger: Ledger, machine: Machine, instance: Instance, *, watched: bool) -> BeforeTheEnd:
    ended = machine.billed and not instance.billed
    if (ended and instance.since is None) or _runs_anew(machine, instance):
        alive = None if watched else last_seen_at(ledger, machine)
        return {} if alive is None else {"alive_at": alive}
    return _measures(ledger, machine, instance, watched=watched) if ended else {}


def _started(ledger: Ledger, machine: Machine, instance: Instance) -> BeforeTheEnd:
    if machine.state != State.PENDING or instance.state in (State.PENDING, State.UNKNOWN):
        return {}
    lines = (ledger.last(scope) for scope in scopes_of(machine))
    seen = [line.occurred_at for line in lines if line and _proves(line, machine, resources=False, before=None)]
    return {"pending_at": max(seen)} if seen else {}


def _measures(ledger: Ledger, machine: Machine, instance: Instance, *, watched: bool) -> BeforeTheEnd:
    asked = _end_requested_at(ledger, machine)
    seen = asked if watched else _latest_proof(ledger, machine, resources=False, before=None)
    found: BeforeTheEnd = {} if seen is None else {"billed_at": seen}
    ours = asked is not None and not watched and instance.reason is None
    return {**found, "asked_at": str(asked)} if ours else found


def _end_requested_at(ledger: Ledger, machine: Machine) -> str | None:
    """Return when the end was asked for that is still to be seen; None where none was."""
    if machine.pending_action not in _ENDINGS:
        return None
    kind = f"{machine.pending_action}_requested"
    return max((line.occurred_at for line in ledger.events(machine.id) if line.kind == kind), default=None)


def _runs_anew(machine: Machine, instance: Instance) -> bool:
    began = machine.since if machine.billed and machine.state == State.RUNNING == instance.state else None
    return began is not None and instance.since is not None and iso(instance.since) > began


def _latest_proof(ledger: Ledger, machine: Machine, *, resources: bool, before: str | None) -> str | None:
    scopes = scopes_of(machine)
    lines = [line for scope in scopes if (line := ledger.last(scope)) is not None]
    seen = [line.occurred_at for line in lines if _proves(line, machine, resources=resources, before=before)]
    if not seen and lines:  # the latest looks missed it already, or were not answered where it is
        every = (line for scope in scopes for line in ledger.events(scope))
        seen = [line.occurred_at for line in every if _proves(line, machine, resources=resources, before=before)]
    return max(seen, default=None)


def _proves(line: Event, machine: Machine, *, resources: bool, before: str | None) -> bool:
    unseen = line.body["unseen"]
    if line.occurred_at < machine.intended_at or (before is not None and line.occurred_at >= before):
        return False
    return machine.id not in unseen and (not resources or bool(line.body["resources"]))


def prices_queried_at(ledger: Ledger, machine: Machine) -> str | None:
    """Return when all prices of a machine's account were last asked for and answered."""
    lines = [line for scope in scopes_of(machine) if (line := ledger.last(scope)) is not None]
    found = [line.occurred_at for line in lines if line.body.get("pinned")]
    if not found and lines:
        every = (line for scope in scopes_of(machine) for line in ledger.events(scope))
        found = [line.occurred_at for line in every if line.body.get("pinned")]
    return max(found, default=None)
