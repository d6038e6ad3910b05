"""The fixture `runpod`: a server per test process, forgotten between tests; import it where it is needed."""

from __future__ import annotations

import pytest

from tests.clouds.runpod.server import RunpodServer


@pytest.fixture(scope="session")
def runpod_process():
    """One server for all tests of this process."""
    server = RunpodServer().start()
    yield server
    server.stop()


@pytest.fixture
def runpod(runpod_process, monkeypatch, tmp_path):
    """Our model of RunPod, empty, and the environment in which cloudgpu finds it and nobody's credentials."""
    runpod_process.reset()
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    for name, value in runpod_process.environ.items():
        monkeypatch.setenv(name, value)
    yield runpod_process
    assert not runpod_process.unmodelled, f"our model of RunPod lacks: {runpod_process.unmodelled}"
