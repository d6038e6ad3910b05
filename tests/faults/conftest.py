from __future__ import annotations

import pytest

from tests.cli.many import QuickProgram, shared
from tests.soak.crash import processes_of


@pytest.fixture
def cloudgpu(tmp_path):
    """A home with nothing in it; nothing of it may run when the test and a last `down` are over."""
    program = QuickProgram(tmp_path / "home", many=shared())
    yield program
    program("down", "--all", "--yes", timeout=120)
    left = processes_of(program.home)
    for process in left:
        process.kill()
    assert left == []
