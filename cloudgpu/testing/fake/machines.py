"""A machine of the fake cloud: which state was requested, and which state it is in, given the time since then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.model.instances import TAG_RENEW_UNTIL, State
from cloudgpu.core.model.offers import Accelerator, Market
from cloudgpu.core.values.times import from_epoch, from_iso, iso

SHUT_DOWN_INSIDE = "shut_down"  # why a machine is stopped that was shut down from inside, and is billed on
_TIME_FIELDS = ("made_at", "asked_at", "taken_at", "last_active")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the fake cloud takes, in seconds: to boot, to stop, and how long it still lists what has ended."""

    boot_s: float = 0.0
    stop_s: float = 0.0
    keep_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class FakeMachine:
    """A machine as the fake cloud stores it.

    `requested` is the state that was last asked for, `asked_at` when; `taken_at` is when an interruption takes it.
    `call` is the fingerprint of the launch call, so that a token cannot be used for another one.
    """

    id: str
    token: str
    call: str
    account: str
    made_at: datetime
    tags: Mapping[str, str]
    region: str
    zone: str
    instance_type: str
    market: Market
    accelerators: tuple[Accelerator, ...]
    user: str
    requested: State
    asked_at: datetime
    reason: str | None = None
    taken_at: datetime | None = None
    last_active: datetime | None = None
    persistent: bool = False  # for a spot machine: it can be stopped
    restarts: int = 0  # how often it was restarted to save an image
    by_tag: bool = True  # its renew-until tag ends it; else a timer of its own does, if anything
    run_s: float = 0.0  # how long it may run from each start, where that was fixed at its launch


_FIELD_NAMES = tuple(field.name for field in fields(FakeMachine))  # asdict would copy each value of each


@dataclass(frozen=True, slots=True)
class Phase:
    """A state, since when, and why (None if it was requested)."""

    state: State
    since: datetime
    reason: str | None = None


def phase(machine: FakeMachine, now: datetime, pace: Pace) -> Phase:
    """Return the state of the machine at `now`."""
    end = _unrequested_end(machine)
    if end and end.since <= now and not (machine.requested is State.TERMINATED and machine.asked_at <= end.since):
        return end
    meanwhile, final, takes_s = {
        State.RUNNING: (State.PENDING, State.RUNNING, pace.boot_s),
        State.STOPPED: (State.STOPPING, State.STOPPED, pace.stop_s),
        State.TERMINATED: (State.STOPPING, State.TERMINATED, pace.stop_s),
    }[machine.requested]
    done_at = machine.asked_at + timedelta(seconds=takes_s)
    if now < done_at:
        return Phase(meanwhile, machine.asked_at, machine.reason)
    return Phase(final, done_at, machine.reason)


def tag_timer(machine: FakeMachine) -> datetime | None:
    """Return when the renew-until tag ends the machine, aware UTC; None if no tag ends it."""
    text = machine.tags.get(TAG_RENEW_UNTIL) if machine.by_tag else None
    return from_epoch(text) if text else None


def to_json(machine: FakeMachine) -> dict[str, Any]:
    """Return the machine as plain JSON values."""
    times = {name: (at := getattr(machine, name)) and iso(at) for name in _TIME_FIELDS}
    kinds = {"market": str(machine.market), "requested": str(machine.requested)}
    gpus = [asdict(gpu) for gpu in machine.accelerators]
    return {**{name: getattr(machine, name) for name in _FIELD_NAMES}, **kinds, "accelerators": gpus, **times}


def from_json(data: Mapping[str, Any]) -> FakeMachine:
    """Return the machine that `to_json` wrote."""
    times = {name: data[name] and from_iso(data[name]) for name in _TIME_FIELDS}
    gpus = tuple(Accelerator(**gpu) for gpu in data["accelerators"])
    kinds = {"market": Market(data["market"]), "requested": State(data["requested"]), "accelerators": gpus}
    return FakeMachine(**{**data, **times, **kinds})


def _unrequested_end(machine: FakeMachine) -> Phase | None:
    """Return the earliest end that comes without a request: an interruption or the timer."""
    ends = [
        Phase(State.TERMINATED, at, why)
        for at, why in ((machine.taken_at, "interrupted"), (tag_timer(machine), "renew-until"))
        if at is not None
    ]
    return min(ends, key=lambda end: end.since, default=None)
