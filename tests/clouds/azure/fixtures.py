"""The fixture `azure_arm`: a server per test process, forgotten between tests; import it in a conftest."""

from __future__ import annotations

import pytest

from tests.clouds.azure.server import AzureServer

_DROPPED = (
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "AZURE_CONFIG_DIR",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_PASSWORD",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    "AZURE_TOKEN_CREDENTIALS",
    "AZURE_USERNAME",
    "CURL_CA_BUNDLE",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
)


@pytest.fixture(scope="session")
def azure_process():
    """One server for all tests of this process."""
    server = AzureServer().start()
    yield server
    server.stop()


@pytest.fixture
def azure_arm(azure_process, monkeypatch):
    """Our model of Azure, empty, and the environment in which the SDKs find it and no settings of whoever runs this."""
    azure_process.reset()
    for name in _DROPPED:
        monkeypatch.delenv(name, raising=False)
    for name, value in azure_process.environ.items():
        monkeypatch.setenv(name, value)
    yield azure_process
    assert not azure_process.unmodelled, f"our model of Azure lacks: {azure_process.unmodelled}"
    assert not azure_process.wrong, f"Azure's published models have none of: {azure_process.wrong}"
