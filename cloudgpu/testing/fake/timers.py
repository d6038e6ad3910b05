"""The fake cloud's timers, which fire on its clock: they can be moved, or are fixed at launch."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from cloudgpu.core.model.instances import TAG_RENEW_UNTIL, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.times import from_epoch, from_iso, iso
from cloudgpu.providers.abilities import TimerAction
from cloudgpu.testing.fake.cloud import invalid_request
from cloudgpu.testing.fake.store import Cloud, FakeMachine

BY_TAG, MOVES, FIXED = "tag", "moves", "fixed"  # the values of the option `timer`
RENEW_UNTIL_REASON = "renew-until"


def set_timer(cloud: Cloud, machine: FakeMachine, at: datetime, now: datetime, action: TimerAction | None) -> None:
    """Set or move a machine's timer; a time in the past means now."""
    cloud.timers[machine.id] = [iso(max(at, now)), str(action or default_action(machine))]


def set_fixed_timer(cloud: Cloud, machine: FakeMachine, now: datetime) -> None:
    """Set the timer so that the machine may run from now on for as long as its launch fixed."""
    set_timer(cloud, machine, now + timedelta(seconds=machine.run_s), now, None)


def allowed_run_s(attempt: Attempt, now: datetime) -> float:
    """Return for how many seconds the machine of an attempt may run."""
    return (from_epoch(attempt.tags[TAG_RENEW_UNTIL]) - now).total_seconds()


def check_fixed(cloud: Cloud, machine: FakeMachine, at: datetime) -> None:
    """Raise InvalidRequest for a time after the one that was fixed at launch."""
    fixed_at = fires_at(cloud, machine.id)
    if fixed_at is not None and at > fixed_at:
        message = f"the timer of {machine.id} was fixed at launch: it fires at {fixed_at:%Y-%m-%d %H:%M} UTC"
        raise invalid_request("renew_until", iso(at), message, "stop and start it, or launch another one")


def fires_at(cloud: Cloud, id: str) -> datetime | None:  # noqa: A002
    """Return when a machine's timer fires, None for none."""
    timer = cloud.timers.get(id)
    return from_iso(timer[0]) if timer else None


def default_action(machine: FakeMachine) -> TimerAction:
    """Return what a timer does with a machine if it was set without an action."""
    if machine.market is Market.SPOT:
        return TimerAction.STOP_AGAIN if machine.persistent else TimerAction.TERMINATE
    return TimerAction.STOP


def fire_due(cloud: Cloud, now: datetime) -> None:
    """Run every timer that is due, and delete it; one that stops the machine again and again is kept."""
    for id_, (at, action) in list(cloud.timers.items()):
        if from_iso(at) > now:
            continue
        machine = cloud.machines.get(id_)
        if machine is not None and machine.requested is State.RUNNING:
            requested = State.TERMINATED if action == TimerAction.TERMINATE else State.STOPPED
            ended_at = max(from_iso(at), machine.asked_at)
            cloud.machines[id_] = replace(machine, requested=requested, asked_at=ended_at, reason=RENEW_UNTIL_REASON)
        if action != TimerAction.STOP_AGAIN:
            del cloud.timers[id_]
