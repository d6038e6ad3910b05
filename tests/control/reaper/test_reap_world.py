"""Random lives of a lab, with every fault at once: `tests/soak/idle_lab.py` says what happens and what must hold."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.soak.idle_lab import Lab

_SMALL = {"max_examples": 2, "stateful_step_count": 10}
_LARGE = {"max_examples": int(os.environ.get("CLOUDGPU_LIVES", "20")), "stateful_step_count": 40}
_USUAL = {"suppress_health_check": list(HealthCheck), "phases": [Phase.generate, Phase.shrink]}


@pytest.fixture
def lab():
    """Three machines that nobody uses, `first` is one of them; what must hold is checked at the end."""
    made = Lab()
    made.first = made.opened(kinds=[("default", "gpu", False, 0)] * 3).values[0]
    yield made
    made.teardown()


def test_a_machine_whose_hold_ends_with_the_last_pass_is_ended_by_those_after_it(lab):
    lab.somebody_holds(lab.first, hours=5, releases=False)


@pytest.mark.soak
def test_a_machine_whose_hold_was_released_by_a_clock_that_went_back_is_ended(lab):
    lab.somebody_holds(lab.first, hours=9, releases=False)
    lab.some_passes_come(2)
    lab.the_clock_of_the_passes_jumps_by_an_hour(-60)
    lab.somebody_holds(lab.first, hours=9, releases=True)


class TestLab(Lab.TestCase):
    settings = settings(**_SMALL, **_USUAL)


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestManyLabs(Lab.TestCase):
    settings = settings(**_LARGE, **_USUAL)
