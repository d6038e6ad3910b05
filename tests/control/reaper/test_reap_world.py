"""Random lives of a lab, with every fault at once: `tests/soak/idle_lab.py` says what happens and what must hold."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.soak.idle_lab import Lab

_SMALL = {"max_examples": 4, "stateful_step_count": 10}
_LARGE = {"max_examples": int(os.environ.get("CLOUDGPU_LIVES", "40")), "stateful_step_count": 40}
_USUAL = {"suppress_health_check": list(HealthCheck), "phases": [Phase.generate, Phase.shrink]}


class TestLab(Lab.TestCase):
    settings = settings(**_SMALL, **_USUAL)


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestManyLabs(Lab.TestCase):
    settings = settings(**_LARGE, **_USUAL)
