"""Worlds for tests of spot: generated availability, brute force over all plans."""

from __future__ import annotations

from itertools import product

from cloudgpu.core.spot.draws import Draws
from cloudgpu.core.spot.simulate import SpotJob, World


def flickering(draws: Draws, ticks: int, *, leaves: float = 0.2, returns: float = 0.2) -> bytes:
    """Return availability that changes with these chances a tick."""
    up, found = draws.uniform() < 0.5, bytearray()
    for _ in range(ticks):
        found.append(up)
        up = draws.uniform() >= leaves if up else draws.uniform() < returns
    return bytes(found)


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
