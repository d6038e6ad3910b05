"""The fake cloud's timers: things of their own, which fire on its clock, movable or fixed at launch."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from cloudgpu.core.model.instances import TAG_RENEW_UNTIL, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.times import from_epoch, from_iso, iso
from cloudgpu.providers.abilities import TimerAction
from cloudgpu.testing.fake.cloud import refused
from cloudgpu.testing.fake.machines import FakeMachine
from cloudgpu.testing.fake.store import Cloud

BY_TAG, MOVES, FIXED = "tag", "moves", "fixed"  # what the setting `timer` says
WHY = "renew-until"


def set_timer(cloud: Cloud, machine: FakeMachine, at: datetime, now: datetime, action: TimerAction | None) -> None:
    """Set or move a machine's timer; a time that is over is now."""
    cloud.timers[machine.id] = [iso(max(at, now)), str(action or usual(machine))]


def fix(cloud: Cloud, machine: FakeMachine, now: datetime) -> None:
    """Let a machine run for as long as its launch said, from now on."""
    set_timer(cloud, machine, now + timedelta(seconds=machine.run_s), now, None)


def span_s(attempt: Attempt, now: datetime) -> float:
    """Return for how many seconds the machine of an attempt may run."""
    return (from_epoch(attempt.tags[TAG_RENEW_UNTIL]) - now).total_seconds()


def check_fixed(cloud: Cloud, machine: FakeMachine, at: datetime) -> None:
    """Raise InvalidRequest for a time after the one that was fixed at launch."""
    until = fires(cloud, machine.id)
    if until is not None and at > until:
        message = f"the timer of {machine.id} was fixed at launch: it fires at {until:%Y-%m-%d %H:%M} UTC"
        raise refused("renew_until", iso(at), message, "stop and start it, or launch another one")


def fires(cloud: Cloud, id: str) -> datetime | None:  # noqa: A002
    """Return when a machine's timer fires, None for none."""
    found = cloud.timers.get(id)
    return from_iso(found[0]) if found else None


def usual(machine: FakeMachine) -> TimerAction:
    """Return what a timer does with a machine of which nobody said it."""
    if machine.market is Market.SPOT:
        return TimerAction.STOP_AGAIN if machine.persistent else TimerAction.TERMINATE
    return TimerAction.STOP


def fire(cloud: Cloud, now: datetime) -> None:
    """Let every timer do its work whose time has come. One that stops again stays; the others are gone then."""
    for id_, (at, does) in list(cloud.timers.items()):
        if from_iso(at) > now:
            continue
        machine = cloud.machines.get(id_)
        if machine is not None and machine.requested is State.RUNNING:
            requested = State.TERMINATED if does == TimerAction.TERMINATE else State.STOPPED
            when = max(from_iso(at), machine.asked_at)
            cloud.machines[id_] = replace(machine, requested=requested, asked_at=when, reason=WHY)
        if does != TimerAction.STOP_AGAIN:
            del cloud.timers[id_]
