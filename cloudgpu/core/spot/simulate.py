"""Simulates one job with a deadline over recorded availability: what a policy does, what it costs, when it finishes.

The model is that of "Can't Be Late" (NSDI 2024). The job needs `work_h` hours of computing within `deadline_h`. Every
start of a machine, also in another zone, costs a changeover: no progress, billed at the new machine's price. Waiting is
free. On demand can always be had. Spot can be had in a zone at the ticks at which its trace says so.

With `live`, the job is as blind as a live one (`known_availability`): it learns whether there is spot by asking for it.
An on-demand machine that it gives up for spot which is not there has to be started again.

At the begin of each tick a spot machine whose zone has no spot any more is lost. Then the policy decides for the tick.
A job that is done inside a tick is billed up to that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cloudgpu.core.spot.known_availability import ObservedSpot, resolve_wait
from cloudgpu.core.spot.safety_net import SafetyNet
from cloudgpu.core.spot.situation import Answer, JobFacts, Mode, Policy, State, situation_of
from cloudgpu.errors import InvalidRequest

_DONE = 1e-9  # hours of work: so much is none
_ROUNDING = 1e-9  # hours: sums of ticks are no exact numbers
Choice = tuple[Mode, int | None]  # an action and, for spot, its zone


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
        if self.work_h + self.changeover_h > self.deadline_h + _ROUNDING:
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

    def facts(self, prior_history: list[list[int]] | None = None) -> JobFacts:
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
    on_demand_work_h: float = 0.0  # hours on demand without changeovers, as the paper counts them
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
    net: SafetyNet | None = None,
    prior_history: list[list[int]] | None = None,
    timeline: bool = False,
    live: bool = False,
) -> Run:
    """Return what `policy` does for the job, with availability `zones[z][i]` in zone z at tick i of the job.

    `net` replaces a choice of the policy that could miss the deadline; without it the policy is alone. After its
    deadline an unfinished job goes on at once on demand, and the run counts as missed. After the end of a trace its
    zone has no spot. With `timeline`, the run holds each tick. `prior_history` is passed on to the policy: 1 or 0 a
    tick, oldest first, one list a zone. With `live`, the policy is told no more of spot than in a live job, and of
    several zones as of one.
    """
    policy.reset(job.facts(prior_history))
    world = World(job, len(zones))
    decider = _Decider(policy, net, ObservedSpot(job.changeover_h) if live else None)
    ticks: list[Tick] = []
    while not world.done:
        available = world.available(zones)
        if world.lose(available):
            decider.record_loss(world.elapsed_h)
        tick = world.step(*decider.choice(world, available))
        if timeline:
            ticks.append(tick)
    world.run.timeline = tuple(ticks)
    return world.run


class _Decider:
    """Queries the policy within the safety net, and tells it what a job of this kind can see."""

    def __init__(self, policy: Policy, net: SafetyNet | None, seen_spot: ObservedSpot | None) -> None:
        self._policy, self._net, self._seen_spot = policy, net, seen_spot

    def record_loss(self, elapsed_h: float) -> None:
        """Note that a spot machine was lost."""
        if self._seen_spot is not None:
            self._seen_spot.record_loss(elapsed_h)

    def choice(self, world: World, zones_up: Sequence[bool]) -> Choice:
        """Return what is done in this tick: spot where there is none becomes waiting."""
        if world.elapsed_h >= world.job.deadline_h - _ROUNDING:
            return "on_demand", None
        answer = (
            self._ask(world.state(zones_up)) if self._seen_spot is None else self._try(world, self._seen_spot, zones_up)
        )
        if answer["action"] != "spot":
            return answer["action"], None
        zone = answer["zone"]
        if zone is None:  # where it runs, else the first one that has spot
            zone = (
                world.zone if world.zone is not None else next((at for at, is_up in enumerate(zones_up) if is_up), None)
            )
        return ("spot", zone) if zone is not None and 0 <= zone < len(zones_up) and zones_up[zone] else ("wait", None)

    def _try(self, world: World, seen_spot: ObservedSpot, zones_up: Sequence[bool]) -> Answer:
        """Return what a live job does: where spot is refused, the machine is gone, and the policy decides again."""
        may_have_spot = world.mode == "spot" or seen_spot.may_be_available(world.mode, world.elapsed_h)
        state = world.live_state(spot=may_have_spot)
        net = self._net or SafetyNet(world.job.changeover_h, world.job.tick_h)
        answer = self._within_net(resolve_wait(self._policy.decide(state), state, net), state)
        if answer["action"] != "spot":
            return answer
        if any(zones_up):
            seen_spot.record_start()
            return answer
        seen_spot.record_refusal(world.elapsed_h)
        world.stop()
        return self._ask(world.live_state(spot=False))

    def _ask(self, state: State) -> Answer:
        return self._within_net(self._policy.decide(state), state)

    def _within_net(self, answer: Answer, state: State) -> Answer:
        return answer if self._net is None else self._net.check(answer, situation_of(state))


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

    def available(self, zones: Sequence[bytes]) -> list[bool]:
        """Return which zones have spot at this tick."""
        return [self.tick < len(zone) and zone[self.tick] > 0 for zone in zones]

    def state(self, zones_up: Sequence[bool]) -> State:
        """Return what a policy sees."""
        elapsed = self.elapsed_h
        return {
            "elapsed_h": elapsed,
            "work_left_h": self.work_left_h,
            "time_left_h": self.job.deadline_h - elapsed,
            "spot_available": any(zones_up),
            "zones_available": list(zones_up) if self.zones > 1 else None,
            "mode": self.mode,
            "zone": self.zone if self.zones > 1 else None,
            "pending_h": self.pending_h,
        }

    def live_state(self, *, spot: bool) -> State:
        """Return what a policy is told of a live job, which sees no zone: `spot` says whether spot may be available."""
        return {**self.state([spot]), "spot_available": spot, "zones_available": None, "zone": None}

    def lose(self, zones_up: Sequence[bool]) -> bool:
        """Take the spot machine away where its zone has no spot any more, and say whether that was so."""
        lost = self.mode == "spot" and self.zone is not None and not zones_up[self.zone]
        if lost:
            self.run.losses += 1
            self.stop()
        return lost

    def stop(self) -> None:
        """End what runs."""
        self.mode, self.zone, self.pending_h = "wait", None, 0.0

    def step(self, mode: Mode, zone: int | None) -> Tick:
        """Run in this mode and zone for one tick, or until the work is done."""
        tick_h = self.job.tick_h
        self.tick += 1
        if mode == "wait":
            self.stop()
            self.run.wait_h += tick_h
            return Tick("wait", None, tick_h, 0.0, self.work_left_h)
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
            run.on_demand_work_h += hours - changeover
        run.cost = run.spot_h * job.price_spot + run.on_demand_h * job.price_on_demand
        if self.done:
            run.finish_h = (self.tick - 1) * job.tick_h + hours
            run.missed = run.finish_h > job.deadline_h + 1e-6
            run.ended_on_demand = self.mode == "on_demand"


def _invalid(field: str, value: float, problem: str) -> InvalidRequest:
    return InvalidRequest(f"{field} is {value:g}, which {problem}.", field=field, value=f"{value:g}")
