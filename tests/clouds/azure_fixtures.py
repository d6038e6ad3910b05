"""A server of Azure's price list for a test, whose client waits for nothing between two tries."""

from __future__ import annotations

import pytest

from tests.clouds.azure_prices import AzurePrices


@pytest.fixture
def azure_prices(monkeypatch):
    server = AzurePrices()
    monkeypatch.setenv("CLOUDGPU_AZURE_ENDPOINT", server.url)
    monkeypatch.setattr("azure.core.pipeline.transport.RequestsTransport.sleep", lambda _self, _s: None)
    yield server
    server.end()
