"""The fixture `vast`: a server per test process, forgotten between tests; import it in the conftest that needs it."""

from __future__ import annotations

import pytest

from tests.clouds.vast.server import VastServer


@pytest.fixture(scope="session")
def vast_process():
    """One server for all tests of this process."""
    server = VastServer().start()
    yield server
    server.stop()


@pytest.fixture
def vast(vast_process, monkeypatch):
    """Our model of vast.ai, without contracts, and the environment in which cloudgpu finds it."""
    vast_process.reset()
    for name, value in vast_process.environ.items():
        monkeypatch.setenv(name, value)
    yield vast_process
    assert not vast_process.unmodelled, f"our model of vast.ai lacks: {vast_process.unmodelled}"
    assert not vast_process.malformed, f"no such request in the notes of vast.ai: {vast_process.malformed}"
