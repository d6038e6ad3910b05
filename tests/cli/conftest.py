from __future__ import annotations

import shutil

import pytest

from tests.cli.program import Program


@pytest.fixture
def cloudgpu(tmp_path):
    """A home with nothing in it; whatever a test has left running is ended by the program itself."""
    program = Program(tmp_path / "home")
    yield program
    program("down", "--all", "--yes", timeout=120)


@pytest.fixture(scope="session")
def chromium():
    """Where Chromium is; browser tests are skipped with a sentence where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("There is no Chromium here: install it (Debian: apt-get install chromium) to run browser tests.")
    return found
