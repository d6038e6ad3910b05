"""No deadline is missed: 100,000 runs in the soak, a share of them in each run of the suite."""

from __future__ import annotations

import pytest

from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.safety_net import Net
from cloudgpu.core.spot.simulate import simulate
from tests.core.spot.worlds import flickering, fuzzed

QUICK = ("on-demand", "greedy", "uniform-progress")


class Malicious:
    """Decides at random: what the net has to hold."""

    def __init__(self, draws):
        self.draws = draws

    def reset(self, job):
        """Nothing to begin."""

    def decide(self, state):
        zones = state["zones_available"]
        action = ("wait", "spot", "on_demand", "wait")[self.draws.below(4)]
        return {"action": action, "zone": self.draws.below(len(zones)) if zones and action == "spot" else None}


def late(name: str, runs: int, seed: int, *, netted: bool) -> list[tuple[int, float]]:
    """Return the seeds of the runs that were late, and how late."""
    found = []
    for number in range(runs):
        draws = Draws(seed + number)
        job, zones = fuzzed(draws)
        policy = Malicious(draws) if name == "malicious" else POLICIES[name]()
        run = simulate(job, zones, policy, net=Net(job.changeover_h, job.tick_h) if netted else None)
        if run.missed:
            found.append((seed + number, run.finish_h - job.deadline_h))
    return found


@pytest.mark.parametrize("name", [*QUICK, "malicious"])
def test_no_policy_in_the_net_is_late(name):
    assert late(name, 300, 10_000_000, netted=True) == []


@pytest.mark.parametrize("name", QUICK)
def test_no_policy_alone_is_late(name):
    assert late(name, 300, 20_000_000, netted=False) == []


def late_adaptive(jobs: int, worlds: int, seed: int) -> list[tuple[int, float]]:
    """Return the late runs of the adaptive policy alone: its plans are solved once for each job."""
    found, policy = [], POLICIES["adaptive"]()
    for number in range(jobs):
        job, zones = fuzzed(Draws(seed + number))
        for world in range(worlds):
            draws = Draws(seed + number).fork(str(world))
            change = draws.uniform()
            others = [flickering(draws, len(zone), leaves=change, returns=draws.uniform()) for zone in zones]
            run = simulate(job, others, policy)
            if run.missed:
                found.append((seed + number, run.finish_h - job.deadline_h))
    return found


@pytest.mark.soak
def test_the_adaptive_policy_alone_is_not_late():
    assert late_adaptive(4, 20, 40_000_000) == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_adaptive_policy_alone_is_not_late_in_many_worlds():
    assert late_adaptive(100, 100, 50_000_000) == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [*QUICK, "malicious"])
def test_no_policy_is_late_in_100_000_runs(name):
    assert late(name, 100_000 // (len(QUICK) + 1), 30_000_000, netted=True) == []
