"""An account of ours at our model of Azure, whose clock goes on where the program waits."""

from __future__ import annotations

import pytest

from cloudgpu.providers.azure.client import Azure
from cloudgpu.providers.base import ProviderSettings
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.azure.sdk import Sdk

__all__ = ["azure_arm", "azure_process"]

LEDGER = "led-1"


@pytest.fixture
def account(azure_arm, tmp_path):
    """Return what makes an account: its options, and whose ledger it is."""

    def made(ledger=LEDGER, **options):
        return Azure(
            ProviderSettings(
                "azure",
                options,
                tmp_path / "azure",
                azure_arm.clock.now,
                azure_arm.advance,
                ledger=ledger,
            )
        )

    return made


@pytest.fixture
def sdk(azure_arm):
    """Return Azure's own clients, for what somebody else does."""
    return Sdk(azure_arm)
