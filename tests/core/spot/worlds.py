"""Worlds for tests of spot: generated availability, brute force over all plans."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.quote import AvailabilityModel, make_trace
from cloudgpu.core.spot.replay.traces import Trace
from cloudgpu.core.spot.simulate import SpotJob, World


def flickering(draws: Draws, ticks: int, *, leaves: float = 0.2, returns: float = 0.2) -> bytes:
    """Return availability that changes with these chances a tick."""
    up, found = draws.uniform() < 0.5, bytearray()
    for _ in range(ticks):
        found.append(up)
        up = draws.uniform() >= leaves if up else draws.uniform() < returns
    return bytes(found)


def trace_of(name: str, interval_s: float, samples: Iterable[object]) -> Trace:
    """Return a trace of these samples, each above zero (or true) where spot was available."""
    return Trace(name, interval_s, bytes(1 if sample else 0 for sample in samples))


def generated_trace(hazards: AvailabilityModel, interval_s: float, samples: int, seed: int) -> Trace:
    """Return generated availability as a trace."""
    return Trace(f"{hazards.name}-{seed}", interval_s, make_trace(hazards, interval_s / 3600, samples, Draws(seed)))


def cheapest(job: SpotJob, zones: list[bytes], ticks: int) -> float:
    """Return the least cost over every sequence of choices in the simulator's own world."""
    choices = [("wait", None), ("on_demand", None), *(("spot", zone) for zone in range(len(zones)))]
    costs = (_cost(job, zones, plan) for plan in product(choices, repeat=ticks))
    return min(cost for cost in costs if cost is not None)


def _cost(job: SpotJob, zones: list[bytes], plan) -> float | None:
    """Return the cost of this plan, or None where it asks for spot that is not there or does not finish in time."""
    world = World(job, len(zones))
    for action, zone in plan:
        up = world.available(zones)
        if action == "spot" and not up[zone]:
            return None
        world.lose(up)
        world.step(action, zone)
        if world.done:
            return None if world.run.missed else world.run.cost
    return None


def fuzzed(draws: Draws) -> tuple[SpotJob, list[bytes]]:
    """Return a random job and random availability in one to three zones: any tick, changeover, slack and prices."""
    tick = (60 + draws.below(541)) / 3600
    ticks = 8 + draws.below(60)
    deadline = ticks * tick - draws.uniform() * tick / 2
    changeover = min(draws.uniform() * 0.5, deadline / 3)
    work = max(tick / 10, (deadline - changeover) * draws.uniform())
    times = (2.0, 3.0, 4.0, 6.0)[draws.below(4)]
    change = draws.uniform()
    zones = [flickering(draws, ticks, leaves=change, returns=draws.uniform()) for _ in range(1 + draws.below(3))]
    return SpotJob(work, deadline, tick, changeover, 1.0, times), zones
