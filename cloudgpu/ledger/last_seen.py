"""When a machine or resource was last known to exist, and its prices were last queried: from the lines of syncs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.machine import Machine, sync_subjects_of
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from cloudgpu.core.events.bodies import BeforeTheEnd
    from cloudgpu.core.events.log import Event
    from cloudgpu.ledger.log.base import Ledger

_END_ACTIONS = ("stop", "park", "terminate")


def last_seen_at(ledger: Ledger, machine: Machine) -> str | None:
    """Return when a machine or a retained resource was last confirmed to exist; None: no sync has seen it.

    A sync confirms everything that it does not list as unseen. What the machine itself reported counts, too.
    """
    last_sync = _last_proven_at(ledger, machine, resources=machine.is_named_resource, before=None)
    return max(filter(None, (last_sync, machine.last_active, machine.seen_at)), default=None)


def retained_last_seen_at(ledger: Ledger, machine: Machine, before: datetime) -> str | None:
    """Return when all retained resources of a machine were last known to exist; None: not known.

    From a sync before `before`, or from the line that lists what is retained.
    """
    retained_at = (line.occurred_at for line in ledger.events(machine.id) if line.kind == "resources_retained")
    return max(
        filter(None, (_last_proven_at(ledger, machine, resources=True, before=iso(before)), *retained_at)), default=None
    )


def times_before_end(
    ledger: Ledger, machine: Machine, instance: Instance, *, seen_before_request: bool = False
) -> BeforeTheEnd:
    """Return the times before a machine was seen to have ended, for the body of a line.

    `alive_at` is when it was last known to exist, if the provider does not say when billing ended; also for one that
    runs with a later start: it was stopped in between, unseen. `billed_at` is when it was last known to be billed, and
    `asked_at` when cloudgpu requested its end, if no other cause is known: an end time of the cloud is checked against
    these. `seen_before_request`: a sync saw it just before its end was requested. `pending_at` is when a sync last saw
    a machine as pending that has started, or ended, by now.
    """
    return {
        **_times_before_end(ledger, machine, instance, seen_before_request=seen_before_request),
        **_last_pending_at(ledger, machine, instance),
    }


def _times_before_end(
    ledger: Ledger, machine: Machine, instance: Instance, *, seen_before_request: bool
) -> BeforeTheEnd:
    ended = machine.billed and not instance.billed
    if (ended and instance.since is None) or _has_restarted(machine, instance):
        last_alive_at = None if seen_before_request else last_seen_at(ledger, machine)
        return {} if last_alive_at is None else {"alive_at": last_alive_at}
    return _end_times(ledger, machine, instance, seen_before_request=seen_before_request) if ended else {}


def _last_pending_at(ledger: Ledger, machine: Machine, instance: Instance) -> BeforeTheEnd:
    if machine.state != State.PENDING or instance.state in (State.PENDING, State.UNKNOWN):
        return {}
    lines = (ledger.last(subject) for subject in sync_subjects_of(machine))
    times = [line.occurred_at for line in lines if line and _proves(line, machine, resources=False, before=None)]
    return {"pending_at": max(times)} if times else {}


def _end_times(ledger: Ledger, machine: Machine, instance: Instance, *, seen_before_request: bool) -> BeforeTheEnd:
    requested_at = _end_requested_at(ledger, machine)
    last_billed_at = (
        requested_at if seen_before_request else _last_proven_at(ledger, machine, resources=False, before=None)
    )
    times: BeforeTheEnd = {} if last_billed_at is None else {"billed_at": last_billed_at}
    requested_by_us = requested_at is not None and not seen_before_request and instance.reason is None
    return {**times, "asked_at": str(requested_at)} if requested_by_us else times


def _end_requested_at(ledger: Ledger, machine: Machine) -> str | None:
    """Return when the end was requested that is not confirmed yet; None without one."""
    if machine.pending_action not in _END_ACTIONS:
        return None
    kind = f"{machine.pending_action}_requested"
    return max((line.occurred_at for line in ledger.events(machine.id) if line.kind == kind), default=None)


def _has_restarted(machine: Machine, instance: Instance) -> bool:
    started_at = machine.since if machine.billed and machine.state == State.RUNNING == instance.state else None
    return started_at is not None and instance.since is not None and iso(instance.since) > started_at


def _last_proven_at(ledger: Ledger, machine: Machine, *, resources: bool, before: str | None) -> str | None:
    """Return the time of the latest sync before `before` that `_proves` counts."""
    return _latest_sync_at(ledger, machine, lambda line: _proves(line, machine, resources=resources, before=before))


def _latest_sync_at(ledger: Ledger, machine: Machine, proves: Callable[[Event], bool]) -> str | None:
    """Return the time of the latest sync of the machine's account and regions that proves something; None: none does.

    All syncs are read only if the latest ones prove nothing: they did not see it, or got no answer there.
    """
    subjects = sync_subjects_of(machine)
    lines = [line for subject in subjects if (line := ledger.last(subject)) is not None]
    times = [line.occurred_at for line in lines if proves(line)]
    if not times and lines:
        times = [line.occurred_at for subject in subjects for line in ledger.events(subject) if proves(line)]
    return max(times, default=None)


def _proves(line: Event, machine: Machine, *, resources: bool, before: str | None) -> bool:
    """Return whether a sync's line proves that the machine existed, or, with `resources`, its disks and images."""
    unseen = line.body["unseen"]
    if line.occurred_at < machine.intended_at or (before is not None and line.occurred_at >= before):
        return False
    return machine.id not in unseen and (not resources or bool(line.body["resources"]))


def prices_queried_at(ledger: Ledger, machine: Machine) -> str | None:
    """Return when all prices of a machine's account were last queried with an answer."""
    # `pinned`: that sync has queried all prices, and got them.
    return _latest_sync_at(ledger, machine, lambda line: bool(line.body.get("pinned")))
