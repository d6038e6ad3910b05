from __future__ import annotations

import pytest

from tests.cli.program import Program


@pytest.fixture
def cloudgpu(tmp_path):
    """A home with nothing in it; whatever a test has left running is ended by the program itself."""
    program = Program(tmp_path / "home")
    yield program
    program("down", "--all", "--yes", timeout=120)
