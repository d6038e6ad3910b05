"""The fixture `gcp`: a server per test process, forgotten between tests; import it in the conftest that needs it."""

from __future__ import annotations

import pytest

from tests.clouds.gcp.server import GcpServer

_DROPPED = (
    "CLOUDSDK_CONFIG",
    "CLOUDSDK_CORE_PROJECT",
    "GCLOUD_PROJECT",
    "GCE_METADATA_HOST",
    "GCE_METADATA_IP",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_QUOTA_PROJECT",
)


@pytest.fixture(scope="session")
def gcp_process():
    """One server for all tests of this process."""
    server = GcpServer().start()
    yield server
    server.stop()


@pytest.fixture
def gcp(gcp_process, monkeypatch):
    """Our model of Google Cloud, empty, and the environment in which cloudgpu finds it and nobody's credentials."""
    gcp_process.reset()
    for name in _DROPPED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name, value in gcp_process.environ.items():
        monkeypatch.setenv(name, value)
    yield gcp_process
    assert not gcp_process.unmodelled, f"our model of Google Cloud lacks: {gcp_process.unmodelled}"
    assert not gcp_process.malformed, f"no such request in Google's descriptions: {gcp_process.malformed}"
