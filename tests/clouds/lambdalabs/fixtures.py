"""The fixture `lambdalabs`: a server per test process, forgotten between tests; a conftest imports it."""

from __future__ import annotations

import pytest

from tests.clouds.lambdalabs.server import LambdaServer

_DROPPED = ("LAMBDA_API_KEY", "LAMBDA_CLOUD_API_TOKEN", "CLOUDGPU_LAMBDA_ENDPOINT")


@pytest.fixture(scope="session")
def lambdalabs_process():
    """One server for all tests of this process."""
    server = LambdaServer().start()
    yield server
    server.stop()


@pytest.fixture
def lambdalabs(lambdalabs_process, monkeypatch, tmp_path):
    """Our model of Lambda Cloud, empty, and the environment in which cloudgpu finds it and nobody's key."""
    lambdalabs_process.reset()
    for name in _DROPPED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name, value in lambdalabs_process.environ.items():
        monkeypatch.setenv(name, value)
    yield lambdalabs_process
    assert not lambdalabs_process.unmodelled, f"our model of Lambda Cloud lacks: {lambdalabs_process.unmodelled}"
    assert not lambdalabs_process.malformed, f"no such request in Lambda's description: {lambdalabs_process.malformed}"
