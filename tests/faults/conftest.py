from __future__ import annotations

import pytest

from tests.cli.program import Program
from tests.soak.crash import processes_of


@pytest.fixture
def cloudgpu(tmp_path):
    """A home with nothing in it; nothing of it may run when the test and a last `down` are over."""
    program = Program(tmp_path / "home")
    yield program
    program("down", "--all", "--yes", timeout=120)
    left = processes_of(program.home)
    for process in left:
        process.kill()
    assert left == []
