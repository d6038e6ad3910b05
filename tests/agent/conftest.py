from __future__ import annotations

import pytest

from tests.agent.machine import Machine


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path / "home").build()
    yield made
    made.end()
