"""Simulates one job with a deadline over recorded availability: what a policy does, what it costs, when it finishes.

The model is that of "Can't Be Late" (NSDI 2024). The job needs `work_h` hours of computing within `deadline_h`. Every
start of a machine, also in another zone, costs a changeover: no progress, billed at the new machine's price. Waiting is
free. On demand can always be had. Spot can be had in a zone at the ticks at which its trace says so.

At the begin of each tick a spot machine whose zone has no spot any more is lost. Then the policy decides for the tick.
A job that is done inside a tick is billed up to that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from cloudgpu.errors import InvalidRequest

Mode = Literal["wait", "spot", "on_demand"]
Choice = tuple[str, int | None]  # an action and, for spot, its zone
State = dict[str, object]  # what a policy is asked with: only plain values, see `cloudgpu.core.spot`
Guard = Callable[[State, Choice], Choice]
_DONE = 1e-9  # hours of work: so much is none


class Policy(Protocol):
    """What decides for a job, tick by tick."""

    def reset(self, job: dict[str, object]) -> object:
        """Begin a job."""

    def decide(self, state: State) -> object:
        """Return the action for this tick: `spot`, `on_demand` or `wait`; with several zones also the zone."""


@dataclass(frozen=True, slots=True)
class SpotJob:
    """A job with a deadline. Times are hours; prices are per hour, in any currency, or relative to each other."""

    work_h: float
    deadline_h: float
    tick_h: float = 1 / 6
    changeover_h: float = 0.2
    price_spot: float = 1.0
    price_on_demand: float = 3.0

    def __post_init__(self) -> None:
        for field in ("work_h", "deadline_h", "tick_h", "price_spot", "price_on_demand"):
            if not 0 < getattr(self, field) < float("inf"):
                raise _invalid(field, getattr(self, field), "is not above zero")
        if not 0 <= self.changeover_h < float("inf"):
            raise _invalid("changeover_h", self.changeover_h, "is below zero")
        if self.work_h + self.changeover_h > self.deadline_h:
            raise InvalidRequest(
                f"{self.work_h:g} hours of work and a changeover of {self.changeover_h:g} hours do not fit a deadline "
                f"of {self.deadline_h:g} hours.",
                field="deadline_h",
                value=f"{self.deadline_h:g}",
                next=f"Use a deadline of at least {self.work_h + self.changeover_h:g} hours.",
            )

    @property
    def on_demand_only(self) -> float:
        """Return what the job costs on one on-demand machine from its begin to its end."""
        return (self.work_h + self.changeover_h) * self.price_on_demand

    def as_dict(self, prior_history: object = None) -> dict[str, object]:
        """Return the job as a policy's `reset` takes it."""
        return {
            "total_work_h": self.work_h,
            "deadline_h": self.deadline_h,
            "tick_h": self.tick_h,
            "changeover_h": self.changeover_h,
            "price_spot": self.price_spot,
            "price_on_demand": self.price_on_demand,
            "prior_history": prior_history,
        }


class Tick(NamedTuple):
    """What happened in a tick."""

    mode: Mode
    zone: int | None
    hours: float  # the length of the tick, or up to the end of the job
    changeover_h: float  # of these, without progress
    work_left_h: float  # at the end of the tick


@dataclass(slots=True)
class Run:
    """What a policy did for one job. Hours on a machine include its changeovers."""

    cost: float = 0.0
    spot_h: float = 0.0
    on_demand_h: float = 0.0
    wait_h: float = 0.0
    changeover_h: float = 0.0
    starts: int = 0
    losses: int = 0  # spot machines that were taken away
    finish_h: float = 0.0
    missed: bool = False
    ended_on_demand: bool = False  # it finished on an on-demand machine
    timeline: tuple[Tick, ...] = ()


def simulate(
    job: SpotJob,
    zones: Sequence[bytes],
    policy: Policy,
    *,
    guard: Guard | None = None,
    prior_history: object = None,
    timeline: bool = False,
) -> Run:
    """Return what `policy` does for the job, with availability `zones[z][i]` in zone z at tick i of the job.

    `guard` may replace each choice of the policy: the safety net. After its deadline an unfinished job goes on at once
    on demand, and the run counts as missed. After the end of a trace its zone has no spot. With `timeline`, the run
    holds each tick. `prior_history` is passed on to the policy.
    """
    policy.reset(job.as_dict(prior_history))
    world = World(job, len(zones))
    ticks: list[Tick] = []
    while not world.done:
        up = [place < len(zone) and zone[place] > 0 for zone in zones for place in (world.tick,)]
        world.lose(up)
        choice = _chosen(world, policy, guard, up)
        tick = world.step(*choice)
        if timeline:
            ticks.append(tick)
    world.run.timeline = tuple(ticks)
    return world.run


def _chosen(world: World, policy: Policy, guard: Guard | None, up: Sequence[bool]) -> Choice:
    """Return what is done in this tick: spot in a zone without it becomes waiting."""
    if world.elapsed_h >= world.job.deadline_h - _DONE:
        return "on_demand", None
    state = world.state(up)
    choice = as_choice(policy.decide(state))
    if guard is not None:
        choice = guard(state, choice)
    action, zone = choice
    if action == "spot":
        zone = _zone(world, zone, up)
        return (action, zone) if zone is not None and up[zone] else ("wait", None)
    return choice


def _zone(world: World, zone: int | None, up: Sequence[bool]) -> int | None:
    """Return the zone of a choice: the named one, else that of the machine, else the first one with spot."""
    if zone is not None:
        return zone if 0 <= zone < len(up) else None
    if world.mode == "spot":
        return world.zone
    return next((place for place, is_up in enumerate(up) if is_up), None)


def as_choice(answer: object) -> Choice:
    """Return a policy's answer as (action, zone): it may be an action, a pair, or a mapping.

    Raises ValueError for anything else.
    """
    action, zone = answer, None
    if isinstance(answer, Mapping):
        action, zone = answer.get("action"), answer.get("zone")
    elif isinstance(answer, (tuple, list)) and len(answer) == 2:  # noqa: PLR2004  (a pair)
        action, zone = answer
    if action not in ("wait", "spot", "on_demand") or not (zone is None or isinstance(zone, int)):
        message = f"a policy answered {answer!r}, which is not spot, on_demand or wait"
        raise ValueError(message)
    return str(action), zone


class World:
    """The state of one job in its model, which `step` moves on by a tick."""

    def __init__(self, job: SpotJob, zones: int) -> None:
        self.job, self.zones = job, zones
        self.tick = 0
        self.work_left_h = job.work_h
        self.mode: Mode = "wait"
        self.zone: int | None = None
        self.pending_h = 0.0
        self.run = Run()

    @property
    def elapsed_h(self) -> float:
        """Return the hours since the begin of the job."""
        return self.tick * self.job.tick_h

    @property
    def done(self) -> bool:
        """Say whether all work is done."""
        return self.work_left_h <= _DONE

    def state(self, up: Sequence[bool]) -> State:
        """Return what a policy sees."""
        elapsed = self.elapsed_h
        return {
            "elapsed_h": elapsed,
            "work_left_h": self.work_left_h,
            "time_left_h": self.job.deadline_h - elapsed,
            "spot_available": any(up),
            "zones_available": list(up) if self.zones > 1 else None,
            "mode": self.mode,
            "zone": self.zone if self.zones > 1 else None,
            "pending_h": self.pending_h,
        }

    def lose(self, up: Sequence[bool]) -> None:
        """Take the spot machine away where its zone has no spot any more."""
        if self.mode == "spot" and self.zone is not None and not up[self.zone]:
            self.run.losses += 1
            self.mode, self.zone, self.pending_h = "wait", None, 0.0

    def step(self, action: str, zone: int | None) -> Tick:
        """Do this for one tick, or until the work is done."""
        tick_h = self.job.tick_h
        self.tick += 1
        if action == "wait":
            self.mode, self.zone, self.pending_h = "wait", None, 0.0
            self.run.wait_h += tick_h
            return Tick("wait", None, tick_h, 0.0, self.work_left_h)
        mode: Mode = "spot" if action == "spot" else "on_demand"
        zone = zone if mode == "spot" else None
        if (mode, zone) != (self.mode, self.zone):
            self.mode, self.zone, self.pending_h = mode, zone, self.job.changeover_h
            self.run.starts += 1
        hours = min(tick_h, self.pending_h + self.work_left_h)
        changeover = min(hours, self.pending_h)
        self.pending_h -= changeover
        self.work_left_h = max(0.0, self.work_left_h - (hours - changeover))
        self._bill(hours, changeover)
        return Tick(mode, zone, hours, changeover, self.work_left_h)

    def _bill(self, hours: float, changeover: float) -> None:
        run, job = self.run, self.job
        run.changeover_h += changeover
        if self.mode == "spot":
            run.spot_h += hours
        else:
            run.on_demand_h += hours
        run.cost = run.spot_h * job.price_spot + run.on_demand_h * job.price_on_demand
        if self.done:
            run.finish_h = (self.tick - 1) * job.tick_h + hours
            run.missed = run.finish_h > job.deadline_h + 1e-6
            run.ended_on_demand = self.mode == "on_demand"


def _invalid(field: str, value: float, fault: str) -> InvalidRequest:
    return InvalidRequest(f"{field} is {value:g}, which {fault}.", field=field, value=f"{value:g}")
